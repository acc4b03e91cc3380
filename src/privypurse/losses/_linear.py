"""Losses of linear models: functions of a record's score ``x . w``, or scores, and of its target.

Each loss can be *Huberised*: ``Logistic(clip_derivative=0.5)`` is the convex function whose
derivative is the logistic one clipped to [-0.5, 0.5]. That bounds every record's gradient by
``clip_derivative * |x|`` and keeps the problem convex, which clipping gradient norms does not.

Targets are -1 or +1 for two classes, 0 to K - 1 for several, real numbers for regression. The arrays here are the
readable reference for the kernels in ``oracles``, which tests compare with them.
"""

import functools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from privypurse.core._checks import FloatArray, positive, positive_integer, shown
from privypurse.core._errors import InvalidArgument
from privypurse.losses._bounds import Bounds


@dataclass(frozen=True, kw_only=True)
class LinearLoss(ABC):
    """Base class of the losses of linear models.

    Parameters
    ----------
    clip_derivative : float, default infinity
        The derivative is clipped to this size: beyond that point the loss is linear.
    """

    clip_derivative: float = math.inf

    code: ClassVar[int]  # of the loss in the kernels
    classification: ClassVar[bool] = True  # whether targets are -1 and +1
    _lipschitz: ClassVar[float] = 1.0  # before clipping

    def __post_init__(self) -> None:
        if self.clip_derivative != math.inf:
            object.__setattr__(self, "clip_derivative", positive(clip_derivative=self.clip_derivative))

    @functools.cached_property
    def lipschitz(self) -> float:
        """Largest size of the derivative."""
        return min(self._lipschitz, self.clip_derivative)

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Largest second derivative; infinity where there is a kink."""

    def value_at_zero(self, target_bound: float = 1.0) -> float:
        """Return the largest loss of a record at score zero, for targets up to this size."""
        return float(self.value(0.0, 1.0 if self.classification else target_bound))

    def bounds(self, row_limit: float, target_bound: float = 1.0) -> Bounds:
        """Return the public constants of the mean loss over rows of at most this length."""
        smoothness = self.smoothness_for(target_bound)
        return Bounds(self.lipschitz * row_limit, smoothness * row_limit**2, self.value_at_zero(target_bound))

    def smoothness_for(self, target_bound: float) -> float:
        """Return the largest second derivative for targets of this size."""
        return self.smoothness

    def target_bound(self, low: float, high: float) -> float:
        """Return the size of targets in this range. Raise InvalidArgument if the loss has none for some."""
        return max(abs(low), abs(high))

    def range_along(self, length: float) -> float:
        """Return how much a record's loss can vary while its score moves over this length."""
        return self.lipschitz * length

    @abstractmethod
    def value(self, score: ArrayLike, target: ArrayLike) -> FloatArray:
        """Return the loss of each record."""

    @abstractmethod
    def derivative(self, score: ArrayLike, target: ArrayLike) -> FloatArray:
        """Return the derivative of each record's loss with respect to its score."""

    @property
    @abstractmethod
    def for_kernels(self) -> tuple[float, float, float]:
        """Width of a rounded kink or 0, where the clipped loss becomes linear, and its slope there."""


