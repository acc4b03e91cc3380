"""Scale columns by declared ranges."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin

from privypurse.core.errors import InvalidArgument
from privypurse.estimators._ranges import FLOATS, Ranges, check_feature_range, declared_ranges
from privypurse.estimators.compat import Tagged, all_or_nothing, column_names, validate

Bounds = float | Sequence[float] | Mapping[str, float]


class BoundedScaler(Tagged, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Clip each column to a declared range and scale it to `feature_range`.

    Costs nothing, because nothing is learnt: ranges come from public knowledge (ages lie between 0
    and 120). Without such knowledge use `PrivateRangeScaler`.

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
    n_features_in_, feature_names_in_
        As in all of scikit-learn.

    Guarantees
    ----------
    * Every number returned lies within `feature_range`, and depends on the same entry of X and on
      the arguments alone: records do not affect one another. `fit` reads only the number and names
      of columns.
    * Infinity is clipped like any large number, and NaN stays NaN: no error depends on one record.

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
        """Store the columns and check that each has a range. Values are not read.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The table, or a few rows of it.
        y : None
            Ignored.
        """
        names = column_names(X)
        X = _checked(self, X, reset=True)
        ranges = declared_ranges(self.lower, self.upper, self.feature_range, X.shape[1], names)
        self.lower_, self.upper_ = ranges.lower, ranges.upper
        return self

    def transform(self, X: Any) -> Any:
        """Clip and scale. Works without `fit`, which learns nothing.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The table. A sparse one needs ranges that keep zeros: ``lower=-upper``, or 0 mapped to
            0.
        """
        names = column_names(X)
        X = _checked(self, X, reset=False)
        return self._ranges(X.shape[1], names).forward(X)

    def inverse_transform(self, X: Any) -> Any:
        """Scale back to the declared ranges. Clipped values stay clipped.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            A scaled table.
        """
        names = column_names(X)
        X = _checked(self, X, reset=None)
        return self._ranges(X.shape[1], names).backward(X)

    def _ranges(self, features: int, names: list[str] | None) -> Ranges:
        if not hasattr(self, "lower_"):
            return declared_ranges(self.lower, self.upper, self.feature_range, features, names)
        if features != self.lower_.size:
            raise InvalidArgument(
                f"X has {features} features, but {type(self).__name__} is expecting {self.lower_.size} features as "
                "input. Pass the columns it was fitted with."
            )
        return Ranges(self.lower_, self.upper_, *check_feature_range(self.feature_range))


def _checked(estimator: BoundedScaler, X: Any, reset: bool | None) -> Any:
    return validate(estimator, X, reset, accept_sparse="csr", dtype=list(FLOATS), ensure_all_finite=False)
