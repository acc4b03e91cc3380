"""Noise that follows the length of the released gradients (PUR, in its sound adaptive form)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import positive, positive_integer
from privypurse.core.errors import InvalidArgument
from privypurse.core.queries import GradientAt, ModuleGradient, Query, Released
from privypurse.mechanisms.gaussian import Gaussian
from privypurse.training.schedules.base import Budget


@dataclass(frozen=True)
class FollowGradientNorm:
    """Use noise as long as the gradient itself, which minimises privacy cost per progress.

    The length of the gradient is estimated from the releases, ``|g|^2 - d noise_std^2``, at no
    cost; the published rule uses the true length, which is private. The first step uses a public
    bound on the length. The last step spends the remainder.

    Parameters
    ----------
    first_share : float
        Share of the budget for the first step, whose noise is as long as the largest gradient.
    fewest_steps, most_steps : int
        No step takes more than ``1/fewest_steps`` of the budget or less than ``1/most_steps``.
    ridge : float, default 0.0
        Ridge on the sum of losses: ``ridge * point`` is the public part of the gradient's length.
    """

    first_share: float
    fewest_steps: int = 10
    most_steps: int = 300
    ridge: float = 0.0

    def __post_init__(self) -> None:
        positive(first_share=self.first_share)
        positive_integer(most_steps=self.most_steps)
        if positive_integer(fewest_steps=self.fewest_steps) > self.most_steps:
            raise InvalidArgument(
                f"fewest_steps must be at most most_steps={self.most_steps}; got {self.fewest_steps}. Swap them."
            )

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Gaussian:
        """Return the mechanism whose noise is about as long as the gradient."""
        share = min(max(self._wanted(query, past, budget), 1 / self.most_steps), 1 / self.fewest_steps)
        left = budget.left
        return budget.gaussian(left if left < 2 * share else share)

    def _wanted(self, query: Query, past: Sequence[Released], budget: Budget) -> float:
        if not past or past[-1].noise_std is None or not isinstance(query, GradientAt | ModuleGradient):
            return self.first_share
        last, std = past[-1].value, past[-1].noise_std
        if isinstance(query, GradientAt):
            last = last + self.ridge * query.point
        # Estimated squared length per coordinate; it may be negative, which asks for the least
        # noise.
        squared = (float(last @ last) - last.size * std**2) / last.size
        if squared <= 0:
            return math.inf
        # Shares go as 1/noise^2; the last release gives the noise of a share of one.
        share_of_last = (budget.noise_multiplier / getattr(past[-1].charge, "noise_multiplier", math.inf)) ** 2
        return float(np.minimum(share_of_last * std**2 / squared, 1.0))
