"""Reservations: charging a block of releases at once, so that each need not wait for the disk."""

import contextlib
import secrets
import threading
from collections import Counter
from typing import Any

from privypurse.accounting._totals import Filter, Totals
from privypurse.core import charges as charge_format
from privypurse.core._errors import BudgetExhausted
from privypurse.core._randomness import this_process
from privypurse.core.charges import SingleCharge
from privypurse.purse._entries import RESERVE, SETTLE, totals_to_text
from privypurse.purse._ledger import Decide, Ledger

Line = tuple[SingleCharge, SingleCharge | None, str, float | None]  # the last is the sensitivity


class Reservation:
    """A block of budget that is already on the ledger, and what it was used for so far.

    `releases` is the number of releases like the next one to reserve at a time.

    Guarantees
    ----------
    * A charge is admitted only within a block that is already durable on the ledger, so a crash
      leaves at least as much recorded as was released.
    * When a block is settled, what was reserved and not used is returned, in exact quanta.
    * It works only in the process that made it: a forked child charges the ledger directly.
    """

    def __init__(self, ledger: Ledger, dataset: str, filter: Filter, who: str, releases: int, simulation: bool) -> None:
        self._ledger, self._dataset, self._filter, self._who = ledger, dataset, filter, who
        self._releases, self._simulation = releases, simulation
        self._lock = threading.RLock()
        self._process = this_process()
        self._closed = False
        self._id = ""  # of the last block
        self._current: Totals = filter.start()
        self._ceiling: Totals | None = None  # None between blocks
        self._lines: Counter[Line] = Counter()
        self._samplers: set[str | None] = set()

    @property
    def usable(self) -> bool:
        """Whether it is open and belongs to this process."""
        return not self._closed and this_process() == self._process

    @property
    def block(self) -> tuple[Totals, Totals] | None:
        """Totals of the data set, now and with the whole block used; None between blocks."""
        # The process is checked first: a forked child must not touch a lock another thread may
        # hold.
        if this_process() != self._process:
            return None
        with self._lock:
            return None if self._ceiling is None else (self._current, self._ceiling)

    def pay(
        self,
        charge: SingleCharge,
        other: SingleCharge | None,
        what: str,
        *,
        exact: str | None = None,
        sensitivity: float | None = None,
    ) -> bool:
        """Take a charge from the block. If it does not fit, settle and reserve the next one.

        `exact` names the sampler of the noise, if exact; a block names it where all releases agree.
        Returns False, without effect, where the reservation is not usable.
        """
        if this_process() != self._process:
            return False
        with self._lock:
            if self._closed:
                return False
            after, ceiling = None, self._ceiling
            if ceiling is not None:
                with contextlib.suppress(BudgetExhausted):
                    after = self._filter.admit(self._current, charge)
            if after is not None and ceiling is not None and after.fits_within(ceiling):
                self._current = after
            else:
                self._settle()
                self._reserve(charge, other)
            self._lines[charge, other, what, sensitivity] += 1
            self._samplers.add(exact)
            return True

    def settle(self, *, close: bool = False) -> None:
        """Record what the block was used for and return the rest, if usable; `close` permanently."""
        if self.usable:
            with self._lock:
                self._closed = self._closed or close
                self._settle()

    def _settle(self) -> None:
        if self._ceiling is None:
            return
        ceiling, unused, lines = self._ceiling, self._ceiling.minus(self._current), self._lines
        body: dict[str, Any] = {
            "reservation": self._id,
            "used": [[describe(c), describe(o), what, count] for (c, o, what, _), count in lines.items()],
            "sensitivities": [sensitivity for *_, sensitivity in lines],  # of the same
            "returned": None,
            "exact": next(iter(self._samplers)) if len(self._samplers) == 1 else None,
        }
        # Forgotten before it is settled: an interrupt in between leaves the block spent, whereas
        # the other order could settle and return it twice.
        self._current, self._ceiling, self._lines, self._samplers = self._filter.start(), None, Counter(), set()

        def decide(spent: Totals) -> Totals:
            # Positions of a fixed schedule are returned only while they are the last ones taken.
            if not self._filter.refundable and spent != ceiling:
                return spent
            body["returned"] = totals_to_text(unused)
            return spent.minus(unused)

        self._append(SETTLE, body, decide)

    def _reserve(self, charge: SingleCharge, other: SingleCharge | None) -> None:
        """Reserve the requested block, but at most half of what is left, and take its first release."""
        body: dict[str, Any] = {"reservation": secrets.token_hex(8), "simulation": self._simulation}
        body |= {"charge": describe(charge), "other": describe(other)}
        states: list[Totals] = []

        def decide(spent: Totals) -> Totals:
            first = after = self._filter.admit(spent, charge)
            count = self._releases
            while count > 1:
                # Twice as many must fit; the last few releases of a budget are reserved one by one.
                try:
                    self._filter.admit_ahead(spent, charge, 2 * count)
                    after = self._filter.admit_ahead(spent, charge, count)
                    break
                except BudgetExhausted:
                    count //= 2
            body["count"] = after.releases - spent.releases
            states[:] = [first, after]
            return after

        self._append(RESERVE, body, decide)
        self._id, (self._current, self._ceiling) = body["reservation"], states

    def _append(self, kind: str, body: Any, decide: Decide) -> None:
        self._ledger.append(self._dataset, kind, body, who=self._who, what="block of releases", decide=decide)


def describe(charge: SingleCharge | None) -> dict[str, Any] | None:
    """Convert a charge, or None, to JSON types."""
    return None if charge is None else charge_format.to_json(charge)
