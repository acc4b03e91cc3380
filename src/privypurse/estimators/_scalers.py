"""Scale columns by declared or released ranges, and clip rows to a norm."""

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from privypurse.core._checks import FloatArray, finite_vector, ordinary, shown, small_probability
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted
from privypurse.core._neighbouring import Neighbouring
from privypurse.estimators._compat import FLOATS, Tagged, all_or_nothing, by_column_name, column_names, validate
from privypurse.estimators._fit_budget import LeavesItsPurse, open_budget
from privypurse.estimators._private_statistics import default_candidates, private_quantiles
from privypurse.purse._holds import held
from privypurse.purse._purse import Purse

LARGEST_BOUND, SMALLEST_WIDTH = 1e100, 1e-100  # products and quotients stay finite
Bounds = float | Sequence[float] | Mapping[str, float]


@dataclass(frozen=True)
class Ranges:
    """A range for each column, and the range (low, high) it is scaled to."""

    lower: FloatArray
    upper: FloatArray
    low: float
    high: float

    @cached_property
    def _line(self) -> tuple[FloatArray, FloatArray, FloatArray, bool]:
        """Slope of each column, a point on its line, and whether all of them keep zeros."""
        width = self.upper - self.lower
        offset = (self.low * self.upper - self.high * self.lower) / width
        # Columns that map zero to zero up to rounding are computed so that it is exact.
        through_zero = np.abs(offset) <= 1e-14 * (abs(self.low) + abs(self.high))
        keeps_zeros = bool((through_zero & (self.lower <= 0) & (self.upper >= 0)).all())
        start, end = np.where(through_zero, 0.0, self.lower), np.where(through_zero, 0.0, self.low)
        return (self.high - self.low) / width, start, end, keeps_zeros

    def forward(self, values: Any, columns: Any) -> FloatArray:
        """Clip and scale entries of these columns: the results lie within [low, high] or are NaN."""
        slope, start, end, _ = self._line
        scaled = np.clip(values.astype(np.float64), self.lower[columns], self.upper[columns])
        scaled -= start[columns]
        scaled *= slope[columns]
        scaled += end[columns]
        return np.asarray(np.clip(scaled, self.low, self.high, out=scaled))

    def backward(self, values: Any, columns: Any) -> FloatArray:
        """Undo the scaling. Clipped values stay clipped."""
        slope, start, end, _ = self._line
        return np.asarray((values.astype(np.float64) - end[columns]) / slope[columns] + start[columns])

    def on_entries(self, X: Any, work: Callable[["Ranges", Any, Any], FloatArray]) -> Any:
        """Return a new table of the type of X, by `forward` or `backward`."""
        if not sparse.issparse(X):
            return work(self, X, slice(None)).astype(X.dtype, copy=False)
        if not self._line[3]:
            what = f"expected ranges that keep the zeros of a sparse X, got feature_range={(self.low, self.high)!r}"
            remedy = "Use lower=-upper with feature_range=(-1, 1), or lower=0 with (0, 1), or pass X.toarray()"
            raise InvalidArgument(f"{what}. {remedy}.")
        rows = X.tocsr(copy=True)
        rows.sum_duplicates()
        rows.data = work(self, rows.data, rows.indices).astype(X.dtype, copy=False)
        return rows


def check_feature_range(feature_range: Any) -> tuple[float, float]:
    """Return `feature_range` as floats. Raise InvalidArgument unless it increases."""
    pair = feature_range if isinstance(feature_range, Sequence | np.ndarray) and len(feature_range) == 2 else (0, 0)
    if not all(map(_is_bound, pair)) or not pair[1] - pair[0] >= SMALLEST_WIDTH:
        what = f"feature_range must be two ordinary numbers in increasing order; got {shown(feature_range)}"
        raise InvalidArgument(f"{what}. Pass (-1, 1).")
    return float(pair[0]), float(pair[1])


