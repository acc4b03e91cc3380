"""[RAW DATA] Convert columns of tables to Arrow arrays, numbers or list indices, cell by cell."""

import contextlib
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument

with contextlib.suppress(ImportError):  # `need_pyarrow` says what to install
    import pyarrow as pa
    from pyarrow import compute as pc

MISSING, UNKNOWN = -1, -2
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity))$"


def need_pyarrow() -> None:
    """Raise InvalidArgument if pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InvalidArgument("tables need pyarrow. Install it: pip install 'privypurse[cli]'.") from error


class Mixed:
    """A column of several types. Each value is treated as in a column of its own type."""

    def __init__(self, values: Any) -> None:
        typed = list(map(_typed, values))
        self._rows, self._parts = len(typed), []
        for kind in (pa.bool_(), pa.float64(), pa.string()):
            rows = [row for row, (own, _) in enumerate(typed) if own == kind]
            self._parts.append((rows, pa.array([typed[row][1] for row in rows], kind)))

    def __len__(self) -> int:
        return self._rows

    def gather(self, work: Callable[[Any], Any], missing: Any, dtype: Any) -> NDArray[Any]:
        """Apply a function to the values of each type and put the results in order."""
        found = np.full(self._rows, missing, dtype=dtype)
        for rows, part in self._parts:
            found[rows] = work(part)
        return found


def _typed(value: Any) -> tuple[Any, Any]:
    """Return the Arrow type of a value, or None if it is missing, and the value in that type."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None, None
    if isinstance(value, bool | np.bool_):
        return pa.bool_(), bool(value)
    if isinstance(value, Real | Decimal):
        try:
            return pa.float64(), float(value)
        except OverflowError:
            return pa.float64(), math.inf if value > 0 else -math.inf  # type: ignore[operator]
        except ValueError:  # a signalling NaN
            return pa.float64(), math.nan
    try:
        raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
        return pa.string(), raw.decode("utf-8", "replace")
    except Exception:  # cannot be converted to text: on no list, and not a number
        return pa.string(), "?!"


def column_of(table: Any, name: str) -> Any:
    """Return a column of an Arrow table, a data frame or a dict as an Arrow array or `Mixed`."""
    need_pyarrow()
    try:
        column = table[name]
    except Exception:  # of any library
        raise InvalidArgument(f"column {name!r} is not in the table. Pass the columns of the schema.") from None
    if hasattr(column, "to_arrow"):
        column = column.to_arrow()
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        # In a column of objects, other values must not decide the type of a value.
        has_type = getattr(getattr(column, "dtype", None), "kind", "O") != "O" or hasattr(column, "cat")
        try:
            column = pa.array(column, None if has_type else pa.string(), from_pandas=True)
        except (pa.ArrowException, OverflowError, TypeError, UnicodeError):
            return Mixed(column)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def numbers(column: Any, missing_values: Sequence[str], decimal: str = ".") -> FloatArray:
    """Return a column as numbers, NaN for missing values and for text that is not a number."""
    if isinstance(column, Mixed):
        return column.gather(lambda part: numbers(part, missing_values, decimal), np.nan, np.float64)
    is_numeric = _is_numeric(column.type)
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    elif not is_numeric:
        column = _parsed(as_text(column, missing_values), decimal)
    found = np.asarray(pc.cast(column, pa.float64(), safe=False).fill_null(float("nan")).to_numpy(zero_copy_only=False))
    # Missing values that are numbers, such as 999. Only NaN differs from itself.
    standing_in = [one for one in map(float_or_nan, missing_values) if one == one] if is_numeric else []
    return np.where(np.isin(found, standing_in), np.nan, found) if standing_in else found


def float_or_nan(text: str) -> float:
    """Return a text as a number, NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _parsed(text: Any, decimal: str) -> Any:
    """Parse numbers with a decimal sign. Text that is not a number becomes null."""
    if decimal != ".":
        has_point = pc.fill_null(pc.match_substring(text, "."), False)  # not a number here
        text = pc.if_else(has_point, pa.scalar(None, pa.string()), pc.replace_substring(text, decimal, "."))
    try:
        return pc.cast(text, pa.float64())
    except pa.ArrowInvalid:  # some text is not a number: cast the rest
        is_number = pc.match_substring_regex(text, _NUMBER)
        return pc.cast(pc.if_else(is_number, pc.utf8_ltrim(text, "+"), pa.scalar(None, pa.string())), pa.float64())


def places(column: Any, listed: Sequence[str], missing_values: Sequence[str]) -> NDArray[np.int32]:
    """Return the index of each value in a list of texts, or MISSING or UNKNOWN."""
    if isinstance(column, Mixed):
        return column.gather(lambda part: places(part, listed, missing_values), MISSING, np.int32)
    if pa.types.is_boolean(column.type):
        # Booleans are written in several ways.
        lowered = {text.lower(): index for index, text in enumerate(listed)}
        by_value = [lowered.get("false", lowered.get("0", UNKNOWN)), lowered.get("true", lowered.get("1", UNKNOWN))]
        values = pc.cast(column, pa.int8()).fill_null(2).to_numpy(zero_copy_only=False)
        return np.asarray(np.array([*by_value, MISSING], dtype=np.int32)[values])
    if _is_numeric(column.type):
        # 1, 1.0 and "1" are one category.
        values = numbers(column, missing_values)
        codes = np.where(np.isnan(values), MISSING, UNKNOWN).astype(np.int32)
        for index, one in enumerate(listed):
            codes[values == float_or_nan(one)] = index
        return codes
    text = as_text(column, missing_values)
    found = pc.index_in(text, value_set=pa.array(list(listed), pa.string()), skip_nulls=True)
    found = pc.if_else(pc.is_null(text), MISSING, found.fill_null(UNKNOWN))
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int32)


def as_text(column: Any, missing_values: Sequence[str]) -> Any:
    """Return a column as stripped text, null for missing values."""
    try:
        text = pc.utf8_trim_whitespace(readable_text(column))
    except (pa.ArrowException, TypeError):
        raise InvalidArgument(f"a column of type {column.type} cannot be used. Write ignore = true for it.") from None
    missing = pc.is_in(text, value_set=pa.array(["", *missing_values], pa.string()))
    return pc.if_else(missing, pa.scalar(None, pa.string()), text)


def readable_text(column: Any) -> Any:
    """Return a column as text, with invalid bytes replaced."""
    try:
        text = pc.cast(column, pa.string())
        text.validate(full=True)
        return text
    except pa.ArrowInvalid:  # invalid bytes in some record
        binary = pc.cast(column, pa.large_binary()).to_pylist()
        return pa.array([None if value is None else value.decode("utf-8", "replace") for value in binary], pa.string())


def _is_numeric(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
