"""Argument checks. They reject NaN, infinity, bool and strings, and say what to pass instead.

Each check takes one keyword argument, whose name becomes part of the message, and returns the
checked value as a plain Python number::

    clip_norm = positive(clip_norm=clip_norm)
"""

import contextlib
import math
import numbers
import os
import pathlib
import sys
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from privypurse.core._errors import InvalidArgument

FloatArray = NDArray[np.float64]


def shown(value: object) -> str:
    """Format a value for an error message: a possible table of records by type and shape only."""
    try:
        if value is None or isinstance(value, bool | int | float | complex | np.generic):
            return repr(value)
        described = isinstance(value, str | tuple | list | dict) or type(value).__module__.startswith("privypurse")
        text = repr(value) if described else ""
    except (ValueError, RecursionError):  # too long or nested too deeply
        text = ""
    if text and len(text) <= 80:
        return text
    if isinstance(value, type):
        return f"the class {value.__name__}"
    shape = getattr(value, "shape", None)
    return f"an object of type {type(value).__name__}" + (f" with shape {shape}" if isinstance(shape, tuple) else "")


def _refuse(name: str, value: object, must: str, example: str) -> NoReturn:
    raise InvalidArgument(f"{name} must be {must}; got {shown(value)}. Pass for example {name}={example}.")


class _Range:
    """A check for a real number from `low` to `high`; rejects bools, NaN and infinity too."""

    def __init__(self, must: str, example: str, low: float, high: float) -> None:
        self._must, self._example, self._low, self._high = must, example, low, high

    def __call__(self, **named: Any) -> float:
        """Return the number as a float, or raise InvalidArgument."""
        ((name, value),) = named.items()
        number = math.nan
        if type(value) is float:  # the common case: checks run at every release
            number = value
        elif isinstance(value, numbers.Real) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):
                number = float(value)
        if not self._low <= number <= self._high:
            _refuse(name, value, self._must, self._example)
        return number


_LEAST, _MOST, _BELOW_ONE = math.ulp(0.0), sys.float_info.max, math.nextafter(1.0, 0.0)

positive = _Range("a finite number above 0", "1.0", _LEAST, _MOST)
number_of_records = _Range("a public number of records, above 0", "60_000", _LEAST, _MOST)
# Noise and sums of such numbers do not over- or underflow.
ordinary = _Range("a number between 1e-100 and 1e100", "1.0", 1e-100, 1e100)
non_negative = _Range("a finite number of 0 or more", "0.0", 0.0, _MOST)
# Such as a sampling rate.
probability = _Range("a probability above 0 and at most 1", "0.01", _LEAST, 1.0)
# Such as delta.
small_probability = _Range("a probability strictly between 0 and 1", "1e-6", _LEAST, _BELOW_ONE)
_constant = _Range("True, False or a number between 1e-100 and 1e100", "True", 1e-100, 1e100)


def positive_integer(**named: Any) -> int:
    """Check for a whole number of one or more (1.0 and True are not whole numbers here)."""
    ((name, value),) = named.items()
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        _refuse(name, value, "a whole number of 1 or more", "10")
    return int(value)


def text(**named: Any) -> str:
    """Check for a non-empty string."""
    ((name, value),) = named.items()
    if not isinstance(value, str) or not value.strip():
        _refuse(name, value, "a non-empty string", "'some words'")
    return value


def at_home(path: str | os.PathLike[str]) -> pathlib.Path:
    """Expand a leading ``~`` to the user's home folder."""
    try:
        return pathlib.Path(path).expanduser()
    except RuntimeError:  # no such user, or a user without a folder
        raise InvalidArgument(f"{str(path)!r} names the home of an unknown user. Write the path out.") from None


def finite_vector(**named: Any) -> FloatArray:
    """Check for a one-dimensional array of finite numbers. Return a read-only float64 copy."""
    ((name, value),) = named.items()
    must, example = "a one-dimensional array of finite numbers", "np.zeros(3)"
    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        _refuse(name, f"{array.dtype} array of shape {array.shape}", must, example)
    copy = array.astype(np.float64)
    if not np.isfinite(copy).all():
        _refuse(name, "an array with NaN or infinity in it", must, example)
    copy.setflags(write=False)
    return copy


