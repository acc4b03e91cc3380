"""Argument checks that refuse NaN, infinity, bool and strings, and say what to pass instead.

Each check takes one keyword argument, whose name becomes part of the message, and returns the
checked value as a plain Python number::

    clip_norm = positive(clip_norm=clip_norm)
"""

import math
import numbers
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from privypurse.core.errors import InvalidArgument

FloatArray = NDArray[np.float64]


def _only(named: dict[str, Any]) -> tuple[str, Any]:
    ((name, value),) = named.items()
    return name, value


def shown(value: object) -> str:
    """Write a value for an error message. What may be a table of records by mistake is named by its type and shape only."""
    numbers_too = bool | int | float | complex | np.generic
    try:
        if value is None or isinstance(value, numbers_too):
            return repr(value)
        described = isinstance(value, str | tuple | list | dict) or type(value).__module__.startswith("privypurse")
        text = repr(value) if described else ""
    except (ValueError, RecursionError):  # a number too long to be written, or something nested too deeply
        text = ""
    if text and len(text) <= 80:
        return text
    if isinstance(value, type):
        return f"the class {value.__name__}"
    shape = getattr(value, "shape", None)
    return f"an object of type {type(value).__name__}" + (f" with shape {shape}" if isinstance(shape, tuple) else "")


def _refuse(name: str, value: object, must: str, example: str) -> NoReturn:
    raise InvalidArgument(f"{name} must be {must}; got {shown(value)}. Pass for example {name}={example}.")


def _number(name: str, value: object, must: str, example: str) -> float:
    """Convert to float, refusing everything that is a number only by accident of the language."""
    if type(value) is float:  # the usual case, and checks run at every release
        number = value
    else:
        if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
            _refuse(name, value, must, example)
        try:
            number = float(value)
        except OverflowError:
            _refuse(name, value, must, example)
    if not math.isfinite(number):
        _refuse(name, value, must, example)
    return number


def positive(**named: Any) -> float:
    """Check for a finite number above zero.

    Examples
    --------
    >>> positive(clip_norm=2)
    2.0
    >>> positive(clip_norm=float("nan"))
    Traceback (most recent call last):
    ...
    privypurse.core.errors.InvalidArgument: clip_norm must be a finite number above 0; got nan. Pass ...
    """
    name, value = _only(named)
    must = "a finite number above 0"
    number = _number(name, value, must, "1.0")
    if number <= 0:
        _refuse(name, value, must, "1.0")
    return number


def ordinary(**named: Any) -> float:
    """Check for a number between 1e-100 and 1e100: sizes with which noise and sums neither overflow nor vanish."""
    name, value = _only(named)
    must = "a number between 1e-100 and 1e100"
    number = _number(name, value, must, "1.0")
    if not 1e-100 <= number <= 1e100:
        _refuse(name, value, must, "1.0")
    return number


def non_negative(**named: Any) -> float:
    """Check for a finite number of zero or more."""
    name, value = _only(named)
    must = "a finite number of 0 or more"
    number = _number(name, value, must, "0.0")
    if number < 0:
        _refuse(name, value, must, "0.0")
    return number


def probability(**named: Any) -> float:
    """Check for a probability above 0 and at most 1, such as a sampling rate."""
    name, value = _only(named)
    must = "a probability above 0 and at most 1"
    number = _number(name, value, must, "0.01")
    if not 0 < number <= 1:
        _refuse(name, value, must, "0.01")
    return number


def small_probability(**named: Any) -> float:
    """Check for a probability strictly between 0 and 1, such as delta."""
    name, value = _only(named)
    must = "a probability strictly between 0 and 1"
    number = _number(name, value, must, "1e-6")
    if not 0 < number < 1:
        _refuse(name, value, must, "1e-6")
    return number


def positive_integer(**named: Any) -> int:
    """Check for a whole number of one or more (1.0 and True are not whole numbers here)."""
    name, value = _only(named)
    must = "a whole number of 1 or more"
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        _refuse(name, value, must, "10")
    if value < 1:
        _refuse(name, value, must, "10")
    return int(value)


def text(**named: Any) -> str:
    """Check for a non-empty string."""
    name, value = _only(named)
    if not isinstance(value, str) or not value.strip():
        _refuse(name, value, "a non-empty string", "'some words'")
    return value


def finite_vector(**named: Any) -> FloatArray:
    """Check for a one-dimensional array of finite numbers; returns a read-only float64 copy."""
    name, value = _only(named)
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
    """Return the value of a model's constant column: 1.0 for True, 0.0 (none) for False, or a number above zero as it is."""
    if isinstance(constant, bool):
        return float(constant)
    must = "True, False or a number between 1e-100 and 1e100"
    number = _number("constant", constant, must, "True")
    if not 1e-100 <= number <= 1e100:
        _refuse("constant", constant, must, "True")
    return number
