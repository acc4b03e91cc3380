"""[RAW DATA] Tables of rows with targets, dense or sparse, that oracles sum over.

Exact sums lie on a lattice, with one public step, a power of two, for each query. With secure
noise, every record's clipped gradient is rounded to whole steps before it is added. The sum is then
one of integers: exact, and the same in every order. Noise is added in whole steps too
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
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import this_process
from privypurse.losses._linear import LinearLoss, Logistic
from privypurse.oracles._encoding import ROUNDING_MARGIN, check_dense, check_sparse, encode_targets, read_only, unsigned

IntegerArray = NDArray[np.int64]
# A bound is 2^22 to 2^23 steps: 10^9 records then sum to less than 2^53 steps, exact in a double.
_BITS = 22
# Segments depend only on the number of rows, and fix the order in which partial sums are added.
# There are enough of them to share evenly among threads.
_LEAST_ROWS = 256
_MOST_SEGMENTS = 64
# Below this many numbers, waking a thread takes longer than the work.
_WORTH_A_THREAD = 400_000
Number = TypeVar("Number", np.float64, np.int64)


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
    """Sum clipped gradients at `weights` (the constant's last).

    A `clip_norm` of infinity leaves the bound to the derivative's clip and the row limit.
    """

    loss: LinearLoss
    weights: FloatArray
    clip_norm: float
    clip_derivative: float

    @property
    def size(self) -> int:
        """Length of the answer."""
        return self.weights.size


@dataclass(frozen=True)
class ExactGradientWork(GradientWork):
    """Sum clipped gradients, each rounded to whole multiples of `unit`, a power of two."""

    unit: float


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
    def size(self) -> int:
        """Length of the answer."""
        return self.steps.size

    @property
    def sums(self) -> tuple[float, FloatArray, tuple[float, float]]:
        """What the kernels sum."""
        return self.clip_loss, self.steps, (math.inf, math.inf)

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


@dataclass(frozen=True)
class DerivativesWork:
    """Sum first and second derivatives along a direction, clipped."""

    loss: LinearLoss
    weights: FloatArray
    direction: FloatArray
    reach: float
    clips: tuple[float, float]
    size: ClassVar[int] = 2

    @property
    def sums(self) -> tuple[float, FloatArray, tuple[float, float]]:
        """What the kernels sum."""
        return math.inf, np.empty(0), self.clips


Work = GradientWork | LossesWork | DerivativesWork
Segments = tuple[int, int, int]
AddSegments = Callable[[Segments, NDArray[Any]], None]


class DensePartition:
    """Rows of a dense float32 or float64 table, in the caller's memory.

    `by_column` is the order in which a row's products are added, and which memory order is fast. For
    whole tables only: the layout of a chunk or a sample may depend on the number of records.

    Guarantees
    ----------
    Each row's contribution to `sum` is bounded as the work says, from the row as read at that
    moment. A row with NaN, infinity or an overflowing square contributes nothing. Each row adds
    integers to `exact_sum` that depend on this row and on public values alone.
    """

    def __init__(self, table: NDArray[Any], target: FloatArray, frame: Frame, *, by_column: bool = False) -> None:
        self._by_column = by_column
        self._table, self._target, self._frame = read_only(table), read_only(target), frame
        self._scales, self.rows = frame.for_kernels(table.dtype), int(table.shape[0])

    def tally(self) -> FloatArray:
        """Count negative targets, positive targets and rows."""
        return _tally(self._target)

    def in_double(self) -> "DensePartition":
        """Return the same rows in double precision; copied only if needed."""
        table, target = (array.astype(np.float64, copy=False) for array in (self._table, self._target))
        return DensePartition(table, target, self._frame, by_column=self._by_column)

    def take(self, rows: NDArray[np.intp]) -> "DensePartition":
        """Return some of the rows, stored by row."""
        # np.take always makes a table by row; indexing a table by column may not.
        return DensePartition(np.take(self._table, rows, axis=0), self._target[rows], self._frame)

    def sum(self, work: Work, threads: int) -> FloatArray:
        """Return the sum over all rows."""
        from privypurse.oracles import _kernels

        kind, rows, model = self._table.dtype, (self._table, self._target), (self._scales, _loss_for_kernels(work))
        weights = work.weights.astype(kind)
        along = None if isinstance(work, GradientWork) else (weights, work.direction.astype(kind), work.reach)

        def add(segments: Segments, partial: FloatArray) -> None:
            if isinstance(work, GradientWork):
                _kernels.dense_gradient(rows, weights, *model, work.clip_norm, self._by_column, segments, partial)
            else:
                _kernels.dense_along(rows, along, *model, work.sums, self._by_column, segments, partial)

        return sum_over_segments(self.rows, self._frame.features, work.size, add, threads)

    def exact_sum(self, work: ExactGradientWork, threads: int) -> IntegerArray:
        """Return the sum over all rows, in units."""
        from privypurse.oracles import _exact_kernels

        kind, rows, model = self._table.dtype, (self._table, self._target), (self._scales, _loss_for_kernels(work))
        weights = work.weights.astype(kind)

        def add(segments: Segments, partial: IntegerArray) -> None:
            block_sum = np.empty(self._frame.features, np.int32 if kind == np.float32 else np.int64)
            units = (work.clip_norm, 1 / work.unit, block_sum)
            _exact_kernels.dense_gradient(rows, weights, *model, units, self._by_column, segments, partial)

        return sum_over_segments(self.rows, self._frame.features, weights.size, add, threads, np.int64)


class SparsePartition:
    """Sparse rows (CSR from `check_sparse`), with values in the caller's memory.

    Guarantees
    ----------
    As for `DensePartition`. Columns and row starts were checked once, and nothing else holds these
    arrays.
    """

    def __init__(self, matrix: Any, target: FloatArray, frame: Frame) -> None:
        from privypurse.oracles import _sparse_kernels

        # Unsigned, so that the compiler need not handle negative indices.
        self._columns, self._starts = read_only(unsigned(matrix.indices)), read_only(unsigned(matrix.indptr))
        self._target, self._frame = read_only(target), frame
        self._ones = bool(_sparse_kernels.all_ones(read_only(matrix.data)))
        # One-hot tables need no values: they are all 1, whatever happens to the caller's array.
        self._values = read_only(matrix.data[:0] if self._ones else matrix.data)
        self._scales, self.rows = frame.for_kernels(np.float64), int(self._starts.size - 1)

    def tally(self) -> FloatArray:
        """Count negative targets, positive targets and rows."""
        return _tally(self._target)

    def in_double(self) -> "SparsePartition":
        """Return the part itself: sparse sums are in double precision."""
        return self

    def take(self, rows: NDArray[np.intp]) -> "SparsePartition":
        """Return some of the rows."""
        values = np.ones(self._columns.size, np.float32) if self._ones else self._values
        columns, starts = (places.view(f"i{places.dtype.itemsize}") for places in (self._columns, self._starts))
        shape = (self.rows, self._frame.features)
        matrix = sparse.csr_matrix((values, columns, starts), shape=shape, copy=False)
        return SparsePartition(matrix[rows], self._target[rows], self._frame)

    def sum(self, work: Work, threads: int) -> FloatArray:
        """Return the sum over all rows."""
        from privypurse.oracles import _sparse_kernels

        rows, model = self._for_kernels(work)
        along = None if isinstance(work, GradientWork) else (work.weights, work.direction, work.reach)

        def add(segments: Segments, partial: FloatArray) -> None:
            if isinstance(work, GradientWork):
                _sparse_kernels.sparse_gradient(rows, work.weights, *model, work.clip_norm, segments, partial)
            else:
                _sparse_kernels.sparse_along(rows, along, *model, work.sums, segments, partial)

        return sum_over_segments(self.rows, self._width, work.size, add, threads)

    def exact_sum(self, work: ExactGradientWork, threads: int) -> IntegerArray:
        """Return the sum over all rows, in units."""
        from privypurse.oracles import _exact_kernels

        rows, model = self._for_kernels(work)

        def add(segments: Segments, partial: IntegerArray) -> None:
            units = (work.clip_norm, 1 / work.unit)
            _exact_kernels.sparse_gradient(rows, work.weights, *model, units, segments, partial)

        return sum_over_segments(self.rows, self._width, work.size, add, threads, np.int64)

    def _for_kernels(self, work: Work) -> tuple[Any, tuple[Any, Any]]:
        rows = ((self._values, self._columns, self._starts, self._ones), self._target)
        return rows, (self._scales, _loss_for_kernels(work))

    @property
    def _width(self) -> int:
        """Cost of a row: a non-zero takes about as long as four numbers of a dense row."""
        return 4 * self._columns.size // max(self.rows, 1)


Partition = DensePartition | SparsePartition


def make_partition(X: Any, y: Any, dtype: Any, frame: Frame, *labels: Any, strict: bool = True) -> Partition:
    """Check a chunk of rows and wrap it; `labels` and `strict` as for `encode_targets`."""
    is_sparse = hasattr(X, "tocsr")
    # By row: the memory layout of a slice depends on the other rows, and the order of additions,
    # hence the rounding of every record, must not.
    table = check_sparse(X) if is_sparse else np.ascontiguousarray(check_dense(X).astype(dtype, copy=False))
    if table.shape[1] != frame.features:
        raise InvalidArgument(
            f"X must have {frame.features} columns in every chunk; got {table.shape[1]}. Check the source of chunks."
        )
    target = encode_targets(y, table.shape[0], np.float64 if is_sparse else dtype, *labels, strict=strict)
    return SparsePartition(table, target, frame) if is_sparse else DensePartition(table, target, frame)


def pairwise_sum(vectors: list[NDArray[Number]], empty: NDArray[Number]) -> NDArray[Number]:
    """Add vectors in pairs: the error grows with the logarithm of their number; or `empty`."""
    while len(vectors) > 1:
        paired = [a + b for a, b in zip(vectors[::2], vectors[1::2], strict=False)]
        vectors = paired + vectors[len(vectors) - len(vectors) % 2 :]
    return vectors[0] if vectors else empty


def _tally(target: FloatArray) -> FloatArray:
    return np.array([np.count_nonzero(target < 0), np.count_nonzero(target > 0), target.size], dtype=np.float64)


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


def sum_over_segments(
    rows: int, width: int, size: int, add_segments: AddSegments, threads: int, dtype: type[np.generic] = np.float64
) -> NDArray[Any]:
    """Add up partial sums, of `size` numbers each, over segments of rows of `width` numbers.

    ``add_segments((length, first, last), partial)`` fills ``partial[k]`` with the sum over the k-th
    `length` rows, for k from first to last - 1.
    """
    length = max(_LEAST_ROWS, -(-rows // _MOST_SEGMENTS))
    segments = -(-rows // length)
    partial = np.zeros((segments, size), dtype)
    workers = min(threads, segments) if rows * (width + 8) > _WORTH_A_THREAD else 1
    cuts = [segments * k // workers for k in range(workers + 1)] if segments else [0]
    shares = [(length, first, last) for first, last in itertools.pairwise(cuts)]
    # Kernels release the interpreter lock, so threads suffice; this thread takes a share too.
    others = [_Task(add_segments, share, partial) for share in shares[1:]]
    for task in others:
        _crew(threads).put(task)
    if shares:
        add_segments(shares[0], partial)
    for task in others:
        task.wait()
    return np.asarray(partial.sum(axis=0))


class _Task:
    """A share of the work for another thread; lighter than a future, for small sums."""

    def __init__(self, add_segments: AddSegments, share: Segments, partial: NDArray[Any]) -> None:
        self._work, self._error = (add_segments, share, partial), None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        add_segments, share, partial = self._work
        try:
            add_segments(share, partial)
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    def wait(self) -> None:
        self._done.acquire()
        if self._error is not None:
            raise self._error

    _error: BaseException | None


_crews: dict[tuple[tuple[int, bytes], int], "queue.SimpleQueue[_Task]"] = {}
_lock = threading.Lock()


def _crew(threads: int) -> "queue.SimpleQueue[_Task]":
    """Return the queue of this process's worker threads; a forked child makes its own."""
    key = (this_process(), threads)
    crew = _crews.get(key)
    if crew is None:
        with _lock:
            crew = _crews.get(key)
            if crew is None:
                crew = _crews[key] = queue.SimpleQueue()
                for _ in range(threads - 1):
                    threading.Thread(target=_help, args=(crew,), name="privypurse", daemon=True).start()
    return crew


def _help(crew: "queue.SimpleQueue[_Task]") -> None:
    while True:
        crew.get().run()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
