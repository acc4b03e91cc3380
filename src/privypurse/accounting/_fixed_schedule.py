"""[DECIDES] A schedule fixed in advance, priced as a whole; not for adaptive budgets."""

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from privypurse.accounting import convert, pld
from privypurse.accounting._additive import Target
from privypurse.accounting._totals import Totals
from privypurse.core import charges as charge_format
from privypurse.core._checks import positive, small_probability
from privypurse.core._errors import BudgetExhausted, InvalidArgument, LedgerCorrupt, UnsupportedCharge
from privypurse.core._formats import counted
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import (
    BoundedRangeCharge,
    Charge,
    GaussianCharge,
    ObjectivePerturbationCharge,
    RepeatedCharge,
    SingleCharge,
)

# A longer schedule, for example in an edited file, would fill the memory.
MOST_RELEASES = 2_000_000


class FixedSchedule(Target):
    """A list of charges fixed before the data is seen, priced as a whole by PLD accounting.

    Parameters
    ----------
    charges : iterable of Charge
        The whole schedule, in order. It must not depend on the data or on any release.
    epsilon, delta : float
        The target. A schedule that exceeds it is refused here, before anything is spent.
    neighbouring : Neighbouring or str
        The relation.
    interval : float, optional
        Grid of the privacy loss, as in `pld_epsilon`; by default about 0.05 % of epsilon.

    Guarantees
    ----------
    Composition of dominating privacy loss distributions for a list fixed in advance: Sommer, Meiser
    and Mohammadi (2019); Zhu, Dong and Wang (2022, arXiv:2106.08567); numbers by dp-accounting,
    pessimistic on its grid. Because it is *not* a stopping rule for adaptive budgets
    (arXiv:2602.06756), `admit` accepts exactly the next charge of the list and nothing else.
    Stopping early is post-processing.
    """

    name = "fixed-schedule"
    theorem = "composition of privacy loss distributions for a schedule fixed in advance (dp-accounting PLD; arXiv:2106.08567)"
    # Returning a position out of turn would let another charge be admitted twice.
    refundable = False

    def __init__(
        self,
        charges: Iterable[Charge],
        epsilon: float,
        delta: float,
        neighbouring: Neighbouring | str,
        *,
        interval: float | None = None,
    ) -> None:
        super().__init__(positive(epsilon=epsilon), small_probability(delta=delta), neighbouring)
        self.interval = pld.default_interval(self.epsilon) if interval is None else positive(interval=interval)
        if self.interval < pld.SMALLEST_INTERVAL * self.epsilon:
            what = f"interval must be at least {pld.SMALLEST_INTERVAL:g} of epsilon, to fit the memory"
            raise InvalidArgument(f"{what}; got {interval!r}. Omit it.")
        self.schedule = _unfold(charges)
        if any(isinstance(charge, ObjectivePerturbationCharge) for charge in self.schedule):
            self.theorem = (
                "objective perturbation, tight for one release: Redberg, Koskela and Wang 2023 (arXiv:2401.00583)"
            )
        # A single release that exceeds the target needs no grid, which is slow for little noise.
        alone = any(_is_too_dear(charge, self.epsilon, self.delta, self.neighbouring) for charge in set(self.schedule))
        self.scheduled_epsilon = math.inf if alone else self._epsilon(self.schedule, self.delta)
        if self.scheduled_epsilon > self.epsilon:
            what = f"this schedule costs epsilon={self.scheduled_epsilon:.6g} at delta={self.delta:g}, more than {self.epsilon:g}"
            raise InvalidArgument(f"{what}. Shorten it, or scale its noise with accounting.calibrate.scale_to_budget.")

    def start(self) -> Totals:
        return Totals((0,))

    def admit(self, spent: Totals, new: Charge) -> Totals:
        single, count = (new.charge, new.count) if isinstance(new, RepeatedCharge) else (new, 1)
        position = spent.quanta[0]
        if position + count > len(self.schedule):
            left = f"{len(self.schedule) - position} of {counted(len(self.schedule), 'release')} left; {new!r} does not fit"
            raise BudgetExhausted(f"the schedule fixed in advance has {left}. Stop here, or plan a longer one.")
        planned = self.schedule[position : position + count]
        if any(charge != single for charge in planned):
            what = f"release {position + 1} of the schedule fixed in advance is {planned[0]!r}; got {new!r}"
            why = "Composed privacy losses are valid only for that schedule"
            raise UnsupportedCharge(f"{what}. {why}. Use filter='gdp' or 'rdp' to choose budgets adaptively.")
        return self._at(spent, position + count)

    def admit_ahead(self, spent: Totals, new: SingleCharge, count: int) -> Totals:
        first = self.admit(spent, new)
        return self._at(spent, min(first.quanta[0] + count - 1, len(self.schedule)))

    def in_order(self, spent: Totals, charges: Sequence[RepeatedCharge]) -> Sequence[Charge]:
        """Order counted charges like the schedule, if they are its next ones."""
        counted = pld.tally(charges)
        position = spent.quanta[0]
        planned = self.schedule[position : position + counted.total()]
        return planned if Counter(planned) == counted else charges

    def after(self, spent: Totals, new: Charge) -> Totals:
        return self._at(spent, spent.quanta[0] + (new.count if isinstance(new, RepeatedCharge) else 1))

    def leaving(self, start: Totals, now: Totals, share: float) -> Totals:
        return now  # the schedule decides what comes next

    def fraction_left(self, start: Totals, now: Totals) -> float:
        whole = len(self.schedule) - start.quanta[0]
        return (len(self.schedule) - now.quanta[0]) / whole if whole else 0.0

    def affordable(self, spent: Totals) -> tuple[float, ...]:
        return (float(len(self.schedule) - spent.quanta[0]),)

    def smallest_noise_multiplier(self, spent: Totals, sample_prob: float = 1.0) -> float:
        planned = self._next(spent)
        if isinstance(planned, GaussianCharge) and planned.sample_prob == sample_prob:
            return planned.noise_multiplier
        return math.inf

    def largest_epsilon(self, spent: Totals) -> float:
        planned = self._next(spent)
        return planned.epsilon if isinstance(planned, BoundedRangeCharge) else 0.0

    def _next(self, spent: Totals) -> SingleCharge | None:
        position = spent.quanta[0]
        return self.schedule[position] if position < len(self.schedule) else None

    def epsilon_of(self, spent: Totals, delta: float) -> float:
        return self._epsilon(self.schedule[: spent.quanta[0]], delta) if spent.quanta[0] else 0.0

    def epsilon_under(self, neighbouring: Neighbouring, charges: Iterable[Charge], delta: float) -> float:
        listed = list(charges)
        return pld.pld_epsilon(listed, delta, neighbouring, interval=self.interval) if listed else 0.0

    def epsilon_left(self, spent: Totals) -> float:
        rest = self.schedule[spent.quanta[0] :]
        return self._epsilon(rest, self.delta) if rest else 0.0

    def terms(self) -> dict[str, Any]:
        listed = json.dumps([charge_format.to_json(charge) for charge in self.schedule], sort_keys=True)
        runs = [[charge_format.to_json(one), sum(1 for _ in same)] for one, same in itertools.groupby(self.schedule)]
        return {
            **super().terms(),
            "interval": self.interval,
            "schedule": runs,
            "schedule_length": len(self.schedule),
            "schedule_sha256": hashlib.sha256(listed.encode()).hexdigest(),
        }

    @classmethod
    def from_terms(cls, terms: dict[str, Any]) -> "FixedSchedule":
        """Rebuild a schedule from the terms on a ledger. It is priced again, in about a second."""
        runs = [RepeatedCharge(charge_format.from_json(charge), count) for charge, count in terms["schedule"]]  # type: ignore[arg-type]
        schedule = cls(runs, terms["epsilon"], terms["delta"], terms["neighbouring"], interval=terms["interval"])
        if schedule.terms() != terms:
            raise LedgerCorrupt("the terms of a fixed schedule are inconsistent: the ledger line was changed.")
        return schedule

    def __repr__(self) -> str:
        releases = counted(len(self.schedule), "release")
        return f"<FixedSchedule: {releases}, epsilon={self.epsilon:g}, delta={self.delta:g}>"

    def _epsilon(self, charges: Sequence[SingleCharge], delta: float) -> float:
        return pld.pld_epsilon(charges, delta, self.neighbouring, interval=self.interval)

    @staticmethod
    def _at(spent: Totals, position: int) -> Totals:
        return Totals((position,), position, spent.non_private)


