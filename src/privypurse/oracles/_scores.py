"""[RAW DATA] Scores of public candidates as sealed boxes, from which a selection chooses privately.

Candidates are units of measurement, limits on lengths, quantiles and the targets of a regression.
``docs/proofs/selection.md`` proves the bounds of the scores of quantiles.
"""

import itertools
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from privypurse.core._checks import FloatArray, finite_vector, shown, small_probability
from privypurse.core._errors import InvalidArgument
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.oracles._encoding import check_target_bounds, plain_numbers
from privypurse.oracles.statistics import clipped_sum

EXPONENTS = np.arange(-60, 61)  # candidate units are two to these powers
# Stored exponents of single precision: 0 for zero (or nearly), 255 for non-finite numbers.
_STORED, _BIAS = 256, 127
_NUMBERS = 2_000_000  # processed together
# Counts are integers, worths powers of two: sums of 10^8 records round by far less than this.
UNIT_ROUNDING = 1e-5


class Magnitudes:
    """Histograms of the exponents of a table's numbers, from which units can be selected.

    A unit c is worth ``r`` to a number of r times that size if r is at most 1, and ``1/r^2`` if it
    is more, as for a limit on lengths (`limit_scores`). Numbers are rounded down to powers of two
    first. Zeros and non-finite numbers do not count.

    Guarantees
    ----------
    A record is worth between 0 and 1 to each unit of each column, and to each unit of the table:
    the average over its numbers. So scores move apart by at most 1 if a record is added or removed,
    and by at most 2 if one is replaced.
    """

    def __init__(self, table: Any) -> None:
        columns = table.shape[1]
        self._columns = np.zeros(columns * _STORED)
        self._table = np.zeros(_STORED)
        step = max(1, _NUMBERS // columns)
        for start in range(0, table.shape[0], step):
            exponents, column, row = _entries(table[start : start + step])
            self._columns += np.bincount(column * _STORED + exponents, minlength=columns * _STORED)
            in_row = np.bincount(row)
            self._table += np.bincount(exponents, weights=1 / in_row[row], minlength=_STORED)

    def of_column(self, column: int) -> Sensitive:
        """Return the scores of the candidate units for one column."""
        return _scores(self._columns[column * _STORED : (column + 1) * _STORED])

    def of_table(self) -> Sensitive:
        """Return the scores of the candidate units for all numbers of the table."""
        return _scores(self._table)


def _entries(block: Any) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return the exponents of a block's finite non-zero numbers, with their columns and rows."""
    with np.errstate(over="ignore", under="ignore"):
        if sparse.issparse(block):
            entries = block.tocoo()
            row, column, values = entries.row, entries.col.astype(np.intp), entries.data.astype(np.float32)
        else:
            values = np.ascontiguousarray(block, dtype=np.float32)
            row, column = np.divmod(np.flatnonzero(values), values.shape[1])
            values = values[row, column]
    exponents = ((values.view(np.int32) >> 23) & 255).astype(np.intp)
    sized = (exponents > 0) & (exponents < 255)
    return exponents[sized], column[sized], row[sized]


# The worth of each candidate unit to a number with each stored exponent.
_STEPS = (np.arange(_STORED) - _BIAS)[:, None] - EXPONENTS
_WORTH = np.where(_STEPS <= 0, 2.0**_STEPS, 4.0 ** -_STEPS.astype(float))


def _scores(counts: FloatArray) -> Sensitive:
    bound = 1 + UNIT_ROUNDING
    return Sensitive(counts @ _WORTH, norm=Norm.RANGE, add_remove=bound, replace_one=2 * bound)


# Pairwise sums of n numbers of at most one err by far less than this for 10^8 records.
LIMIT_ROUNDING = 1e-7


def limit_scores(lengths: FloatArray, candidates: FloatArray) -> Sensitive:
    """Score candidate limits by how much of each record they keep.

    A limit c is worth ``length/c`` to a shorter record, which it leaves small, and ``(c/length)^2``
    to a longer one, which it cuts: most records are just within the best limit. Lengths are from 0
    to 1e150, one for each record; NaN is worth nothing. Limits are positive and increasing.

    Guarantees
    ----------
    Each record is worth between 0 and 1, whatever the limit. So scores move apart by at most 1 if a
    record is added or removed, and by at most 2 if one is replaced.
    """
    limits = _grid(candidates)
    if not limits[0] > 0:
        raise InvalidArgument("candidates must be positive numbers. Pass limits above 0.")
    ordered = np.sort(lengths[~np.isnan(lengths)])
    ordered = ordered[np.searchsorted(ordered, 0.0, side="right") :]
    places = [0, *np.searchsorted(ordered, limits, side="right").tolist(), ordered.size]
    bins = [ordered[a:b] for a, b in itertools.pairwise(places)]
    # Pairwise sums of each bin, scaled so that no entry is above one.
    shorter = [part.sum() / limit if part.size else 0.0 for part, limit in zip(bins, [*limits, 1.0], strict=True)]
    longer = [((limit / part) ** 2).sum() for part, limit in zip(bins[1:], limits, strict=True)]
    kept = [
        sum(shorter[i] * limits[i] / limit for i in range(j + 1))
        + sum(longer[i] * (limit / limits[i]) ** 2 for i in range(j, limits.size))
        for j, limit in enumerate(limits)
    ]
    bound = 1 + LIMIT_ROUNDING
    return Sensitive(kept, norm=Norm.RANGE, add_remove=bound, replace_one=2 * bound)


def tail_scores(lengths: ArrayLike, candidates: ArrayLike) -> Sensitive:
    """Score candidate limits by minus the number of records beyond them. NaN contributes nothing.

    Guarantees
    ----------
    Adding a record lowers the scores of the candidates below it by 1 and leaves the others.
    Replacing one moves the scores of the candidates between the two lengths by 1, in one direction.
    So scores move apart by at most 1 under either relation.
    """
    tally = _tally(lengths, _grid(candidates))
    return Sensitive(np.cumsum(tally[:-1]) - float(tally.sum()), norm=Norm.RANGE, add_remove=1.0, replace_one=1.0)


# Counts are exact. A score is rounded at most three times, by at most 2^-53 of N each: for two
# scores on two data sets together less than this up to 7e9 records.
ROUNDING_MARGIN = 1e-5

Side = Literal["upper", "lower"]
CHUNK = 2**20  # values processed together, so that a long column is not copied whole


def quantile_scores(values: ArrayLike, *, quantile: float, candidates: ArrayLike) -> Sensitive:
    """Score candidates by their distance from a quantile: for a grid finer than the data.

    A candidate c scores ``-|(1 - quantile) * #{x <= c} - quantile * #{x > c}|``: zero at the
    quantile, and one less for each record in between. NaN contributes nothing; infinities lie
    beyond all candidates. Candidates without a record between them score alike; see
    `covering_scores` where that may happen.

    Guarantees
    ----------
    One record moves two scores apart by at most ``2 max(quantile, 1 - quantile)`` if it is added or
    removed, and by at most 2 if it is replaced. No smaller bound holds.
    """
    quantile = small_probability(quantile=quantile)
    tally = _tally(values, _grid(candidates))
    return _box(-np.abs(np.cumsum(tally[:-1]) - quantile * tally.sum()), quantile)


def covering_scores(values: ArrayLike, *, quantile: float, candidates: ArrayLike, side: Side) -> Sensitive:
    """Score candidates by their distance from the tightest end of a range that covers the records.

    For ``side="upper"`` the right candidate is the first one that at least a share `quantile` of
    the records is at or below; a candidate scores minus the number of records by which that fails.
    For ``side="lower"`` it is the last candidate that at least a share ``1 - quantile`` is at or
    above. So a coarse grid rounds a range outwards, and candidates far beyond the data are worse
    than the nearest one: columns of integers need no grid of their own. Values beyond all
    candidates count as the last candidate on that side.

    Guarantees
    ----------
    As for `quantile_scores`.
    """
    quantile = small_probability(quantile=quantile)
    grid = _grid(candidates)
    if side not in ("upper", "lower"):
        raise InvalidArgument(f"side must be 'upper' or 'lower'; got {shown(side)}. Pass for example side='upper'.")
    mirrored = side == "lower"
    tally = _tally(values, -grid[::-1] if mirrored else grid, negated=mirrored)
    tally[-2] += tally[-1]  # values beyond count as the last candidate
    excess = np.cumsum(tally[:-1]) - (1 - quantile if mirrored else quantile) * tally[:-1].sum()
    scores = np.minimum(0.0, excess)
    scores[1:] -= np.maximum(0.0, excess[:-1])
    return _box(scores[::-1] if mirrored else scores, quantile)


def _box(scores: FloatArray, quantile: float) -> Sensitive:
    bound = 2 * max(quantile, 1 - quantile)
    return Sensitive(scores * (1 - ROUNDING_MARGIN), norm=Norm.RANGE, add_remove=bound, replace_one=2.0)


def _tally(values: ArrayLike, grid: FloatArray, negated: bool = False) -> NDArray[np.int64]:
    """Count the records up to each candidate since the one before, and beyond the last; no NaN."""
    remedy = "Pass one column at a time, such as table[:, 0], and no text."
    column = plain_numbers(values, 1, "values must be one number for each record", remedy)
    tally = np.zeros(grid.size + 1, dtype=np.int64)
    for start in range(0, column.size, CHUNK):
        chunk = column[start : start + CHUNK].astype(np.float64)
        chunk = chunk[~np.isnan(chunk)]
        # The first candidate that is no less than the value; one past the last where there is none.
        place = np.searchsorted(grid, -chunk if negated else chunk, side="left")
        tally += np.bincount(place, minlength=grid.size + 1)
    return tally


def _grid(candidates: ArrayLike) -> FloatArray:
    grid = finite_vector(candidates=candidates)
    if not grid.size or not (np.diff(grid) > 0).all():
        raise InvalidArgument(f"candidates must be increasing numbers; got {shown(candidates)}. Pass [0, 1].")
    return grid


class Targets:
    """Targets of a regression, clipped to their declared public range.

    `with_spread` says whether the loss needs their spread, `with_mean` whether it needs their mean.
    """

    def __init__(
        self, y: ArrayLike, bounds: tuple[float, float], *, with_spread: bool = False, with_mean: bool = False
    ) -> None:
        self.bounds, self.with_spread, self.with_mean = check_target_bounds(bounds), with_spread, with_mean
        self._values = np.clip(checked_numbers(y).astype(np.float64), *self.bounds)

    def medians(self, candidates: FloatArray) -> Sensitive:
        """Return scores for selecting the median."""
        return quantile_scores(self._values, quantile=0.5, candidates=candidates)

    def beyond(self, middle: float, candidates: FloatArray) -> Sensitive:
        """Return scores for selecting a distance from a public middle that few targets are beyond."""
        return tail_scores(np.abs(self._values - middle), candidates)

    def spreads(self, middle: float, quantile: float, candidates: FloatArray) -> Sensitive:
        """Return scores for selecting a quantile of the distance from a public middle."""
        return covering_scores(np.abs(self._values - middle), quantile=quantile, candidates=candidates, side="upper")

    def total(self, middle: float, limit: float) -> Sensitive:
        """Return the sum of differences from a public middle, each clipped to a public limit."""
        return clipped_sum((self._values - middle)[:, None], clip_norm=limit)

    def factors(self, scores: FloatArray, limit: float) -> Sensitive:
        """Return the sum of ``exp(target - score)``, each clipped to a public limit.

        `scores` are of the records, each computed by itself: one record moves no other's.
        """
        return clipped_sum(np.exp(np.minimum(self._values - scores, 700.0))[:, None], clip_norm=limit)

    def factors_beyond(self, scores: FloatArray, candidates: FloatArray) -> Sensitive:
        """Return scores for selecting a limit that few of ``exp(target - score)`` are beyond."""
        return tail_scores(self._values - scores, np.log(candidates))

    def mapped(self, middle: float, unit: float) -> tuple[FloatArray, tuple[float, float]]:
        """Return targets and their bounds as multiples of a public unit from a middle; for an oracle only."""
        low, high = ((end - middle) / unit for end in self.bounds)
        return np.clip((self._values - middle) / unit, low, high), (low, high)


def checked_numbers(y: ArrayLike) -> NDArray[Any]:
    """Raise InvalidArgument for non-numeric targets, without quoting any as numpy would."""
    values = np.asarray(y)
    if values.dtype.kind not in "iufb":
        raise InvalidArgument(f"y must hold numbers in a regression; got {values.dtype}. Convert it first.")
    return values
