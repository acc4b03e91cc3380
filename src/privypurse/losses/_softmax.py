"""The multinomial logistic loss: one score for each class."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privypurse.core._checks import FloatArray, positive, positive_integer
from privypurse.core._errors import InvalidArgument
from privypurse.losses._bounds import Bounds
from privypurse.losses._linear import HuberHinge


@dataclass(frozen=True)
class Softmax:
    """``logsumexp(scores) - scores[target]``, for targets 0 .. classes - 1.

    Parameters
    ----------
    classes : int
        How many classes there are, two or more. Public.
    clip_derivative : float, default infinity
        The derivative with respect to the scores, ``softmax(scores) - onehot(target)``, is scaled
        down to this Euclidean length. It is never longer than the square root of two.
    """

    classes: int
    clip_derivative: float = field(default=math.inf, kw_only=True)

    def __post_init__(self) -> None:
        if positive_integer(classes=self.classes) < 2:
            raise InvalidArgument(f"classes must be 2 or more; got {self.classes!r}. Pass the number of classes.")
        if self.clip_derivative != math.inf:
            object.__setattr__(self, "clip_derivative", positive(clip_derivative=self.clip_derivative))

    @property
    def _longest(self) -> float:
        """Largest length of the derivative before clipping."""
        return math.sqrt(2)

    @property
    def lipschitz(self) -> float:
        """Largest length of the derivative with respect to the scores."""
        return min(self._longest, self.clip_derivative)

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
        """Return how much a record's loss can vary while its scores move over this length."""
        return self._longest * length

    def value(self, scores: FloatArray, target: NDArray[np.intp]) -> FloatArray:
        """Return the loss of each record; scores has one row for each."""
        return np.asarray(special.logsumexp(scores, axis=1) - scores[np.arange(len(scores)), target])

    def derivative(self, scores: FloatArray, target: NDArray[np.intp]) -> FloatArray:
        """Return the derivative of each record's loss with respect to its scores, clipped."""
        slope = special.softmax(scores, axis=1)
        slope[np.arange(len(slope)), target] -= 1.0
        return self._clipped(slope)

    def _clipped(self, slope: FloatArray) -> FloatArray:
        if self.clip_derivative < self._longest:
            length = np.linalg.norm(slope, axis=1, keepdims=True)
            slope *= np.minimum(1.0, self.clip_derivative / np.maximum(length, 1e-300))
        return slope


@dataclass(frozen=True)
class OneVsRest(Softmax):
    """Rounded hinge of each class against the rest: a support vector machine for several classes.

    ``h(score[target]) + mean of h(-score[k]) over the other classes``, with h the `HuberHinge`. The
    other classes together weigh as much as a record's own, so that a record moves the gradient by
    little more than in a two-class problem.

    Parameters
    ----------
    classes, clip_derivative
        As for `Softmax`.
    width : float, default 0.5
        Half the width of the rounded part.
    """

    width: float = field(default=0.5, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "width", self._hinge.width)

    @property
    def _hinge(self) -> HuberHinge:
        return HuberHinge(width=self.width)

    @property
    def _longest(self) -> float:
        return math.sqrt(1 + 1 / (self.classes - 1))  # 1 for the target's score, 1/(K - 1) for each other

    @property
    def smoothness(self) -> float:
        """That of the hinge, since the second derivative is diagonal."""
        return self._hinge.smoothness

    def value_at_zero(self) -> float:
        """Return the loss of any record at scores of zero."""
        return 2 * self._hinge.value_at_zero()

    def value(self, scores: FloatArray, target: NDArray[np.intp]) -> FloatArray:
        """Return the loss of each record; scores has one row for each."""
        sign, weight = self._signs(scores, target)
        return np.asarray((weight * self._hinge.value(scores, sign)).sum(axis=1))

    def derivative(self, scores: FloatArray, target: NDArray[np.intp]) -> FloatArray:
        """Return the derivative of each record's loss with respect to its scores, clipped."""
        sign, weight = self._signs(scores, target)
        return self._clipped(weight * self._hinge.derivative(scores, sign))

    def _signs(self, scores: FloatArray, target: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return +1 and weight 1 in the target's column, -1 and weight 1/(K - 1) in the others."""
        own = np.zeros(scores.shape, dtype=bool)
        own[np.arange(len(scores)), target] = True
        return np.where(own, 1.0, -1.0), np.where(own, 1.0, 1 / (self.classes - 1))