def _per_column(name: str, value: Any, features: int, names: list[str] | None) -> FloatArray:
    """Return one number for each column, from a number, a list, or numbers by column name."""
    if isinstance(value, Mapping):
        listed = by_column_name(name, value, features, names, "number")
    elif isinstance(value, numbers.Real):
        listed = [value] * features
    else:
        listed = list(value) if isinstance(value, list | tuple | np.ndarray) and np.ndim(value) == 1 else []
        if len(listed) != features:
            each = f"one number for each of the {counted(features, 'column')} of X, or a dict by column name"
            raise InvalidArgument(f"{name} must be a number, {each}; got {shown(value)}. It is not read from the data.")
    if not all(map(_is_bound, listed)):
        raise InvalidArgument(f"{name} must hold finite numbers within 1e100; got {shown(value)}. Pass {name}=0.0.")
    return np.array(listed, dtype=np.float64)


def _is_bound(value: Any) -> bool:
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    return bool(is_real and abs(value) <= LARGEST_BOUND)


class _Scaler(Tagged, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    def _checked(self, X: Any, reset: bool | None) -> Any:
        kinds = "csr" if self._takes_sparse else False
        return validate(self, X, reset, accept_sparse=kinds, dtype=FLOATS, ensure_all_finite=False)


class _RangeScaler(_Scaler):
    feature_range: tuple[float, float]
    lower_: FloatArray
    upper_: FloatArray

    def transform(self, X: Any) -> Any:
        """Clip and scale a table."""
        return self._apply(X, False, Ranges.forward)

    def inverse_transform(self, X: Any) -> Any:
        """Scale a table back to the ranges. Clipped values stay clipped."""
        return self._apply(X, None, Ranges.backward)

    def _apply(self, X: Any, reset: bool | None, work: Callable[[Ranges, Any, Any], FloatArray]) -> Any:
        if self._needs_fit:
            check_is_fitted(self)
        names, X = column_names(X), self._checked(X, reset)
        if not hasattr(self, "lower_"):
            return self._unfitted_ranges(X.shape[1], names).on_entries(X, work)
        if X.shape[1] != self.lower_.size:
            its = f"{type(self).__name__} is expecting {self.lower_.size} features as input"
            raise InvalidArgument(f"X has {X.shape[1]} features, but {its}. Pass the columns it was fitted with.")
        return Ranges(self.lower_, self.upper_, *check_feature_range(self.feature_range)).on_entries(X, work)

    def _unfitted_ranges(self, features: int, names: list[str] | None) -> Ranges:
        raise NotImplementedError


class BoundedScaler(_RangeScaler):
    """Clip each column to a declared range and scale it to `feature_range`.

    Costs nothing, because nothing is learnt: ranges come from public knowledge (ages lie between 0
    and 120). Without such knowledge use `PrivateRangeScaler`. `transform` works without `fit`. A
    table may be sparse if the ranges keep its zeros: ``lower=-upper``, or 0 mapped to 0.

    Parameters
    ----------
    lower, upper : float, sequence of float or dict, default -1.0 and 1.0
        The declared ranges: one for all columns, a number for each column, or numbers by column
        name.
    feature_range : tuple of float, default (-1, 1)
        Range after scaling.

    Attributes
    ----------
    lower_, upper_ : ndarray of shape (d,)
        The declared ranges, one for each column.

    Guarantees
    ----------
    Every number returned lies within `feature_range` or is NaN, and depends on the same entry of X
    and on the arguments alone. `fit` reads only the number and names of columns. Infinity is
    clipped like any large number, and NaN stays NaN: no error depends on one record.

    Examples
    --------
    >>> BoundedScaler(lower=[0, 0], upper=[120, 1e5]).fit_transform([[30, 25_000], [60, 3e6]])
    array([[-0.5, -0.5],
           [ 0. ,  1. ]])
    """

    _takes_sparse: ClassVar[bool] = True
    _needs_fit: ClassVar[bool] = False

    def __init__(
        self, lower: Bounds = -1.0, upper: Bounds = 1.0, feature_range: tuple[float, float] = (-1.0, 1.0)
    ) -> None:
        self.lower = lower
        self.upper = upper
        self.feature_range = feature_range

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> "BoundedScaler":
        """Store the columns of a table, or of a few rows of it, and check that each has a range."""
        names, X = column_names(X), self._checked(X, True)
        ranges = self._unfitted_ranges(X.shape[1], names)
        self.lower_, self.upper_ = ranges.lower, ranges.upper
        return self

    def _unfitted_ranges(self, features: int, names: list[str] | None) -> Ranges:
        """Build ranges from numbers, one number for each column, or numbers by column name."""
        low, high = check_feature_range(self.feature_range)
        below = _per_column("lower", self.lower, features, names)
        above = _per_column("upper", self.upper, features, names)
        wide = above - below >= SMALLEST_WIDTH
        if not wide.all():
            wrong = int(np.argmin(wide))
            pair = f"{float(below[wrong])!r} and {float(above[wrong])!r} in column {names[wrong] if names else wrong!r}"
            what = f"lower must be less than upper in every column, by 1e-100 or more; got {pair}"
            raise InvalidArgument(f"{what}. Pass declared ranges.")
        return Ranges(below, above, low, high)


class PrivateRangeScaler(LeavesItsPurse, _RangeScaler):
    """Release two quantiles of each column, clip to them, and scale to `feature_range`.

    For columns without public ranges. With public ranges, `BoundedScaler` costs nothing.

    Parameters
    ----------
    epsilon : float or None, default 1.0
        Budget of `fit`, at most what is left in the purse. None: all that is left in the purse.
    delta : float, optional
        Default: the purse's, or 1e-6.
    purse : Purse, optional
        Purse to charge. Without one, each `fit` has its own budget, and the budgets of several fits
        on the same data are not added up.
    neighbouring : {"add-remove", "replace-one"}, optional
        Default: the purse's, or add-remove.
    quantiles : tuple of float, default (0.05, 0.95)
        Quantiles at the ends of the range.
    candidates : array_like of shape (k,), optional
        The public grid that ranges are chosen from, increasing. By default zero and ten numbers a
        decade from 0.001 to a million, of both signs. Ranges are rounded outwards to it.
    feature_range : tuple of float, default (-1, 1)
        Range after scaling.
    random_state : int, RandomState or None, default None
        A seed makes `fit` a simulation, which is not private. With a purse, seed the purse instead.

    Attributes
    ----------
    lower_, upper_ : ndarray of shape (d,)
        The released ranges. If both quantiles are equal, one candidate wider on either side.
    privacy_spent_ : Spent
        Cost of `fit`: ``.epsilon``, ``.delta`` and ``.releases``.
    certificate_ : Certificate
        Certificate of `fit`. A purse has its own certificate for all releases.

    Guarantees
    ----------
    Each end of each range is one selection, of equal price, charged before it is drawn. Together
    they stay within `epsilon` and within the purse. Arguments are checked before anything is spent.
    `transform` uses `lower_` and `upper_` only. NaN in the data contributes nothing and stays NaN.
    `private_quantiles` says how many records an end may be off.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform([0, -500], [10, 500], size=(20_000, 2))
    >>> scaler = PrivateRangeScaler(epsilon=1.0, random_state=0).fit(X)
    >>> scaler.lower_.round(1).tolist(), scaler.upper_.round(1).tolist(), scaler.privacy_spent_.epsilon <= 1.0
    ([0.5, -501.2], [10.0, 501.2], True)
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        delta: float | None = None,
        purse: Purse | None = None,
        neighbouring: Neighbouring | str | None = None,
        quantiles: tuple[float, float] = (0.05, 0.95),
        candidates: ArrayLike | None = None,
        feature_range: tuple[float, float] = (-1.0, 1.0),
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.purse = purse
        self.neighbouring = neighbouring
        self.quantiles = quantiles
        self.candidates = candidates
        self.feature_range = feature_range
        self.random_state = random_state

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> "PrivateRangeScaler":
        """Release the ranges of a table with one row for each record."""
        X = self._checked(X, True)
        check_feature_range(self.feature_range)
        grid, quantiles = self._grid(), self._quantiles()
        paid = open_budget(self)
        with held(paid):
            lower, upper = private_quantiles(X, quantiles, purse=paid, candidates=grid)
        # Widen ranges whose ends are equal, by one candidate on either side.
        same, at = lower == upper, np.searchsorted(grid, lower)
        self.lower_ = np.where(same, grid[np.maximum(at - 1, 0)], lower)
        self.upper_ = np.where(same, grid[np.minimum(at + 1, grid.size - 1)], upper)
        self.privacy_spent_, self.certificate_ = paid.spent, paid.certificate()
        return self

    def _grid(self) -> FloatArray:
        grid = default_candidates() if self.candidates is None else finite_vector(candidates=self.candidates)
        if grid.size < 2 or not (np.diff(grid) >= SMALLEST_WIDTH).all() or np.abs(grid).max() > LARGEST_BOUND:
            what = "candidates must be at least two different numbers of ordinary size in increasing order"
            raise InvalidArgument(f"{what}; got {shown(self.candidates)}. Pass for example np.linspace(0, 100, 101).")
        return grid

    def _quantiles(self) -> list[float]:
        given = self.quantiles if isinstance(self.quantiles, tuple | list) else ()
        pair = [small_probability(quantiles=quantile) for quantile in given]
        if len(pair) != 2 or not pair[0] < pair[1]:
            what = f"quantiles must be two in increasing order; got {shown(self.quantiles)}"
            raise InvalidArgument(f"{what}. Pass (0.05, 0.95).")
        return pair


class RowNormalizer(_Scaler):
    """Clip each row to a Euclidean norm; shorter rows stay as they are.

    The gradients of linear models scale with rows, so rows of limited norm need less noise. Costs
    nothing, because each row is scaled by itself. A table may be sparse, and `transform` works
    without `fit`.

    Parameters
    ----------
    norm : float, default 1.0
        The norm.

    Guarantees
    ----------
    A row depends on the same row of X and on the arguments alone. No row is longer than `norm`, up
    to rounding; oracles enforce their limits themselves and do not rely on this. A row with NaN or
    infinity becomes NaN (the stored entries, if it is sparse): no error depends on one record, and
    an oracle drops it.

    Examples
    --------
    >>> RowNormalizer().fit_transform([[3.0, 4.0], [0.3, 0.4]])
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """

    _takes_sparse: ClassVar[bool] = True
    _needs_fit: ClassVar[bool] = False

    def __init__(self, norm: float = 1.0) -> None:
        self.norm = norm

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> "RowNormalizer":
        """Store the columns of a table, or of a few rows of it. Values are not read."""
        ordinary(norm=self.norm)
        self._checked(X, True)
        return self

    def transform(self, X: Any) -> Any:
        """Clip the rows of a table."""
        norm = ordinary(norm=self.norm)
        X = self._checked(X, False)
        rows: Any = X.tocsr(copy=True) if sparse.issparse(X) else X
        if rows is X:
            entries = X.astype(np.float64)
            row_of = np.arange(X.shape[0])[:, None]
            largest = np.abs(entries).max(axis=1)
            unit = _over(entries, largest[row_of])
            length = np.sqrt(np.einsum("ij,ij->i", unit, unit))
        else:
            rows.sum_duplicates()
            entries = rows.data.astype(np.float64)
            row_of = np.repeat(np.arange(X.shape[0]), np.diff(rows.indptr))
            largest = np.zeros(X.shape[0])
            with np.errstate(invalid="ignore"):  # NaN
                np.maximum.at(largest, row_of, np.abs(entries))
            unit = _over(entries, largest[row_of])
            length = np.sqrt(np.bincount(row_of, weights=unit * unit, minlength=X.shape[0]))
        # Rows were divided by their largest entry, so that squares do not overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            is_long = ~(largest * length <= norm)
        factor = _over(np.full_like(length, norm), length)
        clipped = np.where(is_long[row_of], unit * factor[row_of], entries).astype(X.dtype, copy=False)
        if rows is X:
            return clipped
        rows.data = clipped
        return rows


def _over(values: FloatArray, divisor: FloatArray) -> FloatArray:
    """Divide, with 0 / 0 = 0, and NaN for divisors that are not finite."""
    with np.errstate(invalid="ignore"):
        return np.asarray(values / np.where(np.isfinite(divisor), np.where(divisor == 0, 1.0, divisor), np.nan))
