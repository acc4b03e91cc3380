"""[DECIDES] A part of a purse with a limit of its own: what one fit may spend of a budget that many share."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

from privypurse.accounting.totals import Filter
from privypurse.core.charges import SingleCharge
from privypurse.core.errors import InvalidArgument
from privypurse.purse.certificate import Certificate, declared_uncovered, rounded_up
from privypurse.purse.ledger import MemoryLedger
from privypurse.purse.purse import Purse

SIMULATED = "other releases on the same data set, whose noise was seeded: a SIMULATION, not private"


class Allowance(Purse):
    """A limit within a purse: each release is paid twice, from the purse and from the allowance.

    Parameters
    ----------
    purse : Purse
        Who pays in the end. Its noise is used.
    filter : Filter
        The limit of the allowance, under the purse's relation.

    Guarantees
    ----------
    * Everything that leaves through the allowance is on the purse's ledger: it is charged there, durably, before noise is drawn.
      The purse's own guarantee needs nothing from the allowance.
    * What leaves through the allowance is, taken alone, within the allowance's own limit: a charge that does not fit is refused
      before the purse is asked. If the purse then refuses, nothing was spent.

    Examples
    --------
    >>> from privypurse import Gaussian, GdpFilter, Purse
    >>> from privypurse.oracles.statistics import clipped_sum
    >>> purse = Purse(epsilon=1.0, delta=1e-6, neighbouring="add-remove")
    >>> allowance = Allowance(purse, GdpFilter(0.2, 1e-6, "add-remove"))
    >>> _ = allowance.release(clipped_sum([[1.0]], clip_norm=1.0), Gaussian(noise_multiplier=30.0))
    >>> allowance.spent == purse.spent, round(allowance.fraction_left, 2), round(purse.fraction_left, 2)
    (True, 0.6, 0.98)
    """

    def __init__(self, purse: Purse, filter: Filter) -> None:
        if filter.neighbouring is not purse.neighbouring:
            raise InvalidArgument(
                f"neighbouring must be that of the purse, {purse.neighbouring.value!r}; got {filter.neighbouring.value!r}. "
                "Leave it out."
            )
        self._purse = purse
        self._set_up(filter, MemoryLedger(), purse.dataset, purse.noise, purse._who)

    @property
    def purse(self) -> Purse:
        """The purse that pays."""
        return self._purse

    def _pay(self, charge: SingleCharge, other: SingleCharge | None, what: str, *, exact: str | None = None) -> None:
        self._filter.admit(self.totals, charge)
        self._purse._pay(charge, other, what, exact=exact)
        # Two threads may both have passed the first check: the purse has then been paid for a release that is refused here.
        super()._pay(charge, other, what, exact=exact)

    @contextlib.contextmanager
    def reserve(self, releases: int = 1000) -> Iterator["Purse"]:
        """Pay the purse in blocks; see `Purse.reserve`."""
        with self._purse.reserve(releases):
            yield self

    def declare_uncovered(self, what: str) -> None:
        """Put it on the purse's record too."""
        self._purse.declare_uncovered(what)
        super().declare_uncovered(what)

    def certificate(self) -> Certificate:
        """State what left through the allowance, as a part of the purse, whose ledger it pins."""
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
            part_of=f"a purse with {limit}, which had spent {rounded_up(spent)} when this was issued",
        )

    def freeze(self, why: str) -> None:
        """Close the account of the purse that pays."""
        self._purse.freeze(why)

    @classmethod
    def with_filter(cls, *_: Any, **__: Any) -> NoReturn:
        """Refuse: an allowance is made from a purse."""
        raise InvalidArgument("an allowance is made from a purse: Allowance(purse, filter).")

    not_private = reopen = with_filter
