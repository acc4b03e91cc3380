"""What the training loop asks of a schedule, and what a schedule may see."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from privypurse.accounting.fixed_schedule import FixedSchedule
from privypurse.accounting.totals import Filter, Totals
from privypurse.core.charges import SingleCharge
from privypurse.core.errors import BudgetExhausted, UnsupportedCharge
from privypurse.core.queries import LossesAlong, LossesAt, Query
from privypurse.core.released import Released
from privypurse.mechanisms.base import Mechanism
from privypurse.mechanisms.gaussian import Gaussian
from privypurse.mechanisms.selection import MOST_EPSILON, ExponentialSelection

# What is left after rounding, as a share of a run's budget; less than this is nothing.
DUST = 1e-9


@dataclass(frozen=True)
class Budget:
    """What a run may spend, counted in shares of what the purse held when the run began.

    Shares are in the currency of the purse's filter, in which costs add up. What others spend from the same purse in the
    meantime is not in here: a resumed run sees the same numbers, and the purse refuses what no longer fits.

    Parameters
    ----------
    rule : Filter
        The purse's filter, which prices mechanisms.
    start, now : Totals
        What was spent when the run began, and that plus the run's own releases.
    steps : int
        How many releases the run has at most.
    sample_prob : float
        The Poisson sampling rate of the run's queries; 1 where all records take part.

    Examples
    --------
    >>> from privypurse.accounting.filters import GdpFilter
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
    _known: dict[tuple[str, float], float] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def noise_multiplier(self) -> float:
        """The least noise of one release of all records that spends all the run began with: ``1/mu`` in Gaussian DP."""
        return self.rule.smallest_noise_multiplier(self.start)

    @cached_property
    def selection_epsilon(self) -> float:
        """The largest epsilon of one selection that spends all the run began with."""
        return self.rule.largest_epsilon(self.start)

    @property
    def left(self) -> float:
        """Share of the run's budget that is left."""
        return self.rule.fraction_left(self.start, self.now)

    def gaussian(self, share: float) -> Gaussian:
        """Return the Gaussian mechanism that costs this share, or all that is left if that is less.

        Where the purse's schedule was fixed in advance, the mechanism is the one that comes next in it.
        """
        multiplier = self._priced("gaussian", share)
        if not 0 < multiplier < float("inf"):
            raise BudgetExhausted("nothing is left of the run's budget. Nothing was spent.")
        return Gaussian(multiplier)

    def selection(self, share: float) -> ExponentialSelection:
        """Return the selection that costs this share, or all that is left if that is less."""
        epsilon = self._priced("selection", share)
        if epsilon <= 0:
            raise BudgetExhausted("nothing is left of the run's budget. Nothing was spent.")
        return ExponentialSelection(min(epsilon, MOST_EPSILON))

    def mechanism(self, query: Query, share: float) -> Gaussian | ExponentialSelection:
        """Return the mechanism a query needs, at this share: a selection for scores, Gaussian noise for all else."""
        return self.selection(share) if isinstance(query, LossesAlong | LossesAt) else self.gaussian(share)

    def _priced(self, kind: str, share: float) -> float:
        left = self.left
        if left < DUST or share <= 0:
            raise BudgetExhausted("nothing is left of the run's budget. Nothing was spent.")
        if isinstance(self.rule, FixedSchedule):
            return self._planned(kind)
        if share > left * (1 - DUST):
            return self._price(kind, self.rule.leaving(self.start, self.now, 1.0))
        # Many runs ask for the same share at every step, and an inversion takes a fraction of a millisecond.
        if (kind, share) not in self._known:
            self._known[kind, share] = self._price(kind, self.rule.leaving(self.start, self.now, share))
        return self._known[kind, share]

    def _planned(self, kind: str) -> float:
        """Return what a schedule fixed in advance has next, which must be of the kind that is asked for."""
        planned = self._price(kind, self.now)
        if planned in (0.0, math.inf):
            sampled = f" of a sample with probability {self.sample_prob:g}" if self.sample_prob < 1 else ""
            raise UnsupportedCharge(
                f"the purse's schedule was fixed in advance, and a {kind} release{sampled} does not come next in it. "
                "Open the purse for this method: training.open_purse(oracle, method, ...). Nothing was spent."
            )
        return planned

    def _price(self, kind: str, account: Totals) -> float:
        if kind == "gaussian":
            return self.rule.smallest_noise_multiplier(account, self.sample_prob)
        return self.rule.largest_epsilon(account)

    def after(self, charge: SingleCharge) -> "Budget":
        """Return the budget after one of the run's own releases."""
        return replace(self, now=self.rule.after(self.now, charge))


class Schedule(Protocol):
    """Chooses the mechanism of the next release.

    Guarantees
    ----------
    It sees the query, the releases so far (of vectors, the newest ten with their values) and the budget: all public. Whatever it
    chooses is therefore sound; the purse refuses what does not fit.
    """

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Mechanism:
        """Return the mechanism for the next release; raise `BudgetExhausted` to end the run."""
        ...
