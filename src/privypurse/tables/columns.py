"""[RAW DATA] Columns of any table as Arrow arrays, and as numbers or places in a list: entry by entry, learning nothing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core.checks import FloatArray
from privypurse.core.errors import InvalidArgument

MISSING = -1
UNKNOWN = -2
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def column_of(table: Any, name: str) -> Any:
    """Return a column as an Arrow array: of an Arrow table, a pandas or polars frame, or a dict of columns."""
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
        try:
            column = pa.array(column, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            # Several types in one column: each as text, as a file would have it.
            column = pa.array(
                [None if value is None or value != value else str(value) for value in column], pa.string()
            )
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def numbers(column: Any, missing_values: Sequence[str]) -> FloatArray:
    """Return a column as numbers; NaN for what is missing or is no number."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    elif not _is_numeric(column.type):
        column = _parsed(_text(column, missing_values))
    return np.asarray(pc.cast(column, pa.float64(), safe=False).fill_null(float("nan")).to_numpy(zero_copy_only=False))


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

    if pa.types.is_boolean(column.type):
        # Booleans are written in several ways.
        lowered = {text.lower(): index for index, text in enumerate(listed)}
        by_value = [lowered.get("false", lowered.get("0", UNKNOWN)), lowered.get("true", lowered.get("1", UNKNOWN))]
        values = pc.cast(column, pa.int8()).fill_null(2).to_numpy(zero_copy_only=False)
        return np.asarray(np.array([*by_value, MISSING], dtype=np.int32)[values])
    if _is_numeric(column.type):
        return _numeric_places(numbers(column, missing_values), listed)
    text = _text(column, missing_values)
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


def _text(column: Any, missing_values: Sequence[str]) -> Any:
    """Return a column as text without blanks around it, null where it is missing."""
    import pyarrow as pa
    from pyarrow import compute as pc

    try:
        text = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidArgument(
            f"a column of type {column.type} cannot be used. Write ignore = true for it in the schema, or turn it into text."
        ) from error
    missing = pc.is_in(text, value_set=pa.array(["", *missing_values], pa.string()))
    return pc.if_else(missing, pa.scalar(None, pa.string()), text)


def _is_numeric(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
