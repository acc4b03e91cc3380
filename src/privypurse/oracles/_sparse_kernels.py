"""Sums for sparse rows (CSR), with the phases, bounds, rounding and arguments of ``_kernels``.

The table of `rows` is its values, their columns, the row starts, and whether every value is 1 (as in
one-hot tables), in which case the values are not read.
"""

from typing import Any

import numpy as np
from numba import njit

from privypurse.oracles._kernels import BLOCK, block_losses, common_weights, finish_scores, limit_coefficients
from privypurse.oracles._links import slopes


@njit(nogil=True, cache=True, error_model="numpy")
def _raw_products(table: Any, b: int, count: int, vector: Any, raw: Any, squared: Any) -> None:
    """Compute scores and squared lengths of a block.

    Four explicit partial sums without reordering: the compiler would otherwise use slower gather
    instructions. Both branches add in the same order, so that a row of ones has the same score
    whatever the other rows hold.
    """
    values, columns, starts, ones = table
    for i in range(count):
        k, stop = np.intp(starts[b + i]), np.intp(starts[b + i + 1])
        length = float(stop - k)
        p0, p1, p2, p3 = 0.0, 0.0, 0.0, 0.0
        if ones:
            while k + 4 <= stop:
                p0 += vector[columns[k]]
                p1 += vector[columns[k + 1]]
                p2 += vector[columns[k + 2]]
                p3 += vector[columns[k + 3]]
                k += 4
            while k < stop:
                p0 += vector[columns[k]]
                k += 1
        else:
            length = 0.0
            while k + 4 <= stop:
                x0, x1, x2, x3 = float(values[k]), float(values[k + 1]), float(values[k + 2]), float(values[k + 3])
                p0 += x0 * vector[columns[k]]
                p1 += x1 * vector[columns[k + 1]]
                p2 += x2 * vector[columns[k + 2]]
                p3 += x3 * vector[columns[k + 3]]
                length += (x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3)
                k += 4
            while k < stop:
                x0 = float(values[k])
                p0 += x0 * vector[columns[k]]
                length += x0 * x0
                k += 1
        raw[i], squared[i] = (p0 + p1) + (p2 + p3), length


@njit(nogil=True, cache=True, error_model="numpy")
def _add_rows(table: Any, b: int, count: int, coefficient: Any, scale: Any, out: Any) -> None:
    values, columns, starts, ones = table
    for i in range(count):
        c, k, stop = coefficient[i], np.intp(starts[b + i]), np.intp(starts[b + i + 1])
        if scale[i] > 0.0:
            if ones:
                while k + 2 <= stop:
                    # The columns of a row differ: both sums may be loaded before a store.
                    j0, j1 = columns[k], columns[k + 1]
                    s0, s1 = out[j0] + c, out[j1] + c
                    out[j0] = s0
                    out[j1] = s1
                    k += 2
                if k < stop:
                    out[columns[k]] += c
            else:
                while k < stop:
                    out[columns[k]] += c * values[k]
                    k += 1


@njit(nogil=True, cache=True, error_model="numpy")
def sparse_gradient(
    rows: Any, weights: Any, frame: Any, loss: Any, clip_norm: float, segments: Any, partial: Any
) -> None:
    """Sum clipped gradients; the last entry of an answer is the constant column's."""
    table, target = rows
    d = weights.size - 1
    rows_of_segment, first_segment, last_segment = segments
    code, parameter, clip, _, _ = loss
    raw, squared = np.empty(BLOCK), np.empty(BLOCK)
    score, scale, slope = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    # Sparse sums touch few entries of a long vector, so there is no block level.
    group_sum, group_rows = np.zeros(d), 64 * BLOCK
    for segment in range(first_segment, last_segment):
        out = partial[segment]
        stop = min((segment + 1) * rows_of_segment, target.size)
        bias_sum, pending = 0.0, 0
        for b in range(segment * rows_of_segment, stop, BLOCK):
            count = min(BLOCK, stop - b)
            _raw_products(table, b, count, weights, raw, squared)
            finish_scores(raw[:count], squared[:count], weights[d], frame, score, scale)
            slopes(code, parameter, clip, score, target[b : b + count], slope, count)
            bias_sum += limit_coefficients(slope, scale, squared, frame, clip_norm, count)
            _add_rows(table, b, count, slope, scale, group_sum)
            pending += count
            if pending >= group_rows or b + BLOCK >= stop:
                for j in range(d):
                    out[j] += group_sum[j]
                group_sum[:] = 0.0
                out[d] += frame[0] * bias_sum
                bias_sum, pending = 0.0, 0


