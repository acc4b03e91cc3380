"""Reading of the charges of a ledger, and recomputation of its totals from them."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Filter, Totals
from privypurse.core._errors import BudgetExhausted, LedgerCorrupt, UnsupportedCharge
from privypurse.core._reading import refusing
from privypurse.core.charges import Charge, RepeatedCharge, SingleCharge, from_json
from privypurse.purse._entries import CHARGE, RESERVE, SETTLE, Entry, totals_from_text
from privypurse.purse._ledger import Ledger

EXACT_SAMPLERS = {"secure", "discrete", "opendp"}
# Charges under the purse's relation and under replace-one, the purpose and the sensitivity.
Releases = Counter[tuple[SingleCharge, SingleCharge | None, str, float | None]]


@dataclass
class Record:
    """Releases on one data set according to its ledger."""

    releases: Releases
    unsettled: dict[str, tuple[SingleCharge, int]]  # blocks, with the charge and how many of it were reserved
    simulation: bool
    samplers: "Counter[str]"

    @property
    def exact(self) -> bool:
        """Whether all noise is known to be exact; false with unsettled blocks."""
        return bool(self.releases) and not self.unsettled and set(self.samplers) <= EXACT_SAMPLERS


def read_record(entries: Iterable[Entry]) -> Record:
    """Read what was released, and what was charged for without being settled."""
    record = Record(Counter(), {}, False, Counter())
    for entry in entries:
        if entry.kind not in (CHARGE, RESERVE, SETTLE):
            continue
        body = entry.details
        record.simulation = record.simulation or entry.is_simulation
        exact = body.get("exact")
        # An earlier ledger format says only that noise was exact; there was one sampler then.
        sampler = "secure" if exact is True else str(exact or "plain")
        with refusing(f"the details of line {entry.seq} of the ledger cannot be read.", raising=LedgerCorrupt):
            if entry.kind == CHARGE:
                charge, other = _single(body["charge"]), _or_none(body["other"])
                record.releases[charge, other, entry.what, _bound(body.get("sensitivity"))] += 1
                record.samplers[sampler] += 1
            elif entry.kind == RESERVE:
                record.unsettled[body["reservation"]] = (_single(body["charge"]), body["count"])
            else:
                record.unsettled.pop(body["reservation"], None)
                bounds = body.get("sensitivities") or [None] * len(body["used"])
                for (charge, other, what, count), bound in zip(body["used"], bounds, strict=True):
                    record.releases[_single(charge), _or_none(other), what, _bound(bound)] += count
                    record.samplers[sampler] += count
    return record


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


def _bound(value: object) -> float | None:
    if value is not None and not (isinstance(value, float) and 0 < value < math.inf):
        raise LedgerCorrupt("a line of the ledger has a sensitivity that is not a positive number.")
    return value


def _or_none(described: object) -> SingleCharge | None:
    return None if described is None else _single(described)
