"""Allowances: what leaves is paid twice, from the limit of the fit and from the purse that many
fits share.
"""

import contextlib
import copy
import os
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from privypurse import (
    BudgetExhausted,
    ExponentialSelection,
    Gaussian,
    GdpFilter,
    InvalidArgument,
    MemoryLedger,
    NoiseSource,
    Norm,
    PermuteAndFlip,
    Purse,
    Sensitive,
    SqliteLedger,
    ZcdpFilter,
)
from privypurse.core._errors import BudgetFrozen, SharedAcrossProcesses, UnsupportedCharge
from privypurse.core.charges import GaussianCharge
from privypurse.purse._allowance import OUTSIDE, SIMULATED, Allowance
from privypurse.purse._replay import replay

BOX = Sensitive([3.0, 4.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)
SCORES = Sensitive([0.0, 1.0], norm=Norm.RANGE, add_remove=1.0, replace_one=2.0)


def a_purse(ledger=None, epsilon=1.0, **more):
    return Purse(epsilon, 1e-6, **{"neighbouring": "add-remove", "ledger": ledger} | more)


def part_of(purse, epsilon=0.2, delta=1e-6):
    return Allowance(purse, GdpFilter(epsilon, delta, purse.neighbouring))


def kinds(purse):
    return [entry.kind for entry in purse.ledger.entries(purse.dataset)]


def state(*purses):
    return [(purse.totals, kinds(purse)) for purse in purses]


class Watcher:
    """A mechanism that looks at ledgers while it draws, and may fail there."""

    def __init__(self, look, noise_multiplier=30.0, fail=False):
        self.look, self.multiplier, self.fail, self.seen = look, noise_multiplier, fail, None

    def charge(self, box, neighbouring):
        return GaussianCharge(self.multiplier)

    def draw(self, box, neighbouring, noise):
        self.seen = self.look()
        if self.fail:
            raise RuntimeError("crash between payment and release")
        return np.zeros(2)


def test_what_leaves_is_on_the_ledger_of_the_purse(ledger):
    purse = a_purse(ledger, dataset="adult", who="ada")
    allowance = part_of(purse)
    allowance.release(BOX, Gaussian(30.0), what="gradient")
    allowance.release(SCORES, ExponentialSelection(0.02), what="step")
    recorded = [(line.kind, line.what, line.who) for line in ledger.entries("adult")]
    assert recorded == [("open", "open the account", "ada"), ("charge", "gradient", "ada"), ("charge", "step", "ada")]
    assert purse.totals == allowance.totals == replay(ledger, "adult", purse.filter)
    assert (allowance.purse, allowance.dataset, allowance.noise) == (purse, "adult", purse.noise)
    purse.release(BOX, Gaussian(30.0))
    assert (purse.spent.releases, allowance.spent.releases) == (3, 2)


def test_it_is_durable_in_a_file_before_noise_is_drawn(tmp_path):
    path = tmp_path / "budget.db"
    allowance = part_of(a_purse(path))
    spy = Watcher(lambda: (SqliteLedger(path).totals("default").releases, allowance.totals.releases))
    allowance.release(BOX, spy)
    assert spy.seen == (1, 1)
    with allowance.reserve(3):
        allowance.release(BOX, spy)
    assert spy.seen[0] >= 2, "in a reserved block, which is on the file"


@pytest.mark.parametrize("reserved", [False, True])
def test_a_crash_while_drawing_is_paid_in_both(ledger, reserved):
    allowance = part_of(a_purse(ledger))
    with (
        pytest.raises(RuntimeError, match="crash"),
        allowance.reserve(2) if reserved else contextlib.nullcontext(),
    ):
        allowance.release(BOX, Watcher(lambda: None, fail=True))
    assert allowance.spent.releases == allowance.purse.spent.releases == 1


@pytest.mark.parametrize("reserved", [False, True])
def test_more_than_the_allowance_is_refused_with_nothing_spent_anywhere(ledger, reserved):
    purse = a_purse(ledger)
    allowance = part_of(purse)
    allowance.release(BOX, Gaussian(40.0))
    before, spy = state(purse, allowance), Watcher(lambda: True, noise_multiplier=10.0)
    with allowance.reserve() if reserved else contextlib.nullcontext():
        with pytest.raises(BudgetExhausted, match=r"Purse\.release spent nothing"):
            allowance.release(BOX, spy)
        assert spy.seen is None, "the box was not opened"
        assert state(purse, allowance) == before
    assert state(purse, allowance) == before
    purse.release(BOX, Gaussian(10.0))  # the purse itself could have paid for it
    allowance.release(BOX, Gaussian(40.0))  # and something smaller still fits


@pytest.mark.parametrize("reserved", [False, True])
def test_what_the_purse_refuses_leaves_the_allowance_unspent(ledger, reserved):
    purse = a_purse(ledger)
    allowance = part_of(purse, 0.9)
    allowance.release(BOX, Gaussian(40.0))
    Purse.with_filter(purse.filter, ledger=ledger).release(BOX, Gaussian(4.5))  # somebody else, in the meantime
    before, spy = state(purse, allowance), Watcher(lambda: True, noise_multiplier=6.0)
    with allowance.reserve() if reserved else contextlib.nullcontext():
        with pytest.raises(BudgetExhausted):
            allowance.release(BOX, spy)
        assert spy.seen is None
        assert state(purse, allowance) == before
    allowance.release(BOX, Gaussian(40.0))
    assert allowance.spent.releases == 2


def test_allowances_of_allowances(ledger):
    purse = a_purse(ledger)
    outer = part_of(purse, 0.5)
    inner, second = part_of(outer, 0.3), part_of(outer, 0.49)
    inner.release(BOX, Gaussian(20.0))
    assert [p.spent.releases for p in (purse, outer, inner, second)] == [1, 1, 1, 0]
    purses = (purse, outer, inner, second)
    before = state(*purses)
    least = {p: p.remaining.noise_multiplier for p in purses}
    assert least[purse] < least[second] * 1.01 < least[outer] < least[inner] * 0.99
    with pytest.raises(BudgetExhausted):
        inner.release(BOX, Gaussian(least[inner] * 0.99))
    with pytest.raises(BudgetExhausted):
        second.release(BOX, Gaussian(least[second] * 1.01))  # within its own limit, more than is left of the outer one
    purse.release(BOX, Gaussian(least[purse] * 1.02))
    before[0] = state(purse)[0]
    with pytest.raises(BudgetExhausted):
        second.release(BOX, Gaussian(least[outer] * 1.01))  # within both, but the purse has no more
    assert state(*purses) == before
    with inner.reserve(10):
        inner.release(BOX, Gaussian(500.0))
    assert kinds(purse) == ["open", "charge", "charge", "reserve", "settle"]
    assert [p.spent.releases for p in (purse, outer, inner)] == [3, 2, 2]


def test_a_reservation_is_settled_on_the_purse(ledger):
    purse = a_purse(ledger)
    allowance = part_of(purse)
    with allowance.reserve(100) as same:
        assert same is allowance
        for _ in range(30):
            allowance.release(BOX, Gaussian(400.0), what="gradient")
        assert allowance.spent.releases == 30
    assert kinds(purse) == ["open", "reserve", "settle"]
    assert purse.totals == allowance.totals == replay(ledger, "default", purse.filter)
    assert purse.spent.releases == 30, "the unused part came back"
    (group,) = purse.certificate().groups
    assert (group.what, group.count) == ("gradient", 30)


def test_both_certificates(ledger):
    purse = a_purse(ledger, dataset="adult")
    purse.release(BOX, Gaussian(20.0), what="count")
    allowance = part_of(purse, 0.25, delta=1e-7)
    allowance.release(BOX, Gaussian(40.0), what="gradient")
    allowance.declare_uncovered("ranges were read from the data")
    whole, part = purse.certificate(), allowance.certificate()
    assert (whole.epsilon, whole.delta, whole.releases) == (1.0, 1e-6, 2)
    assert (part.epsilon, part.delta, part.releases) == (0.25, 1e-7, 1)
    assert [group.what for group in whole.groups] == ["count", "gradient"]
    assert [group.what for group in part.groups] == ["gradient"]
    assert part.recorded_epsilon <= 0.25
    for certificate in (whole, part):
        assert certificate.private
        assert "ranges were read from the data" in certificate.uncovered
        assert certificate.relations["replace-one"].recorded_epsilon > certificate.recorded_epsilon


@pytest.mark.parametrize("reserved", [False, True])
def test_a_simulation_is_stamped_on_both(ledger, reserved):
    purse = a_purse(ledger, noise=NoiseSource(seed=1))
    allowance = part_of(purse)
    with allowance.reserve(2) if reserved else contextlib.nullcontext():
        answer = allowance.release(BOX, Gaussian(30.0)).value
    assert answer.tolist() == a_purse(noise=NoiseSource(seed=1)).release(BOX, Gaussian(30.0)).value.tolist()
    for certificate in (purse.certificate(), allowance.certificate()):
        assert not certificate.private
        assert "simulation" in str(certificate).lower()
    # Also for one who reopens the ledger with noise of his own.
    assert not Purse.reopen(ledger).certificate().private


def test_seeded_noise_of_others_is_declared_on_the_certificate_of_a_part(ledger):
    a_purse(ledger, noise=NoiseSource(seed=1)).release(BOX, Gaussian(50.0))
    part = part_of(a_purse(ledger))
    part.release(BOX, Gaussian(50.0))
    assert not part.certificate().simulation
    assert SIMULATED in part.certificate().uncovered


def test_a_freeze_closes_the_account_of_the_purse(ledger):
    purse = a_purse(ledger)
    part_of(purse).freeze("done")
    with pytest.raises(BudgetFrozen, match="was frozen"):
        purse.release(BOX, Gaussian(50.0))


@pytest.mark.parametrize("make", [Allowance.with_filter, Allowance.not_private, Allowance.reopen])
def test_an_allowance_is_made_from_a_purse_only(make):
    with pytest.raises(InvalidArgument, match="an allowance is made from a purse"):
        make(GdpFilter(1.0, 1e-6, "add-remove"))


def test_paying_again_is_paid_in_both(ledger):
    allowance = part_of(a_purse(ledger))
    allowance.pay_again(GaussianCharge(30.0), what="from a checkpoint")
    assert allowance.spent.releases == allowance.purse.spent.releases == 1
    with pytest.raises(BudgetExhausted):
        allowance.pay_again(GaussianCharge(2.0), what="from a checkpoint")
    assert allowance.spent.releases == allowance.purse.spent.releases == 1


def test_what_has_no_price_is_refused_with_nothing_spent(ledger):
    purse = a_purse(ledger, filter="rdp")
    allowance = part_of(purse)
    before = state(purse, allowance)
    sampled = Sensitive([1.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0, sample_prob=0.01)
    with pytest.raises(UnsupportedCharge):
        allowance.release(sampled, Gaussian(50.0))
    cheat = Watcher(lambda: True)
    cheat.charge = lambda box, neighbouring: "costs nothing, I promise"
    with pytest.raises(UnsupportedCharge):
        allowance.release(BOX, cheat)
    assert cheat.seen is None
    assert state(purse, allowance) == before
    purse.release(sampled, Gaussian(50.0))  # the sample was not used up by the refusal


def test_the_relation_is_the_purses():
    with pytest.raises(InvalidArgument, match="neighbouring must be that of the purse"):
        Allowance(a_purse(), GdpFilter(0.1, 1e-6, "replace-one"))
    purse = a_purse(neighbouring="replace-one", noise=NoiseSource(seed=3))
    allowance = part_of(purse, 0.9)
    drawn = np.array([allowance.release(BOX, Gaussian(300.0)).value for _ in range(200)]) - [3.0, 4.0]
    assert drawn.std() == pytest.approx(600.0, rel=0.15), "noise for replaced records"


# ---------------------------------------------------------------------------------- several at once


def test_threads_get_what_was_paid_and_no_more(ledger):
    """Small charges up to the limit of the allowance, from eight threads."""
    purse = a_purse(ledger)
    allowance, got, start = part_of(purse, 0.1), [], threading.Barrier(8)

    def spend():
        start.wait()
        with contextlib.suppress(BudgetExhausted):
            while True:
                got.append(allowance.release(BOX, Gaussian(250.0)).value)

    workers = [threading.Thread(target=spend) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    alone = part_of(a_purse(), 0.1)
    with contextlib.suppress(BudgetExhausted):
        while True:
            alone.release(BOX, Gaussian(250.0))
    assert len(got) == allowance.spent.releases == alone.spent.releases > 10
    assert allowance.spent.epsilon <= 0.1
    assert len(got) <= purse.spent.releases <= len(got) + 8, "the purse may be paid for what was refused at the end"
    assert replay(ledger, "default", purse.filter) == purse.totals


def test_a_race_for_the_last_of_an_allowance_lets_one_out_and_over_counts(ledger):
    """Both pass the first check: the second comes while the first pays the purse."""

    class Slow(Purse):
        meanwhile = None

        def _pay(self, charge, other, what, **how):
            act, self.meanwhile = self.meanwhile, None
            if act is not None:
                act()
            super()._pay(charge, other, what, **how)

    purse = Slow(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    allowance, got = part_of(purse, 0.1), []
    purse.meanwhile = lambda: got.append(allowance.release(BOX, Gaussian(40.0)).value)
    with pytest.raises(BudgetExhausted):
        allowance.release(BOX, Watcher(lambda: got.append("opened"), noise_multiplier=40.0))
    assert len(got) == allowance.spent.releases == 1
    assert purse.spent.releases == 2


def test_copies_are_the_allowance_itself():
    allowance = part_of(a_purse())
    for twin in (copy.copy(allowance), copy.deepcopy(allowance), clone(allowance), copy.deepcopy([allowance])[0]):
        assert twin is allowance


def test_no_second_allowance_by_pickling(ledger):
    """Also where the purse has a file: the count of the allowance itself is in this process only."""
    allowance = part_of(a_purse(ledger))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(SharedAcrossProcesses, match="second budget"):
            pickle.dumps(allowance, protocol=protocol)
    with pytest.raises(SharedAcrossProcesses):
        pickle.dumps(part_of(allowance, 0.1))


@pytest.mark.parametrize("reserved", [False, True])
def test_no_second_allowance_by_forking(ledger, reserved):
    purse = a_purse(ledger)
    allowance = part_of(purse)
    with allowance.reserve(4) if reserved else contextlib.nullcontext():
        allowance.release(BOX, Gaussian(60.0))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                allowance.release(BOX, Gaussian(60.0))
            except SharedAcrossProcesses:
                code = 7
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert allowance.spent.releases == purse.spent.releases == 1


# ---------------------------------------------------------------------------- purses of other rules

releases = st.lists(
    st.one_of(
        st.builds(Gaussian, st.floats(3.0, 200.0)),
        st.builds(ExponentialSelection, st.floats(0.001, 1.0)),
        st.builds(PermuteAndFlip, st.floats(0.001, 3.0)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("rule", ["gdp", "zcdp", "rdp"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@settings(max_examples=25)
@given(asked=releases, share=st.floats(0.05, 5.0), blocks=st.booleans())
def test_no_rule_is_passed_whatever_the_allowance_says(rule, relation, asked, share, blocks):
    """Allowances of any size, also above the purse: each limit holds for itself."""
    purse = a_purse(MemoryLedger(), neighbouring=relation, filter=rule)
    allowance = part_of(purse, share)
    got = 0
    with allowance.reserve(3) if blocks else contextlib.nullcontext():
        for mechanism in asked:
            with contextlib.suppress(BudgetExhausted):
                allowance.release(BOX if isinstance(mechanism, Gaussian) else SCORES, mechanism)
                got += 1
    assert allowance.spent.releases == purse.spent.releases == got
    assert allowance.spent.epsilon <= share
    assert purse.spent.epsilon <= 1.0
    assert all(used <= limit for used, limit in zip(purse.totals.quanta, purse.filter.limits, strict=True))
    assert replay(purse.ledger, "default", purse.filter) == purse.totals


def test_an_allowance_may_have_another_rule(ledger):
    purse = a_purse(ledger)
    allowance = Allowance(purse, ZcdpFilter(0.3, 1e-6, "add-remove"))
    allowance.release(BOX, Gaussian.spending(allowance.remaining))
    assert allowance.spent.epsilon <= 0.3
    assert purse.spent.releases == 1


def test_what_the_purse_covers_is_said_of_its_parts_only():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    part = Allowance(purse, GdpFilter(0.5, 1e-6, "add-remove"))
    inner = Allowance(part, GdpFilter(0.1, 1e-6, "add-remove"))
    words = f"PrivateRangeScaler, {OUTSIDE}"
    inner.declare_uncovered(words)
    assert words in inner.certificate().uncovered
    assert words in part.certificate().uncovered
    assert words not in purse.certificate().uncovered
