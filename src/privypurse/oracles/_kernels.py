"""Compiled sums over rows: each reads a table once, block by block, and enforces every bound.

A block goes through three phases while it is in the cache: its scores (and row lengths) are
computed, the loss is applied to them, and the rows are added with the resulting coefficients. There
is no matrix of per-record gradients, no scaled copy of the data, and no stored row lengths.

Rounding: row lengths are computed in the precision of the data and then enlarged by the worst error
of such a sum, underflow included, so a scaled row is never longer than the limit. Sums are kept in
float64 in levels (block, group of 64 blocks, segment, table; sparse ones without the first): chains
of at most 20,000 additions, whose error on 10^8 rows is below 20,000 * 2^-53 * 10^8 = 2.2e-4 of one
record's bound, half the margin of `ROUNDING_MARGIN`.

Every row has a weight: 1, or 0 if its length is not finite. Rows of weight 0 are never read in the
adding phase, because zero times NaN is NaN.

Shared arguments:

* ``rows``: the table and its targets;
* ``along``: two weight vectors and the largest score along the second;
* ``sums``: the clip of losses, and the steps along the second vector;
* ``frame``: value of the constant column, row limit, and the factor and the amount by which squared
  lengths are enlarged;
* ``loss``: its code, its parameter, the clip of its derivative, its knee and its slope there;
* ``segments``: rows of a segment, the first segment to sum over and the last (exclusive);
  ``partial`` has a row for each segment.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from privypurse.oracles._links import EVEN_LOGISTIC, FAST, next_even_loss, slopes, start_even_losses, sum_of_losses

BLOCK = 256  # rows, at most
_BLOCK_NUMBERS = 1 << 16  # a block of a wide table has fewer rows, to stay in the cache
_GROUP = 64  # blocks
_HUGE = 1e300
_NARROW = 12  # columns: up to here rows are too short for vector instructions, and are transposed


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _dot(row: Any, vector: Any, zero: Any) -> Any:
    total = zero
    for j in range(row.size):
        total += row[j] * vector[j]
    return total


@njit(inline="always", error_model="numpy")
def limited_row(value: float, square: float, frame: Any) -> tuple[float, float, float]:
    """Return a row's length-limiting factor, its score with that factor, and 1 if it is finite.

    From its raw product and squared length, both with the constant column. Without branches, so
    that loops become vector instructions. A row with NaN, infinity or an overflowing square has
    factor and score zero and contributes nothing. (Comparisons with NaN are false.)
    """
    row_limit = frame[1]
    ok = (1.0 if square < _HUGE else 0.0) * (1.0 if abs(value) < _HUGE else 0.0)
    factor = row_limit / math.sqrt(max(square if square < _HUGE else 1.0, row_limit * row_limit)) * ok
    return factor, (value if abs(value) < _HUGE else 0.0) * factor, ok


@njit(inline="always", error_model="numpy")
def enlarged(squared: float, frame: Any) -> float:
    """Return a squared length with the constant column's, rounded up."""
    constant, _, inflate, floor = frame
    return float((squared + constant * constant) * inflate + floor)


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def finish_scores(raw: Any, squared: Any, bias: float, frame: Any, score: Any, scale: Any) -> bool:
    """Turn raw products into scores of length-limited rows; return whether every row is finite."""
    finite = 0  # an integer, which may be added in any order, also in the copy of ``_exact_kernels``
    for i in range(raw.size):
        scale[i], score[i], ok = limited_row(raw[i] + frame[0] * bias, enlarged(squared[i], frame), frame)
        finite += 1 if ok > 0.0 else 0
    return bool(finite == raw.size)


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _raw_products(table: Any, start: int, count: int, vector: Any, zero: Any, raw: Any, squared: Any) -> None:
    for i in range(count):
        row = table[start + i]
        product, length = zero, zero
        for j in range(row.size):
            x = row[j]
            product += x * vector[j]
            length += x * x
        raw[i], squared[i] = product, length


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _raw_products_by_column(columns: Any, start: int, count: int, vector: Any, raw: Any, squared: Any) -> None:
    raw[:] = 0.0
    squared[:] = 0.0
    for j in range(columns.shape[0]):
        weight = vector[j]
        for i in range(count):
            x = columns[j, start + i]
            raw[i] += x * weight
            squared[i] += x * x


