"""[RAW DATA] What oracles for linear models answer, and the bound of each answer; where their rows are is in ``linear_rows``."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.spatial import distance

from privypurse.core.checks import FloatArray, constant_value, ordinary, positive_integer, shown
from privypurse.core.errors import InvalidArgument, UnboundedSensitivity
from privypurse.core.queries import (
    ClassCounts,
    Count,
    CurvatureAlong,
    GradientAt,
    LossesAlong,
    LossesAt,
    Objective,
    Query,
    SlopeAlong,
)
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Norm, Sensitive, SensitiveObjective
from privypurse.losses.bounds import Bounds
from privypurse.losses.linear import LinearLoss, check_loss
from privypurse.oracles._threads import default_threads
from privypurse.oracles.encoding import (
    check_target_bounds,
)
from privypurse.oracles.lattice import ROUNDING_MARGIN, lattice_unit
from privypurse.oracles.minimise import minimise
from privypurse.oracles.parts import (
    DerivativesWork,
    ExactGradientWork,
    Frame,
    GradientWork,
    IntegerArray,
    LossesWork,
    Part,
    Work,
    pairwise_sum,
)
from privypurse.oracles.sampling import check_sampling, poisson_rows

# A sum of n losses of size L errs by about n 2^-52 L, in both of two neighbouring tables: this covers 10^8 rows.
LOSS_ROUNDING = 1e-7
# Far beyond any model; scores stay numbers whatever a row holds.
LARGEST_SCORE = 1e100


class LinearOracle(ABC):
    """What all oracles for linear models share.

    Parameters
    ----------
    loss : LinearLoss
        The loss of one record.
    features : int
        Number of columns. Public.
    row_limit : float or None, default 1.0
        Each row, with the constant column, is scaled down to this Euclidean length. Public. None for no limit; each query must
        then bring its own clip.
    constant : bool or float, default True
        Add a constant column, before lengths are limited; its weight is the last entry of every point. A number is the value of
        that column: a small one leaves more of a limited length to the others. True is 1.0. Public.
    classes : pair, default (0, 1)
        For classification: the two labels, the second one positive. Public.
    target_bounds : pair of float or None
        For regression: targets are clipped to this range. Public, and required.
    threads : int, optional
        Threads for the sums; changes speed and nothing else. All processors by default.

    Guarantees
    ----------
    * Answers are sealed boxes. The bound in a box is the smaller of the query's clip and what the loss and the row limit
      imply, and was enforced on every row where the sum was made.
    * A row that is not finite contributes nothing, and no control flow depends on one row's values.
    * Rows are not copied. Sums are in float64, in an order that depends on the number of rows only.
    * Where the noise is secure, gradients are sums of whole numbers of a public unit (``lattice``), to which each record adds its
      own, a function of this record and of public values alone: exact, for up to 10^9 records, and the same in any order, in any
      number of threads, and whatever other records there are.
    """

    def __init__(
        self,
        *,
        loss: LinearLoss,
        features: int,
        row_limit: float | None = 1.0,
        constant: bool | float = True,
        classes: Sequence[Any] = (0, 1),
        target_bounds: tuple[float, float] | None = None,
        threads: int | None = None,
    ) -> None:
        self._loss = check_loss(loss)
        limit = math.inf if row_limit is None else ordinary(row_limit=row_limit)
        self._frame = Frame(positive_integer(features=features), constant_value(constant), limit)
        self._classes, self._target_bounds = classes, target_bounds
        self._threads = default_threads() if threads is None else positive_integer(threads=threads)

    @property
    def dimension(self) -> int:
        """Length of a point: one weight for each column, and one for the constant if there is one."""
        return self._frame.features + int(self.has_constant)

    @property
    def loss(self) -> LinearLoss:
        """The loss of one record."""
        return self._loss

    @property
    def row_limit(self) -> float:
        """The length rows are scaled down to; infinity for no limit."""
        return self._frame.row_limit

    @property
    def has_constant(self) -> bool:
        """Whether there is a constant column."""
        return self._frame.constant > 0

    @property
    def bounds(self) -> Bounds:
        """Public constants of the mean loss; a row limit of infinity leaves most of them infinite."""
        return self._loss.bounds(self._frame.row_limit, self._target_bound)

    @property
    def _target_bound(self) -> float:
        return 1.0 if self._loss.classification else max(map(abs, check_target_bounds(self._target_bounds)))

    def __repr__(self) -> str:
        value = self._frame.constant
        constant = "" if not value else ", constant" if value == 1 else f", constant {value:g}"
        shape = f"{self._frame.features} columns{constant}, row limit {self._frame.row_limit:g}"
        return f"<{type(self).__name__}: {shape}, {self._loss!r}>"

    @abstractmethod
    def _parts(self) -> Iterable[Part]:
        """Go over the rows, part by part, in an order that never changes."""

    def answer(self, query: Query, *, sample_prob: float = 1.0, noise: NoiseSource | None = None) -> Sensitive:
        """Answer a query with a sealed box.

        Parameters
        ----------
        query : Query
            What to sum over the records.
        sample_prob : float, default 1.0
            Sum over a fresh Poisson sample of the records instead of all of them.
        noise : NoiseSource, optional
            The purse's noise: where the coins for the sample come from, and whether gradients are to be summed exactly, on a
            lattice, for secure noise. Needed if `sample_prob` is below 1.
        """
        sample_prob = check_sampling(sample_prob, noise)
        if isinstance(query, GradientAt):
            return self._gradient(query, sample_prob, noise)
        if isinstance(query, LossesAlong):
            return self._losses(query, sample_prob, noise)
        if isinstance(query, SlopeAlong | CurvatureAlong):
            return self._derivative(query, sample_prob, noise)
        if isinstance(query, Count | ClassCounts):
            return self._counts(query, sample_prob, noise)
        if isinstance(query, LossesAt):
            return self._losses_at(query, sample_prob, noise)
        if isinstance(query, Objective):
            return self._objective(sample_prob)
        raise InvalidArgument(
            f"query must be one of core.queries; got {shown(query)}. Pass for example GradientAt(point=w)."
        )

    def _gradient(self, query: GradientAt, sample_prob: float, noise: NoiseSource | None) -> Sensitive:
        implied = self._loss.lipschitz * self._frame.row_limit
        bound = self._bound(query.clip_norm, implied, "clip_norm")
        weights = self._weights(query.point, "point")
        if bound == implied:  # clipping the derivative is enough, and cheaper than norms
            clips = math.inf, self._loss.lipschitz * (1 - ROUNDING_MARGIN)
        else:
            clips = bound * (1 - ROUNDING_MARGIN), self._loss.clip_derivative
        if noise is not None and noise.secure:
            unit = lattice_unit(bound, weights.size)
            work = ExactGradientWork(self._loss, weights, *clips, unit)
            total = unit * self._exact_total(work, sample_prob, noise)[: self.dimension]
        else:
            total = self._total(GradientWork(self._loss, weights, *clips), sample_prob, noise)[: self.dimension]
        return Sensitive(total, norm=Norm.L2, add_remove=bound, replace_one=2 * bound, sample_prob=sample_prob)

    def _losses(self, query: LossesAlong, sample_prob: float, noise: NoiseSource | None) -> Sensitive:
        weights, direction, reach = self._segment(query.point, query.direction)
        spread = float(query.steps.max() - query.steps.min())
        implied = self._loss.range_along(reach * spread) if spread > 0 else 1e-100
        clip = math.inf if query.clip_loss is None else query.clip_loss
        # Differences of losses are taken from losses of at most this size, whose rounding does not shrink with the segment.
        farthest = float(np.linalg.norm(weights)) * self._frame.row_limit + float(query.steps.max()) * reach
        size = min(clip, self._loss.value_at_zero(self._target_bound) + self._loss.lipschitz * farthest)
        bound = self._bound(query.clip_loss, implied, "clip_loss") * (1 + ROUNDING_MARGIN) + LOSS_ROUNDING * size
        bound += rounding_of_terms(query)
        work = LossesWork(self._loss, weights, direction, reach, query.steps, clip)
        total = -self._total(work, sample_prob, noise)
        if query.public_terms is not None:  # the same for every data set: no effect on the bound
            total = total - query.public_terms
        return Sensitive(total, norm=Norm.RANGE, add_remove=bound, replace_one=2 * bound, sample_prob=sample_prob)

    def _losses_at(self, query: LossesAt, sample_prob: float, noise: NoiseSource | None) -> Sensitive:
        if sample_prob < 1:
            raise InvalidArgument("LossesAt is a query about all records; got sample_prob below 1. Leave it out.")
        models = [self._weights(point, "points") for point in query.points]
        spread = float(distance.pdist(query.points).max()) if len(models) > 1 else 0.0
        implied = self._loss.range_along(spread * self._frame.row_limit) if spread > 0 else 1e-100
        clip = math.inf if query.clip_loss is None else query.clip_loss
        farthest = max(float(np.linalg.norm(point)) for point in query.points) * self._frame.row_limit
        size = min(clip, self._loss.value_at_zero(self._target_bound) + self._loss.lipschitz * farthest)
        # Each candidate is compared with the first along a segment of its own, so the rounding of two losses counts.
        bound = self._bound(query.clip_loss, implied, "clip_loss") * (1 + ROUNDING_MARGIN) + 2 * LOSS_ROUNDING * size
        totals = [0.0]
        for model in models[1:]:
            direction = models[0] - model
            reach = float(np.linalg.norm(direction)) * self._frame.row_limit
            work = LossesWork(self._loss, models[0], direction, reach, np.array([0.0, 1.0]), clip)
            totals.append(-float(self._total(work, 1.0, None)[1]) if reach > 0 else 0.0)
        return Sensitive(totals, norm=Norm.RANGE, add_remove=bound, replace_one=2 * bound)

    def _objective(self, sample_prob: float) -> SensitiveObjective:
        bounds = self.bounds
        if sample_prob < 1 or not (math.isfinite(bounds.gradient) and math.isfinite(bounds.smoothness)):
            raise InvalidArgument(
                f"a minimiser needs all records, a smooth loss with a bounded derivative and a row limit; got {self!r} with "
                f"sample_prob={sample_prob!r}. Pass for example loss=Logistic(clip_derivative=0.5)."
            )
        limits = {"gradient": bounds.gradient, "curvature": bounds.smoothness}
        return SensitiveObjective(self._minimise, dimension=self.dimension, **limits)

    def _minimise(self, perturbation: FloatArray, ridge: float, tolerance: float) -> FloatArray:
        """Minimise the sum of losses plus a ridge and a linear term, by the same clipped gradients as everywhere.

        In double precision, whatever the table's: in single precision the gradient is a staircase, on which nothing can be said
        about how near the minimum is.
        """
        clip, total = self._loss.lipschitz * (1 - ROUNDING_MARGIN), self._total_in_double()

        def gradient(point: FloatArray) -> FloatArray:
            work = GradientWork(self._loss, self._weights(point, "point"), math.inf, clip)
            return np.asarray(total(work)[: self.dimension] + ridge * point + perturbation)

        return minimise(gradient, self.dimension, tolerance)

    def _total_in_double(self) -> Callable[[Work], FloatArray]:
        """Return a function that sums over all rows in double precision; rows in memory are converted once."""
        parts = self._parts()
        held = tuple(part.in_double() for part in parts) if isinstance(parts, tuple) else None

        def total(work: Work) -> FloatArray:
            read = (part.in_double() for part in self._parts()) if held is None else held
            partial = [part.sum(work, self._threads) for part in read]
            return pairwise_sum(partial) if partial else np.zeros(work.size)

        return total

    def _derivative(
        self, query: SlopeAlong | CurvatureAlong, sample_prob: float, noise: NoiseSource | None
    ) -> Sensitive:
        weights, direction, reach = self._segment(query.point, query.direction)
        if isinstance(query, SlopeAlong):
            bound, place = self._bound(query.clip_slope, self._loss.lipschitz * reach, "clip_slope"), 0
        else:
            bound, place = self._bound(query.clip_curvature, self._loss.smoothness * reach**2, "clip_curvature"), 1
        clip = bound * (1 - ROUNDING_MARGIN)
        work = DerivativesWork(self._loss, weights, direction, reach, (clip, clip))
        total = self._total(work, sample_prob, noise)[place]
        # A second derivative is never negative, so a replacement moves the sum by one bound, not two.
        replace_one = 2 * bound if place == 0 else bound
        return Sensitive(total, norm=Norm.L2, add_remove=bound, replace_one=replace_one, sample_prob=sample_prob)

    def _counts(self, query: Count | ClassCounts, sample_prob: float, noise: NoiseSource | None) -> Sensitive:
        if isinstance(query, ClassCounts) and not self._loss.classification:
            raise InvalidArgument(f"query asks for classes, but {self._loss!r} has none. Pass Count() instead.")
        negative, positive, rows = self._tally(sample_prob, noise)
        counts = (negative, positive) if isinstance(query, ClassCounts) else rows
        replace_one = math.sqrt(2) if isinstance(query, ClassCounts) else 1.0
        return Sensitive(counts, norm=Norm.L2, add_remove=1.0, replace_one=replace_one, sample_prob=sample_prob)

    def _tally(self, sample_prob: float, noise: NoiseSource | None) -> FloatArray:
        """Count negative targets, positive targets and rows."""
        return np.asarray(sum((part.tally() for part in self._sampled(sample_prob, noise)), np.zeros(3)))

    def _total(self, work: Work, sample_prob: float, noise: NoiseSource | None) -> FloatArray:
        partial = [part.sum(work, self._threads) for part in self._sampled(sample_prob, noise)]
        return pairwise_sum(partial) if partial else np.zeros(work.size)

    def _exact_total(self, work: ExactGradientWork, sample_prob: float, noise: NoiseSource) -> IntegerArray:
        """Add up whole numbers of units, exactly."""
        partial = [part.exact_sum(work, self._threads) for part in self._sampled(sample_prob, noise)]
        return pairwise_sum(partial) if partial else np.zeros(work.size, np.int64)

    def _sampled(self, sample_prob: float, noise: NoiseSource | None) -> Iterator[Part]:
        for part in self._parts():
            if sample_prob < 1 and noise is not None:
                yield part.take(poisson_rows(part.rows, sample_prob, noise))
            else:
                yield part

    def _bound(self, clip: float | None, implied: float, name: str) -> float:
        """Return the smaller of a query's clip and what loss and row limit imply; one of them must be finite."""
        bound = min(math.inf if clip is None else clip, implied)
        if not math.isfinite(bound):
            raise UnboundedSensitivity(
                f"{self._loss!r} with row_limit={self._frame.row_limit!r} does not bound this query. "
                f"Pass {name}=1.0 with it, or a loss with clip_derivative=... and a row_limit."
            )
        return max(bound, 1e-100)

    def _weights(self, point: FloatArray, name: str) -> FloatArray:
        """Check the length of a point and give it a place for the constant, whether there is one or not."""
        if point.size != self.dimension:
            kinds = f"{self._frame.features} columns" + (" and the constant" if self._frame.constant else "")
            raise InvalidArgument(
                f"{name} must have {self.dimension} entries, for {kinds}; got {point.size}. Pass np.zeros({self.dimension})."
            )
        if np.linalg.norm(point) * min(self._frame.row_limit, 1.0) > LARGEST_SCORE:
            raise InvalidArgument(
                f"{name} must have a length below {LARGEST_SCORE:g}; it is longer. The model has diverged: use smaller steps."
            )
        return point if self._frame.constant else np.append(point, 0.0)

    def _segment(self, point: FloatArray, direction: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        weights, along = self._weights(point, "point"), self._weights(direction, "direction")
        length = float(np.linalg.norm(along))
        # With a row limit this bounds how far a score can move; a step along it must leave losses that are numbers.
        if length * min(self._frame.row_limit, 1.0) > 1e50:
            raise InvalidArgument(
                "direction must have a length below 1e50; it is longer. Normalise it, and use the steps."
            )
        return weights, along, length * self._frame.row_limit if length > 0 else 0.0


def rounding_of_terms(query: LossesAlong) -> float:
    """Return how far adding public terms can round the sums of two neighbouring tables apart."""
    return 0.0 if query.public_terms is None else 1e-15 * float(np.abs(query.public_terms).max())
