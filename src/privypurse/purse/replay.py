"""Counting a ledger again from its charges, to see that the recorded totals are what the charges come to."""

from privypurse.accounting.totals import Filter, Totals
from privypurse.core.charges import RepeatedCharge, SingleCharge, from_json
from privypurse.core.errors import LedgerCorrupt
from privypurse.core.reading import refusing
from privypurse.purse.entries import CHARGE, RESERVE, SETTLE, Entry, totals_from_text
from privypurse.purse.ledger import Ledger


def replay(ledger: Ledger, dataset: str, filter: Filter) -> Totals:
    """Recompute what was spent on a data set, line by line, and return it.

    Raises `LedgerCorrupt` at the first line whose recorded totals are not what its charge makes of the line before, or that
    settles a block which was not reserved, was settled already, or gives back more than the block without what it was used
    for; the filter raises if a line passes its limit.
    """
    totals, blocks = filter.start(), dict[str, tuple[Totals, Totals]]()
    for entry in ledger.entries(dataset):
        totals = _after(totals, entry, filter, blocks)
        if totals != entry.totals:
            raise LedgerCorrupt(f"line {entry.seq} of the ledger records other totals than its charge comes to.")
    return totals


def _after(totals: Totals, entry: Entry, filter: Filter, blocks: dict[str, tuple[Totals, Totals]]) -> Totals:
    with refusing(f"the details of line {entry.seq} of the ledger cannot be read.", raising=LedgerCorrupt):
        return _counted(totals, entry, filter, blocks)


def _counted(totals: Totals, entry: Entry, filter: Filter, blocks: dict[str, tuple[Totals, Totals]]) -> Totals:
    if entry.kind == CHARGE:
        return filter.admit(totals, from_json(entry.details["charge"]))
    if entry.kind == RESERVE:
        ceiling = filter.admit_ahead(totals, _single(entry.details["charge"]), entry.details["count"])
        blocks[entry.details["reservation"]] = (totals, ceiling)
        return ceiling
    if entry.kind == SETTLE:
        block = blocks.pop(entry.details["reservation"], None)
        if block is None:
            raise LedgerCorrupt(f"line {entry.seq} of the ledger settles a block that is not reserved.")
        used, ceiling = block
        for charge, _, _, count in entry.details["used"]:
            used = filter.admit(used, RepeatedCharge(_single(charge), count))
        if entry.details["returned"] is not None:
            returned = totals_from_text(entry.details["returned"])
            if not returned.fits_within(ceiling.minus(used)):
                raise LedgerCorrupt(f"line {entry.seq} of the ledger gives back more than its block had left.")
            return totals.minus(returned)
    return totals


def _single(described: object) -> SingleCharge:
    charge = from_json(described)  # type: ignore[arg-type]
    if isinstance(charge, RepeatedCharge):
        raise LedgerCorrupt("a block of the ledger names a repeated charge where a single one belongs.")
    return charge
