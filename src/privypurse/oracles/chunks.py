"""[RAW DATA] Sources of chunks for `ChunkedOracle`: arrays on disk, Parquet and Arrow files.

A function that makes a new generator of ``(X, y)`` pairs each time it is called is a source too, as it is.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core.checks import positive_integer
from privypurse.core.errors import InvalidArgument

Chunks = Callable[[], Iterable[tuple[Any, Any]]]


def from_arrays(X: NDArray[Any], y: NDArray[Any], *, rows: int = 65_536) -> Chunks:
    """Cut arrays, usually memory-mapped ones, into chunks of rows; only one chunk is in memory at a time."""
    rows = positive_integer(rows=rows)
    if X.shape[0] != y.shape[0]:
        raise InvalidArgument(f"y must have as many rows as X, {X.shape[0]}; got {y.shape[0]}. Check the files.")

    def chunks() -> Iterator[tuple[Any, Any]]:
        for start in range(0, X.shape[0], rows):
            yield X[start : start + rows], y[start : start + rows]
            _forget_pages(X)

    chunks.dtype = X.dtype if X.dtype == np.float32 else np.dtype(np.float64)  # type: ignore[attr-defined]
    return chunks


def from_files(
    path: str | os.PathLike[str],
    *,
    features: Sequence[str],
    target: str,
    format: str = "parquet",
    rows: int = 65_536,
) -> Chunks:
    """Read a Parquet or Arrow file, or a folder of them, in batches of rows.

    Parameters
    ----------
    path : str or path
        File or folder.
    features : sequence of str
        Names of the feature columns, in the order of the weights. Public.
    target : str
        Name of the target column.
    format : {"parquet", "arrow", "csv"}, default "parquet"
        Kind of file, as pyarrow's datasets name it.
    rows : int, default 65,536
        Rows of a batch.
    """
    import pyarrow.dataset

    rows = positive_integer(rows=rows)
    data = pyarrow.dataset.dataset(path, format=format)
    missing = sorted({*features, target} - set(data.schema.names))
    if missing:
        raise InvalidArgument(
            f"features and target must be columns of the file; got {missing!r}, which are not among {data.schema.names!r}."
        )

    def chunks() -> Iterator[tuple[Any, Any]]:
        for batch in data.to_batches(columns=[*features, target], batch_size=rows):
            columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in features]
            # In float64 whatever a batch holds: a missing value must not change how other rows are read.
            table = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
            yield table, batch.column(target).to_numpy(zero_copy_only=False)

    return chunks


def _forget_pages(X: NDArray[Any]) -> None:
    """Tell the operating system that the pages of a memory map read so far are not needed; it may keep them cached."""
    # Only where the map is the file: a copy-on-write map would lose what was changed in memory.
    mapped = getattr(X, "_mmap", None) if getattr(X, "mode", "") == "r" else None
    if mapped is not None and hasattr(mapped, "madvise"):
        import mmap

        mapped.madvise(mmap.MADV_DONTNEED)
