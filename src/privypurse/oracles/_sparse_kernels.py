"""The same sums for rows stored as lists of non-zeros (CSR). The phases, bounds and rounding are those of ``_kernels``."""

from typing import Any

import numpy as np
from numba import njit

from privypurse.oracles._kernels import (
    BLOCK,
    _block_derivatives,
    _block_losses,
    _common_weights,
    _finish_scores,
    _limit_coefficients,
)
from privypurse.oracles._links import FAST, slopes


@njit(nogil=True, cache=True, fastmath=FAST)
def _raw_products(
    values: Any, columns: Any, starts: Any, b: int, count: int, ones: bool, vector: Any, raw: Any, squared: Any
) -> None:
    """Scores and squared lengths; `ones` says that every stored value is 1, so that values need not be read."""
    for i in range(count):
        product, length = 0.0, 0.0
        if ones:
            for k in range(starts[b + i], starts[b + i + 1]):
                product += vector[columns[k]]
            length = float(starts[b + i + 1] - starts[b + i])
        else:
            for k in range(starts[b + i], starts[b + i + 1]):
                x = float(values[k])
                product += x * vector[columns[k]]
                length += x * x
        raw[i], squared[i] = product, length


@njit(nogil=True, cache=True)
def _add_rows(
    values: Any, columns: Any, starts: Any, b: int, count: int, ones: bool, coefficient: Any, scale: Any, out: Any
) -> None:
    for i in range(count):
        c = coefficient[i]
        if scale[i] > 0.0 and c != 0.0:
            if ones:
                for k in range(starts[b + i], starts[b + i + 1]):
                    out[columns[k]] += c
            else:
                for k in range(starts[b + i], starts[b + i + 1]):
                    out[columns[k]] += c * values[k]


@njit(nogil=True, cache=True)
def sparse_gradient(
    values: Any,
    columns: Any,
    starts: Any,
    ones: bool,
    target: Any,
    start: int,
    stop: int,
    weights: Any,
    constant: float,
    row_limit: float,
    inflate: float,
    code: int,
    parameter: float,
    clip: float,
    clip_norm: float,
    out: Any,
) -> None:
    """Add up the clipped gradients of rows start to stop; `out` has a place for the constant column at its end."""
    d = weights.size - 1
    raw, squared = np.empty(BLOCK), np.empty(BLOCK)
    score, scale, length, slope = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    # Sparse sums touch few entries of a long vector, so there is one group level of 64 blocks and no block level.
    group_sum = np.zeros(d)
    bias_sum = 0.0
    blocks = 0
    for b in range(start, stop, BLOCK):
        count = min(BLOCK, stop - b)
        _raw_products(values, columns, starts, b, count, ones, weights, raw, squared)
        _finish_scores(raw[:count], squared[:count], constant, weights[d], row_limit, inflate, score, scale, length)
        slopes(code, parameter, clip, score, target[b : b + count], slope, count)
        bias_sum += _limit_coefficients(slope, scale, length, clip_norm, count)
        _add_rows(values, columns, starts, b, count, ones, slope, scale, group_sum)
        blocks += 1
        if blocks * BLOCK >= max(4 * d, 64 * BLOCK):
            for j in range(d):
                out[j] += group_sum[j]
            group_sum[:] = 0.0
            out[d] += constant * bias_sum
            bias_sum, blocks = 0.0, 0
    for j in range(d):
        out[j] += group_sum[j]
    out[d] += constant * bias_sum


@njit(nogil=True, cache=True)
def _two_scores(
    values: Any,
    columns: Any,
    starts: Any,
    ones: bool,
    b: int,
    count: int,
    first: Any,
    second: Any,
    constant: float,
    row_limit: float,
    inflate: float,
    target: Any,
    reach: float,
    work: Any,
) -> None:
    d = first.size - 1
    _raw_products(values, columns, starts, b, count, ones, first, work[3], work[4])
    _raw_products(values, columns, starts, b, count, ones, second, work[5], work[6])
    _finish_scores(work[3, :count], work[4, :count], constant, first[d], row_limit, inflate, work[0], work[7], work[8])
    _finish_scores(work[5, :count], work[4, :count], constant, second[d], row_limit, inflate, work[1], work[9], work[8])
    _common_weights(target, reach, work, count)


@njit(nogil=True, cache=True)
def sparse_losses(
    values: Any,
    columns: Any,
    starts: Any,
    ones: bool,
    target: Any,
    start: int,
    stop: int,
    first: Any,
    second: Any,
    reach: float,
    constant: float,
    row_limit: float,
    inflate: float,
    code: int,
    parameter: float,
    knee: float,
    slope: float,
    clip_loss: float,
    steps: Any,
    out: Any,
) -> None:
    """Add up the losses of rows start to stop at each step along a direction, relative to the first step."""
    work = np.empty((11, BLOCK))
    for b in range(start, stop, BLOCK):
        count = min(BLOCK, stop - b)
        _two_scores(
            values,
            columns,
            starts,
            ones,
            b,
            count,
            first,
            second,
            constant,
            row_limit,
            inflate,
            target[b : b + count],
            reach,
            work,
        )
        _block_losses(code, parameter, knee, slope, clip_loss, steps, work, count, out)


@njit(nogil=True, cache=True)
def sparse_derivatives(
    values: Any,
    columns: Any,
    starts: Any,
    ones: bool,
    target: Any,
    start: int,
    stop: int,
    first: Any,
    second: Any,
    reach: float,
    constant: float,
    row_limit: float,
    inflate: float,
    code: int,
    parameter: float,
    clip: float,
    clip_slope: float,
    clip_curvature: float,
    out: Any,
) -> None:
    """Add up clipped slopes and curvatures of rows start to stop along a direction."""
    work = np.empty((11, BLOCK))
    for b in range(start, stop, BLOCK):
        count = min(BLOCK, stop - b)
        _two_scores(
            values,
            columns,
            starts,
            ones,
            b,
            count,
            first,
            second,
            constant,
            row_limit,
            inflate,
            target[b : b + count],
            reach,
            work,
        )
        _block_derivatives(code, parameter, clip, clip_slope, clip_curvature, work, count, out)


@njit(nogil=True, cache=True)
def all_ones(values: Any) -> bool:
    """Say whether every stored value is 1, as in one-hot tables."""
    for k in range(values.size):
        if values[k] != 1:
            return False
    return True
