"""Clip columns to ranges and scale them, for both scalers."""

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from privypurse.core.checks import FloatArray, shown
from privypurse.core.errors import InvalidArgument

LARGEST_BOUND, SMALLEST_WIDTH = 1e100, 1e-100  # products and quotients stay finite
FLOATS = (np.float64, np.float32)


@dataclass(frozen=True)
class Ranges:
    """A range for each column, and the range it is scaled to.

    Parameters
    ----------
    lower, upper : ndarray of shape (d,)
        The ranges.
    low, high : float
        Scaled values of `lower` and `upper`.

    Guarantees
    ----------
    What `forward` returns lies within [low, high] or is NaN, and each entry depends on the same
    entry of X alone.
    """

    lower: FloatArray
    upper: FloatArray
    low: float
    high: float

    @cached_property
    def scale(self) -> FloatArray:
        """Slope of each column."""
        return (self.high - self.low) / (self.upper - self.lower)

    @cached_property
    def _through_zero(self) -> Any:
        """Columns that map zero to zero up to rounding. They are computed so that it is exact."""
        offset = (self.low * self.upper - self.high * self.lower) / (self.upper - self.lower)
        return np.abs(offset) <= 1e-14 * (abs(self.low) + abs(self.high))

    @cached_property
    def _from(self) -> FloatArray:
        return np.where(self._through_zero, 0.0, self.lower)

    @cached_property
    def _to(self) -> FloatArray:
        return np.where(self._through_zero, 0.0, self.low)

    @cached_property
    def keeps_zeros(self) -> bool:
        """Whether zero becomes zero in all columns."""
        return bool((self._through_zero & (self.lower <= 0) & (self.upper >= 0)).all())

    def check_sparse(self) -> None:
        """Raise InvalidArgument if zeros of a sparse table would not stay zeros."""
        if not self.keeps_zeros:
            raise InvalidArgument(
                "expected ranges that keep the zeros of a sparse X, got "
                f"feature_range={(self.low, self.high)!r}. Use lower=-upper with feature_range=(-1, 1), or lower=0 "
                "with feature_range=(0, 1), or pass X.toarray()."
            )

    def forward(self, X: Any) -> Any:
        """Clip and scale. Return a new table of the type of X."""
        if sparse.issparse(X):
            self.check_sparse()
            return self._on_stored(X, self._forward)
        return self._forward(X, slice(None)).astype(X.dtype, copy=False)

    def backward(self, X: Any) -> Any:
        """Undo the scaling. Clipped values stay clipped."""
        if sparse.issparse(X):
            self.check_sparse()
            return self._on_stored(X, self._backward)
        return self._backward(X, slice(None)).astype(X.dtype, copy=False)

    def _forward(self, values: Any, columns: Any) -> FloatArray:
        scaled = np.clip(values.astype(np.float64), self.lower[columns], self.upper[columns])
        scaled -= self._from[columns]
        scaled *= self.scale[columns]
        scaled += self._to[columns]
        return np.asarray(np.clip(scaled, self.low, self.high, out=scaled))

    def _backward(self, values: Any, columns: Any) -> FloatArray:
        return np.asarray((values.astype(np.float64) - self._to[columns]) / self.scale[columns] + self._from[columns])

    def _on_stored(self, X: Any, work: Any) -> Any:
        rows = X.tocsr(copy=True)
        rows.sum_duplicates()
        rows.data = work(rows.data, rows.indices).astype(X.dtype, copy=False)
        return rows


def check_feature_range(feature_range: Any) -> tuple[float, float]:
    """Return `feature_range` as floats. Raise InvalidArgument unless it increases."""
    pair = feature_range if isinstance(feature_range, Sequence | np.ndarray) and len(feature_range) == 2 else (0, 0)
    if not all(_is_bound(end) for end in pair) or not pair[1] - pair[0] >= SMALLEST_WIDTH:
        raise InvalidArgument(
            f"feature_range must be two ordinary numbers in increasing order; got {shown(feature_range)}. "
            "Pass for example (-1, 1)."
        )
    return float(pair[0]), float(pair[1])


def declared_ranges(lower: Any, upper: Any, feature_range: Any, features: int, names: list[str] | None) -> Ranges:
    """Build ranges from numbers, one number for each column, or numbers by column name."""
    low, high = check_feature_range(feature_range)
    below = _per_column("lower", lower, features, names)
    above = _per_column("upper", upper, features, names)
    wide = above - below >= SMALLEST_WIDTH
    if not wide.all():
        wrong = int(np.argmin(wide))
        raise InvalidArgument(
            f"lower must be less than upper in every column, by 1e-100 or more; got {float(below[wrong])!r} and "
            f"{float(above[wrong])!r} in column {names[wrong] if names else wrong!r}. Pass the declared range of each column."
        )
    return Ranges(below, above, low, high)


def _per_column(name: str, value: Any, features: int, names: list[str] | None) -> FloatArray:
    if isinstance(value, Mapping):
        if names is None:
            raise InvalidArgument(
                f"{name} is declared by column name, but X has no named columns. Pass a data frame, or {name} as a list with "
                f"one number for each of the {features} columns."
            )
        missing = [column for column in names if column not in value]
        if missing:
            raise InvalidArgument(
                f"{name} must have a number for every column of X; got none for {', '.join(map(repr, missing[:5]))}. "
                "Add it, or leave the column to another transformer."
            )
        listed = [value[column] for column in names]
    elif isinstance(value, numbers.Real):
        listed = [value] * features
    else:
        listed = list(value) if isinstance(value, list | tuple | np.ndarray) and np.ndim(value) == 1 else []
        if len(listed) != features:
            raise InvalidArgument(
                f"{name} must be a number, one number for each of the {features} columns of X, or a dict by column name; "
                f"got {shown(value)}. It is not read from the data."
            )
    if not all(_is_bound(bound) for bound in listed):
        raise InvalidArgument(
            f"{name} must hold finite numbers within 1e100; got {shown(value)}. Pass for example {name}=0.0."
        )
    return np.array(listed, dtype=np.float64)


def _is_bound(value: Any) -> bool:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    return bool(real and abs(value) <= LARGEST_BOUND)
