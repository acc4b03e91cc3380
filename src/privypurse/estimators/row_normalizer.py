"""Clip rows to a norm."""

from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin

from privypurse.core.checks import FloatArray, ordinary, shown
from privypurse.core.errors import InvalidArgument
from privypurse.estimators._ranges import FLOATS
from privypurse.estimators.compat import Tagged, all_or_nothing, validate


class RowNormalizer(Tagged, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Clip each row to a Euclidean norm.

    The gradients of linear models scale with rows, so rows of one norm waste no noise. Costs
    nothing, because each row is scaled by itself.

    Parameters
    ----------
    norm : float, default 1.0
        The norm.
    only_shrink : bool, default True
        True leaves shorter rows unchanged. False scales them up to the norm, except rows of zeros.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As in all of scikit-learn.

    Guarantees
    ----------
    * A row depends on the same row of X and on the arguments alone. No row is longer than `norm`,
      up to rounding; oracles enforce their limits themselves and do not rely on this.
    * A row with NaN or infinity becomes NaN (the stored entries, if it is sparse): no error depends
      on one record, and an oracle drops it.

    Examples
    --------
    >>> RowNormalizer().fit_transform([[3.0, 4.0], [0.3, 0.4]])
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """

    _takes_sparse: ClassVar[bool] = True
    _needs_fit: ClassVar[bool] = False

    def __init__(self, norm: float = 1.0, only_shrink: bool = True) -> None:
        self.norm = norm
        self.only_shrink = only_shrink

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> "RowNormalizer":
        """Store the columns. Values are not read.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The table, or a few rows of it.
        y : None
            Ignored.
        """
        self._check()
        self._checked(X, reset=True)
        return self

    def transform(self, X: Any) -> Any:
        """Scale rows. Works without `fit`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The table.
        """
        norm = self._check()
        X = self._checked(X, reset=False)
        if sparse.issparse(X):
            rows = X.tocsr(copy=True)
            rows.sum_duplicates()
            values = rows.data.astype(np.float64)
            row_of = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
            largest = np.zeros(rows.shape[0])
            filled = np.flatnonzero(np.diff(rows.indptr))
            if filled.size:
                largest[filled] = np.maximum.reduceat(np.abs(values), rows.indptr[filled])
            unit = _over(values, largest[row_of])
            length = np.sqrt(np.bincount(row_of, weights=unit * unit, minlength=rows.shape[0]))
            factor, is_long = self._factor(norm, largest, length)
            rows.data = np.where(is_long[row_of], unit * factor[row_of], values).astype(X.dtype, copy=False)
            return rows
        values = X.astype(np.float64)
        largest = np.abs(values).max(axis=1)
        unit = _over(values, largest[:, None])
        factor, is_long = self._factor(norm, largest, np.sqrt(np.einsum("ij,ij->i", unit, unit)))
        return np.where(is_long[:, None], unit * factor[:, None], values).astype(X.dtype, copy=False)

    def _factor(self, norm: float, largest: FloatArray, length: FloatArray) -> tuple[FloatArray, Any]:
        """Return the factor of unit rows, and which rows to replace by them.

        Rows were divided by their largest entry, so that squares do not overflow.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            is_long = ~(largest * length <= norm) if self.only_shrink else ~(length == 0)
        return _over(np.full_like(length, norm), length), is_long

    def _check(self) -> float:
        if not isinstance(self.only_shrink, bool | np.bool_):
            raise InvalidArgument(
                f"only_shrink must be True or False; got {shown(self.only_shrink)}. Pass for example only_shrink=True."
            )
        return ordinary(norm=self.norm)

    def _checked(self, X: Any, reset: bool) -> Any:
        return validate(self, X, reset, accept_sparse="csr", dtype=list(FLOATS), ensure_all_finite=False)


def _over(values: FloatArray, divisor: FloatArray) -> FloatArray:
    """Divide, with 0 / 0 = 0, and NaN for divisors that are not finite."""
    with np.errstate(invalid="ignore"):
        quotient = values / np.where(np.isfinite(divisor), np.where(divisor == 0, 1.0, divisor), np.nan)
    return np.asarray(quotient)
