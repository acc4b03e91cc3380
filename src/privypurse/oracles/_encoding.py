"""[RAW DATA] Checks of tables and encoding of labels, before anything is spent."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from privypurse.core._checks import check_positions, shown
from privypurse.core._errors import InvalidArgument
from privypurse.losses._linear import LinearLoss

# Contributions are kept this much inside the stated bound, so that it holds for the computed sums
# (see ``_kernels`` and ``_exact_kernels``). It costs 0.05 % more noise than exact arithmetic.
ROUNDING_MARGIN = 5e-4
LARGEST_TARGET = 1e30  # representable in float32
Range = tuple[float, float] | None


def check_dense(X: ArrayLike, *, may_be_empty: bool = True) -> NDArray[Any]:
    """Return a two-dimensional float32 or float64 table; copy only other types or layouts."""
    if sparse.issparse(X):
        raise InvalidArgument("X must be a dense table here; got a sparse matrix. Use SparseOracle, or X.toarray().")
    table = np.asarray(X)
    if table.dtype.kind == "O":  # such as a data frame with numeric and boolean columns
        table = _numbers(table)
    if table.ndim != 2 or table.dtype.kind not in "iufb":
        got = f"X must be a table of numbers with one row for each record; got shape {table.shape} of {table.dtype}"
        raise InvalidArgument(f"{got}. Encode text columns, and pass one column as x.reshape(-1, 1).")
    if table.shape[1] == 0:
        raise InvalidArgument(f"X must have at least one column; got shape {table.shape}. Pass the feature columns.")
    _check_some_rows(table.shape[0], may_be_empty)
    if table.dtype not in (np.float32, np.float64):
        with np.errstate(over="ignore"):  # longer floats, without a warning that reveals a row
            table = table.astype(np.float64)
    if not (table.flags.c_contiguous or table.flags.f_contiguous):
        # In its own order: whether a slice by column is contiguous depends on the other rows, and
        # the order of additions, hence the rounding of every record, must not.
        table = np.asfortranarray(table) if stored_by_column(table) else np.ascontiguousarray(table)
    # A view without subclass (such as a memory map) and in native byte order.
    return np.asarray(table, dtype=table.dtype.newbyteorder("="))


def _numbers(table: NDArray[Any]) -> NDArray[Any]:
    """Convert objects to numbers one by one; return the table unchanged if one is not a number."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return table.astype(np.float64)
    flat, entries = table.ravel(), np.full(table.size, math.nan)
    for place in range(flat.size):
        if type(flat[place]).__name__ == "NAType":  # pandas' missing value
            continue
        try:
            entries[place] = flat[place : place + 1].astype(np.float64)[0]
        except OverflowError:  # an integer larger than any float
            entries[place] = math.inf
        except (TypeError, ValueError):
            return table
    return entries.reshape(table.shape)


def plain_numbers(values: ArrayLike, dimensions: int, expected: str, remedy: str) -> NDArray[Any]:
    """Return an array of numbers. A missing value (None) becomes NaN: its record contributes nothing."""
    try:
        plain = np.asarray(values)
        numbers = plain.astype(np.float64) if plain.dtype.kind == "O" else plain
    except (TypeError, ValueError, OverflowError):
        plain, numbers = np.empty(0), np.empty(())
    if numbers.ndim != dimensions or numbers.dtype.kind not in "iufb":
        got = f"{type(values).__name__} with shape {plain.shape} of {plain.dtype}"
        raise InvalidArgument(f"{expected}; got {got}. {remedy}")
    return numbers


def stored_by_column(table: NDArray[Any]) -> bool:
    """Return whether a table is stored column by column, according to its strides.

    numpy's flags do not tell for a table of one row; its strides do. Tables whose rows share
    memory, or with one column, count as stored by row.
    """
    to_next_row, to_next_column = (abs(stride) for stride in table.strides)
    return bool(table.shape[1] > 1 and 0 < to_next_row <= to_next_column)


def _check_some_rows(rows: int, may_be_empty: bool) -> None:
    """Raise InvalidArgument for a table without records; a chunk or a sample may be empty."""
    if rows == 0 and not may_be_empty:
        raise InvalidArgument("X must have at least one row; got none. Check that the data was loaded.")