@njit(nogil=True, cache=True, error_model="numpy")
def _two_products_of_ones(table: Any, b: int, count: int, first: Any, second: Any, work: Any) -> None:
    """Compute scores of one-hot rows for two vectors, and squared lengths; read the columns once.

    Added in the order of `_raw_products`: the rounding must not depend on whether all rows are
    one-hot.
    """
    _, columns, starts, _ = table
    for i in range(count):
        k, stop = np.intp(starts[b + i]), np.intp(starts[b + i + 1])
        work[4, i] = float(stop - k)
        p0, p1, p2, p3 = 0.0, 0.0, 0.0, 0.0
        q0, q1, q2, q3 = 0.0, 0.0, 0.0, 0.0
        while k + 4 <= stop:
            c0, c1, c2, c3 = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
            p0 += first[c0]
            q0 += second[c0]
            p1 += first[c1]
            q1 += second[c1]
            p2 += first[c2]
            q2 += second[c2]
            p3 += first[c3]
            q3 += second[c3]
            k += 4
        while k < stop:
            p0 += first[columns[k]]
            q0 += second[columns[k]]
            k += 1
        work[3, i], work[5, i] = (p0 + p1) + (p2 + p3), (q0 + q1) + (q2 + q3)


@njit(nogil=True, cache=True, error_model="numpy")
def sparse_along(rows: Any, along: Any, frame: Any, loss: Any, sums: Any, segments: Any, partial: Any) -> None:
    """Sum losses at each step along a direction, less the first."""
    (table, target), (first, second, reach), (clip_loss, steps) = rows, along, sums
    d = first.size - 1
    work = np.empty((11, BLOCK))
    rows_of_segment, first_segment, last_segment = segments
    for segment in range(first_segment, last_segment):
        stop = min((segment + 1) * rows_of_segment, target.size)
        for b in range(segment * rows_of_segment, stop, BLOCK):
            count = min(BLOCK, stop - b)
            if table[3]:
                _two_products_of_ones(table, b, count, first, second, work)
            else:
                _raw_products(table, b, count, first, work[3], work[4])
                _raw_products(table, b, count, second, work[5], work[6])
            finish_scores(work[3, :count], work[4, :count], first[d], frame, work[0], work[7])
            finish_scores(work[5, :count], work[4, :count], second[d], frame, work[1], work[9])
            common_weights(target[b : b + count], reach, work, count)
            block_losses(loss, clip_loss, steps, work, count, partial[segment])


@njit(nogil=True, cache=True, error_model="numpy")
def canonical(columns: Any, starts: Any, features: int) -> bool:
    """Return whether each row's columns are within the table and strictly increasing."""
    if np.int64(starts[0]) != 0 or np.int64(starts[starts.size - 1]) != columns.size:
        return False
    for i in range(starts.size - 1):
        first, stop = np.int64(starts[i]), np.int64(starts[i + 1])
        if stop < first or stop > columns.size:
            return False
        for k in range(first, stop):
            column = np.int64(columns[k])
            if column < 0 or column >= features or (k > first and column <= np.int64(columns[k - 1])):
                return False
    return True


@njit(nogil=True, cache=True, error_model="numpy")
def all_ones(values: Any) -> bool:
    """Return whether every stored value is 1, as in one-hot tables."""
    for k in range(values.size):
        if values[k] != 1:
            return False
    return True
