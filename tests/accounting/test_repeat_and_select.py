"""The price of the best of several trials: against dp-accounting, the theorem's formula, and exact
integration.
"""

import itertools
import json
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp as their_rdp
from scipy import integrate, optimize, stats
from tests.each import each

from privypurse import FixedSchedule, GdpFilter, Purse, RdpFilter, ZcdpFilter
from privypurse.accounting import _rdp as rdp
from privypurse.accounting import _repeat_and_select as repeat_and_select
from privypurse.accounting import convert
from privypurse.core import _trial_counts as trial_counts
from privypurse.core._errors import BudgetExhausted, InvalidArgument, UnsupportedCharge
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import GaussianCharge, RepeatAndSelectCharge, from_json, to_json

SETTINGS = list(itertools.product([2.0, 5.0, 10.0, 37.5], [0.0, 0.3, 1.0]))


def weights(mean, shape, most=20_000):
    """Probabilities of 1, 2, .. trials by the definition, with the parameter found from the mean by
    summation.
    """
    ratio = np.cumprod(np.concatenate([[1.0], (np.arange(1, most) + shape) / np.arange(2, most + 1)]))

    def of(log_stay):
        raw = ratio * np.exp(np.arange(most) * log_stay)
        return raw / raw.sum()

    numbers = np.arange(1, most + 1)
    log_stay = optimize.brentq(lambda s: of(s) @ numbers - mean, -20, -1e-3, xtol=1e-14)
    return of(log_stay), -math.expm1(log_stay)


@pytest.mark.parametrize(("mean", "shape"), SETTINGS)
def test_the_parameter_of_the_distribution_gives_the_mean(mean, shape):
    _, g = weights(mean, shape)
    assert math.exp(-trial_counts.log_inverse_g(mean, shape)) == pytest.approx(g, rel=1e-8)


def by_the_theorem(noise_multiplier, mean, shape, order):
    """Theorem 2 of Papernot and Steinke, word for word, with the second order searched for
    numerically.
    """
    _, g = weights(mean, shape)

    def divergence(a):
        return a / (2 * noise_multiplier**2)

    def constant(log_b):
        b = math.exp(log_b)
        return (1 - 1 / b) * divergence(b) + math.log(1 / g) / b

    best = optimize.minimize_scalar(constant, bounds=(0, 15), method="bounded", options={"xatol": 1e-10}).fun
    return divergence(order) + (1 + shape) * best + math.log(mean) / (order - 1)


@pytest.mark.parametrize(("mean", "shape"), SETTINGS)
@each("noise_multiplier", [0.2, 1.0, 7.0, 90.0])
def test_the_price_is_the_theorem(mean, shape, noise_multiplier):
    charge = RepeatAndSelectCharge(noise_multiplier, mean, shape)
    for order, cost in zip((2, 17, 400), rdp.curve(charge, Neighbouring.ADD_REMOVE, (2, 17, 400)), strict=True):
        assert cost == pytest.approx(by_the_theorem(noise_multiplier, mean, shape, order), rel=1e-6)
        assert rdp.curve(charge, Neighbouring.REPLACE_ONE, (order,)) == (cost,)


@pytest.mark.parametrize(("mean", "shape"), SETTINGS)
def test_the_price_is_that_of_dp_accounting(mean, shape):
    # Theirs takes the second order from its list, and lets divergences grow with the order: past
    # the least of them, and with a
    # dense list, it comes down to ours and never below.
    orders = tuple(range(2, 200))
    accountant = their_rdp.RdpAccountant([*orders, *np.geomspace(1.01, 199, 500).tolist()])
    event = dp_accounting.dp_event.RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(7.0), mean, shape)
    accountant.compose(event)
    ours = np.array(rdp.curve(RepeatAndSelectCharge(7.0, mean, shape), Neighbouring.ADD_REMOVE, orders))
    theirs = np.array(accountant._rdp[: len(orders)])
    rising = np.argmin(ours) + 1
    assert (theirs[rising:] >= ours[rising:] * (1 - 1e-9)).all()
    np.testing.assert_allclose(theirs[rising:], ours[rising:], rtol=1e-4)
    best = min(rdp.rdp_epsilon([order], [cost], 1e-6) for order, cost in zip(orders, ours, strict=True))
    assert accountant.get_epsilon(1e-6) == pytest.approx(best, rel=1e-3)


def test_one_trial_costs_one_gaussian():
    orders = (2, 30, 500)
    one = rdp.curve(RepeatAndSelectCharge(3.0, 1.0, 0.0), Neighbouring.ADD_REMOVE, orders)
    np.testing.assert_allclose(one, rdp.curve(GaussianCharge(3.0), Neighbouring.ADD_REMOVE, orders), rtol=1e-11)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 8.0])
