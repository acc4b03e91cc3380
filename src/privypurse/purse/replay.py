"""Counting a ledger again from its charges, to see that the recorded totals are what the charges come to."""

from privypurse.accounting.totals import Filter, Totals
from privypurse.core.charges import from_json
from privypurse.core.errors import LedgerCorrupt
from privypurse.purse.entries import CHARGE, RESERVE, SETTLE, Entry, totals_from_text
from privypurse.purse.ledger import Ledger


def replay(ledger: Ledger, dataset: str, filter: Filter) -> Totals:
    """Recompute what was spent on a data set, line by line, and return it.

    Raises `LedgerCorrupt` at the first line whose recorded totals are not what its charge makes of the line before; the
    filter raises if a line passes its limit.
    """
    totals = filter.start()
    for entry in ledger.entries(dataset):
        totals = _after(totals, entry, filter)
        if totals != entry.totals:
            raise LedgerCorrupt(f"line {entry.seq} of the ledger records other totals than its charge comes to.")
    return totals


def _after(totals: Totals, entry: Entry, filter: Filter) -> Totals:
    if entry.kind == CHARGE:
        return filter.admit(totals, from_json(entry.details["charge"]))
    if entry.kind == RESERVE:
        return filter.admit_ahead(totals, from_json(entry.details["charge"]), entry.details["count"])  # type: ignore[arg-type]
    if entry.kind == SETTLE and entry.details["returned"] is not None:
        return totals.minus(totals_from_text(entry.details["returned"]))
    return totals
