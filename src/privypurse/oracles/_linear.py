"""[RAW DATA] Oracles for linear models, which hold a table and its targets and return sealed boxes.

`DenseOracle` and `SparseOracle` keep rows in memory; `ChunkedOracle` is for data larger than memory
(``chunks`` has sources). ``dask_backend`` has an oracle for a cluster.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import distance

from privypurse.core._checks import FloatArray, constant_value, ordinary, positive_integer, shown
from privypurse.core._errors import InvalidArgument, UnboundedSensitivity
from privypurse.core._formats import counted
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive, SensitiveObjective
from privypurse.core.queries import ClassCounts, Count, GradientAt, LossesAlong, LossesAt, Objective, Query
from privypurse.losses._bounds import Bounds
from privypurse.losses._linear import LinearLoss, check_loss
from privypurse.oracles import _encoding as encoding
from privypurse.oracles import _partitions as parts
from privypurse.oracles._encoding import ROUNDING_MARGIN, check_dense, check_sparse, check_target_bounds, encode_targets
from privypurse.oracles._minimise import minimise
from privypurse.oracles._partitions import Frame, GradientWork, LossesWork, Partition, Work, pairwise_sum
from privypurse.oracles._sampling import check_sampling, poisson_rows

# A sum of n losses of size L errs by about n 2^-52 L, on both neighbouring tables: for 10^8 rows.
LOSS_ROUNDING = 1e-7
LARGEST_SCORE = 1e100  # far beyond any model, but small enough that scores stay finite


class LinearOracle:
    """Base class of the oracles for linear models.

    Parameters
    ----------
    loss : LinearLoss
        The loss of one record.
    features : int
        Number of columns. Public.
    row_limit : float or None, default 1.0
        Each row, with the constant column, is scaled down to this Euclidean length. Public. None
        for no limit; each query must then have its own clip.
    constant : bool or float, default True
        Add a constant column before lengths are limited; its weight is the last entry of every
        point. A number is the value of that column (True is 1.0): a small one leaves more of a
        limited length to the others. Public.
    classes : pair, default (0, 1)
        For classification: the two labels, the second one positive. Public.
    target_bounds : pair of float or None
        For regression: targets are clipped to this range. Public, and required.
    threads : int, optional
        Threads for the sums; they change only the speed. All processors by default.

    Attributes
    ----------
    has_constant : bool
        Whether there is a constant column.
    dimension : int
        Length of a point: one weight for each column, and one for the constant if any.

    Guarantees
    ----------
    * Answers are sealed boxes. The bound in a box is the smaller of the query's clip and what the
      loss and the row limit imply, and was enforced on every row where the sum was computed.
    * A non-finite row contributes nothing, and no control flow depends on one row's values.
    * Rows are not copied. Sums are in float64, in an order that depends on the number of rows only.
    * Where the noise is secure, gradients are exact sums of integers of a public unit, for up to 10^9
      records. Each record's integers are a function of this record and of public values alone.
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
        self._labels = (self._loss, classes, target_bounds)
        self._threads = parts.default_threads() if threads is None else positive_integer(threads=threads)
        self.has_constant = self._frame.constant > 0
        self.dimension = self._frame.features + int(self.has_constant)
        self._held: tuple[Partition, ...] = ()  # rows in memory

    @property
    def bounds(self) -> Bounds:
        """Public constants of the mean loss; most are infinite without a row limit."""
        return self._loss.bounds(self._frame.row_limit, self._target_bound)

    @property
    def settings(self) -> dict[str, Any]:
        """Declared settings, by which a checkpoint recognises the oracle."""
        settings = {"features": self._frame.features, "constant": self._frame.constant, "loss": self._loss}
        labels = list(map(str, self._classes)) if self._loss.classification else self._target_bounds
        return settings | {"row_limit": self._frame.row_limit, "targets": labels}

    @property
    def _target_bound(self) -> float:
        return 1.0 if self._loss.classification else self._loss.target_bound(*check_target_bounds(self._target_bounds))

    def __repr__(self) -> str:
        value = self._frame.constant
        constant = "" if not value else ", constant" if value == 1 else f", constant {value:g}"
        shape = f"{counted(self._frame.features, 'column')}{constant}, row limit {self._frame.row_limit:g}"
        return f"<{type(self).__name__}: {shape}, {self._loss!r}>"

    def _parts(self) -> Iterable[Partition]:
        """Iterate over the rows, part by part, in a fixed order."""
        return self._held

    def answer(self, query: Query, *, sample_prob: float = 1.0, noise: NoiseSource | None = None) -> Sensitive:
        """Answer a query with a sealed box.

        Parameters
        ----------
        query : Query
            What to sum over the records.
        sample_prob : float, default 1.0
            Sum over a fresh Poisson sample of the records instead of all of them.
        noise : NoiseSource, optional
            The purse's noise: source of the coins for the sample. If it is secure, gradients are
            summed exactly, on a lattice. Needed if `sample_prob` is below 1.
        """
        if sample_prob != 1:
            sample_prob = check_sampling(sample_prob, noise)
        if isinstance(query, GradientAt):
            return self._gradient(query, sample_prob, noise)
        if isinstance(query, LossesAlong):
            return self._losses(query, sample_prob, noise)
        if isinstance(query, Count | ClassCounts):
            return self._counts(query, sample_prob, noise)
        if isinstance(query, LossesAt):
            return self._losses_at(query, sample_prob)
        if isinstance(query, Objective):
            return self._objective(sample_prob)
        raise InvalidArgument(f"query must be one of core.queries; got {shown(query)}. Pass GradientAt(point=w).")

    def _gradient(self, query: GradientAt, sample_prob: float, noise: NoiseSource | None) -> Sensitive:
        implied = self._loss.lipschitz * self._frame.row_limit
        bound = self._bound(query.clip_norm, implied, "clip_norm")
        weights = self._weights(query.point, "point")
        if bound == implied:  # clipping the derivative suffices, and is cheaper than norms
            clips = math.inf, self._loss.lipschitz * (1 - ROUNDING_MARGIN)
        else:
            clips = bound * (1 - ROUNDING_MARGIN), self._loss.clip_derivative
        unit = parts.lattice_unit(bound, weights.size) if noise is not None and noise.secure else 0.0
        total = self._total(GradientWork(self._loss, weights, *clips, unit), sample_prob, noise)[: self.dimension]
        total = unit * total if unit else total
        return Sensitive(total, norm=Norm.L2, add_remove=bound, replace_one=2 * bound, sample_prob=sample_prob)

    def _losses(self, query: LossesAlong, sample_prob: float, noise: NoiseSource | None) -> Sensitive:
        weights, direction = self._weights(query.point, "point"), self._weights(query.direction, "direction")
        length = float(np.linalg.norm(direction))
        # With a row limit this bounds how far a score can move; losses along it must stay finite.
        if length * min(self._frame.row_limit, 1.0) > 1e50:
            raise InvalidArgument("direction must have a length below 1e50. Normalise it, and use the steps.")
        reach, steps = length * self._frame.row_limit if length > 0 else 0.0, query.steps
        farthest = float(np.linalg.norm(weights)) * self._frame.row_limit + float(steps.max()) * reach
        bound, clip = self._loss_bound(query.clip_loss, reach, float(np.ptp(steps)), farthest, LOSS_ROUNDING)
        work = LossesWork(self._loss, weights, direction, reach, steps, clip)
        return sealed_scores(query, self._total(work, sample_prob, noise), bound, sample_prob)

    def _losses_at(self, query: LossesAt, sample_prob: float) -> Sensitive:
        if sample_prob < 1:
            raise InvalidArgument("LossesAt needs all records; got sample_prob below 1. Omit it.")
        models, limit = [self._weights(point, "points") for point in query.points], self._frame.row_limit
        spread = float(distance.pdist(query.points).max()) if len(models) > 1 else 0.0
        farthest = max(float(np.linalg.norm(point)) for point in query.points) * limit
        # Each candidate is compared with the first along its own segment: two losses are rounded.
        bound, clip = self._loss_bound(query.clip_loss, limit, spread, farthest, 2 * LOSS_ROUNDING)
        totals = [0.0]
        for model in models[1:]:
            direction = models[0] - model
            reach = float(np.linalg.norm(direction)) * limit
            work = LossesWork(self._loss, models[0], direction, reach, np.array([0.0, 1.0]), clip)
            totals.append(-float(self._total(work, 1.0, None)[1]) if reach > 0 else 0.0)
        return Sensitive(totals, norm=Norm.RANGE, add_remove=bound, replace_one=2 * bound)

    def _loss_bound(
        self, clip_loss: float | None, reach: float, spread: float, farthest: float, rounding: float
    ) -> tuple[float, float]:
        """Return the bound on differences of losses `spread` apart along `reach`, and the clip of losses.

        Losses at scores up to `farthest` are subtracted, whatever their difference.
        """
        implied = self._loss.range_along(reach * spread) if spread > 0 else 1e-100
        clip = math.inf if clip_loss is None else clip_loss
        size = min(clip, self._loss.value_at_zero(self._target_bound) + self._loss.lipschitz * farthest)
        return self._bound(clip_loss, implied, "clip_loss") * (1 + ROUNDING_MARGIN) + rounding * size, clip

    def _objective(self, sample_prob: float) -> SensitiveObjective:
        bounds = self.bounds
        if sample_prob < 1 or not (math.isfinite(bounds.gradient) and math.isfinite(bounds.smoothness)):
            needed = "a minimiser needs all records, a smooth loss with a bounded derivative and a row limit"
            got = f"got {self!r} with sample_prob={sample_prob!r}"
            raise InvalidArgument(f"{needed}; {got}. Pass for example loss=Logistic(clip_derivative=0.5).")
        limits = {"gradient": bounds.gradient, "curvature": bounds.smoothness}
        return SensitiveObjective(self._minimise, dimension=self.dimension, **limits)

    def _minimise(self, perturbation: FloatArray, ridge: float, tolerance: float) -> FloatArray:
        """Minimise the sum of losses plus a ridge and a linear term, by clipped gradients.

        In double precision: in single precision the gradient is a staircase, which says nothing
        about how near the minimum is.
        """
        clip, total = self._loss.lipschitz * (1 - ROUNDING_MARGIN), self._total_in_double()

        def gradient(point: FloatArray) -> FloatArray:
            work = GradientWork(self._loss, self._weights(point, "point"), math.inf, clip)
            return np.asarray(total(work)[: self.dimension] + ridge * point + perturbation)

        return minimise(gradient, self.dimension, tolerance)

    def _total_in_double(self) -> Callable[[Work], FloatArray]:
        """Return a function that sums in double precision; rows in memory are converted once."""
        held = [part.in_double() for part in self._held]

        def total(work: Work) -> FloatArray:
            sums = [part.sum(work, self._threads) for part in held]
            add = partial(parts.sum_in_double, work=work, threads=self._threads)
            return pairwise_sum(sums or self._each(add, 1.0, None), work.zero)

        return total

    def _counts(self, query: Count | ClassCounts, sample_prob: float, noise: NoiseSource | None) -> Sensitive:
        if isinstance(query, ClassCounts) and not self._loss.classification:
            raise InvalidArgument(f"query asks for classes, but {self._loss!r} has none. Pass Count() instead.")
        tallies = self._each(methodcaller("tally"), sample_prob, noise)
        negative, positive, rows = pairwise_sum(tallies, np.zeros(3))
        counts = (negative, positive) if isinstance(query, ClassCounts) else rows
        replace_one = math.sqrt(2) if isinstance(query, ClassCounts) else 1.0
        return Sensitive(counts, norm=Norm.L2, add_remove=1.0, replace_one=replace_one, sample_prob=sample_prob)

    def _total(self, work: Work, sample_prob: float, noise: NoiseSource | None) -> FloatArray:
        return pairwise_sum(self._each(methodcaller("sum", work, self._threads), sample_prob, noise), work.zero)

    def _each(self, call: Callable[[Partition], Any], sample_prob: float, noise: NoiseSource | None) -> list[Any]:
        """Call a function of each part of the rows, or of a sample of it."""
        if sample_prob < 1 and noise is not None:
            return [call(part.take(poisson_rows(part.rows, sample_prob, noise))) for part in self._parts()]
        return [call(part) for part in self._parts()]

    def _bound(self, clip: float | None, implied: float, name: str) -> float:
        """Return the smaller of a query's clip and the implied bound; one must be finite."""
        bound = min(math.inf if clip is None else clip, implied)
        if not math.isfinite(bound):
            what = f"{self._loss!r} with row_limit={self._frame.row_limit!r} does not bound this query"
            remedy = f"Pass {name}=1.0 with it, or a loss with clip_derivative=... and a row_limit."
            raise UnboundedSensitivity(f"{what}. {remedy}")
        return max(bound, 1e-100)

    def _weights(self, point: FloatArray, name: str) -> FloatArray:
        """Check the length of a point and append a weight for the constant if there is none."""
        if point.size != self.dimension:
            kinds = counted(self._frame.features, "column") + (" and the constant" if self._frame.constant else "")
            raise InvalidArgument(f"{name} must have {self.dimension} entries ({kinds}); got {point.size}. Check it.")
        if np.linalg.norm(point) * min(self._frame.row_limit, 1.0) > LARGEST_SCORE:
            raise InvalidArgument(f"{name} has diverged: its length is above {LARGEST_SCORE:g}. Use smaller steps.")
        return point if self._frame.constant else np.append(point, 0.0)


