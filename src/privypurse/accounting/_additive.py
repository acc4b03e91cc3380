"""Base class of the filters for adaptive budgets: exact sums of costs within limits."""

import abc
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from privypurse.accounting import pld
from privypurse.accounting._totals import Totals, float_down, quanta_down, quanta_up
from privypurse.core._errors import BudgetExhausted, UnsupportedCharge
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import (
    BoundedRangeCharge,
    Charge,
    GaussianCharge,
    NonPrivateCharge,
    ObjectivePerturbationCharge,
    PureCharge,
    RepeatAndSelectCharge,
    RepeatedCharge,
    SingleCharge,
)

SELECTION = BoundedRangeCharge(1.0)
# Less than this share of a limit is rounding error left after the remainder was spent.
_DUST = 1e-9


class Target:
    """The (epsilon, delta) of a filter, its relation, and what follows under the other relation."""

    name: str

    def __init__(self, epsilon: float, delta: float, neighbouring: Neighbouring | str) -> None:
        self.epsilon, self.delta, self.neighbouring = epsilon, delta, Neighbouring.parse(neighbouring)

    def guarantee_under(self, neighbouring: Neighbouring) -> tuple[float, float]:
        # From add/remove to replace-one, group privacy applies: a replacement is two changes.
        if neighbouring is self.neighbouring:
            return self.epsilon, self.delta
        return (math.inf, 1.0) if neighbouring is Neighbouring.ADD_REMOVE else self._two_steps()

    def _two_steps(self) -> tuple[float, float]:
        """Return the (epsilon, delta) for two changes."""
        return 2 * self.epsilon, min(1.0, (1 + math.exp(min(self.epsilon, 700.0))) * self.delta)

    def terms(self) -> dict[str, Any]:
        target = {"epsilon": self.epsilon, "delta": self.delta, "neighbouring": self.neighbouring.value}
        return {"filter": self.name, **target}


