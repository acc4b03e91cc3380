"""The price of objective perturbation: against the true densities, against quadrature, and through
the purse.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats
from tests.each import each

from privypurse import FixedSchedule, GdpFilter, InvalidArgument, Purse, RdpFilter, ZcdpFilter
from privypurse.accounting import _objective_perturbation as cost
from privypurse.accounting import _rdp as rdp
from privypurse.accounting.convert import gdp_epsilon
from privypurse.core._errors import UnsupportedCharge
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import (
    GaussianCharge,
    ObjectivePerturbationCharge,
    RepeatedCharge,
    from_json,
    to_json,
)
from privypurse.core.queries import Objective
from privypurse.losses import Huber, HuberHinge, Logistic
from privypurse.mechanisms._perturbed_minimiser import OUTPUT_NOISE_MULTIPLIER, ObjectivePerturbation
from privypurse.oracles._linear import DenseOracle

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE
TARGETS = [(0.05, 1e-8), (0.4, 1e-5), (1.6, 1e-8), (4.0, 1e-5)]
EXACT = 1e5  # output noise in the charge: too little to see

multipliers = st.floats(0.5, 1e3)
ratios = st.floats(1e-4, 0.9)


def made(noise_multiplier, curvature_ratio=0.1, output=EXACT):
    return ObjectivePerturbationCharge(noise_multiplier, curvature_ratio, output)


def shift(curvature_ratio):
    """What the determinants can add to the privacy loss, as charged."""
    return math.log1p(curvature_ratio)


# ------------------------------------------------------------------------ the true densities, d = 1

LOSSES = {
    "logistic clipped": Logistic(clip_derivative=0.5),
    "logistic": Logistic(),
    "huber hinge": HuberHinge(),
    "huber": Huber(threshold=0.3),
}
RNG = np.random.default_rng(5)
TABLES = {  # rows (x, target); the neighbour has one row more
    "nobody": [],
    "one like it": [(1.0, 1.0)],
    "one against it": [(1.0, -1.0)],
    "many like it": [(1.0, 1.0)] * 30,
    "many against it": [(1.0, -1.0)] * 30,
    "a mixture": [*zip(RNG.uniform(-1, 1, 40), RNG.choice([-1.0, 1.0], 40), strict=True)],
}


def curvature_of(loss, score, target):
    """The second derivative of each record's loss; zero where its derivative is clipped."""
    if isinstance(loss, Huber):
        return np.where(np.abs(score - target) <= loss.threshold, 1.0, 0.0)
    margin = score * target
    if isinstance(loss, HuberHinge):
        return np.where(np.abs(margin - 1) <= loss.width, 1 / (2 * loss.width), 0.0)
    return np.where(special.expit(-margin) > loss.clip_derivative, 0.0, special.expit(margin) * special.expit(-margin))


def slope_and_curvature(rows, loss, ridge, w):
    """F and its derivative at every w: the perturbation is -F of the minimiser."""
    slope, curvature = ridge * w, np.full_like(w, ridge)
    for x, t in rows:
        slope = slope + loss.derivative(x * w, t) * x
        curvature = curvature + curvature_of(loss, x * w, t) * x * x
    return slope, curvature


def laws(rows, neighbour, loss, ridge, std):
    """Return the density of the minimiser for both tables on fine cells over all but 1e-30 of
    either, and their widths.
    """
    most = (13 * std + loss.lipschitz * max(len(rows), len(neighbour))) / ridge
    edges = np.linspace(-most, most, 2_001)
    slopes = [slope_and_curvature(table, loss, ridge, edges)[0] for table in (rows, neighbour)]
    (inside,) = np.nonzero(np.abs(slopes).min(axis=0) < 12 * std)
    low, high = edges[max(inside[0] - 1, 0)], edges[min(inside[-1] + 1, 2_000)]
    # An edge at zero, where the curvature of the clipped logistic loss jumps.
    cells = np.concatenate([np.linspace(low, 0.0, 10_001), np.linspace(0.0, high, 10_001)[1:]])
    w, width = (cells[1:] + cells[:-1]) / 2, np.diff(cells)
    found = []
    for table in (rows, neighbour):
        slope, curvature = slope_and_curvature(table, loss, ridge, w)
        found.append(stats.norm.pdf(slope / std) / std * curvature)
        assert found[-1] @ width == pytest.approx(1.0, abs=1e-3)
    return *found, width


