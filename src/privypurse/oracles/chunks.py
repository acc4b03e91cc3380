"""[RAW DATA] Sources of chunks for `ChunkedOracle` from arrays; ``tables.chunks`` reads files.

A function that returns a new generator of ``(X, y)`` pairs at each call is also a source.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core._checks import positive_integer
from privypurse.core._errors import InvalidArgument

__all__ = ["from_arrays"]

Chunks = Callable[[], Iterable[tuple[Any, Any]]]


def from_arrays(X: NDArray[Any], y: NDArray[Any], *, rows: int = 65_536) -> Chunks:
    """Cut arrays, usually memory-mapped, into chunks of rows; one is in memory at a time."""
    rows = positive_integer(rows=rows)
    if X.shape[0] != y.shape[0]:
        raise InvalidArgument(f"y must have as many rows as X, {X.shape[0]}; got {y.shape[0]}. Check the files.")

    def chunks() -> Iterator[tuple[Any, Any]]:
        for start in range(0, X.shape[0], rows):
            yield X[start : start + rows], y[start : start + rows]
            _forget_pages(X)

    chunks.dtype = X.dtype if X.dtype == np.float32 else np.dtype(np.float64)  # type: ignore[attr-defined]
    return chunks


def _forget_pages(X: NDArray[Any]) -> None:
    """Tell the operating system that the pages of a memory map read so far are not needed."""
    # Only for read-only maps: a copy-on-write map would lose changes made in memory.
    mapped = getattr(X, "_mmap", None) if getattr(X, "mode", "") == "r" else None
    if mapped is not None and hasattr(mapped, "madvise"):
        import mmap

        mapped.madvise(mmap.MADV_DONTNEED)
