"""Interface of schedules, the budget that they see, and proportions fixed before the run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, cast

import numpy as np

from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Filter, Totals
from privypurse.core._checks import FloatArray, positive
from privypurse.core._errors import BudgetExhausted, UnsupportedCharge
from privypurse.core._formats import counted
from privypurse.core.charges import SingleCharge
from privypurse.core.queries import LossesAlong, LossesAt, Query, Released
from privypurse.mechanisms._base import Mechanism
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.mechanisms._selection import MOST_EPSILON, ExponentialSelection
from privypurse.training.schedules.shapes import positive_vector

# Less than this share of a run's budget is rounding error.
DUST = 1e-9


@dataclass(frozen=True)
class Budget:
    """What a run may spend, in shares of what the purse held when the run began.

    Shares are in the filter's own units, in which costs add up. Spending of others is not included:
    a resumed run sees the same numbers, and the purse refuses what no longer fits.

    Parameters
    ----------
    rule : Filter
        The purse's filter, which prices mechanisms.
    start, now : Totals
        Totals when the run began, and those plus the run's own releases.
    steps, sample_prob : int, float
        Most releases of the run, and Poisson sampling rate of its queries.

    Examples
    --------
    >>> from privypurse.accounting._filters import GdpFilter
    >>> from privypurse.core.charges import GaussianCharge
    >>> rule = GdpFilter(1.0, 1e-6, "add-remove")
    >>> budget = Budget(rule, rule.start(), rule.start(), steps=10)
    >>> first = budget.gaussian(0.5)
    >>> second = budget.after(GaussianCharge(first.noise_multiplier)).gaussian(1.0)  # what is left: the other half
    >>> round(first.noise_multiplier, 3), round(second.noise_multiplier, 3)
    (5.975, 5.975)
    """

    rule: Filter
    start: Totals
    now: Totals
    steps: int
    sample_prob: float = 1.0
    _known: dict[tuple[str, float], Gaussian | ExponentialSelection] = field(
        default_factory=dict, repr=False, compare=False
    )

    @cached_property
    def noise_multiplier(self) -> float:
        """Least noise multiplier of one release of the whole start budget: ``1/mu`` in GDP."""
        return self.rule.smallest_noise_multiplier(self.start)

    @cached_property
    def selection_epsilon(self) -> float:
        """Largest epsilon of one selection that spends the whole start budget."""
        return self.rule.largest_epsilon(self.start)

    @property
    def left(self) -> float:
        """Share of the run's budget that is left."""
        return self.rule.fraction_left(self.start, self.now)

    def gaussian(self, share: float) -> Gaussian:
        """Return the Gaussian mechanism that costs this share or the rest; the next one if fixed."""
        return cast(Gaussian, self._costing("gaussian", share))

    def selection(self, share: float) -> ExponentialSelection:
        """Return the selection that costs this share, or all that is left if that is less."""
        return cast(ExponentialSelection, self._costing("selection", share))

    def mechanism(self, query: Query, share: float) -> Gaussian | ExponentialSelection:
        """Return the mechanism for a query at this share: a selection for scores, else Gaussian."""
        return self._costing("selection" if isinstance(query, LossesAlong | LossesAt) else "gaussian", share)

    def _costing(self, kind: str, share: float) -> Gaussian | ExponentialSelection:
        left = self.rule.fraction_left(self.start, self.now)
        if left < DUST or share <= 0:
            raise BudgetExhausted("nothing is left of the run's budget.")
        is_fixed, is_rest = isinstance(self.rule, FixedSchedule), share > left * (1 - DUST)
        # Cached: many runs use the same share at every step.
        if not (is_fixed or is_rest) and (kind, share) in self._known:
            return self._known[kind, share]
        account = self.now if is_fixed else self.rule.leaving(self.start, self.now, 1.0 if is_rest else share)
        if kind == "gaussian":
            found = self.rule.smallest_noise_multiplier(account, self.sample_prob)
        else:
            found = min(self.rule.largest_epsilon(account), MOST_EPSILON)
        if is_fixed and found in (0.0, math.inf):
            sampled = f" of a sample with probability {self.sample_prob:g}" if self.sample_prob < 1 else ""
            what = f"the purse's schedule was fixed in advance, and a {kind} release{sampled} does not come next in it"
            raise UnsupportedCharge(f"{what}. Open the purse for this method: training.purse_for(oracle, method, ...).")
        if not 0 < found < math.inf:
            raise BudgetExhausted("nothing is left of the run's budget.")
        mechanism: Gaussian | ExponentialSelection = (Gaussian if kind == "gaussian" else ExponentialSelection)(found)
        if not is_rest:
            self._known[kind, share] = mechanism
        return mechanism

    def after(self, charge: SingleCharge) -> "Budget":
        """Return the budget after one of the run's own releases."""
        return replace(self, now=self.rule.after(self.now, charge))


class Schedule(Protocol):
    """Chooses the mechanism of the next release.

    Guarantees
    ----------
    It sees the query, the releases so far (of vectors, the newest ten with their values) and the
    budget: all public. Whatever it chooses is therefore sound; the purse refuses what does not fit.
    """

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Mechanism:
        """Return the mechanism for the next release; raise `BudgetExhausted` to end the run."""


@dataclass(frozen=True)
class ConstantNoise:
    """A constant noise multiplier; the run stops when the budget does."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        positive(noise_multiplier=self.noise_multiplier)

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Gaussian:
        return Gaussian(self.noise_multiplier)


@dataclass(frozen=True)
class EvenSplit:
    """The run's budget divided evenly over its steps; the last step spends the rounding."""

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Gaussian | ExponentialSelection:
        last = len(past) + 1 >= budget.steps
        return budget.mechanism(query, 1.0 if last else 1 / budget.steps)


@dataclass(frozen=True)
class Weighted:
    """The run's budget divided in proportion to weights; the last step spends the rounding.

    A weight is a share of the budget, hence (for releases of all records) proportional to
    ``1/noise_std^2``. ``privypurse.training.schedules.shapes`` has the usual ones.

    Parameters
    ----------
    weights : sequence of float
        One positive number for each step. Shares below a ten-millionth of the budget are raised to
        that.

    Examples
    --------
    >>> Weighted((1, 3)).shares.tolist()
    [0.25, 0.75]
    """

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        weights = positive_vector(weights=self.weights)
        # Raise a share so small that it would count as nothing left.
        floored = np.maximum(weights, 1e-7 * weights.sum())
        object.__setattr__(self, "weights", tuple(floored.tolist()))

    @cached_property
    def shares(self) -> FloatArray:
        """Share of the budget for each step."""
        weights = np.array(self.weights)
        return np.asarray(weights / weights.sum())

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Gaussian | ExponentialSelection:
        step = len(past)
        if step >= len(self.weights):
            raise BudgetExhausted(f"the schedule has {counted(len(self.weights), 'step')}, and all are made.")
        last = step + 1 == len(self.weights)
        return budget.mechanism(query, 1.0 if last else float(self.shares[step]))
