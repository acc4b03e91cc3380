"""[RAW DATA] The oracle for multinomial models: one weight vector for each class."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from privypurse.core._checks import FloatArray, constant_value, ordinary, shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core.queries import ClassCounts, Count, GradientAt, LossesAlong, Query
from privypurse.losses._bounds import Bounds
from privypurse.losses._linear import Softmax
from privypurse.oracles._encoding import ROUNDING_MARGIN, check_declared, check_dense, check_sparse, checked_labels
from privypurse.oracles._linear import LARGEST_SCORE, LOSS_ROUNDING, sealed_scores
from privypurse.oracles._partitions import pairwise_sum
from privypurse.oracles._sampling import check_sampling, poisson_rows

# Numbers converted to float64 at a time: large enough for matrix products, small enough for caches.
_NUMBERS = 2_000_000
Chosen = NDArray[np.intp] | None  # numbers of rows; None for all


class SoftmaxOracle:
    """Rows of a dense table or a sparse matrix in memory, with one of several classes each.

    Parameters
    ----------
    X : array_like or sparse matrix of shape (n, d)
        The records; float32 and float64 values are not copied (in CSR for sparse ones).
    y : array_like of shape (n,)
        The labels.
    loss : Softmax
        The loss, which has the number of classes.
    classes : sequence
        The labels, in the order of the scores. Public.
    row_limit, constant
        As for `LinearOracle`; there must be a limit.
    may_be_empty : bool, default False
        As for `DenseOracle`.

    Guarantees
    ----------
    As for `LinearOracle`. A point is the matrix of weights, one row for each column of X (the
    constant's last) and one column for each class, written row by row. A record's gradient is the
    outer product of its row and the derivative with respect to the scores, so its norm is the
    product of their lengths. Exact sums (``_exact_softmax``) use finer integers, and are rounded to
    the public unit once, at the end.
    """

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        *,
        loss: Softmax,
        classes: Sequence[Any],
        row_limit: float = 1.0,
        constant: bool | float = True,
        may_be_empty: bool = False,
    ) -> None:
        if not isinstance(loss, Softmax):
            raise InvalidArgument(f"loss must be a Softmax; got {shown(loss)}. Pass loss=Softmax(classes=3).")
        check = check_sparse if sparse.issparse(X) else check_dense
        self._table: Any = check(X, may_be_empty=may_be_empty)
        self._loss, self._row_limit, self._constant = loss, ordinary(row_limit=row_limit), constant_value(constant)
        self._labels = list(map(str, classes))
        self._target = _encode(y, self._table.shape[0], classes, loss.classes)
        self.has_constant = self._constant > 0
        self._columns = self._table.shape[1] + int(self.has_constant)
        self.dimension = self._columns * loss.classes
        self._block_rows = min(max(_NUMBERS // self._columns, 64), 4096)

    @property
    def bounds(self) -> Bounds:
        """Public constants of the mean loss."""
        return self._loss.bounds(self._row_limit)

    @property
    def settings(self) -> dict[str, Any]:
        """Declared settings, by which a checkpoint recognises the oracle."""
        settings = {"columns": self._columns, "constant": self._constant, "loss": self._loss}
        return settings | {"row_limit": self._row_limit, "classes": self._labels}

    def __repr__(self) -> str:
        value = self._constant
        constant = "" if not value else " with the constant" + ("" if value == 1 else f" {value:g}")
        return f"<SoftmaxOracle: {counted(self._columns, 'column')}{constant}, row limit {self._row_limit:g}, {self._loss!r}>"

    def answer(self, query: Query, *, sample_prob: float = 1.0, noise: NoiseSource | None = None) -> Sensitive:
        """Answer a query with a sealed box: gradients, losses along a direction, or counts."""
        sample_prob = check_sampling(sample_prob, noise)
        rows = None
        if sample_prob < 1 and noise is not None:
            rows = poisson_rows(self._target.size, sample_prob, noise)
        if isinstance(query, GradientAt):
            return self._gradient(query, rows, sample_prob, noise)
        if isinstance(query, LossesAlong):
            return self._losses(query, rows, sample_prob)
        chosen = self._target if rows is None else self._target[rows]
        if isinstance(query, Count):
            return Sensitive(chosen.size, norm=Norm.L2, add_remove=1.0, replace_one=1.0, sample_prob=sample_prob)
        if isinstance(query, ClassCounts):
            counts = np.bincount(chosen, minlength=self._loss.classes)
            return Sensitive(counts, norm=Norm.L2, add_remove=1.0, replace_one=math.sqrt(2), sample_prob=sample_prob)
        raise InvalidArgument(f"query must be one of gradients, losses along a line and counts; got {shown(query)}.")

    def _gradient(self, query: GradientAt, rows: Chosen, sample_prob: float, noise: NoiseSource | None) -> Sensitive:
        implied = self._loss.lipschitz * self._row_limit
        bound = implied if query.clip_norm is None else min(query.clip_norm, implied)
        weights = self._matrix(query.point)
        exact = noise is not None and noise.secure
        total = self._exact_total(weights, rows, bound) if exact else self._total(weights, rows, bound)
        return Sensitive(total.ravel(), norm=Norm.L2, add_remove=bound, replace_one=2 * bound, sample_prob=sample_prob)

    def _total(self, weights: FloatArray, rows: Chosen, bound: float) -> FloatArray:
        inside = bound * (1 - ROUNDING_MARGIN)
        blocks = []
        for x, factor, length, target in self._blocks(rows):
            slope = self._loss.derivative(self._scores(x, factor, weights), target)
            norm = factor * length * np.sqrt(np.einsum("ij,ij->i", slope, slope))
            slope *= (factor * (inside / np.maximum(norm, inside)))[:, None]
            block = x.T @ slope
            blocks.append(np.vstack([block, self._constant * slope.sum(axis=0)]) if self._constant else block)
        return pairwise_sum(blocks, np.zeros_like(weights))

    def _exact_total(self, weights: FloatArray, rows: Chosen, bound: float) -> FloatArray:
        """Sum gradients exactly, in integers of a public unit."""
        from privypurse.oracles import _exact_softmax as exact

        steps = exact.Steps.of(self._loss, bound, self._row_limit, self._columns)
        whole, total = exact.whole_weights(weights), exact.ExactTotal(weights.shape)
        for table, target in self._chosen(rows, min(self._block_rows, exact.MOST_ROWS)):
            total.add(exact.block_gradient(self._loss, table, target, whole, self._constant, steps))
        bits = round(math.log2(steps.unit / (steps.row * steps.slope)))
        return np.asarray(steps.unit * total.rounded(bits))

    def _losses(self, query: LossesAlong, rows: Chosen, sample_prob: float) -> Sensitive:
        weights, direction = self._matrix(query.point), self._matrix(query.direction)
        # Scores move by at most |x| |direction| (the spectral norm is at most the Frobenius norm).
        reach = self._row_limit * float(np.linalg.norm(direction)) * float(np.ptp(query.steps))
        implied = max(self._loss.range_along(reach), 1e-90)
        clip = math.inf if query.clip_loss is None else query.clip_loss
        farthest = float(np.linalg.norm(weights)) + float(query.steps.max()) * float(np.linalg.norm(direction))
        size = min(clip, self._loss.value_at_zero() + 2 * self._row_limit * farthest)
        bound = min(clip, implied) * (1 + ROUNDING_MARGIN) + LOSS_ROUNDING * size
        blocks = []
        for x, factor, _, target in self._blocks(rows):
            score, shift = self._scores(x, factor, weights), self._scores(x, factor, direction)
            losses = [np.minimum(self._loss.value(score - step * shift, target), clip) for step in query.steps]
            blocks.append(np.array([np.sum(loss - losses[0]) for loss in losses]))
        return sealed_scores(query, pairwise_sum(blocks, np.zeros(query.steps.size)), bound, sample_prob)

    def _matrix(self, point: FloatArray) -> FloatArray:
        if point.size != self.dimension:
            each = f"{self._columns} for each of {self._loss.classes} classes"
            raise InvalidArgument(f"point must have {self.dimension} entries, {each}; got {point.size}.")
        if np.linalg.norm(point) * max(self._row_limit, 1.0) > LARGEST_SCORE:
            raise InvalidArgument(f"point has diverged: its length is above {LARGEST_SCORE:g}. Use smaller steps.")
        return point.reshape(self._columns, self._loss.classes)

    def _scores(self, x: FloatArray, factor: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the scores of rows scaled by their factors."""
        scores = x @ weights[:-1] + self._constant * weights[-1] if self._constant else x @ weights
        scores *= factor[:, None]
        return np.asarray(scores)

    def _chosen(self, rows: Chosen, step: int) -> Iterator[tuple[NDArray[Any], NDArray[np.intp]]]:
        """Iterate over all rows and targets, or some, in dense blocks of at most `step`."""
        for start in range(0, self._target.size if rows is None else rows.size, step):
            chosen: Any = slice(start, start + step) if rows is None else rows[start : start + step]
            part = self._table[chosen]
            yield part.toarray() if sparse.issparse(part) else part, self._target[chosen]

    def _blocks(self, rows: Chosen) -> Iterator[tuple[FloatArray, FloatArray, FloatArray, NDArray[np.intp]]]:
        """Iterate over the finite rows in float64, with factors that limit lengths, lengths and targets."""
        limit = self._row_limit * (1 - 1e-12)
        for part, target in self._chosen(rows, self._block_rows):
            x = np.asarray(part, dtype=np.float64)
            # Measured each time, so that a table that was changed in the meantime is still limited.
            with np.errstate(over="ignore", invalid="ignore"):
                length = np.sqrt(np.einsum("ij,ij->i", x, x) + self._constant**2)
            finite = length < math.inf
            if not finite.all():
                x, length, target = x[finite], length[finite], target[finite]
            yield x, limit / np.maximum(length, limit), length, target


def _encode(y: ArrayLike, rows: int, classes: Sequence[Any], count: int) -> NDArray[np.intp]:
    listed = list(classes)
    if len(listed) != count or len(set(listed)) != count:
        raise InvalidArgument(f"classes must list the {count} different labels of the loss; got {shown(classes)}.")
    labels = checked_labels(y, rows)
    target = np.full(rows, -1, dtype=np.intp)
    for index, label in enumerate(listed):
        target[labels == label] = index
    check_declared(target >= 0, labels, listed)
    return target