def constant_value(constant: object) -> float:
    """Return the value of a model's constant column; True is 1.0 and False is 0.0 (none)."""
    if isinstance(constant, bool):
        return float(constant)
    return _constant(constant=constant)


def check_positions(matrix: Any) -> None:
    """Raise InvalidArgument unless the entries of a scipy sparse matrix lie within its shape.

    scipy's compiled conversions access memory at whatever position is stored. Its `check_format`
    skips the row starts of a matrix whose last start is 0 and compares int32 differences that wrap.
    """
    try:
        hold = len(matrix.shape) == 2 and _POSITIONS_HOLD[matrix.format](matrix)
    # The last five are raised by parts of another type or shape.
    except (KeyError, AttributeError, IndexError, OverflowError, TypeError, ValueError):
        hold = False
    if not hold:
        raise InvalidArgument("X has positions outside its shape, or inconsistent lists of them. Rebuild the matrix.")


def _compressed_hold(matrix: Any) -> bool:
    starts, inner = _whole_numbers(matrix.indptr), _whole_numbers(matrix.indices)
    is_block = matrix.format == "bsr"
    values = np.asarray(matrix.data)
    block = values.shape[1:] if is_block else (1, 1)
    outer_size, inner_size = matrix.shape if matrix.format != "csc" else matrix.shape[::-1]
    if values.ndim != (3 if is_block else 1) or min(block) < 1 or outer_size % block[0] or inner_size % block[1]:
        return False
    return bool(
        starts.size == outer_size // block[0] + 1
        and starts[0] == 0
        and starts[-1] <= min(inner.size, values.shape[0])
        and (starts[1:] >= starts[:-1]).all()
        and _within(inner[: starts[-1]], inner_size // block[1])
    )


def _coordinates_hold(matrix: Any) -> bool:
    places, values = (_whole_numbers(matrix.row), _whole_numbers(matrix.col)), np.asarray(matrix.data)
    return values.ndim == 1 and all(
        where.size == values.size and _within(where, size) for where, size in zip(places, matrix.shape, strict=True)
    )


def _lists_hold(matrix: Any) -> bool:
    rows, values = matrix.rows, matrix.data
    return len(rows) == len(values) == matrix.shape[0] and all(
        isinstance(columns, list)
        and isinstance(entries, list)
        and len(columns) == len(entries)
        and all(_is_place(column, matrix.shape[1]) for column in columns)
        for columns, entries in zip(rows, values, strict=True)
    )


def _diagonals_hold(matrix: Any) -> bool:
    offsets, values = _whole_numbers(matrix.offsets), np.asarray(matrix.data)
    (height, width), far = matrix.shape, np.iinfo(np.int32).max
    return bool(
        values.ndim == 2
        and offsets.size == values.shape[0] == np.unique(offsets).size
        and max(height, width, values.shape[1]) <= far
        and (offsets.size == 0 or (offsets.min() >= -far and offsets.max() <= far))
    )


def _keys_hold(matrix: Any) -> bool:
    height, width = matrix.shape
    return all(
        isinstance(key, tuple) and len(key) == 2 and _is_place(key[0], height) and _is_place(key[1], width)
        for key in matrix.keys()  # noqa: SIM118
    )


_POSITIONS_HOLD = {
    "csr": _compressed_hold,
    "csc": _compressed_hold,
    "bsr": _compressed_hold,
    "coo": _coordinates_hold,
    "lil": _lists_hold,
    "dia": _diagonals_hold,
    "dok": _keys_hold,
}


def _whole_numbers(positions: Any) -> NDArray[Any]:
    """Return a one-dimensional array of integers. Raise TypeError for anything else."""
    array = np.asarray(positions)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError("positions are whole numbers in one dimension")
    return array


def _is_place(place: Any, size: int) -> bool:
    return isinstance(place, int | np.integer) and bool(0 <= place < size)


def _within(positions: NDArray[Any], size: int) -> bool:
    return positions.size == 0 or bool(positions.min() >= 0 and positions.max() < size)
