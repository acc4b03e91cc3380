"""[RAW DATA] Columns of any table as Arrow arrays, and as numbers or places in a list: entry by entry, learning nothing."""

import contextlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core.checks import FloatArray
from privypurse.core.errors import InvalidArgument

MISSING = -1
UNKNOWN = -2
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity))$"


class Mixed:
    """A column with values of several types, each of which is treated as it would be in a column of its own type.

    Parameters
    ----------
    values : iterable
        Anything.
    """

    def __init__(self, values: Any) -> None:
        import pyarrow as pa

        listed = list(values)
        self._rows = len(listed)
        kinds: dict[str, list[int]] = {}
        for row, value in enumerate(listed):
            kinds.setdefault(_kind(value), []).append(row)
        types: dict[str, tuple[Callable[[Any], Any], Any]] = {
            "bool": (bool, pa.bool_()),
            "number": (_as_float, pa.float64()),
            "text": (_as_string, pa.string()),
        }
        self._parts = [
            (np.array(rows), pa.array([types[kind][0](listed[row]) for row in rows], types[kind][1]))
            for kind, rows in kinds.items()
            if kind in types
        ]

    def __len__(self) -> int:
        return self._rows

    def gather(self, work: Callable[[Any], Any], missing: Any, dtype: Any) -> NDArray[Any]:
        """Do something with each type's values, and put the results where they belong."""
        found = np.full(self._rows, missing, dtype=dtype)
        for rows, part in self._parts:
            found[rows] = work(part)
        return found


def _kind(value: Any) -> str:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return "missing"
    if isinstance(value, bool | np.bool_):
        return "bool"
    return "number" if isinstance(value, Real | Decimal) else "text"


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    except ValueError:  # a signalling NaN
        return float("nan")


def _as_string(value: Any) -> str:
    try:
        raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
    except Exception:  # something that cannot even be written is on no list, and no number
        return "?!"
    return raw.decode("utf-8", "replace")


def column_of(table: Any, name: str) -> Any:
    """Return a column as an Arrow array, or `Mixed`: of an Arrow table, a pandas or polars frame, or a dict of columns."""
    import pyarrow as pa

    try:
        column = table[name]
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise InvalidArgument(
            f"column {name!r} is not in the table, or the table has no named columns. Pass a data frame with the columns of "
            "the schema."
        ) from error
    except Exception as error:  # polars has an error of its own
        raise InvalidArgument(
            f"column {name!r} is not in the table. Pass a data frame with the schema's columns."
        ) from error
    if hasattr(column, "to_arrow"):
        column = column.to_arrow()
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        # Where each value has a type of its own, others must not decide what it is taken for.
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
    """Return a column as numbers; NaN for what is missing or is no number."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if isinstance(column, Mixed):
        return column.gather(lambda part: numbers(part, missing_values, decimal), np.nan, np.float64)
    is_numeric = _is_numeric(column.type)
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    elif not is_numeric:
        column = _parsed(_with_point(as_text(column, missing_values), decimal))
    found = np.asarray(pc.cast(column, pa.float64(), safe=False).fill_null(float("nan")).to_numpy(zero_copy_only=False))
    standing_in = _numbers_in(missing_values) if is_numeric else []
    return np.where(np.isin(found, standing_in), np.nan, found) if standing_in else found


def _numbers_in(missing_values: Sequence[str]) -> list[float]:
    """Return the numbers among the texts that stand for a missing value, such as 999."""
    found = []
    for text in missing_values:
        with contextlib.suppress(ValueError):
            found.append(float(text))
    return [value for value in found if value == value]


def _with_point(text: Any, decimal: str) -> Any:
    """Write decimals with a point; a number that has one already is then none, as points separate thousands there."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if decimal == ".":
        return text
    has_point = pc.fill_null(pc.match_substring(text, "."), False)
    return pc.if_else(has_point, pa.scalar(None, pa.string()), pc.replace_substring(text, decimal, "."))


def _parsed(text: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute as pc

    try:
        return pc.cast(text, pa.float64())
    except pa.ArrowInvalid:  # something is no number: those that look like one are
        is_number = pc.match_substring_regex(text, _NUMBER)
        return pc.cast(pc.if_else(is_number, pc.utf8_ltrim(text, "+"), pa.scalar(None, pa.string())), pa.float64())


def places(column: Any, listed: Sequence[str], missing_values: Sequence[str]) -> NDArray[np.int32]:
    """Return the place of each value in a list of texts; MISSING or UNKNOWN for others."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if isinstance(column, Mixed):
        return column.gather(lambda part: places(part, listed, missing_values), MISSING, np.int32)
    if pa.types.is_boolean(column.type):
        # Booleans are written in several ways.
        lowered = {text.lower(): index for index, text in enumerate(listed)}
        by_value = [lowered.get("false", lowered.get("0", UNKNOWN)), lowered.get("true", lowered.get("1", UNKNOWN))]
        values = pc.cast(column, pa.int8()).fill_null(2).to_numpy(zero_copy_only=False)
        return np.asarray(np.array([*by_value, MISSING], dtype=np.int32)[values])
    if _is_numeric(column.type):
        return _numeric_places(numbers(column, missing_values), listed)
    text = as_text(column, missing_values)
    found = pc.index_in(text, value_set=pa.array(list(listed), pa.string()), skip_nulls=True)
    is_missing = pc.is_null(text)
    return np.where(
        is_missing.to_numpy(zero_copy_only=False),
        MISSING,
        found.fill_null(UNKNOWN).to_numpy(zero_copy_only=False),
    ).astype(np.int32)


def _numeric_places(values: FloatArray, listed: Sequence[str]) -> NDArray[np.int32]:
    """Compare a column that is stored as numbers with the numbers that a list holds: 1, 1.0 and "1" are one category."""
    codes = np.where(np.isnan(values), MISSING, UNKNOWN).astype(np.int32)
    for index, text in enumerate(listed):
        try:
            codes[values == float(text)] = index
        except ValueError:
            continue
    return codes


def as_text(column: Any, missing_values: Sequence[str]) -> Any:
    """Return a column as text without blanks around it, null where it is missing."""
    import pyarrow as pa
    from pyarrow import compute as pc

    try:
        text = pc.utf8_trim_whitespace(_cast_to_text(column))
    except (pa.ArrowException, TypeError):
        raise InvalidArgument(
            f"a column of type {column.type} cannot be used. Write ignore = true for it in the schema, or turn it into text."
        ) from None
    missing = pc.is_in(text, value_set=pa.array(["", *missing_values], pa.string()))
    return pc.if_else(missing, pa.scalar(None, pa.string()), text)


def _cast_to_text(column: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute as pc

    try:
        text = pc.cast(column, pa.string())
        text.validate(full=True)
        return text
    except pa.ArrowInvalid:  # bytes that are no text: of this record, not of the others
        binary = pc.cast(column, pa.large_binary()).to_pylist()
        return pa.array([None if value is None else value.decode("utf-8", "replace") for value in binary], pa.string())


def _is_numeric(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
