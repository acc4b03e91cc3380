"""What an optimizer may ask an oracle: public points and directions, never data.

A query is a frozen description. Each array in it is copied and made read-only, so that the question that was
priced is the question that is answered.
"""

from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray, finite_vector, ordinary
from privypurse.core.errors import InvalidArgument


@dataclass(frozen=True, eq=False, kw_only=True)
class GradientAt:
    """The sum over records of the clipped gradient at a point.

    Parameters
    ----------
    point : array_like of shape (d,)
        Where to take the gradient. Public.
    clip_norm : float or None, default None
        The largest norm one record's gradient may contribute. Public. None where the loss bounds it already: a loss with a
        bounded derivative on rows of bounded length.
    """

    point: FloatArray
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "point", finite_vector(point=self.point))
        _check_clip(self, "clip_norm")


@dataclass(frozen=True, eq=False, kw_only=True)
class LossesAlong:
    """The sums of per-record losses at candidate steps along a direction: the scores of a line search.

    Parameters
    ----------
    point, direction : array_like of shape (d,)
        The candidates are ``point - step * direction``. Public.
    steps : array_like of shape (k,)
        The candidate steps, zero or more each. Public.
    clip_loss : float or None
        Each record's loss is clipped to [0, clip_loss]; None where the oracle bounds the range along the
        segment in another way. Public.
    public_terms : array_like of shape (k,), optional
        Added to each candidate's sum: what the objective has besides the records, such as a ridge penalty. Public.
    """

    point: FloatArray
    direction: FloatArray
    steps: FloatArray
    clip_loss: float | None = None
    public_terms: FloatArray | None = None

    def __post_init__(self) -> None:
        _place_segment(self)
        steps = finite_vector(steps=self.steps)
        if steps.size == 0 or (steps < 0).any() or (steps > 1e100).any():
            raise InvalidArgument(
                f"steps must hold one or more numbers from 0 to 1e100; got {steps.tolist()!r}. "
                "Pass for example steps=[0.0, 0.5, 1.0]."
            )
        object.__setattr__(self, "steps", steps)
        if self.public_terms is not None:
            terms = finite_vector(public_terms=self.public_terms)
            if terms.shape != steps.shape or (np.abs(terms) > 1e100).any():
                raise InvalidArgument(
                    f"public_terms must hold one number of at most 1e100 for each of the {steps.size} steps; got "
                    f"{terms.tolist()!r}. Leave them out if there are none."
                )
            object.__setattr__(self, "public_terms", terms)
        _check_clip(self, "clip_loss")


@dataclass(frozen=True, eq=False, kw_only=True)
class LossesAt:
    """The sums of per-record losses of several models: the scores of a choice among them.

    Parameters
    ----------
    points : array_like of shape (k, d)
        The models. Public.
    clip_loss : float or None
        As for `LossesAlong`.
    """

    points: FloatArray
    clip_loss: float | None = None

    def __post_init__(self) -> None:
        points = np.array(self.points, dtype=np.float64, ndmin=2)
        if points.ndim != 2 or points.size == 0 or not np.isfinite(points).all():
            raise InvalidArgument(
                f"points must be a table of finite numbers, one row for each model; got shape {points.shape}. Check it."
            )
        points.setflags(write=False)
        object.__setattr__(self, "points", points)
        _check_clip(self, "clip_loss")


@dataclass(frozen=True)
class Objective:
    """The sum of losses itself, to be minimised by a mechanism once it is paid for: for output and objective perturbation."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SlopeAlong:
    """The sum over records of the clipped first derivative of the loss along a direction, at a point."""

    point: FloatArray
    direction: FloatArray
    clip_slope: float | None = None

    def __post_init__(self) -> None:
        _place_segment(self)
        _check_clip(self, "clip_slope")


@dataclass(frozen=True, eq=False, kw_only=True)
class CurvatureAlong:
    """The sum over records of the clipped second derivative of the loss along a direction, at a point."""

    point: FloatArray
    direction: FloatArray
    clip_curvature: float | None = None

    def __post_init__(self) -> None:
        _place_segment(self)
        _check_clip(self, "clip_curvature")


@dataclass(frozen=True)
class Count:
    """The number of records."""


@dataclass(frozen=True)
class ClassCounts:
    """The number of records in each declared class."""


@dataclass(frozen=True, kw_only=True)
class ModuleGradient:
    """The sum over records of the clipped gradient of a module's loss, at the parameters it has now.

    Parameters
    ----------
    clip_norm : float
        The largest norm one record's gradient may contribute. Public.
    """

    clip_norm: float


@dataclass(frozen=True, kw_only=True)
class ShareWithin:
    """How many records have a gradient no longer than a norm: what adaptive clipping asks.

    Parameters
    ----------
    clip_norm : float
        The norm. Public.
    """

    clip_norm: float


Query = (
    GradientAt
    | LossesAlong
    | LossesAt
    | SlopeAlong
    | CurvatureAlong
    | Objective
    | Count
    | ClassCounts
    | ModuleGradient
    | ShareWithin
)


def _check_clip(query: object, name: str) -> None:
    """Check a clip that may be left to the loss."""
    clip = getattr(query, name)
    if clip is not None:
        object.__setattr__(query, name, ordinary(**{name: clip}))


def _place_segment(query: LossesAlong | SlopeAlong | CurvatureAlong) -> None:
    """Check and freeze the point and direction of a query about a line."""
    point = finite_vector(point=query.point)
    direction = finite_vector(direction=query.direction)
    if direction.shape != point.shape:
        raise InvalidArgument(
            f"direction must have the shape of point, {point.shape}; got shape {direction.shape}. "
            "Pass one number for each parameter of the model."
        )
    object.__setattr__(query, "point", point)
    object.__setattr__(query, "direction", direction)
