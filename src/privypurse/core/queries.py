"""Queries that an optimizer may send to an oracle: public points and directions, never data.

Queries are frozen. Each array is copied and made read-only, so the query that was priced is the one
that is answered.
"""

from dataclasses import dataclass

import numpy as np

from privypurse.core._checks import FloatArray, finite_vector, ordinary
from privypurse.core._errors import InvalidArgument
from privypurse.core.charges import SingleCharge

__all__ = ["Count", "GradientAt", "LossesAlong", "Released"]


@dataclass(frozen=True, eq=False, kw_only=True)
class GradientAt:
    """The sum over records of the clipped gradient at a point.

    Parameters
    ----------
    point : array_like of shape (d,)
        Where to take the gradient. Public.
    clip_norm : float or None, default None
        Largest norm of one record's contribution. Public. None where the loss bounds it already,
        as a loss with a bounded derivative does on rows of bounded length.
    """

    point: FloatArray
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "point", finite_vector(point=self.point))
        if self.clip_norm is not None:
            object.__setattr__(self, "clip_norm", ordinary(clip_norm=self.clip_norm))


@dataclass(frozen=True, eq=False, kw_only=True)
class LossesAlong:
    """The sums of per-record losses at candidate steps along a direction; scores of a line search.

    Parameters
    ----------
    point, direction : array_like of shape (d,)
        The candidates are ``point - step * direction``. Public.
    steps : array_like of shape (k,)
        The candidate steps, zero or more each. Public.
    clip_loss : float or None
        Each record's loss is clipped to [0, clip_loss]. Public. None where the oracle bounds the
        range along the segment in another way.
    public_terms : array_like of shape (k,), optional
        Added to each candidate's sum, such as a ridge penalty. Public.
    """

    point: FloatArray
    direction: FloatArray
    steps: FloatArray
    clip_loss: float | None = None
    public_terms: FloatArray | None = None

    def __post_init__(self) -> None:
        point, direction = finite_vector(point=self.point), finite_vector(direction=self.direction)
        if direction.shape != point.shape:
            raise InvalidArgument(f"direction must have shape {point.shape}; got {direction.shape}. Reshape it.")
        object.__setattr__(self, "point", point)
        object.__setattr__(self, "direction", direction)
        steps = finite_vector(steps=self.steps)
        if steps.size == 0 or (steps < 0).any() or (steps > 1e100).any():
            raise InvalidArgument(f"steps must be numbers from 0 to 1e100; got {steps.tolist()!r}. Pass [0.0, 1.0].")
        object.__setattr__(self, "steps", steps)
        if self.public_terms is not None:
            terms = finite_vector(public_terms=self.public_terms)
            if terms.shape != steps.shape or (np.abs(terms) > 1e100).any():
                what = f"public_terms must hold one number of at most 1e100 for each of the {steps.size} steps"
                raise InvalidArgument(f"{what}; got {terms.tolist()!r}. Omit public_terms if there are none.")
            object.__setattr__(self, "public_terms", terms)
        _check_clip_loss(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class LossesAt:
    """The sums of per-record losses of several models, one per row; scores for choosing among them."""

    points: FloatArray
    clip_loss: float | None = None

    def __post_init__(self) -> None:
        points = np.array(self.points, dtype=np.float64, ndmin=2)
        if points.ndim != 2 or points.size == 0 or not np.isfinite(points).all():
            what = f"points must be finite, one row for each model; got shape {points.shape}"
            raise InvalidArgument(f"{what}. Check for NaN and infinity.")
        points.setflags(write=False)
        object.__setattr__(self, "points", points)
        _check_clip_loss(self)


@dataclass(frozen=True)
class Objective:
    """The sum of losses, minimised by the mechanism (output and objective perturbation)."""


@dataclass(frozen=True)
class Count:
    """The number of records."""


@dataclass(frozen=True)
class ClassCounts:
    """The number of records in each declared class."""


@dataclass(frozen=True, kw_only=True)
class ModuleGradient:
    """The sum over records of the clipped gradient of a module's loss at its current parameters."""

    clip_norm: float


@dataclass(frozen=True, kw_only=True)
class ShareWithin:
    """The number of records whose gradient is no longer than a norm; used by adaptive clipping."""

    clip_norm: float


Query = GradientAt | LossesAlong | LossesAt | Objective | Count | ClassCounts | ModuleGradient | ShareWithin


def _check_clip_loss(query: LossesAlong | LossesAt) -> None:
    """Check a clip that may be None, meaning that the loss bounds the value."""
    if query.clip_loss is not None:
        object.__setattr__(query, "clip_loss", ordinary(clip_loss=query.clip_loss))


@dataclass(frozen=True, eq=False)
class Released:
    """One public release, as `Purse.release` returns it.

    Parameters
    ----------
    value : ndarray, or Tensor of a box on a device
        The noisy answer; for a selection, the chosen index as a zero-dimensional array.
    charge : Charge
        What was charged for it.
    noise_std : float or None, default None
        Standard deviation of the noise in each coordinate, for Gaussian releases.
    """

    value: FloatArray
    charge: SingleCharge
    noise_std: float | None = None

    @property
    def is_selection(self) -> bool:
        """Whether the value is a selected index."""
        return self.value.dtype.kind == "i"
