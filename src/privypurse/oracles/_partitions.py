"""[RAW DATA] Tables of rows with targets, dense or sparse, that oracles sum over.

With secure noise, every record's clipped gradient is rounded to whole steps, of a public power of two
for each query, before it is added. The sum of integers is exact, and the same in every order
(``docs/proofs/exact_noise.md``).

Compiled sums run over segments of rows in threads; no result depends on their number.
"""

import itertools
import math
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted
from privypurse.core._randomness import this_process
from privypurse.losses._linear import LinearLoss, Logistic
from privypurse.oracles._encoding import ROUNDING_MARGIN, check_dense, check_sparse, encode_targets, read_only, unsigned

# A bound is 2^22 to 2^23 steps: 10^9 records then sum to less than 2^53 steps, exact in a double.
_BITS = 22
# Segments depend only on the number of rows, and fix the order in which partial sums are added.
# There are enough of them to share evenly among threads.
_LEAST_ROWS = 256
_MOST_SEGMENTS = 64
_WORTH_A_THREAD = 400_000  # with fewer numbers, waking a thread takes longer than the work


@dataclass(frozen=True)
class Frame:
    """Public facts about how the model sees a row."""

    features: int
    constant: float  # value of the constant column, added before the length is limited; 0.0 for none
    row_limit: float  # rows, with the constant, are scaled down to this length; infinity for no limit

    def for_kernels(self, dtype: Any) -> tuple[float, float, float, float]:
        """Return the constant, the limit, and by how much to enlarge a computed sum of squares.

        No limit becomes one whose square is still finite. Squares are enlarged by a factor, for the
        worst relative error of a sum of that many terms, and an amount, for underflow.
        """
        kind, terms = np.finfo(dtype), self.features + 16
        return self.constant, min(self.row_limit, 1e149), 1.0 + terms * float(kind.eps), terms * float(kind.tiny)


@dataclass(frozen=True)
class GradientWork:
    """Sum clipped gradients at `weights` (the constant's last)."""

    loss: LinearLoss
    weights: FloatArray
    clip_norm: float  # infinity leaves the bound to the derivative's clip and the row limit
    clip_derivative: float
    unit: float = 0.0  # a power of two: sum whole multiples, to which each gradient is rounded; 0 for none

    @property
    def zero(self) -> NDArray[Any]:
        """The sum over no rows."""
        return np.zeros(self.weights.size, np.int64 if self.unit else np.float64)


def lattice_unit(bound: float, dimension: int) -> float:
    """Return the step: a power of two, of which a bound has at least 2^22 and less than 2^23.

    Rounding a vector of n numbers adds at most half of sqrt(n) steps to its length. Half the
    rounding margin must cover it, so beyond four million numbers the step is finer.
    """
    exponent = math.frexp(bound)[1] - 1 - _BITS
    while math.sqrt(dimension) / 2 * math.ldexp(1.0, exponent) > ROUNDING_MARGIN / 2 * bound:
        exponent -= 1
    return math.ldexp(1.0, exponent)


@dataclass(frozen=True)
class LossesWork:
    """Sum losses at ``weights - step * direction``, relative to the first step."""

    loss: LinearLoss
    weights: FloatArray
    direction: FloatArray
    reach: float
    steps: FloatArray
    clip_loss: float

    @property
    def zero(self) -> NDArray[Any]:
        """The sum over no rows."""
        return np.zeros(self.steps.size)

    @property
    def even(self) -> bool:
        """Whether logistic losses at neighbouring steps differ by a factor in the exponential.

        Steps must be evenly spaced, no score so large that its exponential overflows, and the knee
        of the loss not far out. All of it is public.
        """
        _, knee, _ = self.loss.for_kernels
        if self.loss.code != Logistic.code or self.clip_loss < math.inf or self.steps.size < 4 or not knee > -2.5:
            return False
        gaps = np.diff(self.steps)
        evenly = bool(np.abs(gaps - gaps.mean()).max() <= 1e-12 * np.abs(self.steps).max())
        length = self.reach / max(float(np.linalg.norm(self.direction)), 1e-300)  # of the longest row
        farthest = length * float(np.linalg.norm(self.weights)) + float(self.steps.max()) * self.reach
        return evenly and farthest < 600.0


Work = GradientWork | LossesWork
Segments = tuple[int, int, int]
AddSegments = Callable[[Segments, NDArray[Any]], None]


class _Partition:
    def __init__(self, target: FloatArray, frame: Frame, dtype: Any) -> None:
        self._target, self._frame, self._scales = read_only(target), frame, frame.for_kernels(dtype)
        self.rows = target.size

    def tally(self) -> FloatArray:
        """Count negative targets, positive targets and rows."""
        return np.array([np.count_nonzero(self._target < 0), np.count_nonzero(self._target > 0), self.rows], np.float64)


