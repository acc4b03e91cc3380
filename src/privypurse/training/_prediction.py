"""Scores of new rows, prepared as the oracle prepared the training rows."""

import math
from typing import Any

import numpy as np
from scipy import sparse

from privypurse.core._checks import (
    FloatArray,
    check_positions,
    constant_value,
    finite_vector,
    ordinary,
    positive_integer,
)
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted


def softmax_scores(
    X: Any, point: FloatArray, *, classes: int, row_limit: float | None = 1.0, constant: bool | float = True
) -> FloatArray:
    """Return the score of each row for each class, under a model trained with `SoftmaxOracle`.

    Parameters
    ----------
    X, point, row_limit, constant
        As for `linear_scores`.
    classes : int
        Number of classes.

    Examples
    --------
    >>> softmax_scores([[0.6, 0.0]], [1.0, 2.0, 0.0, 0.0, 5.0, 0.0], classes=2).round(3)
    array([[4.802, 1.029]])
    """
    weights = finite_vector(point=point)
    if weights.size % positive_integer(classes=classes):
        what = f"point must have a multiple of {classes} entries; got {weights.size}"
        raise InvalidArgument(f"{what}. Pass result.point.")
    columns = weights.reshape(-1, classes).T
    return np.column_stack([linear_scores(X, column, row_limit=row_limit, constant=constant) for column in columns])


def linear_scores(
    X: Any, point: FloatArray, *, row_limit: float | None = 1.0, constant: bool | float = True
) -> FloatArray:
    """Return the score of each row under a linear model.

    Rows, with the constant, are scaled down to `row_limit` as in training. Without that, a
    probability or a regression value is wrong (but not the sign, hence not a two-class label).

    Parameters
    ----------
    X : array_like or sparse matrix of shape (n, d)
        The rows. Predictions from private rows are not covered by the model's guarantee.
    point : array_like
        The model: ``result.point``.
    row_limit, constant
        As for the oracle.

    Examples
    --------
    >>> linear_scores([[3.0, 4.0]], [1.0, 1.0], row_limit=1.0, constant=False)
    array([1.4])
    """
    weights = finite_vector(point=point)
    is_sparse = sparse.issparse(X)
    if is_sparse:
        check_positions(X)
    table: Any = X if is_sparse else _numbers(X)
    value = constant_value(constant)
    expected = weights.size - int(value > 0)
    if table.ndim != 2 or table.shape[1] != expected:
        raise InvalidArgument(f"X must have {counted(expected, 'column')}, as the model has; got shape {table.shape}.")
    squares = table.multiply(table).sum(axis=1) if is_sparse else (table * table).sum(axis=1)
    lengths = np.sqrt(np.asarray(squares, dtype=np.float64).ravel() + value * value)
    limit = math.inf if row_limit is None else ordinary(row_limit=row_limit)
    scores = np.asarray(table @ weights[:expected]).ravel() + (value * weights[-1] if value > 0 else 0.0)
    return np.asarray(scores * np.minimum(1.0, limit / np.maximum(lengths, 1e-200)))


def _numbers(X: Any) -> FloatArray:
    try:
        return np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass  # numpy's message quotes what it could not read
    why = f"X must be a table of numbers; got {type(X).__name__} with text in it"
    raise InvalidArgument(f"{why}. Encode text columns first.")
