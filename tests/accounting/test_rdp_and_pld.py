"""Rényi and privacy-loss accounting, against dp-accounting and against each other."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld as reference_pld
from dp_accounting import rdp as reference_rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from privypurse.accounting import _gdp as gdp
from privypurse.accounting import _rdp as rdp
from privypurse.accounting import convert, pld
from privypurse.accounting._fixed_schedule import _is_too_dear
from privypurse.core._errors import UnsupportedCharge
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import (
    BoundedRangeCharge,
    GaussianCharge,
    NonPrivateCharge,
    PureCharge,
    RepeatedCharge,
)

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE
SMALL_ORDERS = (2, 3, 5, 8, 16, 32, 64)


@pytest.mark.parametrize(("sample_prob", "noise"), [(0.01, 1.1), (0.1, 0.5), (0.001, 4.0), (0.5, 20.0), (0.9, 1.0)])
def test_sampled_gaussian_agrees_with_dp_accounting(sample_prob, noise):
    accountant = reference_rdp.RdpAccountant(SMALL_ORDERS)
    event = dp_accounting.PoissonSampledDpEvent(sample_prob, dp_accounting.GaussianDpEvent(noise))
    accountant.compose(event)
    ours = rdp.curve(GaussianCharge(noise, sample_prob), ADD_REMOVE, SMALL_ORDERS)
    assert np.allclose(ours, accountant._rdp, rtol=1e-8)
    for delta in (1e-9, 1e-5, 1e-3):
        assert rdp.rdp_epsilon(SMALL_ORDERS, ours, delta) == pytest.approx(accountant.get_epsilon(delta), rel=1e-8)


def divergence(order, upper, lower):
    """Rényi divergence of two densities on the line, by quadrature."""
    value, _ = integrate.quad(lambda x: np.exp(order * upper(x) - (order - 1) * lower(x)), -40, 40, limit=500)
    return math.log(value) / (order - 1)


@pytest.mark.parametrize(("sample_prob", "noise"), [(0.1, 1.0), (0.3, 2.0), (0.05, 0.8)])
@pytest.mark.parametrize("order", [2, 4, 8])
def test_sampled_gaussian_covers_the_true_divergence(sample_prob, noise, order):
    """Both directions of add/remove, and replacement, integrated numerically."""

    def mixture(shift, std):
        def log_density(x):
            with np.errstate(divide="ignore"):
                return np.logaddexp(
                    np.log(1 - sample_prob) + stats.norm.logpdf(x, 0, std),
                    np.log(sample_prob) + stats.norm.logpdf(x, shift, std),
                )

        return log_density

    def base(x):
        return stats.norm.logpdf(x, 0, noise)

    (bound,) = rdp.curve(GaussianCharge(noise, sample_prob), ADD_REMOVE, (order,))
    there, back = divergence(order, mixture(1, noise), base), divergence(order, base, mixture(1, noise))
    assert max(there, back) <= bound * (1 + 1e-6)
    assert bound <= max(there, back) * (1 + 1e-6), "and it is exact for add/remove"
    # Replacement: one record pulls by +1, the other by -1; the sensitivity is 2, the multiplier
    # std/2.
    std = 2 * noise
    (bound,) = rdp.curve(GaussianCharge(noise, sample_prob), REPLACE_ONE, (order,))
    assert divergence(order, mixture(1, std), mixture(-1, std)) <= bound
    assert divergence(order, mixture(1, std), mixture(0.3, std)) <= bound


def test_small_sampling_rates_are_not_lost():
    """dp-accounting's sum is 1 + tiny; at q = 1e-9 nothing of the cost would be left."""
    tiny = rdp.curve(GaussianCharge(1.0, 1e-9), ADD_REMOVE, (2, 4))
    # Leading term: C(a,2) q^2 (e - 1) / (a - 1).
    assert tiny[0] == pytest.approx(1e-18 * (math.e - 1), rel=1e-6)
    assert tiny[1] == pytest.approx(2e-18 * (math.e - 1), rel=1e-6)
    assert min(rdp.curve(GaussianCharge(1e200, 1e-300), ADD_REMOVE)) > 0
    assert max(rdp.curve(GaussianCharge(1e-200, 0.5), ADD_REMOVE)) == math.inf


@settings(max_examples=60)
@given(st.floats(0.3, 50), st.floats(1e-4, 1), st.floats(1.01, 3), st.sampled_from(list(Neighbouring)))
def test_rdp_falls_with_noise_and_rises_with_sampling(noise, sample_prob, factor, relation):
    costs = np.array(rdp.curve(GaussianCharge(noise, sample_prob), relation))
    assert (np.array(rdp.curve(GaussianCharge(noise * factor, sample_prob), relation)) <= costs).all()
    rarer = np.array(rdp.curve(GaussianCharge(noise, sample_prob / factor), relation))
    assert (rarer <= costs * (1 + 1e-9)).all()
    assert (costs <= np.array(rdp.curve(GaussianCharge(noise), relation)) * (1 + 1e-9)).all(), (
        "sampling never costs more"
    )