class DensePartition(_Partition):
    """Rows of a dense float32 or float64 table, in the caller's memory.

    `by_column` is the order in which a row's products are added, and which memory order is fast. For
    whole tables only: the layout of a chunk or a sample may depend on the number of records.

    Guarantees
    ----------
    Each row's contribution to `sum` is bounded as the work says, from the row as read at that
    moment. A row with NaN, infinity or an overflowing square contributes nothing. In a sum of whole
    units, each row adds integers that depend on this row and on public values alone.
    """

    def __init__(self, table: NDArray[Any], target: FloatArray, frame: Frame, *, by_column: bool = False) -> None:
        super().__init__(target, frame, table.dtype)
        self._table, self._by_column = read_only(table), by_column

    def in_double(self) -> "DensePartition":
        """Return the same rows in double precision; copied only if needed."""
        table, target = (array.astype(np.float64, copy=False) for array in (self._table, self._target))
        return DensePartition(table, target, self._frame, by_column=self._by_column)

    def take(self, rows: NDArray[np.intp]) -> "DensePartition":
        """Return some of the rows, stored by row."""
        # np.take always makes a table by row; indexing a table by column may not.
        return DensePartition(np.take(self._table, rows, axis=0), self._target[rows], self._frame)

    def sum(self, work: Work, threads: int) -> NDArray[Any]:
        """Return the sum over all rows."""
        from privypurse.oracles import _exact_kernels, _kernels

        kind, rows, model = self._table.dtype, (self._table, self._target), (self._scales, _loss_for_kernels(work))
        weights = work.weights.astype(kind)

        def add(segments: Segments, partial: NDArray[Any]) -> None:
            place = (self._by_column, segments, partial)
            if isinstance(work, LossesWork):
                along = (weights, work.direction.astype(kind), work.reach)
                _kernels.dense_along(rows, along, *model, (work.clip_loss, work.steps), *place)
            elif work.unit:
                block_sum = np.empty(self._frame.features, np.int32 if kind == np.float32 else np.int64)
                units = (work.clip_norm, 1 / work.unit, block_sum)
                _exact_kernels.dense_gradient(rows, weights, *model, units, *place)
            else:
                _kernels.dense_gradient(rows, weights, *model, work.clip_norm, *place)

        return _sum_over_segments(self.rows, self._frame.features, work.zero, add, threads)


class SparsePartition(_Partition):
    """Sparse rows (CSR from `check_sparse`), with values in the caller's memory.

    Guarantees
    ----------
    As for `DensePartition`. Columns and row starts were checked once, and nothing else holds these
    arrays.
    """

    def __init__(self, matrix: Any, target: FloatArray, frame: Frame) -> None:
        from privypurse.oracles import _sparse_kernels

        super().__init__(target, frame, np.float64)
        # Unsigned, so that the compiler need not handle negative indices.
        self._columns, self._starts = read_only(unsigned(matrix.indices)), read_only(unsigned(matrix.indptr))
        self._ones = bool(_sparse_kernels.all_ones(read_only(matrix.data)))
        # One-hot tables need no values: they are all 1, whatever happens to the caller's array.
        self._values = read_only(matrix.data[:0] if self._ones else matrix.data)

    def in_double(self) -> "SparsePartition":
        """Return the part itself: sparse sums are in double precision."""
        return self

    def take(self, rows: NDArray[np.intp]) -> "SparsePartition":
        """Return some of the rows."""
        first = self._starts[rows].astype(np.intp)
        sizes = self._starts[rows + 1].astype(np.intp) - first
        starts = np.concatenate([[0], np.cumsum(sizes)])
        places = np.repeat(first - starts[:-1], sizes) + np.arange(starts[-1])
        values = np.ones(places.size, np.float32) if self._ones else self._values[places]
        taken = SimpleNamespace(indices=self._columns[places], indptr=starts.astype(self._starts.dtype), data=values)
        return SparsePartition(taken, self._target[rows], self._frame)

    def sum(self, work: Work, threads: int) -> NDArray[Any]:
        """Return the sum over all rows."""
        from privypurse.oracles import _exact_kernels, _sparse_kernels

        rows = ((self._values, self._columns, self._starts, self._ones), self._target)
        weights, model = work.weights, (self._scales, _loss_for_kernels(work))

        def add(*place: Any) -> None:
            if isinstance(work, LossesWork):
                along = (weights, work.direction, work.reach)
                _sparse_kernels.sparse_along(rows, along, *model, (work.clip_loss, work.steps), *place)
            elif work.unit:
                _exact_kernels.sparse_gradient(rows, weights, *model, (work.clip_norm, 1 / work.unit), *place)
            else:
                _sparse_kernels.sparse_gradient(rows, weights, *model, work.clip_norm, *place)

        # A non-zero takes about as long as four numbers of a dense row.
        width = 4 * self._columns.size // max(self.rows, 1)
        return _sum_over_segments(self.rows, width, work.zero, add, threads)