def _is_too_dear(charge: SingleCharge, epsilon: float, delta: float, neighbouring: Neighbouring) -> bool:
    """Return whether one sampled Gaussian release alone is surely not (epsilon, delta)-DP.

    Removing a record, or replacing it by one that adds nothing, has exactly this delta (Balle,
    Barthe and Gaboardi 2018: amplification by sampling is exact).
    """
    if not isinstance(charge, GaussianCharge) or charge.sample_prob == 1 or charge.noise_multiplier == 0:
        return False  # priced without a grid
    relative_to_one_record = 2.0 if neighbouring is Neighbouring.REPLACE_ONE else 1.0
    mu = 1 / (charge.noise_multiplier * relative_to_one_record)
    inner = math.log1p(math.expm1(min(epsilon, 700.0)) / charge.sample_prob)
    # Factor 2 for rounding: borderline cases are left to the grid.
    return charge.sample_prob * convert.gdp_delta(mu, inner) > 2 * delta


def _unfold(charges: Iterable[Charge]) -> tuple[SingleCharge, ...]:
    """Check a schedule and expand its repetitions."""
    listed = list(charges) if isinstance(charges, Iterable) else [charges]
    wrong = [charge for charge in listed if not isinstance(charge, SingleCharge | RepeatedCharge)]
    if wrong or not listed:
        what = f"charges must be a list of charges, at least one; got {wrong[0] if wrong else listed!r}"
        raise InvalidArgument(f"{what}. Pass for example [GaussianCharge(20.0)] * 10.")
    length = sum(charge.count if isinstance(charge, RepeatedCharge) else 1 for charge in listed)
    if length > MOST_RELEASES:
        raise InvalidArgument(f"charges must be at most {MOST_RELEASES:,} in all; got {length:,}. Use filter='rdp'.")
    runs = ([charge.charge] * charge.count if isinstance(charge, RepeatedCharge) else [charge] for charge in listed)
    return tuple(itertools.chain.from_iterable(runs))
