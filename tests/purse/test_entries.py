"""Lines of a ledger that no version wrote are refused, also where their hashes agree."""

import getpass

import pytest

from privypurse import LedgerCorrupt, MemoryLedger, Purse
from privypurse.accounting._totals import Totals
from privypurse.core.charges import GaussianCharge, RepeatedCharge, to_json
from privypurse.purse._entries import GENESIS, Entry, totals_from_text
from privypurse.purse._ledger import current_user
from privypurse.purse._replay import replay


def a_line(kind="charge", body="{}"):
    return Entry(1, "default", kind, "ada", "now", "test", body, Totals((0,)), GENESIS)


@pytest.mark.parametrize("body", ["{", "[" * 100_000, None])
def test_details_that_are_not_json_are_refused(body):
    with pytest.raises(LedgerCorrupt, match="details of line 1 of the ledger cannot be read"):
        a_line(body=body).details  # noqa: B018


def test_details_that_are_no_object_are_refused():
    with pytest.raises(LedgerCorrupt, match="details of line 1 of the ledger are not an object"):
        a_line(body="[]").details  # noqa: B018


def test_a_line_of_an_unknown_kind_is_refused():
    """It may restrict spending."""
    a_line("charge").check_follows(0, GENESIS)
    with pytest.raises(LedgerCorrupt, match="of an unknown kind"):
        a_line("loan").check_follows(0, GENESIS)


@pytest.mark.parametrize("text", ['[["-1"],0,0]', '[["1"],-1,0]', '[["1"],0,-1]', "[[],0,0]"])
def test_totals_below_zero_are_refused(text):
    with pytest.raises(LedgerCorrupt, match="below zero"):
        totals_from_text(text)


def test_replay_refuses_totals_that_do_not_follow(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    body = {"charge": to_json(GaussianCharge(20.0)), "other": None, "simulation": False, "exact": None}
    ledger.append("default", "charge", body, who="m", what="x", decide=lambda spent: spent)
    with pytest.raises(LedgerCorrupt, match="line 2 of the ledger records other totals than its charge comes to"):
        replay(ledger, "default", purse.filter)


def test_replay_refuses_a_block_of_repeated_charges(ledger):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    repeated = to_json(RepeatedCharge(GaussianCharge(500.0), 2))
    body = {"reservation": "x", "charge": repeated, "other": None, "simulation": False, "count": 2}
    ledger.append("default", "reserve", body, who="m", what="x", decide=lambda spent: spent)
    with pytest.raises(LedgerCorrupt, match="a repeated charge where a single one belongs"):
        replay(ledger, "default", purse.filter)


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_a_process_without_a_user_has_a_name_too(monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(getpass, "getuser", fail)
    assert current_user() == "unknown"


def test_a_ledger_in_memory_counts_its_lines():
    ledger = MemoryLedger()
    assert ledger.verify() == ledger.verify((0, GENESIS)) == 0
    Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    assert repr(ledger) == "<MemoryLedger: 1 line>"
