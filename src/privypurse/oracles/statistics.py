"""[RAW DATA] Sums, counts and scores of a plain table, as sealed boxes.

Shapes of the answers and all bounds are public: they come from arguments, never from the data.
"""

import contextlib
import math
from collections.abc import Hashable, Iterable, Sequence, Sized

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privypurse.core._checks import FloatArray, ordinary, shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.oracles._encoding import plain_numbers

__all__ = ["clipped_sum", "counts", "negated_losses"]

# Records are clipped a little inside the declared bound, so that it holds for the computed numbers.
# numpy sums a contiguous row pairwise, with chains of at most 16 + log2(n/128) additions: on 10^8
# records two neighbouring sums together err by at most 2 * 36 * 2^-53 * 10^8 = 8e-7 of the bound.
# Adding up a table row by row would err a million times more.
ROUNDING_MARGIN = 1e-5


def clipped_sum(rows: ArrayLike, *, clip_norm: float) -> Sensitive:
    """Sum the rows of a table, each scaled down to a norm of at most `clip_norm`.

    Parameters
    ----------
    rows : array_like of shape (n, d)
        The records. A row with NaN or infinity in it contributes nothing.
    clip_norm : float
        Public bound on the Euclidean norm of one row's contribution.

    Examples
    --------
    >>> clipped_sum([[3.0, 4.0], [0.0, 0.1]], clip_norm=1.0)
    <Sensitive: shape (2,), l2 bound 1.0 (add-remove), 2.0 (replace-one)>
    """
    clip_norm = ordinary(clip_norm=clip_norm)
    table = _table(rows)
    table = np.where(np.isfinite(table).all(axis=1, keepdims=True), table, 0.0)
    # Scaled by the largest entry first, so that the square of 1e300 does not overflow.
    largest = np.abs(table).max(axis=1, initial=0.0, keepdims=True)
    unit = np.divide(table, largest, out=np.zeros_like(table), where=largest > 0)
    length = np.sqrt((unit * unit).sum(axis=1, keepdims=True))
    limit = clip_norm * (1 - ROUNDING_MARGIN)
    with np.errstate(over="ignore"):
        too_long = largest * length > limit
    clipped = np.where(too_long, unit * np.divide(limit, length, out=np.zeros_like(length), where=length > 0), table)
    return Sensitive(_column_sums(clipped), norm=Norm.L2, add_remove=clip_norm, replace_one=2 * clip_norm)


def counts(labels: Iterable[Hashable], *, categories: Sequence[Hashable]) -> Sensitive:
    """Count the records in each declared category; others are not counted.

    Parameters
    ----------
    labels : iterable
        One label for each record, of the type of the categories ("1" is not 1).
    categories : sequence
        The public list of categories; it gives the order of the counts.

    Examples
    --------
    >>> counts(["a", "b", "a"], categories=["a", "b", "c"])
    <Sensitive: shape (3,), l2 bound 1.0 (add-remove), 1.4142135623730951 (replace-one)>
    """
    ordered = list(categories) if isinstance(categories, Sequence | np.ndarray) else []
    position = {category: index for index, category in enumerate(ordered)}
    if not position or len(position) != len(ordered):
        raise InvalidArgument(f"categories must be a list of different values; got {shown(categories)}. Pass [0, 1].")
    if (dimensions := getattr(labels, "ndim", 1)) != 1:
        raise InvalidArgument(f"labels must be in one dimension; got {dimensions}. Pass for example labels.ravel().")
    tally = np.zeros(len(position))
    for label in labels:
        # An unhashable label is in none of the categories.
        with contextlib.suppress(TypeError, KeyError):
            tally[position[label]] += 1
    # A replaced record leaves one category and enters another.
    replace_one = float(np.sqrt(2.0)) if len(position) > 1 else 1.0
    return Sensitive(tally, norm=Norm.L2, add_remove=1.0, replace_one=replace_one)


def histograms(cells: NDArray[np.intp], *, sizes: Sequence[int]) -> Sensitive:
    """Count the records in each cell of k histograms of public sizes, joined into one vector.

    A row of `cells` has the cell of a record in each; a number that is no cell, such as -1, is not
    counted. So a record moves k counts by one: by the square root of k in all. A replaced record
    leaves and enters one cell of each.

    Examples
    --------
    >>> histograms(np.array([[0, 2], [1, 2]]), sizes=[2, 3])
    <Sensitive: shape (5,), l2 bound 1.4142135623730951 (add-remove), 2.0 (replace-one)>
    """
    columns = [column[(column >= 0) & (column < size)] for column, size in zip(cells.T, sizes, strict=True)]
    tallies = [np.bincount(column, minlength=size) for column, size in zip(columns, sizes, strict=True)]
    joined, k = np.concatenate(tallies).astype(np.float64), len(sizes)
    return Sensitive(joined, norm=Norm.L2, add_remove=math.sqrt(k), replace_one=math.sqrt(2 * k))


