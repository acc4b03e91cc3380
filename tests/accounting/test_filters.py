"""The laws of every filter: one suite that each must pass."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privypurse.accounting._filters import DeclaredNonPrivate, GdpFilter, RdpFilter, ZcdpFilter, from_terms
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Totals, float_down, float_up, quanta_down, quanta_up
from privypurse.core._errors import BudgetExhausted, InvalidArgument, LedgerCorrupt, UnsupportedCharge
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import (
    BoundedRangeCharge,
    GaussianCharge,
    NonPrivateCharge,
    ObjectivePerturbationCharge,
    PureCharge,
    RepeatAndSelectCharge,
    RepeatedCharge,
)
from privypurse.mechanisms import Gaussian

ADD_REMOVE = Neighbouring.ADD_REMOVE

ADAPTIVE = {
    "gdp": GdpFilter(1.0, 1e-6, "add-remove"),
    "zcdp": ZcdpFilter(1.0, 1e-6, "add-remove"),
    "zcdp-classic": ZcdpFilter(1.0, 1e-6, "replace-one", conversion="classic"),
    "rdp": RdpFilter(1.0, 1e-6, "add-remove"),
    "rdp-many-orders": RdpFilter(1.0, 1e-6, "replace-one", orders=(4, 8, 16, 32, 64)),
}

noise = st.floats(3.0, 1e4)
charges = st.one_of(
    st.builds(GaussianCharge, noise),
    st.builds(BoundedRangeCharge, st.floats(1e-4, 0.3)),
    st.builds(PureCharge, st.floats(1e-4, 0.1)),
)


@pytest.fixture(params=ADAPTIVE.values(), ids=ADAPTIVE.keys())
def rule(request):
    return request.param


def total(rule, listed):
    spent = rule.start()
    for charge in listed:
        spent = rule.admit(spent, charge)
    return spent


def admits(rule, spent, charge):
    try:
        rule.admit(spent, charge)
    except BudgetExhausted:
        return False
    return True


@given(charges, st.integers(1, 200))
def test_k_repeats_equal_a_list_of_k(charge, count):
    for rule in ADAPTIVE.values():
        one = rule.after(rule.start(), charge)
        listed = rule.start()
        for _ in range(count):
            listed = rule.after(listed, charge)
        repeated = rule.after(rule.start(), RepeatedCharge(charge, count))
        assert repeated == listed
        assert repeated.quanta == tuple(count * quanta for quanta in one.quanta)


@given(st.lists(charges, max_size=12), st.randoms(use_true_random=False))
def test_order_is_irrelevant(listed, shuffler):
    shuffled = list(listed)
    shuffler.shuffle(shuffled)
    for rule in ADAPTIVE.values():
        there, back = rule.start(), rule.start()
        for charge, other in zip(listed, shuffled, strict=True):
            there, back = rule.after(there, charge), rule.after(back, other)
        assert there == back


@given(noise, st.floats(1.0000001, 100))
def test_cost_rises_as_noise_falls(noise_multiplier, factor):
    for rule in ADAPTIVE.values():
        more = rule.after(rule.start(), GaussianCharge(noise_multiplier))
        less = rule.after(rule.start(), GaussianCharge(noise_multiplier * factor))
        assert all(a > b for a, b in zip(more.quanta, less.quanta, strict=True))


def test_a_refused_charge_changes_nothing_and_a_smaller_one_is_then_admitted(rule):
    spent = rule.admit(rule.start(), GaussianCharge(6.0))
    before = Totals(spent.quanta, spent.releases, spent.non_private)
    with pytest.raises(BudgetExhausted, match=r"does not fit.*noise_multiplier="):
        rule.admit(spent, GaussianCharge(0.5))
    assert spent == before
    after = rule.admit(spent, GaussianCharge(100.0))
    assert after.releases == 2


@pytest.mark.parametrize("charge", [GaussianCharge(0.0), NonPrivateCharge("look")])
def test_no_noise_is_never_admitted(rule, charge):
    # What is declared not private is the wrong kind of release, not too much of the right one.
    error = UnsupportedCharge if isinstance(charge, NonPrivateCharge) else BudgetExhausted
    with pytest.raises(error):
        rule.admit(rule.start(), charge)
    with pytest.raises(error):
        rule.admit(rule.start(), RepeatedCharge(charge, 3))


def test_an_unknown_charge_is_refused(rule):
    with pytest.raises(UnsupportedCharge):
        rule.admit(rule.start(), "a free lunch")


def test_the_least_noise_fits_and_a_little_less_does_not(rule):
    spent = rule.start()
    for _ in range(3):
        least = rule.smallest_noise_multiplier(spent)
        assert admits(rule, spent, GaussianCharge(least))
        assert not admits(rule, spent, GaussianCharge(least * (1 - 1e-9)))
        spent = rule.admit(spent, GaussianCharge(2 * least))
    spent = rule.admit(spent, GaussianCharge(rule.smallest_noise_multiplier(spent)))
    left = [float_down(limit - used) / float_down(limit) for limit, used in zip(rule.limits, spent.quanta, strict=True)]
    assert min(left) < 1e-9, "the last step spends the remainder"


def test_what_is_spent_never_exceeds_the_target(rule):
    spent = rule.admit(rule.start(), GaussianCharge(rule.smallest_noise_multiplier(rule.start())))
    assert rule.epsilon_of(spent, rule.delta) <= rule.epsilon * (1 + 1e-9)
    assert rule.epsilon_of(spent, rule.delta) > 0.5 * rule.epsilon
    assert rule.epsilon_of(rule.start(), rule.delta) == 0.0


def test_tiny_charges_are_not_lost(rule):
    nearly_free = GaussianCharge(1e160)
    spent = rule.admit(rule.start(), nearly_free)
    assert all(quanta >= 1 for quanta in spent.quanta)
    full = Totals(tuple(rule.limits), 1)
    with pytest.raises(BudgetExhausted):
        rule.admit(full, nearly_free)
    assert rule.smallest_noise_multiplier(full) == math.inf


@pytest.mark.parametrize("name", ["gdp", "zcdp", "rdp"])
def test_ten_thousand_adaptive_strategies_never_pass_the_limit(name):
    """Strategies that choose each budget from what is left and from earlier (random) outputs,
    refusals included.
    """
    rng = random.Random(name)
    rule = {
        "gdp": GdpFilter(0.5, 1e-7, "add-remove"),
        "zcdp": ZcdpFilter(0.5, 1e-7, "add-remove"),
        "rdp": RdpFilter(0.5, 1e-7, "add-remove", orders=(8, 32, 128)),
    }[name]
    limit = tuple(float_up(quanta) for quanta in rule.limits)
    refused = 0
    for _ in range(10_000):
        spent, output = rule.start(), rng.gauss(0, 1)
        for _ in range(rng.randint(1, 8)):
            least = rule.smallest_noise_multiplier(spent)
            greed = math.exp(0.7 * output)  # the next budget depends on the last output
            charge = rng.choice(
                [
                    GaussianCharge(min(least * greed, 1e100)),
                    GaussianCharge(min(least, 1e100)),
                    BoundedRangeCharge(min(1 / least * greed, 1e3) if least < math.inf else 0.01),
                ]
            )
            before = spent
            try:
                spent = rule.admit(spent, charge)
            except BudgetExhausted:
                refused += 1
                assert spent is before
            output = rng.gauss(output / 2, 1)
        assert all(float_down(quanta) <= most for quanta, most in zip(spent.quanta, limit, strict=True))
        assert spent.fits_within(Totals(rule.limits, 10**9))
    assert refused > 1000, "the strategies do press against the limit"


def test_terms_rebuild_the_same_rule(rule):
    again = from_terms(rule.terms())
    assert again.terms() == rule.terms()
    assert again.limits == rule.limits
    assert type(again) is type(rule)


def test_guarantees_under_the_other_relation():
    rule = ADAPTIVE["gdp"]
    assert rule.guarantee_under(ADD_REMOVE) == (1.0, 1e-6)
    epsilon, delta = rule.guarantee_under(Neighbouring.REPLACE_ONE)
    assert 2.0 < epsilon < 2.3
    assert delta == 1e-6
    assert GdpFilter(1.0, 1e-6, "replace-one").guarantee_under(ADD_REMOVE) == (math.inf, 1.0)
    doubled = ADAPTIVE["zcdp"].guarantee_under(Neighbouring.REPLACE_ONE)
    assert 2.0 < doubled[0] < 2.4
    generic = ADAPTIVE["rdp"].guarantee_under(Neighbouring.REPLACE_ONE)
    assert generic == pytest.approx((2.0, (1 + math.e) * 1e-6))


def test_gdp_affords_more_than_zcdp_for_gaussians():
    """Design: 1.86 times the classic budget at epsilon 0.05, delta 1e-8."""
    exact, classic = GdpFilter(0.05, 1e-8, ADD_REMOVE), ZcdpFilter(0.05, 1e-8, ADD_REMOVE, conversion="classic")
    assert exact.mu**2 / 2 / classic.rho == pytest.approx(1.86, abs=0.005)


def test_rdp_uses_its_whole_budget_on_the_releases_it_was_built_for():
    charge = GaussianCharge(1.5, 0.01)
    rule = RdpFilter(1.0, 1e-6, "add-remove", reference=charge)
    spent, count = rule.start(), 0
    while admits(rule, spent, charge):
        spent, count = rule.admit(spent, charge), count + 1
    assert count > 50
    assert rule.epsilon_of(spent, 1e-6) == pytest.approx(1.0, abs=2 / count)
    assert rule.epsilon_of(spent, 1e-6) <= 1.0


@pytest.mark.parametrize(
    "arguments",
    [
        {"orders": []},
        {"orders": (1,)},
        {"orders": (2.5,)},
        {"orders": (True,)},
        {"reference": GaussianCharge(0.0)},
        {"reference": PureCharge(1.0)},
        {"epsilon": 0.0},
        {"delta": 1.0},
        {"neighbouring": "swap"},
        {"epsilon": 0.001, "orders": (2,)},
    ],
    ids=repr,
)
def test_impossible_rdp_filters_are_refused(arguments):
    arguments = {"epsilon": 1.0, "delta": 1e-6, "neighbouring": "add-remove"} | arguments
    with pytest.raises(InvalidArgument):
        RdpFilter(**arguments)


@pytest.mark.parametrize("reference", [GaussianCharge(1e200), GaussianCharge(1e-200), GaussianCharge(1.0, 1e-300)])
def test_a_reference_that_costs_nothing_or_infinity_is_refused(reference):
    with (
        np.errstate(over="ignore"),
        pytest.raises(InvalidArgument, match="neither 0 nor infinity"),
    ):
        RdpFilter(1.0, 1e-6, "add-remove", reference=reference)


def test_a_charge_without_noise_makes_the_record_infinite(rule):
    assert rule.epsilon_of(rule.after(rule.start(), GaussianCharge(0.0)), 1e-6) == math.inf


@pytest.mark.parametrize(
    ("charge", "remedy"),
    [
        (GaussianCharge(0.1), "The least noise that still fits has noise_multiplier="),
        (PureCharge(50.0), "The largest epsilon of such a release that still fits is "),
        (ObjectivePerturbationCharge(0.1, 0.5, 1e5), "Use more noise or a larger ridge."),
        (RepeatAndSelectCharge(0.1, 5.0, 0.0), "Use more noise in each trial, or fewer trials."),
    ],
)
def test_a_refusal_says_what_would_fit(charge, remedy):
    rule = ADAPTIVE["rdp"]
    with pytest.raises(BudgetExhausted, match=remedy):
        rule.admit(rule.start(), charge)


def test_no_selection_fits_into_next_to_nothing():
    rule = ZcdpFilter(1e-13, 1e-6, "add-remove", conversion="classic")
    assert rule.largest_epsilon(rule.start()) == 0.0


def test_no_selection_has_an_epsilon_above_a_thousand():
    rule = GdpFilter(1e7, 1e-6, "add-remove")
    assert rule.largest_epsilon(rule.start()) == 1e3


def test_terms_with_another_reference_are_refused():
    terms = ADAPTIVE["rdp"].terms() | {"reference": {"kind": "pure", "epsilon": 1.0}}
    with pytest.raises(InvalidArgument, match="reference must be a GaussianCharge"):
        from_terms(terms)


def test_declared_non_private_has_nothing_to_divide():
    rule = DeclaredNonPrivate(1e-6, "add-remove")
    assert rule.affordable(rule.start()) == (math.inf,)
    assert rule.fraction_left(rule.start(), rule.start()) == 1.0
    assert rule.largest_epsilon(rule.start()) == math.inf
    with pytest.raises(InvalidArgument, match="no budget to divide"):
        rule.leaving(rule.start(), rule.start(), 0.5)


def test_declared_non_private_admits_everything_and_says_infinity():
    rule = DeclaredNonPrivate(1e-6, "add-remove")
    assert rule.epsilon_of(rule.start(), 1e-6) == 0.0
    spent = total(rule, [NonPrivateCharge("debugging"), GaussianCharge(1.0), GaussianCharge(1.0, 0.1)])
    assert (spent.releases, spent.non_private) == (3, 2)
    assert rule.epsilon_of(spent, 1e-6) == rule.epsilon_left(spent) == math.inf
    assert rule.smallest_noise_multiplier(spent) == 0.0
    assert from_terms(rule.terms()).terms() == rule.terms()


class TestFixedSchedule:
    schedule = (RepeatedCharge(GaussianCharge(20.0), 3), BoundedRangeCharge(0.05), GaussianCharge(2.0, 0.01))

    def make(self):
        return FixedSchedule(self.schedule, 1.0, 1e-6, "add-remove")

    def test_admits_exactly_the_announced_list(self):
        rule = self.make()
        spent = total(rule, [GaussianCharge(20.0)] * 3 + [BoundedRangeCharge(0.05), GaussianCharge(2.0, 0.01)])
        assert spent.releases == 5
        with pytest.raises(BudgetExhausted, match="0 of 5"):
            rule.admit(spent, GaussianCharge(1e9))

    @pytest.mark.parametrize("charge", [GaussianCharge(20.000001), GaussianCharge(1e9), BoundedRangeCharge(0.05)])
    def test_refuses_anything_else_even_if_cheaper(self, charge):
        rule = self.make()
        with pytest.raises(UnsupportedCharge, match="valid only for that schedule"):
            rule.admit(rule.start(), charge)

    def test_repeats_must_match_the_list(self):
        rule = self.make()
        assert rule.admit(rule.start(), RepeatedCharge(GaussianCharge(20.0), 3)).releases == 3
        with pytest.raises(UnsupportedCharge):
            rule.admit(rule.start(), RepeatedCharge(GaussianCharge(20.0), 4))

    def test_stopping_early_costs_less(self):
        rule = self.make()
        part = rule.admit(rule.start(), GaussianCharge(20.0))
        assert 0 < rule.epsilon_of(part, 1e-6) < rule.scheduled_epsilon <= 1.0
        assert 0 < rule.epsilon_left(part) < rule.scheduled_epsilon
        assert rule.affordable(part) == (4.0,)
        assert rule.smallest_noise_multiplier(part) == 20.0
        assert rule.smallest_noise_multiplier(part, sample_prob=0.5) == math.inf
        assert rule.largest_epsilon(part) == 0.0
        assert rule.largest_epsilon(rule.after(part, RepeatedCharge(GaussianCharge(20.0), 2))) == 0.05
        assert rule.leaving(rule.start(), part, 0.5) == part, "the schedule decides what comes next"
        assert repr(rule) == "<FixedSchedule: 5 releases, epsilon=1, delta=1e-06>"

    def test_nothing_is_left_after_the_last_release(self):
        rule = self.make()
        spent = rule.after(rule.start(), RepeatedCharge(GaussianCharge(1.0), 5))
        assert rule.affordable(spent) == (0.0,)
        assert rule.fraction_left(rule.start(), spent) == rule.fraction_left(spent, spent) == 0.0
        assert rule.epsilon_left(spent) == rule.epsilon_of(rule.start(), 1e-6) == 0.0
        assert rule.smallest_noise_multiplier(spent) == math.inf

    def test_schedules_and_grids_that_would_fill_the_memory_are_refused(self):
        with pytest.raises(InvalidArgument, match="of epsilon, to fit the memory"):
            FixedSchedule(self.schedule, 1.0, 1e-6, "add-remove", interval=1e-9)
        with pytest.raises(InvalidArgument, match=r"at most 2,000,000 in all; got 2,000,001"):
            FixedSchedule([RepeatedCharge(GaussianCharge(1e9), 2_000_001)], 1.0, 1e-6, "add-remove")

    def test_a_schedule_that_would_overspend_is_an_error_at_construction(self):
        with pytest.raises(InvalidArgument, match=r"costs epsilon=.*scale_to_budget"):
            FixedSchedule([GaussianCharge(1.0)] * 10, 1.0, 1e-6, "add-remove")
        for wrong in ([], [1.0], [Gaussian(20.0)], 7):
            with pytest.raises(InvalidArgument, match="must be a list of charges, at least one"):
                FixedSchedule(wrong, 1.0, 1e-6, "add-remove")
        with pytest.raises(InvalidArgument):
            FixedSchedule([NonPrivateCharge("look")], 1.0, 1e-6, "add-remove")

    def test_terms_cover_the_whole_list(self):
        other = FixedSchedule([*self.schedule[:2], GaussianCharge(2.5, 0.01)], 1.0, 1e-6, "add-remove")
        assert other.terms() != self.make().terms() == self.make().terms()
        assert from_terms(other.terms()).terms() == other.terms()
        with pytest.raises(InvalidArgument, match="Make the same filter again"):
            from_terms({name: value for name, value in other.terms().items() if name != "schedule"})  # as once written
        with pytest.raises(LedgerCorrupt, match="inconsistent"):
            from_terms(other.terms() | {"schedule": self.make().terms()["schedule"]})


@given(st.floats(0, 1e6, allow_nan=False))
def test_quanta_round_to_the_safe_side(value):
    assert float_down(quanta_down(value)) <= value <= float_up(quanta_up(value))
    assert quanta_up(value) - quanta_down(value) <= 1
    assert (quanta_up(value) > 0) == (value > 0)


def test_subnormal_charges_cost_one_quantum():
    assert quanta_up(5e-324) == 1
    assert quanta_down(5e-324) == 0
    assert float_up(1) > 0