Partition = DensePartition | SparsePartition


def sum_in_double(part: Partition, work: Work, threads: int) -> FloatArray:
    """Return the sum over the rows of a part in double precision."""
    return part.in_double().sum(work, threads)


def make_partition(X: Any, y: Any, dtype: Any, frame: Frame, *labels: Any, strict: bool = True) -> Partition:
    """Check a chunk of rows and wrap it; `labels` and `strict` as for `encode_targets`."""
    is_sparse = hasattr(X, "tocsr")
    # By row: the memory layout of a slice depends on the other rows, and the order of additions,
    # hence the rounding of every record, must not.
    table = check_sparse(X) if is_sparse else np.ascontiguousarray(check_dense(X).astype(dtype, copy=False))
    if table.shape[1] != frame.features:
        raise InvalidArgument(
            f"X must have {counted(frame.features, 'column')} in every chunk; got {table.shape[1]}. Check them."
        )
    target = encode_targets(y, table.shape[0], np.float64 if is_sparse else dtype, *labels, strict=strict)
    return SparsePartition(table, target, frame) if is_sparse else DensePartition(table, target, frame)


def pairwise_sum(vectors: list[NDArray[Any]], empty: NDArray[Any]) -> NDArray[Any]:
    """Add vectors in pairs: the error grows with the logarithm of their number; or `empty`."""
    while len(vectors) > 1:
        paired = [a + b for a, b in zip(vectors[::2], vectors[1::2], strict=False)]
        vectors = paired + vectors[len(vectors) - len(vectors) % 2 :]
    return vectors[0] if vectors else empty


def _loss_for_kernels(work: Work) -> tuple[int, float, float, float, float]:
    """Write a loss as the numbers that the kernels take."""
    from privypurse.oracles._links import EVEN_LOGISTIC

    loss = work.loss
    clip = work.clip_derivative if isinstance(work, GradientWork) else loss.clip_derivative
    code = EVEN_LOGISTIC if isinstance(work, LossesWork) and work.even else loss.code
    parameter, knee, slope = loss.for_kernels
    return code, parameter, clip, knee, slope


def default_threads() -> int:
    """Return the number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _sum_over_segments(rows: int, width: int, zero: NDArray[Any], add: AddSegments, threads: int) -> NDArray[Any]:
    """Add up partial sums, like `zero`, over segments of rows of `width` numbers.

    ``add((length, first, last), partial)`` fills ``partial[k]`` with the sum over the k-th
    `length` rows, for k from first to last - 1.
    """
    length = max(_LEAST_ROWS, -(-rows // _MOST_SEGMENTS))
    segments = -(-rows // length)
    partial = np.zeros((segments, zero.size), zero.dtype)
    workers = min(threads, segments) if rows * (width + 8) > _WORTH_A_THREAD else 1
    cuts = [segments * k // workers for k in range(workers + 1)] if segments else [0]
    shares = [(length, first, last) for first, last in itertools.pairwise(cuts)]
    # Kernels release the interpreter lock, so threads suffice; this thread takes a share too.
    done: _Done = queue.SimpleQueue()
    for share in shares[1:]:
        _crew(threads).put((add, share, partial, done))
    if shares:
        add(shares[0], partial)
    for _ in shares[1:]:
        error = done.get()
        if error is not None:
            raise error
    return np.asarray(partial.sum(axis=0))


_Done = queue.SimpleQueue[BaseException | None]
# Queues of shares for worker threads: lighter than an executor with futures, for small sums.
_Crew = queue.SimpleQueue[tuple[AddSegments, Segments, NDArray[Any], _Done]]
_crews: dict[tuple[tuple[int, bytes], int], _Crew] = {}
_lock = threading.Lock()


def _crew(threads: int) -> _Crew:
    """Return the queue of this process's worker threads; a forked child makes its own."""
    key = (this_process(), threads)
    with _lock:
        if key not in _crews:
            _crews[key] = queue.SimpleQueue()
            for _ in range(threads - 1):
                threading.Thread(target=_help, args=(_crews[key],), name="privypurse", daemon=True).start()
        return _crews[key]


def _help(crew: _Crew) -> None:
    while True:
        _run(*crew.get())


def _run(add_segments: AddSegments, share: Segments, partial: NDArray[Any], done: _Done) -> None:
    try:
        add_segments(share, partial)
    except BaseException as error:
        done.put(error)
    else:
        done.put(None)


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
