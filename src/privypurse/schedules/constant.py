"""The same noise at every step."""

from collections.abc import Sequence
from dataclasses import dataclass

from privypurse.core.checks import positive
from privypurse.core.queries import Query
from privypurse.core.released import Released
from privypurse.mechanisms.gaussian import Gaussian
from privypurse.schedules.base import Budget


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

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Gaussian:
        """Return the same mechanism each time."""
        return Gaussian(self.noise_multiplier)