def sealed_scores(query: LossesAlong, losses: FloatArray, bound: float, sample_prob: float) -> Sensitive:
    """Seal negated sums of losses, less the public terms, which only round two neighbouring sums apart."""
    if query.public_terms is not None:
        losses = losses + query.public_terms
        bound += 1e-15 * float(np.abs(query.public_terms).max())
    return Sensitive(-losses, norm=Norm.RANGE, add_remove=bound, replace_one=2 * bound, sample_prob=sample_prob)


FEW = 10  # so many labels without a declared one are a mistake; fewer may be due to a few records


class DenseOracle(LinearOracle):
    """Rows of a float32 or float64 table in memory, by row or by column.

    Parameters
    ----------
    X : array_like of shape (n, d)
        The records. Other number types are converted once; float32 and float64 are not copied.
    y : array_like of shape (n,)
        Labels, or numbers for regression.
    may_be_empty : bool, default False
        Whether X may have no rows, where an error would reveal that. All answers are then zero.
    **settings
        As for `LinearOracle`, without `features`.

    Examples
    --------
    >>> from privypurse.core.queries import GradientAt
    >>> from privypurse.losses import Logistic
    >>> oracle = DenseOracle([[0.5, 1.0], [2.0, 0.0]], [0, 1], loss=Logistic(clip_derivative=0.5))
    >>> oracle.answer(GradientAt(point=np.zeros(3)))
    <Sensitive: shape (3,), l2 bound 0.5 (add-remove), 1.0 (replace-one)>
    """

    def __init__(self, X: ArrayLike, y: ArrayLike, *, may_be_empty: bool = False, **settings: Any) -> None:
        table = check_dense(X, may_be_empty=may_be_empty)
        super().__init__(features=table.shape[1], **settings)
        target = encode_targets(y, table.shape[0], table.dtype, *self._labels)
        self._held = (parts.DensePartition(table, target, self._frame, by_column=encoding.stored_by_column(table)),)


