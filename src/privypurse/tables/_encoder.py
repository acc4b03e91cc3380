"""Encode the columns of a schema as numbers, row by row, without learning from the data."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from privypurse.core._checks import FloatArray, shown
from privypurse.core._errors import InvalidArgument
from privypurse.estimators._compat import Tagged
from privypurse.estimators._curves import hats
from privypurse.tables._columns import MISSING, UNKNOWN, column_of, dates, numbers, places
from privypurse.tables._schema import PARTS, Category, Date, Number, NumberTarget, Schema

MOST_DENSE_COLUMNS = 512  # with more encoded columns the result is a sparse matrix


class TableEncoder(Tagged, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode a table with named columns as a matrix, by a schema. First step of trained pipelines.

    A number is clipped to its range and scaled to [0, 1], one-hot encoded by declared cuts, or
    encoded by the knots of a curve. A missing number counts as the middle of its range. So does a
    date; its month, weekday and hour are one-hot encoded. A category is one-hot encoded; one that is
    not listed is all zeros, or has a column of its own.

    The schema is public and has all ranges. A table is a pandas or polars frame, an Arrow table, or
    a dict of columns. The result is a float32 array; with more than 512 columns, a sparse matrix.

    Guarantees
    ----------
    A row of the result depends on the same row of the table and on the schema alone, every number
    of it lies in [0, 1], and its width depends on the schema alone. No value raises an error.

    Examples
    --------
    >>> from privypurse.tables._schema import Category, Number, Schema
    >>> schema = Schema((Number(name="age", range=(0, 100)), Category(name="job", categories=("law", "care"))))
    >>> TableEncoder(schema).fit_transform({"age": [25, None, 300], "job": ["law", "care", "pilot"]})
    array([[0.25, 1.  , 0.  ],
           [0.5 , 0.  , 1.  ],
           [1.  , 0.  , 0.  ]], dtype=float32)
    """

    _takes_text: ClassVar[bool] = True
    _needs_fit: ClassVar[bool] = False

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def fit(self, X: Any, y: Any = None) -> "TableEncoder":
        """Check that the columns exist. Values are not read."""
        for column in self._checked().columns:
            column_of(X, column.name)
        return self

    @property
    def n_features_in_(self) -> int:
        """Number of input columns."""
        return len(self.schema.columns)

    def transform(self, X: Any) -> Any:
        """Encode. Works without `fit`, which learns nothing."""
        schema = self._checked()
        columns = [column_of(X, column.name) for column in schema.columns]
        rows = {len(column) for column in columns}
        if len(rows) != 1:
            raise InvalidArgument("expected columns of one length, got several lengths. Check the table.")
        encoded = np.zeros((rows.pop(), len(schema.features)), dtype=np.float32)
        start = 0
        for column, values in zip(schema.columns, columns, strict=True):
            part = encoded[:, start : start + len(column.features)]
            start += len(column.features)
            if isinstance(column, Category):
                _fill_category(part, places(values, column.categories, schema.missing_in(column)), column)
            elif isinstance(column, Date):
                _fill_date(part, read_numbers(values, column, schema), column)
            else:
                _fill_number(part, read_numbers(values, column, schema), column)
        return sparse.csr_matrix(encoded) if self.is_sparse else encoded

    @property
    def is_sparse(self) -> bool:
        """Whether the result is a sparse matrix."""
        return len(self.schema.features) > MOST_DENSE_COLUMNS

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Name the columns of the result."""
        return np.array(self.schema.features, dtype=object)

    def _checked(self) -> Schema:
        if not isinstance(self.schema, Schema):
            raise InvalidArgument(f"expected schema to be a Schema, got {shown(self.schema)}. Call read_schema.")
        if self.schema.to_buy:
            column = self.schema.to_buy[0].name
            raise InvalidArgument(f"column {column!r} has no range yet. `privypurse train` buys it; or declare it.")
        return self.schema


def read_numbers(values: Any, part: Number | NumberTarget | Date, schema: Schema) -> FloatArray:
    """Return the values of a column as numbers, or as seconds since 1970; NaN for missing and unreadable ones."""
    if isinstance(part, Date):
        return dates(values, schema.missing_in(part), part.format)
    return numbers(values, schema.missing_in(part), *schema.signs_of(part))


def _fill_category(part: NDArray[np.float32], codes: NDArray[np.int32], column: Category) -> None:
    if column.other:
        codes = np.where(codes == UNKNOWN, len(column.categories), codes)
    _mark(part, codes)
    if column.missing:
        part[codes == MISSING, -1] = 1.0


def _fill_number(part: NDArray[np.float32], values: FloatArray, column: Number) -> None:
    is_missing = np.isnan(values)
    if column.cuts:
        intervals = np.searchsorted(np.array(column.cuts), values, side="right")
        _mark(part, np.where(is_missing, MISSING, intervals))
    elif column.knots:
        part[:, : 1 + len(column.knots)] = hats(values, np.array(column.knots))
    elif column.range is not None:
        part[:, 0] = _scaled(values, *column.range)
    if column.missing:
        part[is_missing, -1] = 1.0


def _fill_date(part: NDArray[np.float32], values: FloatArray, column: Date) -> None:
    is_missing, start = np.isnan(values), 0
    seconds = np.floor(np.where(is_missing, 0.0, values)).astype("datetime64[s]")
    numbered = {
        "month": seconds.astype("datetime64[M]").astype(np.int64) % 12,
        "weekday": (seconds.astype("datetime64[D]").astype(np.int64) + 3) % 7,  # 1970 began on a Thursday
        "hour": seconds.astype("datetime64[h]").astype(np.int64) % 24,
    }
    for name in column.parts:
        width = len(PARTS[name]) or 1
        if name == "position":
            part[:, start] = _scaled(values, *column.range)
        else:
            _mark(part[:, start : start + width], np.where(is_missing, MISSING, numbered[name]))
        start += width
    if column.missing:
        part[is_missing, -1] = 1.0


def _scaled(values: FloatArray, low: float, high: float) -> FloatArray:
    """Clip to a range and scale to [0, 1]. Missing values are in the middle."""
    return np.where(np.isnan(values), 0.5, (np.clip(values, low, high) - low) / (high - low))


def _mark(part: NDArray[np.float32], places: NDArray[Any]) -> None:
    """Set one column of each row to one, or none where its place is negative."""
    rows = np.flatnonzero(places >= 0)
    part[rows, places[rows]] = 1.0
