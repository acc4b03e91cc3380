"""The gate: charge before noise, noise before anything leaves."""

import contextlib
import copy
import math
import os
import pickle
import shutil
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import privypurse
from privypurse import (
    BudgetExhausted,
    ExponentialSelection,
    Gaussian,
    InvalidArgument,
    LedgerCorrupt,
    LedgerUnavailable,
    MemoryLedger,
    NoiseSource,
    Norm,
    Purse,
    Sensitive,
    TermsMismatch,
)
from privypurse.accounting._filters import GdpFilter, RdpFilter
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core._errors import SharedAcrossProcesses, UnboundedSensitivity, UnsupportedCharge
from privypurse.core._sensitive import Sample
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse.mechanisms._non_private import NonPrivateRelease
from privypurse.purse._entries import SETTLE, totals_to_text
from privypurse.purse._replay import replay


def fresh_sample(sample_prob, **more):
    return Sensitive([1.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0, sample_prob=sample_prob, **more)


def lines(purse):
    return list(purse.ledger.entries(purse.dataset))


def test_a_release_is_paid_recorded_and_noisy(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    answer = purse.release(box, Gaussian(20.0), what="gradient").value
    assert answer.shape == (2,)
    assert not np.allclose(answer, [3.0, 4.0])
    assert purse.spent.releases == 1
    assert purse.spent.epsilon == pytest.approx(privypurse.accounting.convert.gdp_epsilon(1 / 20, 1e-6), rel=1e-9)
    assert purse.spent.delta == 1e-6
    assert [entry.kind for entry in lines(purse)] == ["open", "charge"]
    assert lines(purse)[-1].what == "gradient"


class Spy:
    """A mechanism that looks at the ledger at the moment the box is opened."""

    def __init__(self, purse, fail=False):
        self.purse, self.fail, self.seen = purse, fail, None

    def charge(self, box, neighbouring):
        return GaussianCharge(20.0)

    def draw(self, box, neighbouring, noise):
        self.seen = [entry.kind for entry in lines(self.purse)]
        if self.fail:
            raise RuntimeError("crash between payment and release")
        return np.zeros(2)


def test_the_charge_is_on_the_ledger_before_the_box_is_opened(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    spy = Spy(purse)
    purse.release(box, spy)
    assert spy.seen == ["open", "charge"]
    with purse.reserve(5):
        purse.release(box, spy)
    assert spy.seen == ["open", "charge", "reserve"]


def test_a_crash_after_payment_over_counts(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    with pytest.raises(RuntimeError):
        purse.release(box, Spy(purse, fail=True))
    assert purse.spent.releases == 1


def test_a_refusal_opens_nothing_and_changes_nothing(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    purse.release(box, Gaussian(5.0))
    spent, count = purse.spent, len(lines(purse))

    class Greedy(Spy):
        def charge(self, box, neighbouring):
            return GaussianCharge(0.1)

    spy = Greedy(purse)
    with pytest.raises(BudgetExhausted, match=r"Purse\.release spent nothing"):
        purse.release(box, spy)
    assert spy.seen is None
    assert (purse.spent, len(lines(purse))) == (spent, count)
    purse.release(box, Gaussian(50.0))
    assert purse.spent.releases == 2


def test_the_remainder_can_be_spent_to_the_last(ledger, box):
    purse = Purse(0.3, 1e-8, neighbouring="replace-one", ledger=ledger)
    purse.release(box, Gaussian(100.0))
    assert 0 < purse.remaining.fraction < 1
    assert 0 < purse.remaining.epsilon < 0.3
    purse.release(box, Gaussian.spending(purse.remaining))
    assert purse.remaining.fraction < 1e-9
    assert purse.remaining.noise_multiplier == math.inf, "rounding dust is nothing"
    with pytest.raises(BudgetExhausted, match="nothing is left"):
        Gaussian.spending(purse.remaining)
    assert 0.3 * (1 - 1e-6) < purse.spent.epsilon <= 0.3


def test_the_largest_selection_fits(ledger):
    purse = Purse(0.3, 1e-8, neighbouring="add-remove", ledger=ledger)
    scores = Sensitive([0.0, 1.0], norm=Norm.RANGE, add_remove=1.0, replace_one=2.0)
    with pytest.raises(BudgetExhausted, match="largest epsilon of such a release"):
        purse.release(scores, ExponentialSelection(purse.remaining.selection_epsilon * 1.001))
    purse.release(scores, ExponentialSelection(purse.remaining.selection_epsilon))
    assert purse.remaining.fraction < 1e-6


def test_a_price_needs_a_bound(box):
    purse = Purse(1.0, 1e-6, neighbouring="replace-one")
    one_sided = Sensitive([1.0], norm=Norm.L2, add_remove=1.0, replace_one=None)
    with pytest.raises(UnboundedSensitivity):
        purse.release(one_sided, Gaussian(10.0))
    for not_a_box in (np.zeros(3), [1.0], 3.0, None):
        with pytest.raises(InvalidArgument, match="box must be a Sensitive"):
            purse.release(not_a_box, Gaussian(10.0))
    for not_a_mechanism in (None, 1.0, Gaussian, "gaussian"):
        with pytest.raises(InvalidArgument, match="mechanism must have charge and draw"):
            purse.release(box, not_a_mechanism)
    with pytest.raises(InvalidArgument, match="what must be"):
        purse.release(box, Gaussian(10.0), what="")
    assert purse.spent.releases == 0


def test_an_unknown_charge_is_refused(box):
    class Cheat(Spy):
        def charge(self, box, neighbouring):
            return "costs nothing, I promise"

    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    spy = Cheat(purse)
    with pytest.raises(UnsupportedCharge):
        purse.release(box, spy)
    assert spy.seen is None
    assert purse.spent.releases == 0


@pytest.mark.parametrize("multiplier", [2.5, 3.0, 4.0, 6.0])
def test_the_rdp_filter_by_name_is_of_use_for_sampled_releases(multiplier):
    """At least 85 % of what the filter built for exactly this release admits."""

    def admitted(purse):
        with contextlib.suppress(BudgetExhausted):
            while True:
                purse.release(fresh_sample(0.05), Gaussian(multiplier))
        return purse.spent.releases

    made_for_it = RdpFilter(1.0, 1e-6, "add-remove", reference=GaussianCharge(multiplier, 0.05))
    best = admitted(Purse.with_filter(made_for_it))
    assert best > 80
    assert admitted(Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp")) >= 0.85 * best


def test_a_sample_is_good_for_one_release():
    """Ten thousand releases of one sample at the sampled price would be worth one release without
    sampling.
    """
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp")
    box = fresh_sample(0.001)
    with pytest.raises(BudgetExhausted):
        purse.release(box, Gaussian(0.01))
    purse.release(box, Gaussian(10.0))
    with pytest.raises(UnsupportedCharge, match="already released once"):
        purse.release(box, Gaussian(10.0))
    sample = Sample()
    gradient, losses = (fresh_sample(0.001, sample=sample) for _ in range(2))
    purse.release(gradient, Gaussian(10.0))
    with pytest.raises(UnsupportedCharge, match="Draw a fresh sample"):
        purse.release(losses, Gaussian(10.0))
    assert purse.spent.releases == 2


def test_sampled_boxes_need_the_rdp_filter():
    with pytest.raises(UnsupportedCharge, match="filter='rdp'"):
        Purse(1.0, 1e-6, neighbouring="add-remove").release(fresh_sample(0.01), Gaussian(2.0))
    reference = GaussianCharge(2.0, 0.01)
    purse = Purse(
        1.0,
        1e-6,
        neighbouring="add-remove",
        filter=RdpFilter(1.0, 1e-6, "add-remove", reference=reference),
    )
    for _ in range(100):
        purse.release(fresh_sample(0.01), Gaussian(2.0))
    assert purse.spent.epsilon < 1.0


@pytest.mark.parametrize("filter", ["gdp", "zcdp", "rdp"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_every_filter_by_name(filter, relation, ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring=relation, ledger=ledger, filter=filter)
    scores = Sensitive([0.0, 1.0], norm=Norm.RANGE, add_remove=1.0, replace_one=2.0)
    purse.release(box, Gaussian(20.0))
    assert int(purse.release(scores, ExponentialSelection(0.1)).value) in (0, 1)
    with purse.reserve(10):
        for k in range(7):
            purse.release(box, Gaussian(30.0 + k))
    assert purse.spent.releases == 9
    purse.release(box, Gaussian(purse.remaining.noise_multiplier))
    assert purse.spent.epsilon <= 1.0
    assert replay(purse.ledger, purse.dataset, purse.filter) == purse.ledger.totals(purse.dataset)
    again = Purse.reopen(purse.ledger)
    assert again.spent == purse.spent


def test_a_fixed_schedule_through_the_purse(ledger, box):
    plan = FixedSchedule([RepeatedCharge(GaussianCharge(30.0), 4), GaussianCharge(20.0)], 1.0, 1e-6, "add-remove")
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, filter=plan)
    purse.release(box, Gaussian(30.0))
    with pytest.raises(UnsupportedCharge):
        purse.release(box, Gaussian(31.0))
    with purse.reserve(2):
        purse.release(box, Gaussian(30.0))
    assert purse.remaining.noise_multiplier == 30.0
    assert purse.spent.releases == 2, "positions that are still the last ones taken come back"
    with purse.reserve(2):
        purse.release(box, Gaussian(30.0))
        Purse.with_filter(plan, ledger=ledger).release(box, Gaussian(30.0 if ledger is None else 20.0))
    assert purse.spent.releases == 5, "somebody went on in the meantime: the unused position is forfeited"
    certificate = purse.certificate()
    assert (certificate.releases, certificate.unreleased) == (4, 1)
    assert certificate.recorded_epsilon == certificate.relations["add-remove"].recorded_epsilon
    with pytest.raises(BudgetExhausted):
        purse.release(box, Gaussian(20.0))
    assert 0 < purse.spent.epsilon <= 1.0
    assert replay(purse.ledger, purse.dataset, plan) == purse.ledger.totals(purse.dataset)


def test_non_private_work_needs_a_purse_that_says_so(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    with pytest.raises(UnsupportedCharge, match="not_private"):
        purse.release(box, NonPrivateRelease("debugging"))
    open_purse = Purse.not_private(ledger=ledger, dataset="made data")
    assert open_purse.release(box, NonPrivateRelease("debugging")).value.tolist() == [3.0, 4.0]
    assert open_purse.spent.epsilon == open_purse.epsilon == open_purse.remaining.epsilon == math.inf
    assert Purse.reopen(ledger, "made data").epsilon == math.inf


# ------------------------------------------------------------------------------------------ sharing


def test_copies_share_the_budget(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    for twin in (copy.copy(purse), copy.deepcopy(purse), clone(purse, safe=False), clone(purse)):
        assert twin is purse
    for twin in (copy.copy(ledger), copy.deepcopy(ledger), clone(ledger)):
        assert twin is ledger
    copy.deepcopy({"purse": purse})["purse"].release(box, Gaussian(20.0))
    assert purse.spent.releases == 1


def test_a_pickled_purse_spends_the_same_file(tmp_path, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db", dataset="adult")
    twin = pickle.loads(pickle.dumps(purse))
    twin.release(box, Gaussian(20.0))
    assert purse.spent.releases == 1
    assert twin.ledger is not purse.ledger


def test_a_pickled_purse_refuses_a_missing_older_or_other_ledger(tmp_path, box):
    """As on another machine: what is at the path there must be the ledger that was seen here,
    continued.
    """
    path, old, other = tmp_path / "budget.db", tmp_path / "old.db", tmp_path / "other.db"
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path)
    shutil.copy(path, old)
    purse.release(box, Gaussian(20.0))
    blob = pickle.dumps(purse)
    Purse(1.0, 1e-6, neighbouring="add-remove", ledger=other).release(box, Gaussian(30.0))
    path.unlink()
    with pytest.raises(LedgerUnavailable, match="no ledger"):
        pickle.loads(blob)
    for substitute in (old, other):
        shutil.copy(substitute, path)
        with pytest.raises(LedgerCorrupt, match="older or another one"):
            pickle.loads(blob)


def test_a_purse_in_memory_refuses_to_be_pickled_or_forked(box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    for thing in (purse, purse.ledger):
        with pytest.raises(SharedAcrossProcesses, match=r"ledger='budget\.db'"):
            pickle.dumps(thing)
    child = os.fork()
    if child == 0:
        try:
            purse.release(box, Gaussian(20.0))
        except SharedAcrossProcesses:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_forked_child_does_not_spend_its_parents_reservation(tmp_path, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    with purse.reserve(10):
        purse.release(box, Gaussian(100.0))
        child = os.fork()
        if child == 0:
            for _ in range(3):
                purse.release(box, Gaussian(100.0))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        purse.release(box, Gaussian(100.0))
    kinds = [entry.kind for entry in lines(purse)]
    assert kinds == ["open", "reserve", "charge", "charge", "charge", "settle"]
    assert purse.spent.releases == 5


# ------------------------------------------------------------------------------ data sets and terms


def test_a_purse_is_not_rebuilt_on_a_ledger_without_its_account():
    """It would be a second budget."""
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    rebuild, (rule, _, *rest) = purse.__reduce__()
    with pytest.raises(LedgerCorrupt, match="has no account for 'default'"):
        rebuild(rule, MemoryLedger(), *rest)


def test_a_forked_child_settles_nothing_of_its_parent(tmp_path, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    with purse.reserve(10):
        purse.release(box, Gaussian(100.0))
        child = os.fork()
        if child == 0:
            purse._reservation.settle(close=True)
            purse._reservation.settle()
            os._exit(0 if purse.block is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [entry.kind for entry in lines(purse)] == ["open", "reserve"]


def test_a_closed_reservation_takes_no_charge(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    with purse.reserve(10):
        purse.release(box, Gaussian(100.0))
        reservation = purse._reservation
    assert not reservation.pay(GaussianCharge(100.0), None, "late")
    reservation.settle(close=True)
    assert [entry.kind for entry in lines(purse)] == ["open", "reserve", "settle"]


class Listener:
    """An observer that puts another mechanism in place of the one that was asked for."""

    def __init__(self, instead):
        self.instead, self.heard = instead, []

    def watch(self, purse, mechanism):
        return self.instead

    def hear(self, purse, box, mechanism, what, released):
        self.heard.append((mechanism, what, None if released is None else released.charge))


def test_an_observer_hears_every_release_and_what_it_puts_in_place_is_charged(ledger, box):
    purse, listener = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger), Listener(Gaussian(40.0))
    with Purse.observed_by(listener):
        assert purse.release(box, Gaussian(80.0), what="sum").charge == GaussianCharge(40.0)
        listener.instead = Gaussian(0.1)
        with pytest.raises(BudgetExhausted):
            purse.release(box, Gaussian(80.0), what="sum")
    purse.release(box, Gaussian(80.0))
    assert listener.heard == [(Gaussian(40.0), "sum", GaussianCharge(40.0)), (Gaussian(0.1), "sum", None)]
    assert [entry.details["charge"]["noise_multiplier"] for entry in lines(purse)[1:]] == [40.0, 80.0]


def test_a_draw_that_its_class_does_not_declare_is_not_called_exact(box):
    def mechanism():
        return types.SimpleNamespace(
            charge=Gaussian(50.0).charge, draw=Gaussian(50.0).draw, check_noise=Gaussian(50.0).check_noise
        )

    with pytest.raises(InvalidArgument, match="does not declare exact noise"):
        Purse(1.0, 1e-6, neighbouring="add-remove", noise="secure").release(box, mechanism())
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    purse.release(box, mechanism())
    assert lines(purse)[-1].details["exact"] is None


def test_data_sets_have_separate_budgets_on_one_ledger(ledger, box):
    adult = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, dataset="adult", who="ada")
    bank = Purse(0.1, 1e-9, neighbouring="replace-one", ledger=ledger, dataset="bank", who="ben")
    adult.release(box, Gaussian(10.0))
    bank.release(box, Gaussian(1000.0))
    assert adult.spent.releases == bank.spent.releases == 1
    assert {entry.who for entry in lines(adult)} == {"ada"}
    assert {entry.who for entry in lines(bank)} == {"ben"}


@pytest.mark.parametrize(
    "changed", [{"epsilon": 2.0}, {"delta": 1e-5}, {"neighbouring": "replace-one"}, {"filter": "zcdp"}], ids=repr
)
def test_a_data_set_has_one_budget_for_good(ledger, changed):
    terms = {"epsilon": 1.0, "delta": 1e-6, "neighbouring": "add-remove", "ledger": ledger}
    Purse(**terms)
    Purse(**terms)
    with pytest.raises(TermsMismatch, match="one permanent budget"):
        Purse(**terms | changed)


def test_reopening(tmp_path, box):
    path = tmp_path / "budget.db"
    Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path, dataset="adult").release(box, Gaussian(20.0))
    purse = Purse.reopen(path, "adult")
    assert (purse.epsilon, purse.delta, purse.spent.releases) == (1.0, 1e-6, 1)
    with pytest.raises(InvalidArgument, match=r"'bank' is not on the ledger.*\['adult'\]"):
        Purse.reopen(path, "bank")
    with pytest.raises(LedgerUnavailable, match="no ledger at"):
        Purse.reopen(tmp_path / "mistyped.db", "adult")
    assert not (tmp_path / "mistyped.db").exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon": 0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"epsilon": True},
        {"epsilon": "1"},
        {"delta": 0.0},
        {"delta": 1.0},
        {"neighbouring": "swap"},
        {"filter": "pld"},
        {"filter": 3},
        {"filter": GdpFilter},
        {"ledger": 3},
        {"dataset": ""},
        {"noise": 7},
        {"who": ""},
        {"filter": GdpFilter(2.0, 1e-6, "add-remove")},
        {"filter": GdpFilter(1.0, 1e-6, "replace-one")},
    ],
    ids=repr,
)
def test_wrong_arguments_are_refused_by_name(changed):
    with pytest.raises(InvalidArgument, match=f"^{next(iter(changed))}|must agree"):
        Purse(**{"epsilon": 1.0, "delta": 1e-6, "neighbouring": "add-remove"} | changed)


def test_the_relation_has_no_default():
    with pytest.raises(TypeError, match="neighbouring"):
        Purse(1.0, 1e-6)


# ------------------------------------------------------------------------------------- reservations


def test_a_reservation_writes_two_lines_for_many_releases(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    with purse.reserve(100) as same:
        assert same is purse
        for k in range(60):
            purse.release(box, Gaussian(100.0 + k), what="gradient")
        assert purse.spent.releases == 60
        inside = purse.spent
    assert [entry.kind for entry in lines(purse)] == ["open", "reserve", "settle"]
    assert purse.spent == inside


@settings(max_examples=25)
@given(st.lists(st.floats(5.0, 1e5), max_size=30), st.integers(1, 50))
def test_a_reservation_costs_exactly_what_single_payments_cost(multipliers, releases):
    held = Sensitive([0.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)
    single = Purse(1.0, 1e-6, neighbouring="add-remove")
    block = Purse(1.0, 1e-6, neighbouring="add-remove")
    admitted = []
    for purse, context in ((single, None), (block, releases)):
        accepted = []

        def spend(purse=purse, accepted=accepted):
            for multiplier in multipliers:
                try:
                    purse.release(held, Gaussian(multiplier))
                    accepted.append(True)
                except BudgetExhausted:
                    accepted.append(False)

        if context is None:
            spend()
        else:
            with purse.reserve(context):
                spend()
        admitted.append(accepted)
    assert admitted[0] == admitted[1]
    assert single.ledger.totals("default") == block.ledger.totals("default")
    assert replay(block.ledger, "default", block.filter) == block.ledger.totals("default")


def test_a_crash_inside_a_reservation_leaves_the_whole_block_spent(tmp_path, box):
    path = tmp_path / "budget.db"
    child = os.fork()
    if child == 0:
        purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path)
        with purse.reserve(50):
            purse.release(box, Gaussian(100.0))
            os._exit(9)
    os.waitpid(child, 0)
    purse = Purse.reopen(path)
    assert purse.spent.releases == 50
    certificate = purse.certificate()
    assert certificate.unsettled == 1
    assert certificate.relations["replace-one"].epsilon is None
    assert "never settled" in str(certificate)


def test_nested_and_closed_reservations(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    with purse.reserve(10), purse.reserve(20):
        purse.release(box, Gaussian(100.0))
    with purse.reserve(10):
        pass
    purse.release(box, Gaussian(100.0))
    assert [entry.kind for entry in lines(purse)] == ["open", "reserve", "settle", "charge"]
    with pytest.raises(InvalidArgument, match="releases must be"):
        purse.reserve(0).__enter__()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_while_a_block_is_settled_never_gives_it_back_twice(ledger, box, moment, monkeypatch):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    append = ledger.append

    def interrupted(dataset, kind, *arguments, **named):
        if kind == SETTLE:
            monkeypatch.setattr(ledger, "append", append)  # once
            if moment == "after":
                append(dataset, kind, *arguments, **named)
            raise KeyboardInterrupt
        return append(dataset, kind, *arguments, **named)

    monkeypatch.setattr(ledger, "append", interrupted)
    with contextlib.suppress(KeyboardInterrupt), purse.reserve(100):
        for _ in range(10):
            purse.release(box, Gaussian(500.0))
        purse.certificate()
    assert purse.spent.releases == (100 if moment == "before" else 10)
    assert replay(ledger, "default", purse.filter) == ledger.totals("default")


@pytest.mark.parametrize("reservation", [str, lambda block: "made up"], ids=["settled already", "never made"])
def test_replay_recounts_settlements(ledger, box, reservation):
    """A settlement of a block that was never made, or was settled before, does not pass."""
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    with purse.reserve(100):
        for _ in range(10):
            purse.release(box, Gaussian(500.0))
    block = next(entry.details["reservation"] for entry in lines(purse) if entry.kind == "reserve")
    spent = ledger.totals("default")
    body = {"reservation": reservation(block), "used": [], "returned": totals_to_text(spent)}
    ledger.append("default", SETTLE, body, who="mallory", what="x", decide=lambda totals: totals.minus(spent))
    with pytest.raises(LedgerCorrupt, match="not reserved"):
        replay(ledger, "default", purse.filter)
    with pytest.raises(LedgerCorrupt, match="more would be returned"):
        ledger.append("default", SETTLE, {}, who="m", what="x", decide=lambda totals: totals.minus(spent))


def test_replay_checks_what_a_block_gives_back(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    with purse.reserve(100):
        purse.release(box, Gaussian(500.0))
        block = next(entry.details["reservation"] for entry in lines(purse) if entry.kind == "reserve")
        reserved = ledger.totals("default")
        used = [[{"kind": "gaussian", "noise_multiplier": 500.0, "sample_prob": 1.0}, None, "x", 1]]
        body = {"reservation": block, "used": used, "returned": totals_to_text(reserved)}
        ledger.append("default", SETTLE, body, who="m", what="x", decide=lambda totals: totals.minus(reserved))
        with pytest.raises(LedgerCorrupt, match="returns more"):
            replay(ledger, "default", purse.filter)
        purse._reservation._ceiling = None  # so that the end of the block adds nothing more


def test_an_error_inside_a_reservation_settles_it(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    with contextlib.suppress(RuntimeError), purse.reserve(10):
        purse.release(box, Gaussian(100.0))
        raise RuntimeError("user code")
    assert [entry.kind for entry in lines(purse)] == ["open", "reserve", "settle"]
    assert purse.spent.releases == 1


# ------------------------------------------------------------------------------------------- replay


@settings(max_examples=50)
@given(st.lists(st.one_of(st.floats(4.0, 1e6), st.just(None)), max_size=25))
def test_ledger_replay_gives_the_same_total(multipliers):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=MemoryLedger())
    held = Sensitive([0.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)
    scores = Sensitive([0.0, 1.0], norm=Norm.RANGE, add_remove=1.0, replace_one=2.0)
    for multiplier in multipliers:
        try:
            if multiplier is None:
                purse.release(scores, ExponentialSelection(0.02))
            else:
                purse.release(held, Gaussian(multiplier))
        except BudgetExhausted:
            continue
    assert replay(purse.ledger, "default", purse.filter) == purse.ledger.totals("default")
    assert purse.ledger.verify() == len(lines(purse))


def test_repr_shows_the_terms_and_no_data(box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=1))
    assert repr(purse) == "<Purse: epsilon=1, delta=1e-06, add-remove, gdp filter, data set 'default'>"


class PlainGaussian(Gaussian):
    """A mechanism that does not declare exact noise."""

    def draw(self, box, neighbouring, noise):
        return super().draw(box, neighbouring, noise)


def test_a_delta_that_plain_noise_cannot_keep_is_refused_before_anything_is_spent(ledger, box):
    tiny = {"neighbouring": "add-remove", "ledger": ledger}
    with pytest.raises(InvalidArgument, match=r"delta must be at least 1e-15.*noise='secure', or with a larger delta"):
        Purse(1.0, 1e-16, noise="plain", **tiny)
    purse = Purse(1.0, 1e-16, **tiny)
    purse.release(box, Gaussian(100.0))  # in exact arithmetic
    with pytest.raises(InvalidArgument, match=r"delta must be at least 1e-15.*Purse.release spent nothing"):
        purse.release(box, PlainGaussian(100.0))
    assert purse.spent.releases == 1


@pytest.mark.parametrize("noise", ["secure", NoiseSource(seed=1, secure=False)], ids=["exact", "simulation"])
def test_a_tiny_delta_is_for_exact_noise_and_simulations(noise, box):
    purse = Purse(1.0, 1e-30, neighbouring="add-remove", noise=noise)
    assert purse.release(box, Gaussian(100.0)).value.shape == (2,)
    assert Purse(1.0, 1e-15, neighbouring="add-remove", noise="plain").release(box, Gaussian(100.0)).value.shape == (2,)
