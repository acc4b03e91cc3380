"""Compiled versions of the fast paths of exact noise, for small draws.

They make the same decisions on the same words as the readable versions in ``_exact_gaussian``,
bit for bit (tested). They are compiled without reordering or contraction (no
``fastmath``), so each operation is one of IEEE 754, as in numpy. exp is that of the C library or
the compiler, with an error of a few units in the last place, 2^-50 of the value: far below the
allowed 2^-40 (``_exact_gaussian.DOUBLE_ERROR``).
"""
# Compiled code is typed by its compiler.
# mypy: disallow-untyped-decorators=False

import math
from typing import Any

import numpy as np
from numba import njit, types

# Bit layout of words, as in ``_exact_gaussian``; repeated because numba's cache ignores imports.
_LOW, _HALF, _CELL_MASK = np.uint64(2**32 - 1), np.uint64(32), np.uint64(2**31 - 1)
_GUIDE_SHIFT, _SPLIT, _SIGN_SHIFT = np.uint64(15), np.uint8(255), np.uint64(63)
_ZERO = np.uint64(0)
_KEEP_SCALE = 2.0**32


def _read(number: Any) -> Any:
    # Random words and values in boxes are read-only; other arrays may be passed as read-only.
    return types.Array(number, 1, "C", readonly=True)


_int64, _float64, _words, _out = types.int64, types.float64, _read(types.uint64), types.Array(types.int64, 1, "C")
# Types of the result and, in order, of the parameters below.
_FILL = types.UniTuple(_int64, 2)(
    _words, _int64, _int64, _int64, types.boolean, _words, _read(types.uint8), _float64, _out, _int64
)
_PLACE = types.void(_read(_float64), _read(_int64), _float64, _float64, _int64, types.Array(_float64, 1, "C"))


@njit(_FILL, cache=True, error_model="numpy")
def fill(
    words: Any,
    start: int,
    width: int,
    cells: int,
    discrete: bool,
    edges: Any,
    guide: Any,
    slack: float,
    out: Any,
    filled: int,
) -> tuple[int, int]:
    """Turn candidates into integers and write the accepted ones into `out` while there is room.

    Candidate i has the words i and ``len(words)/2 + i``. Returns the index and the number of filled
    places: at the end, or at the first candidate that double precision and 64-bit words do not
    decide, which the caller must decide.
    """
    candidates = words.size // 2
    factor = np.uint64(width)
    factor_high, factor_low = factor >> _HALF, factor & _LOW
    border = _ZERO - factor  # 2^64 - factor
    shift = 3 if cells == 8 else 0
    per_exponent = -0.5 / (cells * cells)
    for index in range(start, candidates):
        first, second = words[index], words[candidates + index]
        chooser = (second >> _HALF) & _CELL_MASK
        guess = guide[chooser >> _GUIDE_SHIFT]
        cell = np.int64(guess)
        if guess == _SPLIT:
            cell = np.int64(0)
            while edges[cell] < chooser:  # the last edge is the largest value
                cell += 1
            if edges[cell] == chooser:
                return index, filled
        if first * factor > border:  # further bits may change the integer part
            return index, filled
        # The upper half of a product of 128 bits.
        high, low = first >> _HALF, first & _LOW
        middle = high * factor_low + ((low * factor_low) >> _HALF)
        carry = low * factor_high + (middle & _LOW)
        whole = np.int64(high * factor_high + (middle >> _HALF) + (carry >> _HALF))
        part = np.float64(whole) / np.float64(width) if discrete else np.float64(first) * 2.0**-64
        margin = math.exp(part * (2.0 * cell + part) * per_exponent) * _KEEP_SCALE - np.float64(second & _LOW)
        if margin < 1.0 + slack:
            if margin > -slack:
                return index, filled
            continue
        value = whole + width * cell
        negative = (second >> _SIGN_SHIFT) != _ZERO
        if discrete:
            if negative:
                if value == 0:
                    continue
                value = -value
        else:
            value >>= shift
            if negative:
                value = -1 - value
        if filled < out.size:
            out[filled] = value
            filled += 1
    return candidates, filled


@njit(_PLACE, cache=True, error_model="numpy")
def place(value: Any, drawn: Any, per_unit: float, unit: float, largest: int, out: Any) -> None:
    """Round values to a lattice, add integer noise, clip to the lattice and write floats."""
    # Scaled before the clip, unlike in numpy; by a power of two, so the comparison is the same.
    limit = np.float64(largest)
    for index in range(value.size):
        units = min(max(value[index] * per_unit, -limit), limit)
        noisy = np.int64(np.rint(units)) + drawn[index]
        out[index] = np.float64(min(max(noisy, -largest), largest)) * unit