def true_delta(p, q, width, epsilon):
    """Integrate ``(p - e^epsilon q)_+``, for both laws in either role."""
    return max(np.maximum(a - math.exp(epsilon) * b, 0.0) @ width for a, b in ((p, q), (q, p)))


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
@pytest.mark.parametrize("rows", TABLES.values(), ids=TABLES.keys())
def test_the_true_delta_is_within_the_stated_one(rows, epsilon, delta):
    loss, ridge = LOSSES["logistic clipped"], 2.5 / epsilon  # ten times the curvature, over epsilon
    ratio = 0.25 / ridge
    multiplier = cost.noise_multiplier_for(epsilon, delta, ratio, EXACT, ADD_REMOVE)
    for target in (1.0, -1.0):
        true = true_delta(*laws(rows, [*rows, (1.0, target)], loss, ridge, 0.5 * multiplier), epsilon)
        assert true <= cost.exact_delta(multiplier, ratio, epsilon) <= delta


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("ratio", [0.02, 0.5, 0.9])
def test_the_true_delta_is_within_the_stated_one_for_every_loss_noise_and_epsilon(loss, ratio):
    ridge = loss.smoothness / ratio
    for rows in ([], TABLES["a mixture"]):
        for multiplier in (1.0, 5.0):
            pair = laws(rows, [*rows, (1.0, 1.0)], loss, ridge, loss.lipschitz * multiplier)
            for epsilon in (0.05, 0.6, 2.5):
                assert true_delta(*pair, epsilon) <= cost.exact_delta(multiplier, ratio, epsilon)


def test_the_bound_is_not_far_from_the_truth():
    """A linear loss with its kink at the minimiser uses all of the gradient; one sign of the noise
    is all it can use.
    """
    multiplier, ridge = 5.0, 1e4
    loss = HuberHinge(width=0.5)
    for epsilon in (0.3, 0.6):
        true = true_delta(*laws([], [(1.0, 1.0)], loss, ridge, multiplier), epsilon)
        assert true >= 0.49 * cost.exact_delta(multiplier, loss.smoothness / ridge, epsilon)


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_the_true_delta_of_a_replacement_is_within_the_stated_one(epsilon, delta):
    loss, ridge = LOSSES["logistic clipped"], 2.5 / epsilon
    multiplier = cost.noise_multiplier_for(epsilon, delta, 0.25 / ridge, EXACT, REPLACE_ONE)
    for rows in TABLES.values():
        first, second = [*rows, (1.0, 1.0)], [*rows, (1.0, -1.0)]
        assert true_delta(*laws(first, second, loss, ridge, 0.5 * multiplier), epsilon) <= delta


@given(st.integers(0, 10**6), st.sampled_from(sorted(LOSSES)), st.integers(1, 6), st.integers(0, 12))
def test_the_privacy_loss_at_any_point_is_within_the_bound_in_any_dimension(seed, name, dimension, n):
    """Determinants and densities written out: the loss at w, against c + m^2/2 + |b . x|/(|x| s) m."""
    rng, loss = np.random.default_rng(seed), LOSSES[name]
    rows = rng.standard_normal((n + 1, dimension))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    targets = rng.choice([-1.0, 1.0], n + 1)
    ratio, std = rng.uniform(0.01, 0.95), loss.lipschitz * math.exp(rng.uniform(-1, 3))
    ridge, m = loss.smoothness / ratio, loss.lipschitz / std
    w = rng.standard_normal(dimension) * math.exp(rng.uniform(-2, 3))

    def log_density(count):
        x, t = rows[:count], targets[:count]
        slope = loss.derivative(x @ w, t) @ x + ridge * w
        hessian = (x.T * curvature_of(loss, x @ w, t)) @ x + ridge * np.eye(dimension)
        return -slope @ slope / (2 * std**2) + np.linalg.slogdet(hessian)[1], -slope

    (without, b), (with_it, b_with) = log_density(n), log_density(n + 1)
    direction = rows[n] / np.linalg.norm(rows[n])
    for loss_here, truth in ((without - with_it, b), (with_it - without, b_with)):
        bound = shift(ratio) + m * m / 2 + abs(truth @ direction) / std * m
        assert loss_here <= bound + 1e-9 * (1 + abs(without))


# --------------------------------------------------------------------------------------- quadrature


