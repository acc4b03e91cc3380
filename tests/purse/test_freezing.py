"""A frozen account: nothing more is spent on it by anybody, and what is on record stays good."""

import subprocess
import sys

import pytest

from privypurse import BudgetExhausted, Gaussian, Purse
from privypurse.core._errors import BudgetFrozen
from privypurse.purse._opening import part_of
from privypurse.purse._replay import replay


def a_purse(ledger, **settings):
    return Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, **settings)


NOISE = Gaussian(noise_multiplier=100.0)


def test_nothing_is_spent_after_a_freeze(ledger, box):
    purse = a_purse(ledger)
    purse.release(box, NOISE)
    purse.freeze("an audit")
    lines, spent = list(ledger.entries()), purse.spent
    with pytest.raises(BudgetFrozen, match=r"Purse\.release spent nothing"):
        purse.release(box, NOISE)
    with pytest.raises(BudgetExhausted), purse.reserve(5):
        purse.release(box, NOISE)
    with pytest.raises(BudgetFrozen):
        part_of(purse, 0.1)
    with pytest.raises(BudgetFrozen):
        a_purse(ledger).release(box, NOISE)
    assert list(ledger.entries()) == lines
    assert purse.spent == spent
    assert ledger.is_frozen("default")


def test_other_data_sets_are_not_frozen(ledger, box):
    a_purse(ledger).freeze("an audit")
    other = a_purse(ledger, dataset="other")
    other.release(box, NOISE)
    assert not ledger.is_frozen("other")


def test_a_second_freeze_does_no_harm_and_records_stay_good(ledger, box):
    purse = a_purse(ledger)
    purse.release(box, NOISE)
    before = purse.certificate()
    purse.freeze("an audit")
    purse.freeze("to be sure")
    purse.declare_uncovered("a plot")
    assert ledger.verify() == len(list(ledger.entries()))
    after = purse.certificate()
    assert (after.recorded_epsilon, after.releases) == (before.recorded_epsilon, before.releases)
    assert "a plot" in after.uncovered
    assert replay(ledger, "default", purse.filter) == ledger.totals("default")


def test_a_block_that_was_paid_for_can_be_used_and_settled(ledger, box):
    purse = a_purse(ledger)
    with purse.reserve(10):
        purse.release(box, NOISE)
        a_purse(ledger).freeze("an audit")
        purse.release(box, NOISE)
    assert purse.spent.releases == 2
    with pytest.raises(BudgetFrozen):
        purse.release(box, NOISE)


def test_another_process_is_refused_too(tmp_path):
    a_purse(tmp_path / "budget.db").freeze("an audit")
    code = (
        "from privypurse import Gaussian, Norm, Purse, Sensitive\n"
        f"purse = Purse.reopen({str(tmp_path / 'budget.db')!r})\n"
        "purse.release(Sensitive([1.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0), Gaussian(noise_multiplier=100.0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "BudgetFrozen" in done.stderr


def test_a_freeze_by_another_object_is_seen_at_once(tmp_path, box):
    one, other = a_purse(tmp_path / "budget.db"), Purse.reopen(tmp_path / "budget.db")
    one.release(box, NOISE)
    other.freeze("an audit")
    with pytest.raises(BudgetFrozen):
        one.release(box, NOISE)
