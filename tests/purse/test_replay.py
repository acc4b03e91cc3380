"""Counting a ledger again: blocks of a fixed schedule in any mix, and ledgers that an earlier
version wrote.
"""

import pathlib
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privypurse import BudgetExhausted, Gaussian, LedgerCorrupt, MemoryLedger, Norm, Purse, Sensitive, SqliteLedger
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core.charges import GaussianCharge
from privypurse.purse._entries import SETTLE, totals_to_text
from privypurse.purse._replay import replay

BOX = Sensitive([3.0, 4.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)
NOISES = (30.0, 60.0, 90.0)
# Made before a block of a fixed schedule could be counted again: its "used" names 3 charges of one
# kind, then 2 of another.
EARLIER = pathlib.Path(__file__).parent / "data" / "earlier.ledger"


@settings(max_examples=40)
@given(
    schedule=st.lists(st.sampled_from(NOISES), min_size=1, max_size=30),
    blocks=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), max_size=6),
)
def test_blocks_of_a_fixed_schedule_are_counted_again_in_any_mix(schedule, blocks):
    rule = FixedSchedule([GaussianCharge(noise) for noise in schedule], 3.0, 1e-6, "add-remove")
    purse = Purse.with_filter(rule, ledger=MemoryLedger())
    made = 0
    for size, used in blocks:
        with purse.reserve(size):
            for _ in range(min(used, len(schedule) - made)):
                purse.release(BOX, Gaussian(schedule[made]))
                made += 1
    assert purse.spent.releases == made
    assert replay(purse.ledger, purse.dataset, rule) == purse.ledger.totals(purse.dataset)


def forged(used, returned=None):
    """Settle a block of four by hand; return the ledger and its rule."""
    rule = FixedSchedule([GaussianCharge(30.0), GaussianCharge(60.0)] * 4, 1.0, 1e-6, "add-remove")
    ledger = MemoryLedger()
    purse = Purse.with_filter(rule, ledger=ledger)
    with purse.reserve(4):
        purse.release(BOX, Gaussian(30.0))
        block = next(entry.details["reservation"] for entry in ledger.entries() if entry.kind == "reserve")
        lines = [
            [{"kind": "gaussian", "noise_multiplier": noise, "sample_prob": 1.0}, None, "x", n] for noise, n in used
        ]
        text = None if returned is None else totals_to_text(returned(rule))
        body = {"reservation": block, "used": lines, "returned": text}
        ledger.append(
            "default",
            SETTLE,
            body,
            who="m",
            what="x",
            decide=lambda totals: totals if returned is None else totals.minus(returned(rule)),
        )
        purse._reservation._ceiling = None  # so that the end of the block adds nothing more
    return ledger, rule


def test_a_mix_that_is_the_schedules_own_is_counted():
    ledger, rule = forged([(60.0, 1), (30.0, 2)])
    assert replay(ledger, "default", rule) == ledger.totals("default")


@pytest.mark.parametrize(
    "used",
    [[(30.0, 2)], [(60.0, 1)], [(30.0, 1), (60.0, 2)], [(40.0, 1)], [(30.0, 3), (60.0, 2)], [(30.0, 9)]],
    ids=["one kind left out", "not the next", "too many of one", "not in it", "more than the block", "more than all"],
)
def test_a_block_with_other_charges_than_the_schedule_has_there_is_refused(used):
    ledger, rule = forged(used)
    with pytest.raises(LedgerCorrupt, match=r"line 3 of the ledger (has a charge that|uses more)"):
        replay(ledger, "default", rule)


def test_a_block_that_gives_back_more_than_it_left_is_refused():
    ledger, rule = forged(
        [(60.0, 1), (30.0, 2)],
        returned=lambda rule: rule.admit_ahead(rule.start(), GaussianCharge(30.0), 2),
    )
    with pytest.raises(LedgerCorrupt, match="returns more"):
        replay(ledger, "default", rule)


def test_a_ledger_of_an_earlier_version_opens_verifies_and_goes_on(tmp_path):
    path = tmp_path / "budget.db"
    shutil.copy(EARLIER, path)
    ledger = SqliteLedger(path)
    assert ledger.verify() == 7
    fixed, free = (Purse.reopen(ledger, name) for name in ("a schedule", "budgets on the way"))
    (block,) = (entry.details["used"] for entry in ledger.entries("a schedule") if entry.kind == SETTLE)
    assert [count for *_, count in block] == [3, 2], "interleaved charges, counted"
    for purse, releases in ((fixed, 5), (free, 4)):
        assert purse.spent.releases == releases
        assert replay(ledger, purse.dataset, purse.filter) == ledger.totals(purse.dataset)
    with fixed.reserve(3):
        for noise in (60.0, 30.0, 60.0):
            fixed.release(BOX, Gaussian(noise))
    with pytest.raises(BudgetExhausted):
        fixed.release(BOX, Gaussian(30.0))
    free.release(BOX, Gaussian(50.0))
    for purse in (fixed, free):
        assert replay(ledger, purse.dataset, purse.filter) == ledger.totals(purse.dataset)
    assert SqliteLedger(path).verify() == 10
