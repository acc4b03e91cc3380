"""One-hot encoding of declared categories."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted
from privypurse.estimators._compat import Tagged, all_or_nothing, by_column_name, column_names, validate

UNKNOWN, MISSING = -1, -2


class DeclaredOneHot(Tagged, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """One-hot encode columns of categories by declared lists.

    Costs nothing, because nothing is learnt. An encoder that reads its categories from the data
    reveals that a rare one occurs.

    Parameters
    ----------
    categories : sequence or dict
        The public lists: one list for all columns (``["no", "yes"]``), a list of lists with one for
        each column, or lists by column name. Values must be of the type of the data: "1" is not 1.
    unknown : {"ignore", "other"}, default "ignore"
        Encoding of a value that is not listed: all zeros, or a column "other".
    missing : {"unknown", "column"}, default "unknown"
        Encoding of None and NaN: as an unknown value, or a column "missing".
    sparse_output : bool, default True
        Whether to return a sparse matrix.
    dtype : dtype, default float64
        Type of the result.

    Attributes
    ----------
    categories_ : list of list
        The declared list of each column.

    Guarantees
    ----------
    A row depends on the same row of X and on the arguments alone, and the number of columns on the
    arguments alone; `fit` reads only the number and names of columns. (The type of a column is one
    that numpy or pandas chose before: a single missing value can change it.)

    Examples
    --------
    >>> hot = DeclaredOneHot([["red", "blue"], [0, 1]], unknown="other", sparse_output=False)
    >>> hot.fit_transform([["blue", 0], ["pink", 1]])
    array([[0., 1., 0., 1., 0., 0.],
           [0., 0., 1., 0., 1., 0.]])
    >>> hot.get_feature_names_out().tolist()
    ['x0_red', 'x0_blue', 'x0_other', 'x1_0', 'x1_1', 'x1_other']
    """

    _takes_text: ClassVar[bool] = True
    _needs_fit: ClassVar[bool] = False
    _keeps_float32: ClassVar[bool] = False

    def __init__(
        self,
        categories: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
        *,
        unknown: str = "ignore",
        missing: str = "unknown",
        sparse_output: bool = True,
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.categories = categories
        self.unknown = unknown
        self.missing = missing
        self.sparse_output = sparse_output
        self.dtype = dtype

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> "DeclaredOneHot":
        """Store the columns of a table, or of a few rows of it, and check that each has a list."""
        self._check()
        names, X = column_names(X), self._checked(X, reset=True)
        self.categories_ = _lists(self.categories, X.shape[1], names)
        return self

    def transform(self, X: Any) -> Any:
        """Encode a table. Works without `fit`, which learns nothing."""
        self._check()
        names, X = column_names(X), self._checked(X, reset=False)
        lists = self.categories_ if hasattr(self, "categories_") else _lists(self.categories, X.shape[1], names)
        target, width = np.empty(X.shape, dtype=np.int64), 0
        for index, listed in enumerate(lists):
            codes = _codes(X[:, index], listed)
            other = len(listed) if self.unknown == "other" else UNKNOWN
            missing = len(listed) + len(self._extra) - 1 if self.missing == "column" else other
            codes = np.select([codes == MISSING, codes == UNKNOWN], [missing, other], codes)
            target[:, index] = np.where(codes >= 0, codes + width, UNKNOWN)
            width += len(listed) + len(self._extra)
        present = target >= 0
        if self.sparse_output:
            starts = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
            ones = np.ones(int(starts[-1]), dtype=self.dtype)
            return sparse.csr_matrix((ones, target[present], starts), shape=(X.shape[0], width))
        table = np.zeros((X.shape[0], width), dtype=self.dtype)
        rows, _ = np.nonzero(present)
        table[rows, target[present]] = 1
        return table

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the encoded columns: column and category."""
        names = OneToOneFeatureMixin.get_feature_names_out(self, input_features)
        pairs = zip(names, self.categories_, strict=True)
        return np.array([f"{name}_{part}" for name, listed in pairs for part in [*listed, *self._extra]], dtype=object)

    @property
    def _extra(self) -> list[str]:
        """Names of the columns after the declared categories."""
        return ["other"] * (self.unknown == "other") + ["missing"] * (self.missing == "column")

    def _check(self) -> None:
        for name, choices in (("unknown", ("ignore", "other")), ("missing", ("unknown", "column"))):
            value = getattr(self, name)
            if not isinstance(value, str) or value not in choices:
                raise InvalidArgument(f"{name} must be one of {', '.join(map(repr, choices))}; got {shown(value)}.")

    def _checked(self, X: Any, reset: bool) -> Any:
        # numpy would convert numbers in a mixed list to text.
        dtype = None if hasattr(X, "dtype") or hasattr(X, "columns") else object
        return validate(self, X, reset, dtype=dtype, ensure_all_finite=False)


def _lists(categories: Any, features: int, names: list[str] | None) -> list[list[Any]]:
    """Return the declared list of each column."""
    if isinstance(categories, Mapping):
        lists = by_column_name("categories", categories, features, names, "list")
    elif not _is_list(categories) or not len(categories):
        what = f"categories must be the declared categories; got {shown(categories)}"
        raise InvalidArgument(f"{what}. Pass for example [['no', 'yes'], [1, 2, 3]], one list for each column.")
    else:
        lists = list(categories) if any(map(_is_list, categories)) else [categories] * features
    if len(lists) != features:
        what = f"categories must be one list for each of the {counted(features, 'column')} of X; got {len(lists)}"
        raise InvalidArgument(f"{what}. Pass a flat list for all.")
    return [_list_of(listed) for listed in lists]


def _list_of(listed: Any) -> list[Any]:
    values = (listed.tolist() if isinstance(listed, np.ndarray) else list(listed)) if _is_list(listed) else []
    try:
        if len(set(values)) == len(values) > 0 and not any(map(_is_missing, values)):
            return values
    except TypeError:  # not hashable
        pass
    what = f"categories must be lists of different values, none of them missing; got {shown(listed)}"
    raise InvalidArgument(f"{what}. Pass for example ['no', 'yes'], with missing='column' for missing values.")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _is_missing(value: Any) -> bool:
    if type(value).__name__ in ("NAType", "NaTType"):  # of pandas, which cannot be compared
        return True
    return value is None or (isinstance(value, float) and value != value)


def _codes(column: NDArray[Any], listed: list[Any]) -> NDArray[np.int64]:
    """Return the position of each value in the list, UNKNOWN or MISSING."""
    position, values = {value: index for index, value in enumerate(listed)}, column.tolist()

    def code(value: Any) -> int:
        try:
            return position.get(value, UNKNOWN)
        except TypeError:  # not hashable: on no list
            return UNKNOWN

    try:
        found = [position.get(value, UNKNOWN) for value in values]  # three times as fast
    except TypeError:
        found = [code(value) for value in values]
    missing = (at == UNKNOWN and _is_missing(value) for at, value in zip(found, values, strict=True))
    return np.where(np.fromiter(missing, dtype=bool, count=len(found)), MISSING, np.array(found, dtype=np.int64))