def expected_delta(noise_multiplier, curvature_ratio, epsilon):
    """``E[(1 - exp(epsilon - Z))_+]`` with ``Z = c + m^2/2 + |X|``, by quadrature over ``u =
    |X|/m``.
    """
    m = 1 / noise_multiplier
    left = epsilon - shift(curvature_ratio) - m * m / 2
    start = max(0.0, left / m)

    def density(u):
        return 2 * stats.norm.pdf(u) * -math.expm1(left - m * u)

    pieces = [start + step for step in (0.0, 0.05, 0.3, 1.0, 3.0, 9.0, 30.0)]
    return math.fsum(integrate.quad(density, a, b, epsabs=0, epsrel=1e-11)[0] for a, b in itertools.pairwise(pieces))


@pytest.mark.parametrize("epsilon", [1e-3, 0.05, 0.3, 1.0, 4.0])
@each("noise_multiplier", [0.3, 1.0, 4.0, 50.0, 500.0])
@each("curvature_ratio", [1e-3, 0.1, 0.6])
def test_delta_is_the_expectation_it_should_be(noise_multiplier, curvature_ratio, epsilon):
    exact = cost.exact_delta(noise_multiplier, curvature_ratio, epsilon)
    expected = expected_delta(noise_multiplier, curvature_ratio, epsilon)
    assert exact == pytest.approx(expected, rel=1e-7, abs=1e-200)
    assert exact >= expected * (1 - 1e-9)


def test_both_cases_of_delta_are_met_and_agree_where_they_meet():
    m = 1 / 2.0
    at = shift(0.3) + m * m / 2
    below, above = (cost.exact_delta(2.0, 0.3, at * (1 + side)) for side in (-1e-9, 1e-9))
    assert below == pytest.approx(above, rel=1e-7)
    assert cost.exact_delta(2.0, 0.3, 1e-6) > below > cost.exact_delta(2.0, 0.3, 3.0)


@pytest.mark.parametrize("noise_multiplier", [0.4, 3.0, 200.0])
@pytest.mark.parametrize("curvature_ratio", [1e-3, 0.7])
def test_the_renyi_curve_is_the_expectation_it_should_be(noise_multiplier, curvature_ratio):
    m, orders = 1 / noise_multiplier, (2, 3, 16, 256, 2048)
    priced = rdp.curve(made(noise_multiplier, curvature_ratio), ADD_REMOVE, orders)
    for order, stated in zip(orders, priced, strict=True):
        k = order - 1
        peak = k * m

        def tilted(u, peak=peak):
            return 2 * stats.norm.pdf(u - peak)  # the density times exp(k m u), over exp(peak^2/2)

        inside, _ = integrate.quad(tilted, 0.0, peak + 40, points=[max(peak - 5, 0.0), peak, peak + 5], epsrel=1e-12)
        expected = shift(curvature_ratio) + m * m / 2 + (peak * peak / 2 + math.log(inside)) / k
        output = order / 2 / EXACT**2
        assert stated == pytest.approx(expected + output, rel=1e-8)
        assert stated >= expected + output


@pytest.mark.parametrize("order", [2, 7, 64])
def test_the_renyi_curve_of_a_replacement_is_two_steps(order):
    charge = made(5.0)
    first, second = rdp.curve(charge, ADD_REMOVE, (2 * order, 2 * order - 1))
    (stated,) = rdp.curve(charge, REPLACE_ONE, (order,))
    assert stated == pytest.approx((order - 0.5) / (order - 1) * first + second, rel=1e-12)
    assert stated >= 2 * rdp.curve(charge, ADD_REMOVE, (order,))[0]


def test_the_renyi_price_never_beats_the_tight_one():
    for epsilon, delta in TARGETS:
        charge = made(cost.noise_multiplier_for(epsilon, delta, epsilon / 10, EXACT, ADD_REMOVE), epsilon / 10)
        loose = rdp.rdp_epsilon(rdp.ORDERS, rdp.curve(charge, ADD_REMOVE), delta)
        assert epsilon * (1 - 1e-6) <= loose <= 1.4 * epsilon


# ----------------------------------------------------------------------------- there and back again


@settings(max_examples=40)
@given(st.floats(0.01, 8.0), st.floats(1e-12, 1e-3), st.floats(1e-3, 0.1), st.sampled_from(Neighbouring))
def test_the_noise_for_an_epsilon_costs_that_epsilon_and_never_more(epsilon, delta, share, relation):
    ratio = -math.expm1(-share * epsilon)  # the determinants take this share of epsilon
    multiplier = cost.noise_multiplier_for(epsilon, delta, ratio, EXACT, relation)
    spent = cost.epsilon_of(made(multiplier, ratio), delta, relation)
    assert epsilon * (1 - 1e-7) <= spent <= epsilon * (1 + 2e-9)
    assert cost.epsilon_of(made(multiplier * (1 - 1e-6), ratio), delta, relation) > epsilon


