"""Write named columns as plain CSV, a block of rows at a time."""

import csv
import io
import pathlib
from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

Block = dict[str, NDArray[Any]]


def write_csv(path: str | pathlib.Path, blocks: Iterable[Block]) -> None:
    """Write blocks with the same columns as one CSV file with a header.

    None and NaN are empty fields, and whole numbers have no point. pyarrow, which is about ten
    times faster, is used if it is installed; the values are the same without it.
    """
    with open(path, "wb") as file:
        for number, block in enumerate(blocks):
            if number == 0:
                file.write(_by_csv([tuple(block)]))
            file.write(_by_pyarrow(block) or _by_csv(zip(*map(_fields, block.values()), strict=True)))


def _by_pyarrow(block: Block) -> bytes | None:
    """Return the rows as CSV, or None without pyarrow or if a value needs quotes."""
    try:
        import pyarrow as pa
        import pyarrow.csv
    except ImportError:
        return None
    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in block.items()})
    sink = pa.BufferOutputStream()
    # With the style "needed" pyarrow quotes every string.
    plain = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
    try:
        pyarrow.csv.write_csv(table, sink, plain)
    except pa.ArrowInvalid:
        return None
    return bytes(sink.getvalue())


def _by_csv(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _fields(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind != "f":
        plain: list[Any] = column.tolist()
        return plain
    # str() of numpy numbers writes a float32 without spurious digits.
    return [None if value != value else int(value) if value == value // 1 else str(value) for value in column]
