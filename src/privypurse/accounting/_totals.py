"""Totals counted by a filter, exactly, and the interface of filters.

A budget kept in floating point loses small charges (1 + 1e-17 == 1) and depends on the order of
addition. Here each cost is rounded *up* to a whole number of quanta of 2^-160, limits are rounded
*down*, and totals are Python integers. The smallest budget in use (epsilon 1e-4, delta 1e-15) is
about 2^127 quanta, so the rounding is invisible.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from privypurse.core._errors import LedgerCorrupt
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import Charge, SingleCharge

QUANTUM_BITS = 160


def quanta_up(cost: float) -> int:
    """Round a finite cost up to whole quanta; a positive cost is at least one quantum."""
    numerator, denominator = cost.as_integer_ratio()
    # The denominator is a power of two. Shifting a negative number right rounds down.
    shift = QUANTUM_BITS + 1 - denominator.bit_length()
    return numerator << shift if shift >= 0 else -(-numerator >> -shift)


def quanta_down(limit: float) -> int:
    """Round a finite limit down to whole quanta."""
    numerator, denominator = limit.as_integer_ratio()
    return (numerator << QUANTUM_BITS) // denominator


def float_up(quanta: int) -> float:
    """Convert quanta to the nearest float that is not smaller."""
    value = quanta / (1 << QUANTUM_BITS)
    return value if quanta_down(value) >= quanta else math.nextafter(value, math.inf)


def float_down(quanta: int) -> float:
    """Convert quanta to the nearest float that is not larger."""
    value = quanta / (1 << QUANTUM_BITS)
    return value if quanta_up(value) <= quanta else math.nextafter(value, -math.inf)


def inflate(cost: float, steps: int = 8) -> float:
    """Round a computed cost up past the error of the few floating-point operations behind it.

    Each step is one unit in the last place; k correctly rounded operations err by at most k units.
    Never returns zero.
    """
    if math.isinf(cost):
        return cost
    for _ in range(steps):
        cost = math.nextafter(cost, math.inf)
    return cost


@dataclass(frozen=True)
class Totals:
    """Spent totals in a filter's own units: exact, ordered like the filter's limits."""

    quanta: tuple[int, ...]  # one entry for each limit of the filter
    releases: int = 0
    non_private: int = 0  # releases that were declared non-private and cost infinity

    def minus(self, unused: "Totals") -> "Totals":
        """Subtract the unused part of a reservation. Raise LedgerCorrupt if it is too large."""
        if not unused.fits_within(self):
            raise LedgerCorrupt("more would be returned than was ever spent: the ledger or a reservation is damaged.")
        return Totals(
            tuple(a - b for a, b in zip(self.quanta, unused.quanta, strict=True)),
            self.releases - unused.releases,
            self.non_private - unused.non_private,
        )

    def fits_within(self, ceiling: "Totals") -> bool:
        """Return whether every entry is at most the ceiling's."""
        return (
            all(a <= b for a, b in zip(self.quanta, ceiling.quanta, strict=True))
            and self.releases <= ceiling.releases
            and self.non_private <= ceiling.non_private
        )


class Filter(Protocol):
    """Interface of a filter, as the purse uses it."""

    name: str
    theorem: str
    epsilon: float
    delta: float
    neighbouring: Neighbouring
    refundable: bool  # whether reserved and unused charges may be given back

    def start(self) -> Totals:
        """Return the totals of a fresh account."""

    def admit(self, spent: Totals, new: Charge) -> Totals:
        """Return the totals after a charge, or raise and change nothing."""

    def admit_ahead(self, spent: Totals, new: SingleCharge, count: int) -> Totals:
        """Return the totals after the next `count` releases, of which `new` is the first."""

    def after(self, spent: Totals, new: Charge) -> Totals:
        """Return the totals after a charge, without checking that it fits."""

    def leaving(self, start: Totals, now: Totals, share: float) -> Totals:
        """Return totals that leave a share of what was left at `start`, but no more than now."""

    def fraction_left(self, start: Totals, now: Totals) -> float:
        """Return the share of what was left at `start` that is left now."""

    def affordable(self, spent: Totals) -> tuple[float, ...]:
        """Return what is left in the filter's own units, rounded down."""

    def smallest_noise_multiplier(self, spent: Totals, sample_prob: float = 1.0) -> float:
        """Return the least noise multiplier of one more Gaussian release; infinity if none fits."""

    def largest_epsilon(self, spent: Totals) -> float:
        """Return the largest epsilon of one more exponential selection; 0 if none fits."""

    def epsilon_left(self, spent: Totals) -> float:
        """Return the epsilon of a fresh account of the remaining size."""

    def epsilon_of(self, spent: Totals, delta: float) -> float:
        """Return the epsilon of the spent totals at a delta."""

    def epsilon_under(self, neighbouring: Neighbouring, charges: Iterable[Charge], delta: float) -> float:
        """Return the epsilon of a list of charges under either relation, at a delta."""

    def guarantee_under(self, neighbouring: Neighbouring) -> tuple[float, float]:
        """Return the (epsilon, delta) that the filter's limit guarantees under a relation.

        (infinity, 1) under add/remove where the filter's relation is replace-one, under which the
        number of records is public.
        """

    def terms(self) -> dict[str, Any]:
        """Describe the filter completely, in JSON types; filters with equal terms decide alike."""
