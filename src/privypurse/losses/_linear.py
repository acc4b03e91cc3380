"""Losses of linear models: functions of a record's score ``x . w`` and of its target.

Each loss can be *Huberised*: ``Logistic(clip_derivative=0.5)`` is the convex function whose
derivative is the logistic one clipped to [-0.5, 0.5]. That bounds every record's gradient by
``clip_derivative * |x|`` and keeps the problem convex, which clipping gradient norms does not.

Targets are -1 or +1 for classification and real numbers for regression. The arrays here are the
readable reference for the kernels in ``oracles``, which tests compare with them.
"""

import functools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from privypurse.core._checks import FloatArray, positive, shown
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
        return Bounds(self.lipschitz * row_limit, self.smoothness * row_limit**2, self.value_at_zero(target_bound))

    def range_along(self, length: float) -> float:
        """Return how much a record's loss can vary while its score moves over this length."""
        return self.lipschitz * length

    def value(self, score: ArrayLike, target: ArrayLike) -> FloatArray:
        """Return the loss of each record."""
        z, _ = self._residual(score, target)
        knee = self._knee()
        if math.isinf(knee):
            return np.asarray(self._plain_value(z))
        # Beyond the knee the clipped loss continues as its tangent.
        inside = np.maximum(z, knee) if self.classification else np.minimum(z, knee)
        return np.asarray(self._plain_value(inside) + self.lipschitz * np.abs(z - inside))

    def derivative(self, score: ArrayLike, target: ArrayLike) -> FloatArray:
        """Return the derivative of each record's loss with respect to its score."""
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
        """Width of a rounded kink or 0, where the clipped loss becomes linear, and its slope there."""
        return getattr(self, "width", 0.0), self._knee(), self.lipschitz

    @abstractmethod
    def _knee(self) -> float:
        """Return where the derivative reaches its clip; -inf (classification) or inf if nowhere."""

    @abstractmethod
    def _plain_value(self, z: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _plain_slope(self, z: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, kw_only=True)
class Logistic(LinearLoss):
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
class Hinge(LinearLoss):
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
class HuberHinge(LinearLoss):
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
class Squared(LinearLoss):
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


def check_loss(loss: object) -> LinearLoss:
    """Raise InvalidArgument unless `loss` is a loss of a linear model."""
    if not isinstance(loss, LinearLoss):
        raise InvalidArgument(f"loss must be a loss of a linear model; got {shown(loss)}. Pass for example Logistic().")
    return loss
