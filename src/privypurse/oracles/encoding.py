"""[RAW DATA] Checking tables and turning labels into targets, before anything is spent."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from privypurse.core.checks import shown
from privypurse.core.errors import InvalidArgument
from privypurse.core.no_refusals import nothing_is_refused
from privypurse.losses.linear import LinearLoss

LARGEST_TARGET = 1e30  # also a number in float32


def check_dense(X: ArrayLike) -> NDArray[Any]:
    """Return a two-dimensional float32 or float64 table; copies only what is of another type or layout."""
    if sparse.issparse(X):
        raise InvalidArgument("X must be a dense table here; got a sparse matrix. Use SparseOracle, or X.toarray().")
    table = np.asarray(X)
    if table.dtype.kind == "O":  # such as a data frame with columns of numbers and of truth values
        table = _numbers(table)
    if table.ndim != 2 or table.dtype.kind not in "iufb":
        raise InvalidArgument(
            f"X must be a table of numbers with one row for each record; got shape {table.shape} of {table.dtype}. "
            "Encode text columns, and pass one column as x.reshape(-1, 1)."
        )
    if table.shape[1] == 0:
        raise InvalidArgument(f"X must have at least one column; got shape {table.shape}. Pass the feature columns.")
    if table.dtype not in (np.float32, np.float64):
        with np.errstate(
            over="ignore"
        ):  # longer floats: what is too large contributes nothing, and no warning tells of it
            table = table.astype(np.float64)
    if not (table.flags.c_contiguous or table.flags.f_contiguous):
        # In the order it has: whether a slice of a table by column is in one piece depends on how many rows there are besides,
        # and the order of additions, and with it the rounding of every record, must not follow that.
        table = np.asfortranarray(table) if stored_by_column(table) else np.ascontiguousarray(table)
    # A view of the same memory without subclass (such as a memory map) and with the native byte order.
    return np.asarray(table, dtype=table.dtype.newbyteorder("="))


def _numbers(table: NDArray[Any]) -> NDArray[Any]:
    """Turn objects into numbers, each by itself; the table as it is where one is text or something else that is no number."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return table.astype(np.float64)
    flat = table.ravel()
    entries = np.empty(flat.size)
    for place in range(flat.size):
        if type(flat[place]).__name__ == "NAType":  # pandas' way to say that there is none
            entries[place] = math.nan
            continue
        try:
            entries[place] = flat[place : place + 1].astype(np.float64)[0]
        except OverflowError:  # a whole number that is larger than any float
            entries[place] = math.inf
        except (TypeError, ValueError):
            return table
    return entries.reshape(table.shape)


def stored_by_column(table: NDArray[Any]) -> bool:
    """Say whether a table lies in memory column by column, as its strides have it.

    A table of one row is in one piece either way, so that numpy's flags say nothing of it; its strides say how the table would go
    on. Where all rows are the same memory, or there is one column, it is by row.
    """
    to_next_row, to_next_column = (abs(stride) for stride in table.strides)
    return bool(table.shape[1] > 1 and 0 < to_next_row <= to_next_column)


def check_some_rows(rows: int) -> None:
    """Refuse a table without records; a chunk or a sample may be empty, a whole table is a mistake."""
    if rows == 0 and not nothing_is_refused():
        raise InvalidArgument("X must have at least one row; got none. Check that the data was loaded.")


def check_sparse(X: Any) -> Any:
    """Return a CSR matrix of floats without duplicates; copies only what is stored otherwise."""
    if not sparse.issparse(X):
        raise InvalidArgument(
            f"X must be a scipy sparse matrix here; got {type(X).__name__}. Use DenseOracle for arrays."
        )
    if X.dtype.kind not in "iufb":
        raise InvalidArgument(f"X must hold numbers; got {X.dtype}. Encode text columns first.")
    if X.ndim != 2 or X.shape[1] == 0:
        raise InvalidArgument(f"X must have at least one column; got shape {X.shape}. Pass the feature columns.")
    matrix = X.tocsr()
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    # Looked at, not asked: scipy remembers an answer that may be out of date, and a duplicate would escape the row limit.
    if not _is_canonical(matrix):
        if matrix.indices.size and not (matrix.indices.min() >= 0 and matrix.indices.max() < matrix.shape[1]):
            raise InvalidArgument("X has column numbers outside its shape. Rebuild the sparse matrix.")
        coordinates = matrix.tocoo()
        matrix = sparse.csr_matrix((coordinates.data, (coordinates.row, coordinates.col)), shape=matrix.shape)
        matrix.sum_duplicates()
    return matrix


def _is_canonical(matrix: Any) -> bool:
    from privypurse.oracles import _sparse_kernels
    from privypurse.oracles.parts import read_only, unsigned

    columns, starts = read_only(unsigned(matrix.indices)), read_only(unsigned(matrix.indptr))
    return bool(_sparse_kernels.canonical(columns, starts, matrix.shape[1]))


def encode_targets(
    y: ArrayLike,
    rows: int,
    dtype: DTypeLike,
    loss: LinearLoss,
    classes: Sequence[Any],
    target_bounds: tuple[float, float] | None,
) -> NDArray[Any]:
    """Turn labels into -1 and +1, or clip numbers to their declared range (NaN stays: its record contributes nothing)."""
    labels = np.asarray(y)
    if labels.shape != (rows,):
        raise InvalidArgument(
            f"y must have one entry for each of the {rows} rows of X; got shape {labels.shape}. Check y."
        )
    if loss.classification:
        return _encode_labels(labels, classes).astype(dtype)
    low, high = check_target_bounds(target_bounds)
    if labels.dtype.kind not in "iufb":
        raise InvalidArgument(f"y must hold numbers for {loss!r}; got {labels.dtype}. Convert it first.")
    with np.errstate(over="ignore"):
        return np.clip(labels.astype(np.float64), low, high).astype(dtype)


def check_target_bounds(target_bounds: tuple[float, float] | None) -> tuple[float, float]:
    """Check the declared range of a regression target."""
    try:
        low, high = (float(bound) for bound in target_bounds or ())
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not -LARGEST_TARGET <= low < high <= LARGEST_TARGET:
        raise InvalidArgument(
            f"target_bounds must be the public range of y, such as (0.0, 100.0), within 1e30; got {shown(target_bounds)}. "
            "It is not read from the data."
        )
    return low, high


def _encode_labels(labels: NDArray[Any], classes: Sequence[Any]) -> NDArray[np.float64]:
    if isinstance(classes, str) or len(classes) != 2 or classes[0] == classes[1]:
        raise InvalidArgument(
            f"classes must be two different labels, the second one positive; got {shown(classes)}. Pass (0, 1)."
        )
    positive, negative = labels == classes[1], labels == classes[0]
    known = np.asarray(positive | negative)
    if known.shape != labels.shape or not known.all():
        raise InvalidArgument(
            f"y must hold only the declared classes {tuple(classes)!r}, and of their type; got {labels.dtype} labels with others "
            "among them. Pass classes=... as they are in y."
        )
    return np.where(positive, 1.0, -1.0)