@njit(inline="always", error_model="numpy")
def limited_coefficient(coefficient: float, squared: float, frame: Any, clip_norm: float) -> float:
    """Clip the coefficient of a row so that its contribution has at most this norm."""
    most = clip_norm / math.sqrt(min(enlarged(squared, frame), frame[1] * frame[1]))
    return min(max(coefficient, -most), most) if abs(coefficient) < _HUGE else 0.0


@njit(inline="always", error_model="numpy")
def scaled_coefficient(coefficient: float, scale: float) -> float:
    """Multiply by the row's scale. A record with a NaN target contributes nothing."""
    return (coefficient if abs(coefficient) < _HUGE else 0.0) * scale


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def limit_coefficients(coefficient: Any, scale: Any, squared: Any, frame: Any, clip_norm: float, count: int) -> float:
    """Clip each record's contribution, apply the row's scale, and return the constant column's sum.

    With an infinite `clip_norm` the derivative's clip and the row limit are the bound.
    """
    total = 0.0
    if clip_norm < math.inf:
        for i in range(count):
            coefficient[i] = limited_coefficient(coefficient[i], squared[i], frame, clip_norm)
    for i in range(count):
        c = scaled_coefficient(coefficient[i], scale[i])
        coefficient[i] = c
        total += c
    return total


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _add_rows(table: Any, start: int, count: int, coefficient: Any, out: Any) -> None:
    """Add rows with coefficients, four at a time, to load and store the sums once for four rows."""
    d = out.size
    i = 0
    while i + 4 <= count:
        c0, c1, c2, c3 = coefficient[i], coefficient[i + 1], coefficient[i + 2], coefficient[i + 3]
        r0, r1, r2, r3 = table[start + i], table[start + i + 1], table[start + i + 2], table[start + i + 3]
        for j in range(d):
            out[j] += (c0 * r0[j] + c1 * r1[j]) + (c2 * r2[j] + c3 * r3[j])
        i += 4
    while i < count:
        c0, r0 = coefficient[i], table[start + i]
        for j in range(d):
            out[j] += c0 * r0[j]
        i += 1


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _add_columns(columns: Any, start: int, count: int, coefficient: Any, out: Any) -> None:
    for j in range(out.size):
        total = 0.0
        for i in range(count):
            total += coefficient[i] * columns[j, start + i]
        out[j] += total


@njit(nogil=True, cache=True, error_model="numpy")
def _add_finite_rows(table: Any, start: int, count: int, coefficient: Any, scale: Any, out: Any) -> None:
    """Add the finite rows; the slow path, for blocks with a non-finite row."""
    for i in range(count):
        if scale[i] > 0.0:
            for j in range(out.size):
                out[j] += coefficient[i] * table[start + i, j]


@njit(nogil=True, cache=True, error_model="numpy")
def _transpose(table: Any, start: int, count: int, columns: Any) -> None:
    for i in range(count):
        for j in range(columns.shape[0]):
            columns[j, i] = table[start + i, j]