class SparseOracle(LinearOracle):
    """Rows of a scipy sparse matrix in memory; CSR values are not copied, column numbers are.

    Parameters
    ----------
    X : sparse matrix of shape (n, d)
        The records.
    y, may_be_empty, **settings
        As for `DenseOracle`.
    """

    def __init__(self, X: Any, y: ArrayLike, *, may_be_empty: bool = False, **settings: Any) -> None:
        matrix = check_sparse(X, may_be_empty=may_be_empty)
        super().__init__(features=matrix.shape[1], **settings)
        target = encode_targets(y, matrix.shape[0], np.float64, *self._labels)
        self._held = (parts.SparsePartition(matrix, target, self._frame),)


# Named on the certificate, since an error would reveal it.
_LABELS_CHECKED = "that some of the first labels are of the declared classes, which was checked"


class ChunkedOracle(LinearOracle):
    """Rows that come in chunks, for data larger than memory.

    Parameters
    ----------
    chunks : callable
        Called without arguments at each query; returns an iterable of ``(X, y)`` pairs, dense or
        sparse, with the same rows each time. ``oracles.chunks`` makes such callables from arrays on
        disk, ``tables.chunks`` from files. A record whose target is not a number, or of no declared
        class, contributes nothing.
    features : int
        Number of columns. Public.
    dtype : float32 or float64, optional
        Type of every dense chunk, so that the precision of one row does not depend on others. By
        default the source's (``chunks.dtype``), else float64.
    **settings
        As for `LinearOracle`.

    Attributes
    ----------
    uncovered : tuple of str
        For certificates: statements of the source (``chunks.uncovered``), and checks of the
        records.

    Guarantees
    ----------
    Every bound is enforced on each chunk as it is read. If chunks differ between queries, only the
    meaning of the answers changes.
    """

    def __init__(
        self, chunks: Callable[[], Iterable[tuple[Any, Any]]], *, features: int, dtype: Any = None, **settings: Any
    ) -> None:
        if not callable(chunks):
            raise InvalidArgument(f"chunks must be a function that returns new (X, y) pairs; got {shown(chunks)}.")
        super().__init__(features=features, **settings)
        self._chunks, self._dtype = chunks, np.dtype(getattr(chunks, "dtype", np.float64) if dtype is None else dtype)
        if self._dtype not in (np.float32, np.float64):
            raise InvalidArgument(f"dtype must be float32 or float64; got {dtype!r}. Omit it for the source's.")
        self.uncovered: tuple[str, ...] = tuple(getattr(chunks, "uncovered", ()))
        if self._loss.classification:
            self.uncovered += (_LABELS_CHECKED,)
        self._last: Any = None

    def _parts(self) -> Iterable[Partition]:
        source = self._chunks()
        if source is self._last and iter(source) is source:
            remedy = "Pass a function that makes a new one each time: chunks=read_file, not chunks=lambda: generator."
            raise InvalidArgument(f"chunks returned the same iterator twice, and it is exhausted. {remedy}")
        is_first, self._last = self._last is None, source
        for X, y in source:
            part = parts.make_partition(X, y, self._dtype, self._frame, *self._labels, strict=False)
            if is_first and self._loss.classification and part.rows >= FEW and not sum(part.tally()[:2]):
                needed = f"y must hold the declared classes {tuple(self._classes)!r}, and of their type"
                raise InvalidArgument(f"{needed}; none of the first labels is. Pass classes=... as they are in y.")
            is_first = False
            yield part
