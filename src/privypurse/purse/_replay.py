"""Recomputation of a ledger's totals from its charges."""

from collections.abc import Sequence

from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Filter, Totals
from privypurse.core._errors import BudgetExhausted, LedgerCorrupt, UnsupportedCharge
from privypurse.core._reading import refusing
from privypurse.core.charges import Charge, RepeatedCharge, SingleCharge, from_json
from privypurse.purse._entries import CHARGE, RESERVE, SETTLE, Entry, totals_from_text
from privypurse.purse._ledger import Ledger


def replay(ledger: Ledger, dataset: str, filter: Filter) -> Totals:
    """Recompute what was spent on a data set, line by line, and return it.

    Raises `LedgerCorrupt` at the first line whose recorded totals do not follow from its charge,
    that the filter does not admit, or that settles a block which was not reserved, was settled
    already, was used for more than it holds, or returns more than its unused part.

    The line that settles a block counts its charges without their order. That matters only for a
    fixed schedule, where the order is that of the schedule.
    """
    totals, blocks = filter.start(), dict[str, tuple[Totals, Totals]]()
    for entry in ledger.entries(dataset):
        try:
            with refusing(f"the details of line {entry.seq} of the ledger cannot be read.", raising=LedgerCorrupt):
                totals = _after(totals, entry, filter, blocks)
        except (BudgetExhausted, UnsupportedCharge) as error:
            raise LedgerCorrupt(f"line {entry.seq} of the ledger has a charge that does not fit.") from error
        if totals != entry.totals:
            raise LedgerCorrupt(f"line {entry.seq} of the ledger records other totals than its charge comes to.")
    return totals


def _after(totals: Totals, entry: Entry, filter: Filter, blocks: dict[str, tuple[Totals, Totals]]) -> Totals:
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
        charges = [RepeatedCharge(_single(charge), n) for charge, _, _, n in entry.details["used"]]
        ordered: Sequence[Charge] = filter.in_order(used, charges) if isinstance(filter, FixedSchedule) else charges
        for charge in ordered:
            used = filter.admit(used, charge)
        if not used.fits_within(ceiling):
            raise LedgerCorrupt(f"line {entry.seq} of the ledger uses more than its block holds.")
        if entry.details["returned"] is not None:
            returned = totals_from_text(entry.details["returned"])
            if not returned.fits_within(ceiling.minus(used)):
                raise LedgerCorrupt(f"line {entry.seq} of the ledger returns more than its block had left.")
            return totals.minus(returned)
    return totals


def _single(described: object) -> SingleCharge:
    charge = from_json(described)  # type: ignore[arg-type]
    if isinstance(charge, RepeatedCharge):
        raise LedgerCorrupt("a block of the ledger names a repeated charge where a single one belongs.")
    return charge
