"""The multinomial logistic loss: one score for each class."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privypurse.core.checks import FloatArray, positive, positive_integer
from privypurse.core.errors import InvalidArgument
from privypurse.losses.bounds import Bounds


@dataclass(frozen=True)
class Softmax:
    """``logsumexp(scores) - scores[target]``, for targets 0 .. classes - 1.

    Parameters
    ----------
    classes : int
        How many classes there are, two or more. Public.
    clip_derivative : float, default infinity
        The derivative with respect to the scores, ``softmax(scores) - onehot(target)``, is scaled down to this Euclidean
        length. Never longer than the square root of two.
    """

    classes: int
    clip_derivative: float = field(default=math.inf, kw_only=True)

    def __post_init__(self) -> None:
        if positive_integer(classes=self.classes) < 2:
            raise InvalidArgument(
                f"classes must be 2 or more; got {self.classes!r}. Pass the number of declared classes."
            )
        if self.clip_derivative != math.inf:
            object.__setattr__(self, "clip_derivative", positive(clip_derivative=self.clip_derivative))

    @property
    def lipschitz(self) -> float:
        """Largest length of the derivative with respect to the scores."""
        return min(math.sqrt(2), self.clip_derivative)

    @property
    def smoothness(self) -> float:
        """Largest eigenvalue of the second derivative: a half (Böhning 1992)."""
        return 0.5

    def value_at_zero(self) -> float:
        """Return the loss of any record at scores of zero."""
        return math.log(self.classes)

    def bounds(self, row_limit: float, target_bound: float = 1.0) -> Bounds:
        """Return the public constants of the mean loss over rows of at most this length."""
        return Bounds(self.lipschitz * row_limit, self.smoothness * row_limit**2, self.value_at_zero())

    def range_along(self, length: float) -> float:
        """Return how much a record's loss can vary while its scores move along a segment of this length."""
        return math.sqrt(2) * length

    def value(self, scores: FloatArray, target: NDArray[np.intp]) -> FloatArray:
        """Return the loss of each record; scores has one row for each."""
        return np.asarray(special.logsumexp(scores, axis=1) - scores[np.arange(len(scores)), target])

    def derivative(self, scores: FloatArray, target: NDArray[np.intp]) -> FloatArray:
        """Return the derivative of each record's loss with respect to its scores, clipped."""
        slope = special.softmax(scores, axis=1)
        slope[np.arange(len(slope)), target] -= 1.0
        if self.clip_derivative < math.sqrt(2):
            length = np.linalg.norm(slope, axis=1, keepdims=True)
            slope *= np.minimum(1.0, self.clip_derivative / np.maximum(length, 1e-300))
        return np.asarray(slope)