@settings(max_examples=40)
@given(multipliers, ratios, st.floats(1e-12, 1e-3), st.sampled_from(Neighbouring))
def test_a_schedule_of_one_release_admits_it_at_its_own_epsilon(noise_multiplier, ratio, delta, relation):
    charge = made(noise_multiplier, ratio)
    epsilon = cost.epsilon_of(charge, delta, relation)
    rule = FixedSchedule([charge], epsilon, delta, relation)
    assert rule.epsilon_of(rule.admit(rule.start(), charge), delta) == epsilon
    with pytest.raises(InvalidArgument, match="this schedule costs"):
        FixedSchedule([charge], epsilon * (1 - 1e-6), delta, relation)


@given(multipliers, ratios, st.floats(1e-3, 10.0), st.floats(1.001, 3.0))
def test_delta_falls_with_noise_with_the_ridge_and_with_epsilon(noise_multiplier, ratio, epsilon, factor):
    here = cost.exact_delta(noise_multiplier, ratio, epsilon)
    assert 0 <= here <= 1
    assert cost.exact_delta(noise_multiplier * factor, ratio, epsilon) <= here
    assert cost.exact_delta(noise_multiplier, ratio / factor, epsilon) <= here
    assert cost.exact_delta(noise_multiplier, ratio, epsilon * factor) <= here


@given(multipliers, ratios, st.floats(1.001, 3.0), st.sampled_from(Neighbouring))
def test_renyi_costs_fall_with_noise_and_with_the_ridge(noise_multiplier, ratio, factor, relation):
    here = rdp.curve(made(noise_multiplier, ratio), relation)
    for cheaper in (made(noise_multiplier * factor, ratio), made(noise_multiplier, ratio / factor)):
        assert all(less < more for less, more in zip(rdp.curve(cheaper, relation), here, strict=True))


@pytest.mark.parametrize("relation", Neighbouring)
def test_the_noise_on_the_output_is_in_the_price(relation):
    """With as much noise in the objective as one likes, what is left is the output's own Gaussian
    mechanism.
    """
    little = cost.epsilon_of(made(1e9, 1e-9, output=50.0), 1e-6, relation)
    steps = 1 if relation is ADD_REMOVE else 2
    assert little >= gdp_epsilon(1 / 50.0, 1e-6) * steps
    assert little > cost.epsilon_of(made(1e9, 1e-9, output=500.0), 1e-6, relation)


def test_a_replacement_is_two_steps():
    charge, delta = made(20.0, 0.02), 1e-6
    epsilon = cost.epsilon_of(charge, delta, REPLACE_ONE)
    one_step = cost.exact_delta(20.0, 0.02, epsilon / 2 - 15 / EXACT)
    assert (1 + math.exp(epsilon / 2)) * one_step == pytest.approx(delta, rel=1e-6)
    assert epsilon > 2 * cost.epsilon_of(charge, delta, ADD_REMOVE)


@pytest.mark.parametrize("relation", Neighbouring)
def test_noise_without_end_is_of_no_use_where_the_curvature_costs_too_much(relation):
    with pytest.raises(InvalidArgument, match=r"curvature_ratio=0\.5 alone costs more than epsilon=0\.3.*larger ridge"):
        cost.noise_multiplier_for(0.3, 1e-6, 0.5, EXACT, relation)


def test_no_noise_to_speak_of_costs_infinity():
    assert cost.epsilon_of(made(1e-3), 1e-6, ADD_REMOVE) == math.inf
    assert cost.epsilon_of(made(1e-3), 1e-6, REPLACE_ONE) == math.inf


# -------------------------------------------------------------------------------- charges and rules


def test_a_charge_goes_to_json_and_back():
    charge = made(4.25, 0.125)
    described = to_json(charge)
    assert described["kind"] == "objective-perturbation"
    assert from_json(described) == charge
    repeated = RepeatedCharge(charge, 3)
    assert from_json(to_json(repeated)) == repeated


@pytest.mark.parametrize(
    "wrong", [(0.0, 0.1, 1e6), (2.0, 0.0, 1e6), (2.0, 1.0, 1e6), (2.0, 0.1, 0.0), (math.inf, 0.1, 1e6)]
)
def test_a_charge_that_cannot_be_is_refused(wrong):
    with pytest.raises(InvalidArgument):
        ObjectivePerturbationCharge(*wrong)