class AdditiveFilter(Target, abc.ABC):
    """A filter whose costs add up and must stay within fixed limits.

    Guarantees
    ----------
    * `admit` adds exactly (whole quanta, charges rounded up, limits rounded down), so order does
      not matter and k repeats cost what a list of k costs.
    * `admit` raises before it returns anything if a limit would be exceeded; a later, smaller
      charge that fits is admitted. A refusal reads only public numbers and may be repeated freely.
    """

    theorem: str
    currency: str  # unit of the sums, for messages
    refundable = True

    def __init__(self, epsilon: float, delta: float, neighbouring: Neighbouring | str, limits: Sequence[float]) -> None:
        super().__init__(epsilon, delta, neighbouring)
        self.limits = tuple(quanta_down(limit) for limit in limits)
        self._float_limits = tuple(limits)
        self._prices: dict[tuple[SingleCharge, Neighbouring], tuple[int, ...] | None] = {}

    @abc.abstractmethod
    def _price(self, charge: SingleCharge, neighbouring: Neighbouring) -> tuple[float, ...]:
        """Return the cost of one release for each limit; infinity without noise."""

    @abc.abstractmethod
    def epsilon_of(self, spent: Totals, delta: float) -> float: ...

    def start(self) -> Totals:
        return Totals((0,) * len(self.limits))

    def admit(self, spent: Totals, new: Charge) -> Totals:
        after = self.after(spent, new)
        if isinstance(new.charge if isinstance(new, RepeatedCharge) else new, NonPrivateCharge):
            raise UnsupportedCharge(self._refusal(spent, new))
        if after.non_private or not all(a <= limit for a, limit in zip(after.quanta, self.limits, strict=True)):
            raise BudgetExhausted(self._refusal(spent, new))
        return after

    def _refusal(self, spent: Totals, new: Charge) -> str:
        """Say what does not fit, what is left, and what similar release would fit."""
        single, count = (new.charge, new.count) if isinstance(new, RepeatedCharge) else (new, 1)
        times = f"{count} times " if count > 1 else ""
        share = min(left / limit for left, limit in zip(self.affordable(spent), self._float_limits, strict=True))
        return (
            f"{times}{single!r} does not fit in what is left of the budget (epsilon={self.epsilon:g}, "
            f"delta={self.delta:g}): {share:.3g} of it, counted in {self.currency}. "
            f"{self._what_would_fit(spent, single)}"
        )

    def _what_would_fit(self, spent: Totals, single: SingleCharge) -> str:
        if isinstance(single, NonPrivateCharge):
            return "A release without noise needs a purse made by Purse.not_private."
        if isinstance(single, GaussianCharge):
            least = self.smallest_noise_multiplier(spent, single.sample_prob)
            return f"The least noise that still fits has noise_multiplier={least:.6g}."
        if isinstance(single, ObjectivePerturbationCharge):
            return "Use more noise or a larger ridge."
        if isinstance(single, RepeatAndSelectCharge):
            return "Use more noise in each trial, or fewer trials."
        most = self.largest_epsilon(spent, single)
        return f"The largest epsilon of such a release that still fits is {most:.6g}."

    def admit_ahead(self, spent: Totals, new: SingleCharge, count: int) -> Totals:
        block = RepeatedCharge(new, count)
        if count > 1 and not self._fits(spent, block):
            # Reservations try several sizes, so the message does not work out what would fit.
            raise BudgetExhausted(f"{count} times {new!r} does not fit in what is left of the budget.")
        return self.admit(spent, block)

    def affordable(self, spent: Totals) -> tuple[float, ...]:
        return tuple(float_down(limit - used) for limit, used in zip(self.limits, spent.quanta, strict=True))

    def fraction_left(self, start: Totals, now: Totals) -> float:
        return min(
            (limit - used) / (limit - before) if limit > before else 0.0
            for limit, before, used in zip(self.limits, start.quanta, now.quanta, strict=True)
        )

    def smallest_noise_multiplier(self, spent: Totals, sample_prob: float = 1.0) -> float:
        left = self.affordable(spent)
        if any(value < _DUST * limit for value, limit in zip(left, self._float_limits, strict=True)):
            return math.inf
        # Without sampling every price falls as 1/z^2, which gives the answer up to rounding.
        unit = self._price(GaussianCharge(1.0), self.neighbouring)
        multiplier = max(math.sqrt(cost / value) for cost, value in zip(unit, left, strict=True))
        step = 0
        while not self._fits(spent, GaussianCharge(multiplier)):
            step += 1
            multiplier *= 1 + step * 1e-15
        if sample_prob == 1:
            return multiplier
        return self._bisect(lambda z: self._fits(spent, GaussianCharge(z, sample_prob)), multiplier, 1e-3 * multiplier)

    def largest_epsilon(self, spent: Totals, like: BoundedRangeCharge | PureCharge = SELECTION) -> float:
        left = self.affordable(spent)
        if any(value < _DUST * limit for value, limit in zip(left, self._float_limits, strict=True)):
            return 0.0

        def fits(epsilon: float) -> bool:
            return self._fits(spent, dataclasses.replace(like, epsilon=epsilon))

        if not fits(1e-12):
            return 0.0
        # Costs grow about as epsilon squared: a few corrections replace dozens of bisections.
        epsilon = 1.0
        for _ in range(20):
            price = self._price(dataclasses.replace(like, epsilon=epsilon), self.neighbouring)
            room = min(value / cost for value, cost in zip(left, price, strict=True))
            if 1 <= room < 1 + 1e-9 and fits(epsilon):
                return epsilon
            epsilon = min(max(epsilon * math.sqrt(room) * (1 - 1e-11), 1e-12), 1e3)
        return self._bisect(fits, 1e-12, 1e3)

    @staticmethod
    def _bisect(fits: Callable[[float], bool], good: float, bad: float) -> float:
        """Bisect on a logarithmic scale for the last value that fits between `good` and `bad`."""
        if fits(bad):
            return bad
        while abs(math.log(good / bad)) > 1e-9:
            middle = math.sqrt(good * bad)
            good, bad = (middle, bad) if fits(middle) else (good, middle)
        return good

    def epsilon_left(self, spent: Totals) -> float:
        left = tuple(limit - used for limit, used in zip(self.limits, spent.quanta, strict=True))
        return self.epsilon_of(Totals(left), self.delta)

    def epsilon_under(self, neighbouring: Neighbouring, charges: Iterable[Charge], delta: float) -> float:
        spent = self.start()
        for charge, count in pld.tally(charges).items():
            spent = self.after(spent, RepeatedCharge(charge, count), neighbouring)
        return self.epsilon_of(spent, delta)

    def __repr__(self) -> str:
        terms = f"epsilon={self.epsilon:g}, delta={self.delta:g}, {self.neighbouring.value}"
        return f"<{type(self).__name__}: {terms}>"

    def _fits(self, spent: Totals, new: Charge) -> bool:
        after = self.after(spent, new)
        return not after.non_private and all(a <= b for a, b in zip(after.quanta, self.limits, strict=True))

    def leaving(self, start: Totals, now: Totals, share: float) -> Totals:
        top, bottom = float(share).as_integer_ratio()  # exact, and faster than a Fraction
        left = [
            min(limit - used, top * (limit - before) // bottom)
            for limit, before, used in zip(self.limits, start.quanta, now.quanta, strict=True)
        ]
        return Totals(tuple(limit - part for limit, part in zip(self.limits, left, strict=True)))

    def after(self, spent: Totals, new: Charge, neighbouring: Neighbouring | None = None) -> Totals:
        single, count = (new.charge, new.count) if isinstance(new, RepeatedCharge) else (new, 1)
        key = (single, neighbouring or self.neighbouring)
        price = self._prices.get(key, ())
        if price == ():
            price = self._quanta(*key)
        if price is None:
            return Totals(spent.quanta, spent.releases + count, spent.non_private + count)
        added = tuple(used + count * cost for used, cost in zip(spent.quanta, price, strict=True))
        return Totals(added, spent.releases + count, spent.non_private)

    def _quanta(self, charge: SingleCharge, neighbouring: Neighbouring) -> tuple[int, ...] | None:
        """Return a price in whole quanta, or None for infinity, and keep it."""
        if len(self._prices) > 1_000:
            self._prices.clear()  # other threads keep the values they have read
        price = self._price(charge, neighbouring)
        quanta = None if any(map(math.isinf, price)) else tuple(map(quanta_up, price))
        self._prices[charge, neighbouring] = quanta
        return quanta
