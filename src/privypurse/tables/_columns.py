"""[RAW DATA] Convert columns of tables to Arrow arrays, numbers or list indices, cell by cell."""

import contextlib
import datetime
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument
from privypurse.tables._schema import EPOCH, seconds_since_1970

with contextlib.suppress(ImportError):  # `need_pyarrow` says what to install
    import pyarrow as pa
    from pyarrow import compute as pc

MISSING, UNKNOWN = -1, -2
# Signs that are written for a thousands separator: spaces of several widths, and two apostrophes.
_WRITTEN_AS = {" ": " \u00a0\u2009\u202f", "'": "'\u2019"}
_FIRST, _LAST = seconds_since_1970(datetime.date.min), seconds_since_1970(datetime.date.max, end=True)
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
        except (ValueError, TypeError):  # a signalling NaN, a length of time
            return pa.float64(), math.nan
    if hasattr(value, "as_py"):  # a scalar of Arrow, which may be null
        return _typed(value.as_py())
    try:
        # As Arrow reads a column of texts: texts and bytes by their own content.
        text = str.__str__(value) if isinstance(value, str) else str(value)
        raw = bytes(value) if isinstance(value, bytes | bytearray | memoryview) else text.encode("utf-8", "replace")
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


def numbers(
    column: Any, missing_values: Sequence[str], decimal: str = ".", thousands: str = "", unit: str = ""
) -> FloatArray:
    """Return a column as numbers, NaN for missing values and for text that is not a number."""
    if isinstance(column, Mixed):
        return column.gather(lambda part: numbers(part, missing_values, decimal, thousands, unit), np.nan, np.float64)
    is_numeric = _is_numeric(column.type)
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    elif not is_numeric:
        text = _without_unit(unit, as_text(column, missing_values))
        column = _parsed(_without(thousands, decimal, text), decimal)
    found = _floats(column)
    # Missing values that are numbers, such as 999, however they are written. Only NaN differs from itself.
    standing_in = [one for one in map(float_or_nan, missing_values) if one == one]
    return np.where(np.isin(found, standing_in), np.nan, found) if standing_in else found


def _floats(column: Any) -> FloatArray:
    """Return a column of an Arrow type for numbers, NaN for nulls."""
    return np.asarray(pc.cast(column, pa.float64(), safe=False).fill_null(math.nan).to_numpy(zero_copy_only=False))


def float_or_nan(text: str) -> float:
    """Return a text as a number, NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _without_unit(unit: str, text: Any) -> Any:
    """Remove a unit before or after each number, such as "$" or "%"."""
    if not unit:
        return text
    sign = re.escape(unit)
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(text, rf"^([+-]?)\s*{sign}|{sign}$", r"\1"))


def _without(thousands: str, decimal: str, text: Any) -> Any:
    """Remove thousands separators. Text with one that is not between groups of three digits becomes null."""
    if not thousands:
        return text
    sign = f"[{_WRITTEN_AS.get(thousands, thousands)}]"
    grouped = pc.match_substring_regex(text, rf"^[+-]?[1-9]\d{{0,2}}({sign}\d{{3}})+(\{decimal}\d*)?$")
    wrong = pc.and_(pc.match_substring_regex(text, sign), pc.invert(grouped))
    return pc.replace_substring_regex(pc.if_else(wrong, pa.scalar(None, pa.string()), text), sign, "")


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


def dates(column: Any, missing_values: Sequence[str], format: str | None = None) -> FloatArray:
    """Return dates as seconds since 1970 by their own clock, NaN for missing values and other text.

    Text is in a format of `strptime`, or in ISO 8601. A column of dates needs no format.
    """
    if isinstance(column, Mixed):
        return column.gather(lambda part: dates(part, missing_values, format), np.nan, np.float64)
    if has_dates(column):
        return _typed_dates(column)
    text = as_text(_with_digits(column, format), missing_values).dictionary_encode()
    each = np.array([*(_date(one, format) for one in text.dictionary.to_pylist()), np.nan])
    return np.asarray(each[text.indices.fill_null(len(each) - 1).to_numpy(zero_copy_only=False)])


def _with_digits(column: Any, format: str | None) -> Any:
    """Return whole numbers as the digits of dates such as 20240131, which a parser took for numbers."""
    if not _is_numeric(column.type):
        return column
    # Leading zeros are lost in a number, and known where a format has nothing but digits.
    has_digits_only = re.fullmatch("(%[YymdHMS])+", format or "")
    width = len(format or "") + 2 * (format or "").count("%Y") if has_digits_only else 0
    values = _floats(column)
    whole = (np.abs(values) < 1e15) & (values == np.floor(values))
    written = [f"{int(value):0{width}d}" if one else str(value) for value, one in zip(values, whole, strict=True)]
    return pa.array(written, pa.string(), mask=np.isnan(values))


def has_dates(column: Any) -> bool:
    """Whether a column is of a type for dates."""
    return not isinstance(column, Mixed) and (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type))


def _typed_dates(column: Any) -> FloatArray:
    kind, is_null = column.type, column.is_null().to_numpy(zero_copy_only=False)
    in_a_second = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[getattr(kind, "unit", "ms")]
    in_a_second = 1 / 86_400 if pa.types.is_date32(kind) else in_a_second
    whole = pc.cast(column.view(pa.int32() if pa.types.is_date32(kind) else pa.int64()), pa.int64()).fill_null(0)
    found = np.clip(whole.to_numpy(zero_copy_only=False) / in_a_second, _FIRST, _LAST)
    if getattr(kind, "tz", None):  # to the clock of the time zone
        seconds = pa.array(found.astype(np.int64), pa.int64()).cast(pa.timestamp("s", kind.tz))
        local = pc.local_timestamp(seconds).cast(pa.int64()).to_numpy(zero_copy_only=False)
        found = local + found % 1
    return np.where(is_null, np.nan, found)


def _date(text: str, format: str | None) -> float:
    """Return a date as seconds since 1970, NaN if it is none."""
    try:
        found = datetime.datetime.fromisoformat(text) if format is None else datetime.datetime.strptime(text, format)
    except ValueError:
        return math.nan
    return (found.replace(tzinfo=None) - EPOCH).total_seconds()


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
    codes = np.array(found.to_numpy(zero_copy_only=False), dtype=np.int32)
    if (codes == UNKNOWN).any():  # written in another way than on the list, as 1.0 for 1
        unknown = text.filter(pa.array(codes == UNKNOWN)).dictionary_encode()
        written = unknown.dictionary.to_pylist()
        is_code = re.compile(r"[+-]?0\d").match  # 01 is not 1
        values = np.array([math.nan if is_code(one) else float_or_nan(one) for one in written])
        by_number = np.where(np.isnan(values), UNKNOWN, places(pa.array(values), listed, missing_values))
        truth = [{"true": True, "false": False}.get(one.lower()) for one in written]
        by_truth = places(pa.array(truth, pa.bool_()), listed, missing_values)
        again = np.where(by_truth == MISSING, by_number, by_truth)
        codes[codes == UNKNOWN] = again[unknown.indices.to_numpy(zero_copy_only=False)]
    return codes


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