def check_sparse(X: Any, *, may_be_empty: bool = True) -> Any:
    """Return a CSR matrix of floats without duplicates, whose positions nothing else can change.

    Values are copied only if stored otherwise, since every sum measures them. Column numbers and
    row starts are checked here once, and compiled sums rely on them: a duplicate would escape the
    row limit, and a column outside the table would corrupt memory.
    """
    from privypurse.oracles import _sparse_kernels

    if not sparse.issparse(X):
        raise InvalidArgument(f"X must be a scipy sparse matrix; got {type(X).__name__}. Use DenseOracle for arrays.")
    if X.dtype.kind not in "iufb":
        raise InvalidArgument(f"X must hold numbers; got {X.dtype}. Encode text columns first.")
    if X.ndim != 2 or X.shape[1] == 0:
        raise InvalidArgument(f"X must have at least one column; got shape {X.shape}. Pass the feature columns.")
    _check_some_rows(X.shape[0], may_be_empty)
    check_positions(X)
    try:
        given = X.tocsr()
    except ValueError:  # other defects found by scipy
        raise InvalidArgument("X is a sparse matrix with inconsistent parts. Rebuild the matrix.") from None
    with np.errstate(over="ignore"):
        values = given.data if given.dtype in (np.float32, np.float64) else given.data.astype(np.float64)
    matrix = sparse.csr_matrix((values, given.indices.copy(), given.indptr.copy()), shape=given.shape)
    columns, starts = read_only(unsigned(matrix.indices)), read_only(unsigned(matrix.indptr))
    # Checked, not asked: scipy caches an answer that may be stale.
    if not _sparse_kernels.canonical(columns, starts, matrix.shape[1]):
        coordinates = matrix.tocoo()
        matrix = sparse.csr_matrix((coordinates.data, (coordinates.row, coordinates.col)), shape=matrix.shape)
        matrix.sum_duplicates()
    return matrix


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view: kernels are compiled once for these, also for memory maps."""
    view = array.view()
    view.flags.writeable = False
    return view


def unsigned(indices: NDArray[Any]) -> NDArray[Any]:
    """Reinterpret signed indices as unsigned."""
    return indices.view(f"u{indices.dtype.itemsize}")


def encode_targets(
    y: ArrayLike, rows: int, dtype: Any, loss: LinearLoss, classes: Sequence[Any], bounds: Range, *, strict: bool = True
) -> NDArray[Any]:
    """Turn labels into -1 and +1, or clip numbers to their declared range (NaN stays NaN).

    Unless `strict`, an undeclared label and a non-numeric target become NaN, too: chunks are read
    while a budget is spent, when an error would reveal a record.
    """
    labels = checked_labels(y, rows)
    if loss.classification:
        return _encode_labels(labels, classes, strict).astype(dtype)
    low, high = check_target_bounds(bounds)
    loss.target_bound(low, high)  # raise now for a range that the loss does not allow
    if not strict and labels.dtype.kind in "OU":
        labels = np.array([_number(label) for label in labels], dtype=np.float64)
    if labels.dtype.kind not in "iufb":
        raise InvalidArgument(f"y must hold numbers for {loss!r}; got {labels.dtype}. Convert it first.")
    with np.errstate(over="ignore"):
        return np.clip(labels.astype(np.float64), low, high).astype(dtype)


def checked_labels(y: ArrayLike, rows: int) -> NDArray[Any]:
    """Return the targets as an array. Raise InvalidArgument unless there is one for each row."""
    labels = np.asarray(y)
    if labels.shape != (rows,):
        raise InvalidArgument(f"y must have one entry for each of the {rows} rows; got shape {labels.shape}. Check y.")
    return labels


def check_declared(known: NDArray[np.bool_], labels: NDArray[Any], classes: Sequence[Any]) -> None:
    """Raise InvalidArgument if some labels are not known."""
    if not known.all():
        needed = f"y must hold only the declared classes {tuple(classes)!r}, and of their type"
        raise InvalidArgument(f"{needed}; got other {labels.dtype} labels. Pass classes=... as they are in y.")


def check_target_bounds(target_bounds: Range) -> tuple[float, float]:
    """Check the declared range of a regression target."""
    try:
        low, high = (float(bound) for bound in target_bounds or ())
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not -LARGEST_TARGET <= low < high <= LARGEST_TARGET:
        got = f"got {shown(target_bounds)}. Declare it without reading the data."
        raise InvalidArgument(f"target_bounds must be the public range of y, within 1e30; {got}")
    return low, high


def _number(entry: Any) -> float:
    try:
        return float(entry)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _encode_labels(labels: NDArray[Any], classes: Sequence[Any], strict: bool) -> NDArray[np.float64]:
    if isinstance(classes, str) or len(classes) != 2 or classes[0] == classes[1]:
        raise InvalidArgument(f"classes must be two labels, the second positive; got {shown(classes)}. Pass (0, 1).")
    positive, negative = labels == classes[1], labels == classes[0]
    known = np.asarray(positive | negative)
    if known.shape != labels.shape:  # incomparable types
        known = positive = np.zeros(labels.shape, dtype=bool)
    if strict:
        check_declared(known, labels, classes)
    return np.where(known, np.where(positive, 1.0, -1.0), math.nan)
