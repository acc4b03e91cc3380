"""Scale columns by ranges that are released from a purse."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from privypurse.core.checks import FloatArray, finite_vector, shown, small_probability
from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.estimators._ranges import FLOATS, LARGEST_BOUND, SMALLEST_WIDTH, Ranges, check_feature_range
from privypurse.estimators.compat import Tagged, all_or_nothing, validate
from privypurse.estimators.fit_budget import LeavesItsPurse, open_budget
from privypurse.estimators.private_statistics import default_candidates, private_quantiles
from privypurse.purse.holds import held
from privypurse.purse.purse import Purse


class PrivateRangeScaler(LeavesItsPurse, Tagged, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
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
    n_features_in_, feature_names_in_
        As in all of scikit-learn.

    Guarantees
    ----------
    * Twice as many selections as there are columns, of equal price, each charged before it is
      drawn. Together they stay within `epsilon` and within the purse. Arguments are checked before
      anything is spent.
    * `transform` uses `lower_` and `upper_` only. NaN in the data contributes nothing and stays
      NaN.

    Notes
    -----
    The grid has 183 candidates, so a selection is off by about ``10 / epsilon`` records, with the
    epsilon of that selection. Ten columns at a total of epsilon 1 leave about 0.1 for each:
    quantiles of 0.05 then need some ten thousand records.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform([0, -500], [10, 500], size=(20_000, 2))
    >>> scaler = PrivateRangeScaler(epsilon=1.0, random_state=0).fit(X)
    >>> scaler.lower_.round(1).tolist(), scaler.upper_.round(1).tolist(), scaler.privacy_spent_.epsilon <= 1.0
    ([0.5, -501.2], [10.0, 501.2], True)
    """

    _needs_fit: ClassVar[bool] = True

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
        """Release the ranges.

        Parameters
        ----------
        X : array-like of shape (n, d)
            The records.
        y : None
            Ignored.
        """
        X = validate(self, X, True, dtype=list(FLOATS), ensure_all_finite=False)
        check_feature_range(self.feature_range)
        grid, quantiles = self._grid(), self._quantiles()
        paid = open_budget(
            epsilon=self.epsilon,
            delta=self.delta,
            neighbouring=self.neighbouring,
            purse=self.purse,
            random_state=self.random_state,
        )
        with held(paid):
            lower, upper = private_quantiles(X, quantiles, purse=paid, candidates=grid)
        self.lower_, self.upper_ = _wide(lower, upper, grid)
        self.privacy_spent_, self.certificate_ = paid.spent, paid.certificate()
        return self

    def transform(self, X: Any) -> Any:
        """Clip to the released ranges, and scale.

        Parameters
        ----------
        X : array-like of shape (n, d)
            The table.
        """
        check_is_fitted(self)
        X = validate(self, X, False, dtype=list(FLOATS), ensure_all_finite=False)
        return self._ranges().forward(X)

    def inverse_transform(self, X: Any) -> Any:
        """Scale back to the ranges. Clipped values stay clipped.

        Parameters
        ----------
        X : array-like of shape (n, d)
            A scaled table.
        """
        check_is_fitted(self)
        X = validate(self, X, None, dtype=list(FLOATS), ensure_all_finite=False)
        if X.shape[1] != self.lower_.size:
            raise InvalidArgument(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {self.lower_.size} features "
                "as input. Pass the columns it was fitted with."
            )
        return self._ranges().backward(X)

    def _ranges(self) -> Ranges:
        return Ranges(self.lower_, self.upper_, *check_feature_range(self.feature_range))

    def _grid(self) -> FloatArray:
        grid = default_candidates() if self.candidates is None else finite_vector(candidates=self.candidates)
        if grid.size < 2 or not (np.diff(grid) >= SMALLEST_WIDTH).all() or np.abs(grid).max() > LARGEST_BOUND:
            raise InvalidArgument(
                "candidates must be at least two different numbers of ordinary size in increasing order; got "
                f"{shown(self.candidates)}. Pass for example np.linspace(0, 100, 101)."
            )
        return grid

    def _quantiles(self) -> tuple[float, float]:
        if not isinstance(self.quantiles, tuple | list) or len(self.quantiles) != 2:
            raise InvalidArgument(f"quantiles must be two; got {shown(self.quantiles)}. Pass for example (0.05, 0.95).")
        low, high = (small_probability(quantiles=quantile) for quantile in self.quantiles)
        if not low < high:
            raise InvalidArgument(
                f"quantiles must be in increasing order; got {shown(self.quantiles)}. Pass for example (0.05, 0.95)."
            )
        return low, high


def _wide(lower: FloatArray, upper: FloatArray, grid: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Widen ranges whose ends are equal, by one candidate on either side."""
    same = lower == upper
    at = np.searchsorted(grid, lower)
    below, above = grid[np.maximum(at - 1, 0)], grid[np.minimum(at + 1, grid.size - 1)]
    return np.where(same, below, lower), np.where(same, above, upper)
