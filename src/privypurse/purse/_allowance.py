"""[DECIDES] A part of a purse with its own limit: what one fit may spend of a shared budget."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

from privypurse.accounting._totals import Filter, Totals
from privypurse.core._errors import BudgetExhausted, InvalidArgument
from privypurse.core._formats import rounded_up
from privypurse.core.charges import SingleCharge
from privypurse.purse._certificate import Certificate
from privypurse.purse._entries import declared_statement, declared_uncovered
from privypurse.purse._ledger import MemoryLedger
from privypurse.purse._purse import Purse

# Of what was charged to the purse and not to the allowance: not said of the purse.
OUTSIDE = "paid from the same purse, outside of this part"
SIMULATED = "other releases on the same data set, whose noise was seeded: a SIMULATION, not private"


def mu_squared_left(rule: Filter, spent: Totals) -> float:
    """Return what is left as squared mu of Gaussian releases, which adds up under every filter."""
    least_noise = rule.smallest_noise_multiplier(spent)
    return 1 / least_noise**2 if least_noise > 0 else math.inf


class Allowance(Purse):
    """A limit within a purse: each release is charged to the purse and to the allowance.

    Guarantees
    ----------
    * Everything released through the allowance is on the purse's ledger: it is charged there,
      durably, before noise is drawn. The purse's guarantee needs nothing from the allowance.
    * What is released through the allowance is, taken alone, within the allowance's own limit: a
      charge that does not fit is refused before the purse is asked. If the purse then refuses,
      nothing was spent.
    """

    def __init__(self, purse: Purse, filter: Filter) -> None:
        if filter.neighbouring is not purse.neighbouring:
            what = f"neighbouring must be that of the purse; got {filter.neighbouring.value!r}"
            raise InvalidArgument(f"{what}. Omit it.")
        self._purse = purse
        self.hold: Any = None  # notified of charges (`holds.held`)
        self.cut_short = False  # whether the purse refused a charge that is within this limit
        self._set_up(filter, MemoryLedger(), purse.dataset, purse.noise, purse._who)

    @property
    def purse(self) -> Purse:
        """The purse that is charged."""
        return self._purse

    def _pay(self, charge: SingleCharge, other: SingleCharge | None, what: str, **how: Any) -> None:
        self._filter.admit(self.totals, charge)
        try:
            self._purse._pay(charge, other, what, **how)
        except BudgetExhausted:
            own, its = (mu_squared_left(one.filter, one.totals) for one in (self, self._purse))
            rounding = 1e-6 * mu_squared_left(self._filter, self._filter.start())
            self.cut_short = getattr(self._purse, "cut_short", False) or own > its + rounding
            raise
        # Two threads may both pass the first check; the purse is then charged for a release refused
        # here.
        super()._pay(charge, other, what, **how)
        if self.hold is not None:
            self.hold.update()

    @contextlib.contextmanager
    def reserve(self, releases: int = 1000) -> Iterator["Purse"]:
        """Charge the purse in blocks; see `Purse.reserve`."""
        try:
            with self._purse.reserve(releases):
                yield self
        finally:
            if self.hold is not None:
                self.hold.update()

    def declare_uncovered(self, what: str) -> None:
        """Record it on the purse too, unless the purse covers it."""
        if isinstance(self._purse, Allowance) or not what.endswith(OUTSIDE):
            self._purse.declare_uncovered(what)
        super().declare_uncovered(what)

    def certificate(self) -> Certificate:
        """Certify what was released through the allowance, as a part of the purse."""
        own, purse = super().certificate(), self._purse
        lines, digest = purse.ledger.head()
        entries = list(purse.ledger.entries(purse.dataset))
        declared = declared_uncovered(entries)
        if not own.simulation and any(entry.is_simulation for entry in entries):
            declared = (SIMULATED, *declared)
        limit = f"epsilon {rounded_up(purse.epsilon, 9)}" if math.isfinite(purse.epsilon) else "no limit"
        spent = purse.spent.epsilon
        return replace(
            own,
            uncovered=tuple(dict.fromkeys((*declared, *own.uncovered))),
            ledger=purse.ledger.location,
            ledger_lines=lines,
            ledger_digest=digest,
            statement=declared_statement(entries),
            part_of=f"a purse with {limit}, which had spent {rounded_up(spent)} when this was issued",
        )

    def freeze(self, why: str) -> None:
        """Close the account of the purse."""
        self._purse.freeze(why)

    @classmethod
    def with_filter(cls, *_: Any, **__: Any) -> NoReturn:
        """Raise InvalidArgument: an allowance is made from a purse."""
        raise InvalidArgument("an allowance is made from a purse: Allowance(purse, filter).")

    not_private = reopen = with_filter
