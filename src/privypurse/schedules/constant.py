"""The same noise at every step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from privypurse.core.checks import positive
from privypurse.core.errors import BudgetExhausted, InvalidArgument
from privypurse.core.queries import Query
from privypurse.mechanisms.gaussian import Gaussian
from privypurse.schedules.base import Budget, Past


@dataclass(frozen=True)
class ConstantNoise:
    """A given noise multiplier at every step; the run stops when the budget does.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the sensitivity.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        positive(noise_multiplier=self.noise_multiplier)

    def propose(self, query: Query, past: Sequence[Past], budget: Budget) -> Gaussian:
        """Return the same mechanism each time."""
        return Gaussian(self.noise_multiplier)


@dataclass(frozen=True)
class EvenSplit:
    """The run's whole budget, split evenly over its steps. For releases of all records."""

    def propose(self, query: Query, past: Sequence[Past], budget: Budget) -> Gaussian:
        """Return the mechanism of which `budget.steps` fit exactly; a hair more noise makes up for rounding."""
        if budget.sample_prob < 1:
            raise InvalidArgument(
                f"EvenSplit is for queries of all records; got sample_prob={budget.sample_prob!r}. Pass ConstantNoise with a "
                "noise multiplier from privypurse.accounting.calibrate.scale_to_budget."
            )
        if not math.isfinite(budget.noise_multiplier):
            raise BudgetExhausted("nothing was left of the budget when the run began. Nothing was spent.")
        return Gaussian(budget.noise_multiplier * math.sqrt(budget.steps) * (1 + 1e-12))
