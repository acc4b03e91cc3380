"""A clip norm that follows a quantile of the gradients' lengths, by noisy counts that are paid for."""

import math
from dataclasses import dataclass

from privypurse.core.checks import positive, positive_integer, probability
from privypurse.core.errors import InvalidArgument
from privypurse.pytorch.clipping import LEAST_CLIP_NORM, MOST_CLIP_NORM, check_clip_norm


@dataclass(frozen=True)
class AdaptiveClip:
    """Every few steps, spend one sample on looking how many gradients are within the clip norm, and move it.

    The look is a release of its own, on a fresh sample of its own, with its own line in the ledger; no step is made with it.
    (Andrew et al. 2021, arXiv:1905.03871, count in the samples that the gradients come from.)

    Parameters
    ----------
    start : float, default 1.0
        The clip norm at first. Public.
    quantile : float, default 0.5
        Share of gradients that should be within it.
    every : int, default 10
        Gradients between two looks.
    rate : float, default 1.0
        A look multiplies the norm by ``exp(rate (quantile - share))``.
    error : float, default 0.05
        Standard deviation of the noise in the share that is seen. Raised where looks would take more than a few percent of the
        budget.
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
        """Return how many looks go with so many gradients."""
        return math.ceil(steps / self.every)

    def noise_multiplier(self, expected_batch: float, of_gradients: float) -> float:
        """Return the noise of a look: as asked for, and at least twice that of gradients, for a fortieth of the budget at most.

        A record moves the count, which is of +1/2 and -1/2, by half.
        """
        return max(2 * self.error * expected_batch, 2 * of_gradients * math.sqrt(10 / min(self.every, 10)))

    def moved(self, clip_norm: float, noisy_count: float, expected_batch: float) -> float:
        """Return the norm after a look."""
        share = min(max(noisy_count / expected_batch + 0.5, 0.0), 1.0)
        return min(max(clip_norm * math.exp(self.rate * (self.quantile - share)), LEAST_CLIP_NORM), MOST_CLIP_NORM)