class _OfDistance(LinearLoss):
    """Base class of the losses that are functions of a margin, or of a distance to the target."""

    def value(self, score: ArrayLike, target: ArrayLike) -> FloatArray:
        z, _ = self._residual(score, target)
        knee = self._knee()
        if math.isinf(knee):
            return np.asarray(self._plain_value(z))
        # Beyond the knee the clipped loss continues as its tangent.
        inside = np.maximum(z, knee) if self.classification else np.minimum(z, knee)
        return np.asarray(self._plain_value(inside) + self.lipschitz * np.abs(z - inside))

    def derivative(self, score: ArrayLike, target: ArrayLike) -> FloatArray:
        z, sign = self._residual(score, target)
        return np.asarray(np.clip(sign * self._plain_slope(z), -self.clip_derivative, self.clip_derivative))

    def _residual(self, score: ArrayLike, target: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the margin or the distance to the target, and the sign of the score in it."""
        score, target = np.asarray(score, dtype=np.float64), np.asarray(target, dtype=np.float64)
        if self.classification:
            return target * score, target
        return np.abs(score - target), np.sign(score - target)

    @functools.cached_property
    def for_kernels(self) -> tuple[float, float, float]:
        return getattr(self, "width", 0.0), self._knee(), self.lipschitz

    @abstractmethod
    def _knee(self) -> float:
        """Return where the derivative reaches its clip; -inf (classification) or inf if nowhere."""

    @abstractmethod
    def _plain_value(self, z: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _plain_slope(self, z: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, kw_only=True)
class Logistic(_OfDistance):
    """``ln(1 + exp(-target * score))``.

    Examples
    --------
    >>> Logistic().lipschitz, Logistic().smoothness, round(Logistic().value_at_zero(), 4)
    (1.0, 0.25, 0.6931)
    >>> float(Logistic(clip_derivative=0.5).derivative(-9.0, 1.0))
    -0.5
    """

    code: ClassVar[int] = 0

    @property
    def smoothness(self) -> float:
        """A quarter, or less with a clip below a half."""
        c = self.clip_derivative
        return c * (1 - c) if c < 0.5 else 0.25

    def _knee(self) -> float:
        return math.log(1 / self.clip_derivative - 1) if self.clip_derivative < 1 else -math.inf

    def _plain_value(self, z: FloatArray) -> FloatArray:
        return np.asarray(np.logaddexp(0.0, -z))

    def _plain_slope(self, z: FloatArray) -> FloatArray:
        return np.asarray(-np.exp(-np.logaddexp(0.0, z)))


@dataclass(frozen=True, kw_only=True)
class Hinge(_OfDistance):
    """``max(0, 1 - target * score)``. Not smooth: prefer `HuberHinge` for gradient methods."""

    code: ClassVar[int] = 1
    smoothness: ClassVar[float] = math.inf  # there is a kink at margin 1

    def _knee(self) -> float:
        # The derivative jumps past the clip at the kink.
        return 1.0 if self.clip_derivative < 1 else -math.inf

    def _plain_value(self, z: FloatArray) -> FloatArray:
        return np.maximum(0.0, 1 - z)

    def _plain_slope(self, z: FloatArray) -> FloatArray:
        return np.where(z < 1, -1.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class HuberHinge(_OfDistance):
    """The hinge with its kink rounded over margins within `width` of 1 (Chapelle 2007).

    Parameters
    ----------
    clip_derivative : float, default infinity
        As in every loss.
    width : float, default 0.5
        Half the width of the rounded part.
    """

    width: float = 0.5
    code: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "width", positive(width=self.width))

    @property
    def smoothness(self) -> float:
        """``1 / (2 width)``."""
        return 1 / (2 * self.width)

    def _knee(self) -> float:
        return 1 + self.width - 2 * self.width * self.clip_derivative if self.clip_derivative < 1 else -math.inf

    def _plain_value(self, z: FloatArray) -> FloatArray:
        rounded = np.maximum(0.0, 1 + self.width - z) ** 2 / (4 * self.width)
        return np.where(z < 1 - self.width, 1 - z, rounded)

    def _plain_slope(self, z: FloatArray) -> FloatArray:
        return -np.clip((1 + self.width - z) / (2 * self.width), 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Squared(_OfDistance):
    """``(score - target)^2 / 2``, with an unbounded derivative: clip it or each query."""

    code: ClassVar[int] = 3
    classification: ClassVar[bool] = False
    smoothness: ClassVar[float] = 1.0
    _lipschitz: ClassVar[float] = math.inf

    def _knee(self) -> float:
        return self.clip_derivative

    def _plain_value(self, z: FloatArray) -> FloatArray:
        return z * z / 2

    def _plain_slope(self, z: FloatArray) -> FloatArray:
        return z


@dataclass(frozen=True, kw_only=True)
class Huber(Squared):
    """The squared loss, linear beyond a distance of `threshold` (its derivative is clipped there).

    Parameters
    ----------
    clip_derivative : float, default infinity
        As in every loss; the smaller of it and the threshold applies.
    threshold : float
        Where the loss becomes linear, in units of the target.
    """

    threshold: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "threshold", positive(threshold=self.threshold))
        # The kernels see a squared loss with a clip.
        object.__setattr__(self, "clip_derivative", min(self.clip_derivative, self.threshold))


TINY = 1e-100  # smaller targets count as this in the value of a loss, which takes their logarithm


class LogLink(LinearLoss):
    """Base class of the losses whose score is the logarithm of a mean.

    They are functions of ``u = score - ln(target)``, with their minimum, 0, at ``u = 0``. So each
    is, clipped or not, the integral of its derivative from there.
    """

    classification: ClassVar[bool] = False
    _lipschitz: ClassVar[float] = math.inf

    def value(self, score: ArrayLike, target: ArrayLike) -> FloatArray:
        target = np.maximum(np.asarray(target, dtype=np.float64), TINY)
        u = np.asarray(score, dtype=np.float64) - np.log(target)
        low, high = self._knees(target)
        inside = np.clip(u, low, high)
        beyond = np.abs(u - inside)
        # Beyond a knee the clipped loss continues as its tangent.
        linear = np.multiply(self.clip_derivative, beyond, where=beyond > 0, out=np.zeros_like(u))
        return np.asarray(self._value_of(inside, target) + linear)

    def derivative(self, score: ArrayLike, target: ArrayLike) -> FloatArray:
        score, target = np.asarray(score, dtype=np.float64), np.asarray(target, dtype=np.float64)
        return np.asarray(np.clip(self._slope(score, target), -self.clip_derivative, self.clip_derivative))

    @functools.cached_property
    def for_kernels(self) -> tuple[float, float, float]:
        return 0.0, math.inf, self.lipschitz  # where it becomes linear depends on the target

    @abstractmethod
    def _knees(self, target: FloatArray) -> tuple[Any, Any]:
        """Return between which u the derivative is not clipped."""

    @abstractmethod
    def _value_of(self, u: FloatArray, target: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _slope(self, score: FloatArray, target: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, kw_only=True)
class Poisson(LogLink):
    """``exp(score) - target * score`` and a constant, for targets of 0 or more. Half the deviance.

    Guarantees
    ----------
    Let C be `clip_derivative` and Y the largest target.

    * Convex: the derivative ``exp(score) - target``, clipped to [-C, C], does not fall.
    * The second derivative is ``exp(score)`` where nothing is clipped, which is where ``exp(score)
      <= C + target``, and 0 elsewhere: at most ``C + Y``. `smoothness_for` adds a millionth, for
      targets in single precision.
    * At score 0 the loss is the integral of the clipped derivative from ``ln(target)`` to 0. Where
      nothing is clipped the derivative falls as the target grows, by as much; elsewhere it stays.
      So this integral grows with the target above 1, and falls below 1: it is largest at 0 or Y.

    Examples
    --------
    >>> loss = Poisson(clip_derivative=2.0)
    >>> loss.lipschitz, round(loss.bounds(1.0, target_bound=10.0).smoothness, 3)
    (2.0, 12.0)
    """

    code: ClassVar[int] = 5

    @property
    def smoothness(self) -> float:
        """Infinity: it depends on the targets (`smoothness_for`)."""
        return math.inf

    def smoothness_for(self, target_bound: float) -> float:
        return (self.clip_derivative + target_bound) * (1 + 1e-6)

    def target_bound(self, low: float, high: float) -> float:
        if low < 0:
            raise InvalidArgument(
                f"target_bounds must start at 0 or above for counts; got {low:g}. Pass (0, {high:g})."
            )
        return high

    def value_at_zero(self, target_bound: float = 1.0) -> float:
        return float(self.value(0.0, [0.0, target_bound]).max())

    def _knees(self, target: FloatArray) -> tuple[Any, Any]:
        clip = self.clip_derivative / target
        return np.log1p(-clip, where=clip < 1, out=np.full_like(clip, -math.inf)), np.log1p(clip)

    def _value_of(self, u: FloatArray, target: FloatArray) -> FloatArray:
        return target * (np.expm1(np.minimum(u, 708.0)) - u)

    def _slope(self, score: FloatArray, target: FloatArray) -> FloatArray:
        return np.exp(np.minimum(score, 708.0)) - target


@dataclass(frozen=True, kw_only=True)
class Gamma(LogLink):
    """``target * exp(-score) + score`` and a constant, for targets above 0. Half the deviance.

    Errors count in proportion to the mean: the derivative is ``1 - target / exp(score)``.

    Guarantees
    ----------
    Let C be `clip_derivative`.

    * Convex: the derivative, clipped to [-C, C], does not fall.
    * The second derivative is ``target * exp(-score)``, 1 minus the derivative, where nothing is
      clipped, and 0 elsewhere: at most ``1 + C``.
    * At score 0 the loss is the integral of the clipped derivative from ``u = -ln(target)`` to 0 or
      back: it grows with the distance of ``ln(target)`` from 0. For targets from ``1/Y`` to Y it is
      largest at an end. `target_bound` is this Y.

    Examples
    --------
    >>> loss = Gamma(clip_derivative=2.0)
    >>> loss.lipschitz, loss.smoothness, float(loss.derivative(0.0, 9.0))
    (2.0, 3.0, -2.0)
    """

    code: ClassVar[int] = 6

    @property
    def smoothness(self) -> float:
        """One more than the clip."""
        return 1 + self.clip_derivative

    def target_bound(self, low: float, high: float) -> float:
        if not low > 0:
            raise InvalidArgument(
                f"target_bounds must start above 0 for this loss; got {low:g}. Pass the smallest target that counts, or "
                "use a Poisson loss, which allows zeros."
            )
        return max(high, 1 / low)

    def value_at_zero(self, target_bound: float = 1.0) -> float:
        return float(self.value(0.0, [1 / target_bound, target_bound]).max())

    def _knees(self, target: FloatArray) -> tuple[Any, Any]:
        clip = self.clip_derivative
        return -np.log1p(clip), -math.log1p(-clip) if clip < 1 else math.inf

    def _value_of(self, u: FloatArray, target: FloatArray) -> FloatArray:
        return np.expm1(np.minimum(-u, 708.0)) + u

    def _slope(self, score: FloatArray, target: FloatArray) -> FloatArray:
        return 1 - target * np.exp(np.minimum(-score, 708.0))


def check_loss(loss: object) -> LinearLoss:
    """Raise InvalidArgument unless `loss` is a loss of a linear model."""
    if not isinstance(loss, LinearLoss):
        raise InvalidArgument(f"loss must be a loss of a linear model; got {shown(loss)}. Pass for example Logistic().")
    return loss


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
        return 2 * self._hinge.value_at_zero()

    def value(self, scores: FloatArray, target: NDArray[np.intp]) -> FloatArray:
        sign, weight = self._signs(scores, target)
        return np.asarray((weight * self._hinge.value(scores, sign)).sum(axis=1))

    def derivative(self, scores: FloatArray, target: NDArray[np.intp]) -> FloatArray:
        sign, weight = self._signs(scores, target)
        return self._clipped(weight * self._hinge.derivative(scores, sign))

    def _signs(self, scores: FloatArray, target: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return +1 and weight 1 in the target's column, -1 and weight 1/(K - 1) in the others."""
        own = np.zeros(scores.shape, dtype=bool)
        own[np.arange(len(scores)), target] = True
        return np.where(own, 1.0, -1.0), np.where(own, 1.0, 1 / (self.classes - 1))
