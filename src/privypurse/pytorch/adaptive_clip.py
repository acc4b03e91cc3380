"""Adaptive clip norm: follows a quantile of gradient norms by noisy counts."""

import math
from dataclasses import dataclass

from privypurse.core.checks import positive, positive_integer, probability
from privypurse.core.errors import InvalidArgument
from privypurse.pytorch.clipping import LEAST_CLIP_NORM, MOST_CLIP_NORM, check_clip_norm


@dataclass(frozen=True)
class AdaptiveClip:
    """Clip norm that is adapted every few steps, by the share of gradients within it.

    Each look is a release on a fresh sample, with its own ledger entry; no step is made with it.
    (Andrew et al. 2021, arXiv:1905.03871, count in the samples of the gradients.)

    Parameters
    ----------
    start : float, default 1.0
        Initial clip norm. Public.
    quantile : float, default 0.5
        Target share of gradients within the norm.
    every : int, default 10
        Gradients between two looks.
    rate : float, default 1.0
        A look multiplies the norm by ``exp(rate (quantile - share))``.
    error : float, default 0.05
        Standard deviation of the noise in the share. Raised where looks would take more than a few
        percent of the budget.
    """

    start: float = 1.0
    quantile: float = 0.5
    every: int = 10
    rate: float = 1.0
    error: float = 0.05

    def __post_init__(self) -> None:
        check_clip_norm(start=self.start)
        if probability(quantile=self.quantile) >= 1:
            raise InvalidArgument(f"quantile must be below 1; got {self.quantile!r}. Pass for example 0.5.")
        positive_integer(every=self.every)
        positive(rate=self.rate)
        positive(error=self.error)

    def looks(self, steps: int) -> int:
        """Return the number of looks for a number of gradients."""
        return math.ceil(steps / self.every)

    def noise_multiplier(self, expected_batch: float, of_gradients: float) -> float:
        """Return the noise multiplier of a look, at least twice that of gradients.

        Looks then take at most a fortieth of the budget. A record moves the count by 1/2.
        """
        return max(2 * self.error * expected_batch, 2 * of_gradients * math.sqrt(10 / min(self.every, 10)))

    def moved(self, clip_norm: float, noisy_count: float, expected_batch: float) -> float:
        """Return the clip norm after a look."""
        share = min(max(noisy_count / expected_batch + 0.5, 0.0), 1.0)
        return min(max(clip_norm * math.exp(self.rate * (self.quantile - share)), LEAST_CLIP_NORM), MOST_CLIP_NORM)
