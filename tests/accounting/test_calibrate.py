"""Calibration never overshoots, and loses next to nothing."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privypurse.accounting import _gdp as gdp
from privypurse.accounting import calibrate
from privypurse.accounting._filters import GdpFilter
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting.pld import default_interval, pld_epsilon
from privypurse.core._errors import BudgetExhausted, InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import BoundedRangeCharge, GaussianCharge, RepeatedCharge


@given(
    st.floats(-3, 2).map(lambda x: 10.0**x),
    st.floats(-12, -2).map(lambda x: 10.0**x),
    st.integers(1, 100_000),
)
def test_exactly_the_planned_number_of_releases_fits(epsilon, delta, releases):
    noise_multiplier = calibrate.noise_multiplier(epsilon, delta, releases=releases)
    rule = GdpFilter(epsilon, delta, "add-remove")
    spent = rule.admit(rule.start(), RepeatedCharge(GaussianCharge(noise_multiplier), releases))
    assert rule.epsilon_of(spent, delta) <= epsilon
    with pytest.raises(BudgetExhausted):
        rule.admit(rule.start(), RepeatedCharge(GaussianCharge(noise_multiplier * (1 - 1e-9)), releases))


@given(st.floats(1e-12, 100))
def test_inverses_of_single_prices(budget):
    assert gdp.mu_squared(GaussianCharge(gdp.noise_multiplier_for(budget))) <= budget
    assert gdp.mu_squared(GaussianCharge(gdp.noise_multiplier_for(budget) * (1 - 1e-12))) > budget * (1 - 1e-11)


SCHEDULES = {
    "decaying": [GaussianCharge(2.0 * 0.9**k, 0.05) for k in range(5)],
    "constant": [RepeatedCharge(GaussianCharge(1.0, 0.01), 300)],
    "unsampled": [GaussianCharge(1.0 + k) for k in range(50)],
    "with a selection": [RepeatedCharge(GaussianCharge(1.0), 10), BoundedRangeCharge(0.1)],
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_a_scaled_schedule_spends_the_target_and_no_more(name, relation, epsilon):
    scaled = calibrate.scale_to_budget(SCHEDULES[name], epsilon, 1e-6, relation)
    spent = pld_epsilon(scaled, 1e-6, relation, interval=default_interval(epsilon))
    assert epsilon * 0.999 <= spent <= epsilon
    assert FixedSchedule(scaled, epsilon, 1e-6, relation).scheduled_epsilon <= epsilon


def test_scaling_keeps_ratios():
    scaled = calibrate.scale_to_budget(SCHEDULES["decaying"], 1.0, 1e-6, "add-remove")
    ratios = [b.noise_multiplier / a.noise_multiplier for a, b in itertools.pairwise(scaled)]
    assert ratios == pytest.approx([0.9] * 4)


def test_a_coarse_grid_needs_more_noise_than_renyi_accounting_says():
    fine, coarse = (
        calibrate.scale_to_budget(SCHEDULES["constant"], 0.5, 1e-6, "add-remove", interval=interval)[0].charge
        for interval in (1e-3, 0.1)
    )
    assert coarse.noise_multiplier > 1.05 * fine.noise_multiplier


def test_what_cannot_be_scaled_is_refused():
    with pytest.raises(InvalidArgument, match=r"charges must be a list of charges; got 3.0"):
        calibrate.scale_to_budget([3.0], 1.0, 1e-6, "add-remove")
    with pytest.raises(InvalidArgument, match="whose noise can be scaled"):
        calibrate.scale_to_budget([BoundedRangeCharge(0.1)], 1.0, 1e-6, "add-remove")
    with pytest.raises(InvalidArgument, match="cannot be met by more noise"):
        calibrate.scale_to_budget([GaussianCharge(1.0), BoundedRangeCharge(5.0)], 0.1, 1e-6, "add-remove")
