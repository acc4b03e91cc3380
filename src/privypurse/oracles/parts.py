"""[RAW DATA] A table of rows with its targets, dense or sparse, that can be summed over: what every oracle is made of."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core.checks import FloatArray
from privypurse.losses.linear import LinearLoss
from privypurse.oracles._threads import sum_over_segments


@dataclass(frozen=True)
class Frame:
    """The public facts that turn a row into what the model sees.

    Parameters
    ----------
    features : int
        Number of columns.
    constant : float
        1.0 to add a constant column (before the length is limited), 0.0 not to.
    row_limit : float
        Rows, with the constant, are scaled down to this length; infinity for no limit.
    """

    features: int
    constant: float
    row_limit: float


@dataclass(frozen=True)
class GradientWork:
    """Add up clipped gradients at `weights` (the constant's last)."""

    loss: LinearLoss
    weights: FloatArray
    clip_norm: float

    @property
    def size(self) -> int:
        """Length of the answer."""
        return self.weights.size


@dataclass(frozen=True)
class LossesWork:
    """Add up losses at ``weights - step * direction``, relative to the first step."""

    loss: LinearLoss
    weights: FloatArray
    direction: FloatArray
    reach: float
    steps: FloatArray
    clip_loss: float

    @property
    def size(self) -> int:
        """Length of the answer."""
        return self.steps.size


@dataclass(frozen=True)
class DerivativesWork:
    """Add up first and second derivatives along a direction, clipped."""

    loss: LinearLoss
    weights: FloatArray
    direction: FloatArray
    reach: float
    clip_slope: float
    clip_curvature: float

    @property
    def size(self) -> int:
        """Length of the answer."""
        return 2


Work = GradientWork | LossesWork | DerivativesWork


class DensePart:
    """Rows of a dense float32 or float64 table, by row or by column; refers to the caller's memory.

    Guarantees
    ----------
    Each row's contribution to `sum` is bounded as the work says, from the row as it is read at that moment. A row with NaN, with
    infinity, or too long for its square to be finite contributes nothing.
    """

    def __init__(self, table: NDArray[Any], target: FloatArray, frame: Frame) -> None:
        self._by_column = bool(table.flags.f_contiguous and not table.flags.c_contiguous and table.shape[1] > 1)
        self._table, self._target, self._frame = table, target, frame
        # The worst relative error of a sum of squares in the table's precision, on the side of too long.
        self._inflate = 1.0 + (frame.features + 16) * float(np.finfo(table.dtype).eps)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self._table.shape[0])

    @property
    def target(self) -> FloatArray:
        """The targets."""
        return self._target

    def take(self, rows: NDArray[np.intp]) -> "DensePart":
        """Return some of the rows."""
        return DensePart(self._table[rows], self._target[rows], self._frame)

    def sum(self, work: Work, threads: int) -> FloatArray:
        """Return the sum over all rows."""
        from privypurse.oracles import _kernels

        table, target, frame = self._table, self._target, self._frame
        loss, common = work.loss, (frame.constant, frame.row_limit, self._inflate)
        weights = work.weights.astype(table.dtype)

        def add(start: int, stop: int, out: FloatArray) -> None:
            rows, shape = (table, target, start, stop), (loss.code, loss.parameter)
            if isinstance(work, GradientWork):
                clips = (loss.clip_derivative, work.clip_norm)
                _kernels.dense_gradient(*rows, weights, *common, *shape, *clips, self._by_column, out)
                return
            along = (weights, work.direction.astype(table.dtype), work.reach)
            if isinstance(work, LossesWork):
                curve = (*loss.knee_and_slope, work.clip_loss, work.steps)
                _kernels.dense_losses(*rows, *along, *common, *shape, *curve, self._by_column, out)
            else:
                clips3 = (loss.clip_derivative, work.clip_slope, work.clip_curvature)
                _kernels.dense_derivatives(*rows, *along, *common, *shape, *clips3, self._by_column, out)

        return sum_over_segments(self.rows, work.size, add, threads)


class SparsePart:
    """Rows stored as lists of non-zeros (CSR, without duplicates); refers to the caller's memory.

    Guarantees
    ----------
    As for `DensePart`.
    """

    def __init__(self, matrix: Any, target: FloatArray, frame: Frame) -> None:
        from privypurse.oracles import _sparse_kernels

        self._columns, self._starts, self._target, self._frame = matrix.indices, matrix.indptr, target, frame
        self._ones = bool(_sparse_kernels.all_ones(matrix.data))
        # One-hot tables need no values: they are all 1, and stay so whatever happens to the caller's array.
        self._values = matrix.data[:0] if self._ones else matrix.data
        longest = int(np.diff(matrix.indptr).max(initial=0))
        self._inflate = 1.0 + (longest + 16) * float(np.finfo(np.float64).eps)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self._starts.size - 1)

    @property
    def target(self) -> FloatArray:
        """The targets."""
        return self._target

    def take(self, rows: NDArray[np.intp]) -> "SparsePart":
        """Return some of the rows."""
        from scipy import sparse

        values = np.ones(self._columns.size, np.float32) if self._ones else self._values
        matrix = sparse.csr_matrix(
            (values, self._columns, self._starts), shape=(self.rows, self._frame.features), copy=False
        )
        return SparsePart(matrix[rows], self._target[rows], self._frame)

    def sum(self, work: Work, threads: int) -> FloatArray:
        """Return the sum over all rows."""
        from privypurse.oracles import _sparse_kernels as kernels

        frame, loss = self._frame, work.loss
        common = (frame.constant, frame.row_limit, self._inflate)

        def add(start: int, stop: int, out: FloatArray) -> None:
            rows = (self._values, self._columns, self._starts, self._ones, self._target, start, stop)
            shape = (loss.code, loss.parameter)
            if isinstance(work, GradientWork):
                kernels.sparse_gradient(*rows, work.weights, *common, *shape, loss.clip_derivative, work.clip_norm, out)
                return
            along = (work.weights, work.direction, work.reach)
            if isinstance(work, LossesWork):
                curve = (*loss.knee_and_slope, work.clip_loss, work.steps)
                kernels.sparse_losses(*rows, *along, *common, *shape, *curve, out)
            else:
                clips = (loss.clip_derivative, work.clip_slope, work.clip_curvature)
                kernels.sparse_derivatives(*rows, *along, *common, *shape, *clips, out)

        return sum_over_segments(self.rows, work.size, add, threads)


Part = DensePart | SparsePart