@pytest.mark.parametrize(("mean", "shape"), [(1.0, 0.0), (5.0, 0.0), (10.0, 1.0)])
def test_a_calibrated_search_uses_its_budget_and_no_more(epsilon, mean, shape):
    budget = [rdp.largest_cost(a, epsilon, 1e-6) for a in repeat_and_select.SEARCH_ORDERS]
    order = repeat_and_select.best_order(budget, repeat_and_select.SEARCH_ORDERS, mean, shape)
    rule = RdpFilter(epsilon, 1e-6, "add-remove", orders=[order])
    left = rule.affordable(rule.start())
    noise_multiplier = repeat_and_select.noise_multiplier_for(left, rule.orders, mean, shape)
    spent = rule.admit(rule.start(), RepeatAndSelectCharge(noise_multiplier, mean, shape))
    assert 0.999 * epsilon <= rule.epsilon_of(spent, 1e-6) <= epsilon
    with pytest.raises(BudgetExhausted, match="fewer trials"):
        rule.admit(rule.start(), RepeatAndSelectCharge(noise_multiplier * (1 - 1e-6), mean, shape))
    for other in (max(2, order // 2), 2 * order):
        elsewhere = [rdp.largest_cost(other, epsilon, 1e-6)]
        assert repeat_and_select.noise_multiplier_for(elsewhere, [other], mean, shape) > noise_multiplier


def test_a_budget_too_small_to_choose_with_has_no_noise_level():
    assert math.isinf(repeat_and_select.noise_multiplier_for([0.1], [2], 5.0, 0.0))
    assert repeat_and_select.best_order([0.1], [2], 5.0, 0.0) == 2


@pytest.mark.parametrize("rule", [GdpFilter, ZcdpFilter])
def test_filters_without_a_theorem_refuse_with_the_remedy(rule):
    filter = rule(1.0, 1e-6, "add-remove")
    with pytest.raises(UnsupportedCharge, match="filter='rdp'"):
        filter.admit(filter.start(), RepeatAndSelectCharge(1e6, 2.0, 0.0))


def test_a_fixed_schedule_refuses_it_too():
    with pytest.raises(UnsupportedCharge, match="filter='rdp'"):
        FixedSchedule([RepeatAndSelectCharge(100.0, 5.0, 0.0)], 1.0, 1e-6, "add-remove")


def test_a_purse_declared_not_private_counts_it_as_infinite():
    purse = Purse.not_private()
    assert purse.filter.after(purse.totals, RepeatAndSelectCharge(9.0, 2.0, 0.0)).non_private == 1


def test_json_round_trip():
    charge = RepeatAndSelectCharge(7, 5, 0)
    assert from_json(json.loads(json.dumps(to_json(charge)))) == charge
    assert hash(charge) == hash(RepeatAndSelectCharge(7.0, 5.0, 0.0))
    assert charge.kind == "repeat-and-select"


@pytest.mark.parametrize(
    "wrong", [(0.0, 5.0, 0.0), (1.0, 0.5, 0.0), (1.0, 5.0, -0.1), (1.0, math.inf, 0.0), (1.0, 5.0, math.nan)]
)
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        RepeatAndSelectCharge(*wrong)


# The audit: a tiny search whose output has a density in closed form. A trial draws one of several
# candidates and scores
# N(shift, 1) with it; with the shifts of one table all scores are N(0, 1). What leaves is the
# candidate and the score.


def generating_slope(s, mean, shape):
    """Derivative of the probability generating function of the number of trials."""
    probabilities, _ = weights_cached(mean, shape)
    numbers = np.arange(1, probabilities.size + 1)
    return np.polynomial.polynomial.polyval(s, probabilities * numbers)


_cache = {}


def weights_cached(mean, shape):
    if (mean, shape) not in _cache:
        probabilities, g = weights(mean, shape)
        _cache[mean, shape] = probabilities[probabilities.cumsum() < 1 - 1e-13], g
    return _cache[mean, shape]


def densities(shifts, grid, mean, shape):
    """Density of (candidate, score) on a grid, one row for each candidate."""
    below = np.mean([stats.norm.cdf(grid - shift) for shift in shifts], axis=0)
    slope = generating_slope(below, mean, shape)
    return np.array([stats.norm.pdf(grid - shift) * slope / len(shifts) for shift in shifts])


def true_delta(p, q, grid, epsilon):
    return sum(integrate.simpson(np.maximum(a - math.exp(epsilon) * b, 0), x=grid) for a, b in zip(p, q, strict=True))


def claimed_epsilon(mu, mean, shape, delta):
    costs = rdp.curve(RepeatAndSelectCharge(1 / mu, mean, shape), Neighbouring.ADD_REMOVE, rdp.ORDERS)
    return min(rdp.rdp_epsilon([order], [cost], delta) for order, cost in zip(rdp.ORDERS, costs, strict=True))


@pytest.mark.parametrize("shape", [0.0, 1.0])
@pytest.mark.parametrize("mu", [0.3, 1.0])
@pytest.mark.parametrize("shifts", [(1,), (-1,), (1, 0), (1, -1), (0, 0, -1)])
def test_the_exact_output_of_a_tiny_search_respects_the_claim(mu, shape, shifts):
    mean, delta = 10.0, 1e-4
    grid = np.linspace(-12, 14, 4001)
    moved = densities(mu * np.array(shifts), grid, mean, shape)
    still = densities(np.zeros(len(shifts)), grid, mean, shape)
    assert sum(integrate.simpson(row, x=grid) for row in moved) == pytest.approx(1, abs=1e-6)
    epsilon = claimed_epsilon(mu, mean, shape, delta)
    assert true_delta(moved, still, grid, epsilon) <= delta
    assert true_delta(still, moved, grid, epsilon) <= delta


@pytest.mark.parametrize("shape", [0.0, 1.0])
def test_paying_for_one_trial_only_would_be_a_lie(shape):
    mu, mean, delta = 1.0, 10.0, 1e-4
    grid = np.linspace(-12, 14, 4001)
    epsilon = convert.gdp_epsilon(mu, delta)
    worst = 0.0
    for shifts in [(1,), (-1,), (1, 0), (1, -1)]:
        moved = densities(mu * np.array(shifts), grid, mean, shape)
        still = densities(np.zeros(len(shifts)), grid, mean, shape)
        worst = max(worst, true_delta(moved, still, grid, epsilon), true_delta(still, moved, grid, epsilon))
    assert worst > 2 * delta