def residual_sums(
    residuals: ArrayLike,
    cells: NDArray[np.intp],
    *,
    pairs: Sequence[tuple[int, int]],
    sizes: Sequence[int],
    clip_norm: float,
) -> Sensitive:
    """Sum residuals in each cell of several two-way tables, joined into one vector.

    Parameters
    ----------
    residuals : array_like of shape (n, k)
        The residual of each record for each output. A row that is not finite contributes nothing.
    cells : ndarray of shape (n, m)
        For each record, its cell in each of m columns; clipped to these.
    pairs : sequence of pairs of int
        The columns of each table.
    sizes : sequence of int
        Public number of cells of each column.
    clip_norm : float
        Public bound on the Euclidean norm of the residuals of one record.

    Notes
    -----
    A record is in one cell of each table, so it moves the sums by `clip_norm` times the root of the
    number of tables. Residuals are rounded to 2^-22 of the bound, so that sums are exact.

    Examples
    --------
    >>> residual_sums([[0.5], [-0.5]], np.array([[0, 1], [1, 1]]), pairs=[(0, 1)], sizes=[2, 2], clip_norm=0.5)
    <Sensitive: shape (4,), l2 bound 0.5 (add-remove), 1.0 (replace-one)>
    """
    clip_norm = ordinary(clip_norm=clip_norm)
    table = _table(residuals)
    finite = np.isfinite(table).all(axis=1, keepdims=True)
    table = np.where(finite, np.clip(table, -2 * clip_norm, 2 * clip_norm) / clip_norm, 0.0)
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True) / (1 - ROUNDING_MARGIN), 1.0)
    whole = np.ascontiguousarray(np.rint(table * 2.0**22).T)
    cells = np.clip(cells, 0, np.asarray(sizes) - 1)
    sums = [
        np.bincount(cells[:, i] * sizes[j] + cells[:, j], own, minlength=sizes[i] * sizes[j])
        for i, j in pairs
        for own in whole
    ]
    total, bound = np.concatenate(sums) * (clip_norm / 2.0**22), clip_norm * math.sqrt(len(pairs))
    return Sensitive(total, norm=Norm.L2, add_remove=bound, replace_one=2 * bound)


def negated_losses(losses: ArrayLike, *, clip_loss: float) -> Sensitive:
    """Return negated sums of clipped losses for each candidate: scores for a selection.

    Parameters
    ----------
    losses : array_like of shape (n, k)
        The loss of each record (row) under each candidate (column). NaN counts as `clip_loss`.
    clip_loss : float
        Public bound on one record's loss.

    Examples
    --------
    >>> negated_losses([[0.2, 0.9], [0.4, 0.1]], clip_loss=1.0)
    <Sensitive: shape (2,), range bound 1.0 (add-remove), 2.0 (replace-one)>
    """
    clip_loss = ordinary(clip_loss=clip_loss)
    table = _table(losses)
    limit = clip_loss * (1 - ROUNDING_MARGIN)
    clipped = np.clip(np.nan_to_num(table, nan=limit, posinf=limit, neginf=0.0), 0.0, limit)
    return Sensitive(-_column_sums(clipped), norm=Norm.RANGE, add_remove=clip_loss, replace_one=2 * clip_loss)


def record_count(rows: Sized) -> Sensitive:
    """Count the records of a table, a sparse matrix or a list, whatever they contain."""
    shape = getattr(rows, "shape", None)
    if shape == () or (shape is None and (isinstance(rows, str) or not hasattr(rows, "__len__"))):
        raise InvalidArgument(f"rows must have one entry for each record; got {shown(rows)}. Pass a table or a list.")
    return Sensitive([shape[0] if shape else len(rows)], norm=Norm.L2, add_remove=1.0, replace_one=1.0)


def _column_sums(table: FloatArray) -> FloatArray:
    """Sum each column pairwise, which numpy does only along contiguous memory."""
    return np.asarray(np.ascontiguousarray(table.T).sum(axis=1))


def _table(rows: ArrayLike) -> FloatArray:
    expected = "rows must be a table of numbers with one row for each record"
    remedy = "Pass shape (n, d), rows of one length and no text; a single column is values.reshape(-1, 1)."
    return plain_numbers(rows, 2, expected, remedy).astype(np.float64)
