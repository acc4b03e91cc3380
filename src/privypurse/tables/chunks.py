"""[RAW DATA] Read files in chunks for `ChunkedOracle`. Messages never quote a record."""

import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core._checks import FloatArray, positive_integer, shown
from privypurse.core._errors import InvalidArgument
from privypurse.tables._columns import column_of, need_pyarrow, numbers, readable_text
from privypurse.tables._files import JSON_LINES, PARQUET, TableFile

__all__ = ["from_files"]

# Named on the certificate: a refusal depends on the data.
CHECKED = "that the files passed the checks when they were read: they can be read line by line, as text in UTF-8"

FORMATS = ("parquet", "arrow", "csv")


def from_files(
    path: str | os.PathLike[str], *, features: Sequence[str], target: str, format: str = "parquet", rows: int = 65_536
) -> Callable[[], Iterator[tuple[FloatArray, NDArray[Any]]]]:
    """Read a file, or all files of a folder, in batches of rows.

    Parameters
    ----------
    path : str or path
        File or folder.
    features : sequence of str
        Names of the feature columns, in the order of the weights. Public.
    target : str
        Name of the target column.
    format : {"parquet", "arrow", "csv"}, default "parquet"
        Kind of file. CSV files are read by `TableFile`: with a header, UTF-8, each line one record
        or none.
    rows : int, default 65,536
        Rows of a batch. Not used for CSV files.

    Guarantees
    ----------
    Each cell is read by itself: one that is not a number is NaN, and its record contributes
    nothing. A target stays text in a column of text. In a CSV file, which has no types, a target
    that is a number is read as a number and any other as text.
    """
    rows = positive_integer(rows=rows)
    if format not in FORMATS:
        raise InvalidArgument(f"expected format to be one of {', '.join(FORMATS)}, got {shown(format)}.")
    need_pyarrow()
    names = list(dict.fromkeys([*features, target]))
    read = _csv(path, names) if format == "csv" else _arrow(path, names, format, rows)

    def chunks() -> Iterator[tuple[FloatArray, NDArray[Any]]]:
        for block in read():
            # Always float64: a missing value must not change how other rows are read.
            table = np.column_stack([numbers(column_of(block, name), ()) for name in features])
            yield table, _targets(column_of(block, target), typed=format != "csv")

    uncovered = [CHECKED] if format == "csv" else []
    if format == "parquet":  # files may have been converted from CSV
        files = [one for one in _files(path) if one.is_file() and one.stat().st_size]
        uncovered = [what for one in files if (table := TableFile(one)).format == PARQUET for what in table.uncovered]
    chunks.uncovered = tuple(dict.fromkeys(uncovered))  # type: ignore[attr-defined]
    return chunks


def _files(path: str | os.PathLike[str]) -> list[pathlib.Path]:
    place = pathlib.Path(path)
    return sorted(place.iterdir()) if place.is_dir() else [place]


def _csv(path: str | os.PathLike[str], names: list[str]) -> Callable[[], Iterator[Any]]:
    files = [TableFile(one) for one in _files(path)]
    for file in files:
        if file.format == JSON_LINES:
            raise InvalidArgument(f"expected CSV files, got {file.path.name!r}, of JSON lines. Write it as Parquet.")
        file.require(names)
    return lambda: (block for file in files for block in file.blocks(names, may_be_empty=True))


def _arrow(path: str | os.PathLike[str], names: list[str], format: str, rows: int) -> Callable[[], Iterator[Any]]:
    import pyarrow as pa
    import pyarrow.dataset

    refused = (pa.ArrowException, OSError, UnicodeError)
    unreadable = f"{str(path)!r} cannot be read to its end as {format}. Check the path and the format."
    try:
        data = pyarrow.dataset.dataset(path, format=format)
    except refused:
        raise InvalidArgument(unreadable) from None
    if missing := sorted(set(names) - set(data.schema.names)):
        raise InvalidArgument(f"expected features and target among {data.schema.names!r}, got {missing!r}. Check them.")

    def blocks() -> Iterator[Any]:
        try:
            yield from data.to_batches(columns=names, batch_size=rows)
        except refused:
            raise InvalidArgument(unreadable) from None

    return blocks


def _targets(column: Any, *, typed: bool) -> NDArray[Any]:
    """Return numbers, or objects if some targets are text."""
    import pyarrow as pa

    found = numbers(column, ())
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if not is_text or (not typed and not np.isnan(found).any()):
        return found
    listed = np.array(readable_text(column).to_pylist(), dtype=object)
    return listed if typed else np.where(np.isnan(found), listed, found.astype(object))
