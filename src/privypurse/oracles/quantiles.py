"""[RAW DATA] Scores of public candidates for a quantile, as sealed boxes: a selection then makes it private.

Both kinds of score have the same bounds. Write q for the quantile, N for the number of records that are not NaN, L(c) for
how many of them are at most c, and ``D(c) = L(c) - q N``, which grows with c and changes its sign where the quantile is.

*Adding a record x* moves D by ``1 - q`` at the candidates from x on, and by ``-q`` at those below.

*Replacing x by y* leaves N as it is and moves D by 1, in one direction, at the candidates between x and y and nowhere
else. (If one of them is NaN, it is an addition or a removal.)
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privypurse.core.checks import FloatArray, finite_vector, shown, small_probability
from privypurse.core.errors import InvalidArgument
from privypurse.core.sensitive import Norm, Sensitive

# Counts are exact. A score is rounded at most three times, by 2^-53 of N or less each: what two scores on two data sets err
# together stays below this up to 7e9 records.
ROUNDING_MARGIN = 1e-5

CHUNK = 2**20  # values looked at together, so that a long column needs no second copy of itself


def quantile_scores(values: ArrayLike, *, quantile: float, candidates: ArrayLike) -> Sensitive:
    """Score candidates by how far they are from splitting the records as asked: for a grid that is finer than the data.

    A candidate c scores ``-|(1 - quantile) * #{x <= c} - quantile * #{x > c}|``, which is ``-|D(c)|``: zero at the quantile,
    and one less for each record in between.

    Parameters
    ----------
    values : array_like of shape (n,)
        One number for each record. NaN contributes nothing; infinities lie beyond all candidates.
    quantile : float
        Strictly between 0 and 1; 0.5 is the median.
    candidates : array_like of shape (k,)
        The public grid to choose from, in increasing order. Candidates with no record between them score alike: see
        `covering_scores` where that may happen.

    Guarantees
    ----------
    One record moves two scores apart by at most ``2 max(quantile, 1 - quantile)`` if it is added or removed, and by at most 2
    if it is replaced. No smaller bound holds.

    Notes
    -----
    Added: scores from x on move by at most 1 - q either way, and scores below by at most q either way. Two candidates on
    one side of x move apart by at most ``2 max(q, 1 - q)``, two on different sides by at most ``q + (1 - q) = 1``, which is
    no more. Replaced: all scores move by at most 1 either way.

    Examples
    --------
    >>> quantile_scores([1.0, 2.0, 7.0], quantile=0.75, candidates=[0, 5, 10])
    <Sensitive: shape (3,), range bound 1.5 (add-remove), 2.0 (replace-one)>
    """
    quantile = small_probability(quantile=quantile)
    tally = _tally(values, _grid(candidates))
    return _box(-np.abs(np.cumsum(tally[:-1]) - quantile * tally.sum()), quantile)


def covering_scores(
    values: ArrayLike, *, quantile: float, candidates: ArrayLike, side: Literal["upper", "lower"]
) -> Sensitive:
    """Score candidates by how far they are from being the tightest end of a range that covers the records as asked.

    For ``side="upper"`` the right candidate is the first one that at least a share `quantile` of the records is at or below;
    a candidate scores minus the number of records by which that fails. For ``side="lower"`` it is the last candidate that
    at least a share ``1 - quantile`` is at or above. So a coarse grid rounds a range outwards, and candidates far beyond the
    data, between which there are no records, are worse than the nearest one: columns of whole numbers need no grid of
    their own.

    Parameters
    ----------
    values, quantile, candidates
        As for `quantile_scores`; values beyond all candidates count as the last candidate on that side.
    side : {"upper", "lower"}
        Which end of a range it is for.

    Guarantees
    ----------
    One record moves two scores apart by at most ``2 max(quantile, 1 - quantile)`` if it is added or removed, and by at most 2
    if it is replaced. No smaller bound holds.

    Notes
    -----
    For the upper side: candidate ``c_j`` scores ``min(0, D(c_j)) - max(0, D(c_(j-1)))``, minus the distance of zero from the
    interval between the two, with no lower end for the first. Added: where both ends lie on one side of x the interval is
    moved, and so the score by at most q (below) or 1 - q (from x on), either way. In the one interval with ends on both
    sides, the lower end falls by q and the upper end rises by 1 - q: the score moves by 0 to max(q, 1 - q). Any two of these
    differ by at most ``2 max(q, 1 - q)``. Replaced: ends move by 1 or not at all, in one direction, so scores move by at
    most 1 either way. The lower side is the upper side of the negated numbers, with 1 - q for q.

    Examples
    --------
    >>> covering_scores([0, 1, 0, 0], quantile=0.9, candidates=[0, 1, 10, 100], side="upper")
    <Sensitive: shape (4,), range bound 1.8 (add-remove), 2.0 (replace-one)>
    """
    quantile = small_probability(quantile=quantile)
    grid = _grid(candidates)
    if side not in ("upper", "lower"):
        raise InvalidArgument(f"side must be 'upper' or 'lower'; got {shown(side)}. Pass for example side='upper'.")
    mirrored = side == "lower"
    tally = _tally(values, -grid[::-1] if mirrored else grid, negated=mirrored)
    tally[-2] += tally[-1]  # what lies beyond counts as the last candidate
    excess = np.cumsum(tally[:-1]) - (1 - quantile if mirrored else quantile) * tally[:-1].sum()
    scores = np.minimum(0.0, excess)
    scores[1:] -= np.maximum(0.0, excess[:-1])
    return _box(scores[::-1] if mirrored else scores, quantile)


def _box(scores: FloatArray, quantile: float) -> Sensitive:
    bound = 2 * max(quantile, 1 - quantile)
    return Sensitive(scores * (1 - ROUNDING_MARGIN), norm=Norm.RANGE, add_remove=bound, replace_one=2.0)


def _tally(values: ArrayLike, grid: FloatArray, negated: bool = False) -> NDArray[np.int64]:
    """Count the records up to the first candidate, up to the second, ..., and beyond the last; NaN nowhere."""
    column = _column(values)
    tally = np.zeros(grid.size + 1, dtype=np.int64)
    for start in range(0, column.size, CHUNK):
        chunk = column[start : start + CHUNK].astype(np.float64)
        chunk = chunk[~np.isnan(chunk)]
        # The first candidate that is no less than the value; one place after the last where there is none.
        place = np.searchsorted(grid, -chunk if negated else chunk, side="left")
        tally += np.bincount(place, minlength=grid.size + 1)
    return tally


def _grid(candidates: ArrayLike) -> FloatArray:
    grid = finite_vector(candidates=candidates)
    if not grid.size or not (np.diff(grid) > 0).all():
        raise InvalidArgument(
            f"candidates must be different numbers in increasing order; got {shown(candidates)}. "
            "Pass for example np.linspace(0, 100, 101)."
        )
    return grid


def _column(values: ArrayLike) -> NDArray[np.generic]:
    try:
        plain = np.asarray(values)
        # A missing value (None) becomes NaN, and its record contributes nothing.
        column = plain.astype(np.float64) if plain.dtype.kind == "O" else plain
    except (TypeError, ValueError, OverflowError):
        plain, column = np.empty(0), np.empty((0, 0))
    if column.ndim != 1 or column.dtype.kind not in "iufb":
        raise InvalidArgument(
            f"values must be one number for each record; got {type(values).__name__} with shape {plain.shape} of "
            f"{plain.dtype}. Pass one column at a time, such as table[:, 0], and no text."
        )
    return column