@pytest.mark.parametrize(
    ("charges", "expected_mu_squared"),
    [
        ([GaussianCharge(50.0)] * 10, 10 / 50**2),
        ([GaussianCharge(20.0 + k) for k in range(12)], sum((20.0 + k) ** -2 for k in range(12))),
        ([GaussianCharge(3.0), GaussianCharge(1.0)], 1 / 9 + 1),
    ],
)
@pytest.mark.parametrize("delta", [1e-8, 1e-5])
def test_gdp_agrees_with_dp_accountings_pld_within_its_grid(charges, expected_mu_squared, delta):
    interval = 1e-5
    accountant = reference_pld.PLDAccountant(value_discretization_interval=interval)
    for charge in charges:
        accountant.compose(dp_accounting.GaussianDpEvent(charge.noise_multiplier))
    exact = convert.gdp_epsilon(math.sqrt(sum(gdp.mu_squared(charge) for charge in charges)), delta)
    assert exact == pytest.approx(convert.gdp_epsilon(math.sqrt(expected_mu_squared), delta), rel=1e-9)
    theirs = accountant.get_epsilon(delta)
    assert abs(theirs - exact) <= interval * len(charges)
    assert pld.pld_epsilon(charges, delta, ADD_REMOVE) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize(("noise", "sample_prob", "count"), [(1.0, 0.1, 50), (2.0, 0.01, 500), (0.7, 0.02, 20)])
def test_pld_lies_between_one_step_and_rdp(relation, noise, sample_prob, count):
    charge = GaussianCharge(noise, sample_prob)
    costs = [count * cost for cost in rdp.curve(charge, relation)]
    composed = pld.pld_epsilon([RepeatedCharge(charge, count)], 1e-6, relation)
    assert pld.pld_epsilon([charge], 1e-6, relation) < composed <= rdp.rdp_epsilon(rdp.ORDERS, costs, 1e-6)


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_a_sampled_schedule_that_samples_everything_is_the_unsampled_one(relation):
    almost = pld.pld_epsilon([GaussianCharge(5.0, 1 - 1e-9)] * 3, 1e-6, relation)
    assert almost == pytest.approx(pld.pld_epsilon([GaussianCharge(5.0)] * 3, 1e-6, relation), abs=3e-4)


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_repeats_cost_what_a_list_costs(relation):
    """dp-accounting drops the count of some events; ours are counted by our own tally."""
    charges = [GaussianCharge(2.0, 0.1), BoundedRangeCharge(0.3), PureCharge(0.2), GaussianCharge(4.0)]
    listed = [charge for charge in charges for _ in range(7)]
    repeated = [RepeatedCharge(charge, 7) for charge in charges]
    assert pld.tally(listed) == pld.tally(repeated)
    assert pld.pld_epsilon(listed, 1e-6, relation) == pld.pld_epsilon(repeated, 1e-6, relation)


def test_release_without_noise_costs_infinity_everywhere():
    for charge in (NonPrivateCharge("debugging"), GaussianCharge(0.0), GaussianCharge(0.0, 0.1)):
        assert pld.pld_epsilon([GaussianCharge(1.0), charge], 1e-5, ADD_REMOVE) == math.inf
        assert set(rdp.curve(charge, ADD_REMOVE)) == {math.inf}
    for charge in (NonPrivateCharge("debugging"), GaussianCharge(0.0)):
        assert gdp.mu_squared(charge) == gdp.rho(charge) == math.inf


def test_hardly_any_noise_costs_infinity_without_a_grid_that_fills_the_memory():
    assert pld.pld_epsilon([GaussianCharge(1e-6, 0.5)], 1e-6, ADD_REMOVE) == math.inf


def test_selections():
    charge, pure = BoundedRangeCharge(0.4), PureCharge(0.4)
    assert gdp.rho(charge) == pytest.approx(0.4**2 / 8, rel=1e-12)
    assert gdp.rho(pure) == pytest.approx(0.4**2 / 2, rel=1e-12)
    assert rdp.curve(charge, ADD_REMOVE, (2, 1000)) == pytest.approx((2 * 0.02, 0.4), rel=1e-12)
    sampled = rdp.curve(BoundedRangeCharge(0.4, 0.01), ADD_REMOVE, (2, 1000))
    amplified = math.log1p(0.01 * math.expm1(0.4))
    assert sampled == pytest.approx((amplified**2, amplified), rel=1e-9)
    assert rdp.curve(BoundedRangeCharge(0.4, 0.01), REPLACE_ONE) == rdp.curve(charge, REPLACE_ONE)
    assert pld.pld_epsilon([BoundedRangeCharge(0.4, 0.01)], 1e-5, ADD_REMOVE) == pld.pld_epsilon(
        [charge], 1e-5, ADD_REMOVE
    )


@pytest.mark.parametrize("price", [gdp.mu_squared, gdp.rho])
def test_sampled_and_unknown_charges_are_refused(price):
    for charge in (GaussianCharge(1.0, 0.5), BoundedRangeCharge(1.0, 0.5), PureCharge(1.0, 0.5)):
        with pytest.raises(UnsupportedCharge, match="filter='rdp'"):
            price(charge)
    with pytest.raises(UnsupportedCharge, match="no price"):
        price("a free lunch")
    with pytest.raises(UnsupportedCharge, match="no price"):
        rdp.curve("a free lunch", ADD_REMOVE)


@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize("rate", [0.01, 0.3])
@pytest.mark.parametrize("noise_multiplier", [0.3, 0.6, 1.0, 3.0])
def test_what_is_refused_without_a_grid_is_too_dear_with_one(noise_multiplier, rate, relation):
    charge, delta = GaussianCharge(noise_multiplier, rate), 1e-5
    exact = pld.pld_epsilon([charge], delta, relation, interval=1e-3)
    for epsilon in (0.01, 0.5 * exact, 0.9 * exact, 1.01 * exact, 2 * exact):
        assert not (_is_too_dear(charge, epsilon, delta, relation) and exact <= epsilon)
    assert _is_too_dear(GaussianCharge(0.05, rate), 1.0, delta, relation), "and hardly any noise is refused at once"
