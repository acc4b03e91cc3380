"""What a filter keeps count of, and what the purse asks of a filter."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from privypurse.core.charges import Charge, SingleCharge
from privypurse.core.errors import LedgerCorrupt
from privypurse.core.neighbouring import Neighbouring


@dataclass(frozen=True)
class Totals:
    """What was spent, in a filter's own currency: exact, ordered like the filter's limits.

    Parameters
    ----------
    quanta : tuple of int
        Spent quanta (see `privypurse.accounting.exact`), one entry for each limit of the filter.
    releases : int
        How many releases made it up.
    non_private : int
        How many of them were declared non-private and cost infinity.
    """

    quanta: tuple[int, ...]
    releases: int = 0
    non_private: int = 0

    def minus(self, unused: "Totals") -> "Totals":
        """Give back what was reserved and not used; more than there is cannot come back."""
        if not unused.fits_within(self):
            raise LedgerCorrupt("more would be given back than was ever spent; the ledger or a reservation is damaged.")
        return Totals(
            tuple(a - b for a, b in zip(self.quanta, unused.quanta, strict=True)),
            self.releases - unused.releases,
            self.non_private - unused.non_private,
        )

    def fits_within(self, ceiling: "Totals") -> bool:
        """Whether every entry is at most the ceiling's."""
        return (
            all(a <= b for a, b in zip(self.quanta, ceiling.quanta, strict=True))
            and self.releases <= ceiling.releases
            and self.non_private <= ceiling.non_private
        )


class Filter(Protocol):
    """What the purse needs of a filter."""

    name: str
    theorem: str
    epsilon: float
    delta: float
    neighbouring: Neighbouring
    refundable: bool  # whether reserved and unused charges may be given back

    def start(self) -> Totals:
        """Return the totals of a fresh account."""
        ...

    def admit(self, spent: Totals, new: Charge) -> Totals:
        """Return the totals after a charge, or raise and change nothing."""
        ...

    def admit_ahead(self, spent: Totals, new: SingleCharge, count: int) -> Totals:
        """Return the totals after the next `count` releases, the first of which is `new`; for reservations."""
        ...

    def after(self, spent: Totals, new: Charge) -> Totals:
        """Return the totals after a charge, without asking whether it fits."""
        ...

    def leaving(self, start: Totals, now: Totals, share: float) -> Totals:
        """Return the totals of an account with this share left of what was left at `start`, but no more than is left now."""
        ...

    def fraction_left(self, start: Totals, now: Totals) -> float:
        """Return the share that is left now of what was left at `start`."""
        ...

    def affordable(self, spent: Totals) -> tuple[float, ...]:
        """Return what is left in the filter's own currency, rounded down."""
        ...

    def smallest_noise_multiplier(self, spent: Totals, sample_prob: float = 1.0) -> float:
        """Return the least noise, relative to sensitivity, of one more Gaussian release; inf if none fits."""
        ...

    def largest_epsilon(self, spent: Totals) -> float:
        """Return the largest epsilon of one more selection by the exponential mechanism; 0 if none fits."""
        ...

    def epsilon_left(self, spent: Totals) -> float:
        """Return the epsilon a fresh account of the size of what is left would have."""
        ...

    def epsilon_of(self, spent: Totals, delta: float) -> float:
        """Return the epsilon of what was spent, at a delta."""
        ...

    def epsilon_under(self, neighbouring: Neighbouring, charges: Iterable[Charge], delta: float) -> float:
        """Return the epsilon of a list of charges made under either relation, at a delta."""
        ...

    def guarantee_under(self, neighbouring: Neighbouring) -> tuple[float, float]:
        """Return the (epsilon, delta) that the filter's limit guarantees under either relation.

        Under the relation that is not the filter's, provided that every box was bounded under both.
        """
        ...

    def terms(self) -> dict[str, Any]:
        """Describe the rule completely, in JSON types; two filters with equal terms decide alike."""
        ...