@pytest.mark.parametrize("rule", [GdpFilter(1.0, 1e-6, "add-remove"), ZcdpFilter(1.0, 1e-6, "replace-one")], ids=repr)
def test_filters_without_a_theorem_for_it_refuse_it_with_the_remedy(rule):
    with pytest.raises(UnsupportedCharge, match=r"no price for.*filter='rdp'.*with_filter"):
        rule.admit(rule.start(), made(100.0))


@pytest.mark.parametrize("others", [[GaussianCharge(50.0)], [made(200.0)], [RepeatedCharge(made(100.0), 2)]])
def test_a_fixed_schedule_prices_it_on_its_own_only(others):
    with pytest.raises(UnsupportedCharge, match=r"on its own.*filter='rdp'"):
        FixedSchedule([made(100.0), *others], 2.0, 1e-6, "add-remove")


@pytest.mark.parametrize("relation", Neighbouring)
def test_a_renyi_filter_takes_it_among_others(relation):
    rule = RdpFilter(2.0, 1e-6, relation)
    spent = rule.start()
    for charge in (GaussianCharge(20.0), made(30.0, 0.01), GaussianCharge(20.0), made(40.0, 0.01)):
        spent = rule.admit(spent, charge)
    assert spent.releases == 4
    assert 0 < rule.epsilon_of(spent, 1e-6) <= 2.0


# ---------------------------------------------------------------------------------- through a purse


def for_a_budget_of_one(relation):
    """The charge that spends epsilon 1, for a ridge of ten times the curvature."""
    multiplier = cost.noise_multiplier_for(1.0, 1e-6, 0.1, OUTPUT_NOISE_MULTIPLIER, relation)
    return made(multiplier * (1 + 1e-8), output=OUTPUT_NOISE_MULTIPLIER)


def release(purse, multiplier, ridge=2.5):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 2))
    oracle = DenseOracle(X, (X[:, 0] > 0).astype(int), loss=Logistic(clip_derivative=0.5))
    purse.release(oracle.answer(Objective()), ObjectivePerturbation(multiplier, ridge), what="model")


def test_the_certificate_states_both_relations():
    relation = ADD_REMOVE
    charge = for_a_budget_of_one(relation)
    purse = Purse.with_filter(FixedSchedule([charge], 1.0, 1e-6, relation))
    release(purse, charge.noise_multiplier)
    certificate = purse.certificate()
    assert certificate.private
    stated = certificate.relations
    assert (stated[relation.value].epsilon, stated[relation.value].delta) == (1.0, 1e-6)
    for seen, under in stated.items():
        assert under.recorded_epsilon == cost.epsilon_of(charge, under.delta, Neighbouring.parse(seen))
        assert under.recorded_epsilon <= under.epsilon * (1 + 1e-6)
    assert stated["add-remove"].recorded_epsilon < stated["replace-one"].recorded_epsilon


def test_the_certificate_of_a_purse_with_it_prints():
    charge = for_a_budget_of_one(ADD_REMOVE)
    purse = Purse.with_filter(FixedSchedule([charge], 1.0, 1e-6, "add-remove"))
    release(purse, charge.noise_multiplier)
    prose = str(purse.certificate())
    assert "(1, 1e-06)-differentially private under the relation add-remove" in prose
    assert "  add-remove: epsilon 1, delta 1e-06; recorded epsilon 1" in prose
    assert "  replace-one: epsilon 2" in prose
    assert "1 x model (objective-perturbation" in prose
    assert "not stated" not in prose


def test_the_certificate_does_not_call_a_noise_multiplier_an_epsilon():
    purse = Purse(4.0, 1e-6, neighbouring="add-remove", filter="rdp")
    release(purse, 12.5)
    assert "1 x model (objective-perturbation, noise multiplier 12.5)" in str(purse.certificate())


def test_a_purse_refuses_what_was_not_announced_and_what_does_not_fit():
    charge = for_a_budget_of_one(ADD_REMOVE)
    purse = Purse.with_filter(FixedSchedule([charge], 1.0, 1e-6, "add-remove"))
    with pytest.raises(UnsupportedCharge, match="fixed in advance"):
        release(purse, charge.noise_multiplier, ridge=2.6)
    assert purse.spent.releases == 0
    release(purse, charge.noise_multiplier)
    assert purse.spent.epsilon == pytest.approx(1.0, rel=1e-6)
