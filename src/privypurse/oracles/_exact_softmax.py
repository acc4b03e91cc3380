"""Exact sums for several classes: integer matrix products, equal in any order of addition.

Rows are first rounded to whole steps. Scores are products of integer rows and integer weights, and
the gradient is a product of integer rows and integer derivatives. All partial sums are below 2^53,
so doubles hold them exactly and the fastest product can be used. In between, each record's
derivative is computed separately, without reordering (see ``_exact_kernels``).
``docs/proofs/exact_noise.md`` proves the bounds.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privypurse.core._checks import FloatArray, shown
from privypurse.core._errors import InvalidArgument
from privypurse.losses._linear import OneVsRest, Softmax
from privypurse.oracles._encoding import ROUNDING_MARGIN
from privypurse.oracles._exact_kernels import row_products
from privypurse.oracles._links import exponential
from privypurse.oracles._partitions import lattice_unit

MOST_ROWS = 1024  # they stay in the cache between the two products
_ROW_BITS, _SLOPE_BITS, _WEIGHT_BITS = 21, 22, 31
_LOW_BITS = 30  # sums are kept in two parts, to hold any number of rows
_HUGE = 1e300


@dataclass(frozen=True)
class Steps:
    """Bounds of one query, and its steps, all powers of two: of rows, of derivatives, of the answer. Public."""

    bound: float
    row_limit: float
    row: float
    slope: float
    unit: float

    @classmethod
    def of(cls, loss: Softmax, bound: float, row_limit: float, columns: int) -> "Steps":
        """Choose the steps. Raise InvalidArgument if the margin does not cover the rounding."""
        if type(loss) not in (Softmax, OneVsRest):  # the others' derivatives are not compiled here
            raise InvalidArgument(f"exact sums need Softmax or OneVsRest; got {shown(loss)}. Else use secure=False.")
        row, slope = _power(row_limit) * 2.0**-_ROW_BITS, _power(bound / row_limit) * 2.0**-_SLOPE_BITS
        longest = row_limit * (1 + 1e-9) + math.sqrt(columns) / 2 * row
        enough = math.sqrt(loss.classes) / 2 * slope * longest <= 0.4 * ROUNDING_MARGIN * bound
        if not (enough and longest <= 1.01 * row_limit):
            what = f"a model of {columns} columns and {loss.classes} classes is too large for exact sums"
            raise InvalidArgument(f"{what}. Use fewer classes, or a noise source with secure=False.")
        # The answer is rounded as a sum: twice one rounding, as if of four times as many numbers.
        unit = max(lattice_unit(bound, 4 * columns * loss.classes), row * slope)
        return cls(bound, row_limit, row, slope, unit)


class ExactTotal:
    """A sum of blocks of integers, of any size."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._high, self._low = np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    def add(self, block: FloatArray) -> None:
        """Add integers below 2^53."""
        whole = block.astype(np.int64)
        self._high += whole >> _LOW_BITS
        self._low += whole & ((1 << _LOW_BITS) - 1)

    def rounded(self, bits: int) -> NDArray[np.int64]:
        """Return the sum divided by ``2^bits``, rounded to the nearest integer, half upwards."""
        high, low = self._high + (self._low >> _LOW_BITS), self._low & ((1 << _LOW_BITS) - 1)
        return np.asarray((high << (_LOW_BITS - bits)) + ((low + ((1 << bits) >> 1)) >> bits))


def whole_weights(weights: FloatArray) -> tuple[FloatArray, float]:
    """Return integer weights, each class of length at most 2^31, and their step."""
    longest = float(np.sqrt((weights * weights).sum(axis=0)).max())
    step = _power(max(longest, 1e-290)) * 2.0**-_WEIGHT_BITS
    return np.rint(weights / step), step


def block_gradient(
    loss: Softmax, table: Any, target: Any, weights: tuple[FloatArray, float], constant: float, steps: Steps
) -> FloatArray:
    """Return the sum of a block's gradients, in integers of ``steps.row * steps.slope``.

    Guarantees
    ----------
    Each record adds integers that depend on this record and on public values alone; their length is
    at most the bound less half of the rounding margin. A non-finite record adds nothing.
    """
    rows = np.empty((table.shape[0], weights[0].shape[0]))
    _whole_rows(table, constant, steps.row_limit, 1 / steps.row, rows)
    slopes = rows @ weights[0]
    hinge, width = (True, loss.width) if isinstance(loss, OneVsRest) else (False, 1.0)
    inside = steps.bound * (1 - ROUNDING_MARGIN)
    scales = (steps.row * weights[1], steps.row, 1 / steps.slope)
    _whole_slopes(hinge, width, loss.clip_derivative, inside, rows, target, scales, slopes)
    return np.asarray(rows.T @ slopes)


def _power(value: float) -> float:
    """Return the least power of two above a value."""
    return math.ldexp(1.0, math.frexp(value)[1])


@njit(nogil=True, cache=True, error_model="numpy")
def _whole_rows(table: Any, constant: float, row_limit: float, per_step: float, out: Any) -> None:
    """Limit the length of rows and round them to whole steps; non-finite rows become zero."""
    d = table.shape[1]
    # Enlarged by more than the rounding error of a sum of so many squares.
    enlarge = 1.0 + (d + 16) * 2.3e-16
    for i in range(table.shape[0]):
        row = out[i]
        for j in range(d):
            row[j] = table[i, j]
        if d < out.shape[1]:
            row[d] = constant
        square, _ = row_products(out, i, row)
        if square < _HUGE:
            factor = row_limit / max(math.sqrt(square * enlarge), row_limit) * per_step
            for j in range(row.size):
                row[j] = np.rint(row[j] * factor)
        else:
            row[:] = 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def _whole_slopes(
    hinge: bool, width: float, clip: float, inside: float, rows: Any, target: Any, scales: Any, slopes: Any
) -> None:
    """Replace a block's scores by derivatives, both in whole steps, within each record's bound."""
    score_step, row_step, per_slope = scales
    classes = slopes.shape[1]
    share, inverse = 1.0 / (classes - 1), 1.0 / (2.0 * width)
    for i in range(slopes.shape[0]):
        slope, own = slopes[i], target[i]
        if hinge:
            for k in range(classes):
                sign, weight = (1.0, 1.0) if k == own else (-1.0, share)
                rounded = (1.0 + width - sign * (slope[k] * score_step)) * inverse
                slope[k] = -sign * weight * min(max(rounded, 0.0), 1.0)
        else:
            most = slope[0]
            for k in range(1, classes):
                most = max(most, slope[k])
            total = 0.0
            for k in range(classes):
                slope[k] = exponential((slope[k] - most) * score_step)
                total += slope[k]
            for k in range(classes):
                slope[k] = slope[k] / total - (1.0 if k == own else 0.0)
        square = 0.0
        for k in range(classes):
            square += slope[k] * slope[k]
        length = math.sqrt(square)
        _, whole = row_products(rows, i, rows[i])
        reach = math.sqrt(whole) * row_step
        factor = clip / length if length > clip else 1.0
        if length * factor * reach > inside:
            factor = inside / (length * reach)
        for k in range(classes):
            slope[k] = np.rint(slope[k] * factor * per_slope)