@njit(nogil=True, cache=True, error_model="numpy")
def dense_gradient(
    rows: Any, weights: Any, frame: Any, loss: Any, clip_norm: float, by_column: bool, segments: Any, partial: Any
) -> None:
    """Sum clipped gradients; the last entry of an answer is the constant column's."""
    table, target = rows
    n, d = table.shape
    rows_of_segment, first_segment, last_segment = segments
    code, parameter, clip, _, _ = loss
    constant, bias, vector = frame[0], float(weights[d]), weights[:d]
    zero = weights[0] - weights[0]
    block = min(BLOCK, max(16, _BLOCK_NUMBERS // d))
    narrow = d <= _NARROW and not by_column
    raw, squared = np.empty(BLOCK), np.empty(BLOCK)
    score, scale, slope = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    buffer = np.empty((d if narrow else 1, BLOCK), table.dtype)
    block_sum, group_sum = np.zeros(d), np.zeros(d)
    for segment in range(first_segment, last_segment):
        out = partial[segment]
        stop = min((segment + 1) * rows_of_segment, n)
        bias_sum, blocks = 0.0, 0
        for b in range(segment * rows_of_segment, stop, block):
            count = min(block, stop - b)
            if by_column:
                _raw_products_by_column(table.T, b, count, vector, raw[:count], squared[:count])
            elif narrow:
                _transpose(table, b, count, buffer)
                _raw_products_by_column(buffer, 0, count, vector, raw[:count], squared[:count])
            else:
                _raw_products(table, b, count, vector, zero, raw, squared)
            clean = finish_scores(raw[:count], squared[:count], bias, frame, score, scale)
            slopes(code, parameter, clip, score, target[b : b + count], slope, count)
            bias_sum += limit_coefficients(slope, scale, squared, frame, clip_norm, count)
            block_sum[:] = 0.0
            if not clean:
                _add_finite_rows(table, b, count, slope, scale, block_sum)
            elif by_column:
                _add_columns(table.T, b, count, slope, block_sum)
            elif narrow:
                _add_columns(buffer, 0, count, slope, block_sum)
            else:
                _add_rows(table, b, count, slope, block_sum)
            for j in range(d):
                group_sum[j] += block_sum[j]
            blocks += 1
            if blocks == _GROUP or b + block >= stop:
                for j in range(d):
                    out[j] += group_sum[j]
                group_sum[:] = 0.0
                out[d] += constant * bias_sum
                bias_sum, blocks = 0.0, 0


@njit(nogil=True, cache=True, error_model="numpy")
def common_weights(target: Any, reach: float, work: Any, count: int) -> None:
    """Write weights to work[2] and targets to work[10]; limit the second score to `reach`."""
    for i in range(count):
        finite = work[7, i] > 0.0 and work[9, i] > 0.0 and abs(target[i]) < math.inf
        work[2, i] = 1.0 if finite else 0.0
        work[0, i] = work[0, i] if finite else 0.0
        work[1, i] = min(max(work[1, i], -reach), reach) if finite else 0.0
        work[10, i] = target[i] if finite else 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def block_losses(loss: Any, clip_loss: float, steps: Any, work: Any, count: int, out: Any) -> None:
    """Add a block's losses at each step, relative to the first, so that sums stay small.

    The oracle adds the rounding of this difference, which depends on the size of the losses, to the bound.
    """
    code, _, _, knee, slope = loss
    if code == EVEN_LOGISTIC:
        spacing = (steps[steps.size - 1] - steps[0]) / (steps.size - 1)
        start_even_losses(knee, work, steps[0], spacing, count)
        at_knee = math.exp(-knee)
        base = next_even_loss(at_knee, slope, work, count)
        for k in range(1, steps.size):
            out[k] += next_even_loss(at_knee, slope, work, count) - base
        return
    base = sum_of_losses(loss, clip_loss, steps[0], work, count)
    for k in range(1, steps.size):
        out[k] += sum_of_losses(loss, clip_loss, steps[k], work, count) - base


@njit(nogil=True, cache=True, error_model="numpy")
def dense_along(
    rows: Any, along: Any, frame: Any, loss: Any, sums: Any, by_column: bool, segments: Any, partial: Any
) -> None:
    """Sum losses at each step along a direction, less the first."""
    (table, target), (first, second, reach), (clip_loss, steps) = rows, along, sums
    d, zero = table.shape[1], first[0] - first[0]
    work = np.empty((11, BLOCK))
    rows_of_segment, first_segment, last_segment = segments
    for segment in range(first_segment, last_segment):
        stop = min((segment + 1) * rows_of_segment, target.size)
        for b in range(segment * rows_of_segment, stop, BLOCK):
            count = min(BLOCK, stop - b)
            if by_column:
                _raw_products_by_column(table.T, b, count, first[:d], work[3, :count], work[4, :count])
                _raw_products_by_column(table.T, b, count, second[:d], work[5, :count], work[6, :count])
            else:
                _raw_products(table, b, count, first[:d], zero, work[3], work[4])
                for i in range(count):
                    work[5, i] = _dot(table[b + i], second[:d], zero)
            finish_scores(work[3, :count], work[4, :count], float(first[d]), frame, work[0], work[7])
            finish_scores(work[5, :count], work[4, :count], float(second[d]), frame, work[1], work[9])
            common_weights(target[b : b + count], reach, work, count)
            block_losses(loss, clip_loss, steps, work, count, partial[segment])


@njit(nogil=True, cache=True)
def row_products(table: Any, matrix: Any) -> Any:
    """Multiply each row by a matrix, by itself. A matrix product would round a row by its place."""
    products = np.zeros((table.shape[0], matrix.shape[1]))
    for i in range(table.shape[0]):
        for j in range(matrix.shape[0]):
            for k in range(matrix.shape[1]):
                products[i, k] += table[i, j] * matrix[j, k]
    return products
