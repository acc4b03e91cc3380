"""[RAW DATA] Rows of a table before they reach an oracle: scaled by public numbers."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privypurse.core.checks import FloatArray, finite_vector, ordinary, positive
from privypurse.core.errors import InvalidArgument
from privypurse.core.sensitive import Norm, Sensitive
from privypurse.oracles.encoding import ROUNDING_MARGIN, check_dense, check_some_rows, check_sparse
from privypurse.oracles.partitions import pairwise_sum
from privypurse.oracles.scores import Magnitudes, limit_scores

# Rows converted to float64 at a time.
_ROWS = 1024


class Rows:
    """The rows of a table, without targets, for private standardisation.

    Parameters
    ----------
    X : array_like or sparse matrix of shape (n, d)
        The records. Not changed, unless `overwrite`; `move` makes a copy in single precision.
    target : ndarray of shape (n,), optional
        The class of each record, as a number from 0 on, for `class_counts`.
    classes : int, default 0
        How many classes there are. Public.
    overwrite : bool, default False
        Whether X may be changed in place, if it is an array in single precision by row.
    may_be_empty : bool, default False
        Whether X may have no rows, as the part of a trial of a search.

    Guarantees
    ----------
    * Everything but `table` is a sealed box, whose bound was enforced on each row where the sum was
      computed. A non-finite row contributes nothing.
    * `move`, `stretch` and `limit` change each row by itself and public numbers alone.
    * Sums are in float64, block by block: contributions are kept `ROUNDING_MARGIN` inside their
      bound, far more than the rounding of two neighbouring sums of 10^8 rows.
    """

    def __init__(
        self,
        X: Any,
        target: NDArray[np.intp] | None = None,
        classes: int = 0,
        *,
        overwrite: bool = False,
        may_be_empty: bool = False,
    ) -> None:
        self._table: Any = check_sparse(X) if sparse.issparse(X) else check_dense(X)
        check_some_rows(self._table.shape[0], may_be_empty)
        self._target, self._classes = target, classes
        # Whether the table may be changed: it is a copy, or `overwrite` was set.
        self._own = bool(
            overwrite
            and isinstance(X, np.ndarray)
            and X.dtype == np.float32
            and X.flags.c_contiguous
            and X.flags.writeable
        )

    @property
    def columns(self) -> int:
        """Number of columns. Public."""
        return int(self._table.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether the table is stored as a sparse matrix."""
        return bool(sparse.issparse(self._table))

    @property
    def table(self) -> Any:
        """The current rows, for an oracle only."""
        return self._table

    def __repr__(self) -> str:
        return f"<Rows: {self.columns} columns{', sparse' if self.is_sparse else ''}>"

    def move(self, unit: float | FloatArray, centre: FloatArray | None = None) -> None:
        """Replace each row x by ``x / unit - centre``; a centre makes a sparse table dense."""
        if not isinstance(unit, float | int):
            units = self._per_column(unit)
            if not (units > 0).all():
                raise InvalidArgument("unit must be above 0 for each column. Check the units.")
            self._divide(units)
            unit = 1.0
        unit = positive(unit=unit)
        with np.errstate(over="ignore", invalid="ignore"):  # non-finite rows contribute nothing
            if centre is None:
                by = np.float32(1 / unit)
                if self.is_sparse:
                    self._table = (self._table.astype(np.float32) * by).astype(np.float32, copy=False)
                else:
                    self._table = self._multiplied(self._table, by)
                self._own = True
                return
            shift = self._per_column(centre).astype(np.float32)
            dense = self._table.toarray() if self.is_sparse else self._table
            moved = self._multiplied(dense, np.float32(1 / unit))
            moved -= shift
        self._table, self._own = moved, True

    def _divide(self, units: FloatArray) -> None:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            if self.is_sparse:
                self._table = (self._table @ sparse.diags(1 / units)).tocsr().astype(np.float32)
            else:
                by = (1 / units).astype(np.float32)
                self._table = self._multiplied(self._table, by)
        self._own = True

    def _multiplied(self, dense: Any, by: Any) -> Any:
        """Multiply in single precision, in place where the table may be changed."""
        if self._own and isinstance(dense, np.ndarray) and dense.dtype == np.float32:
            dense *= by
            return dense
        return np.multiply(dense, by, dtype=np.float32, casting="same_kind", order="C")

    def stretch(self, factors: FloatArray) -> None:
        """Multiply each column by its factor. Only after `move`, whose copy is changed in place."""
        self._check_own()
        with np.errstate(over="ignore", invalid="ignore"):  # a warning would reveal such a row
            by = self._per_column(factors).astype(np.float32)
            if self.is_sparse:
                self._table = (self._table @ sparse.diags(by)).tocsr().astype(np.float32)
            else:
                self._table *= by

    def limit(self, length: float) -> None:
        """Scale each row down to a length. Only after `move`, whose copy is changed in place."""
        self._check_own()
        length = positive(length=length)
        lengths = np.concatenate([part for _, part in self._blocks(1)])
        factors = (length / np.maximum(lengths, length)).astype(np.float32)
        if self.is_sparse:
            self._table.data *= np.repeat(factors, np.diff(self._table.indptr))
        else:
            self._table *= factors[:, None]

    def count(self) -> Sensitive:
        """Return the number of rows."""
        return Sensitive(self._table.shape[0], norm=Norm.L2, add_remove=1.0, replace_one=1.0)

    @property
    def classes(self) -> int:
        """Number of classes; 0 where records have none. Public."""
        return self._classes

    def class_counts(self) -> Sensitive:
        """Return the number of rows in each class; under add/remove it costs as much as `count`."""
        if self._target is None or self._classes < 1:
            raise InvalidArgument("target is needed to count classes; got None. Pass target and classes to Rows.")
        counts = np.bincount(self._target, minlength=self._classes)[: self._classes]
        return Sensitive(counts, norm=Norm.L2, add_remove=1.0, replace_one=math.sqrt(2))

    def total(self, *, clip_norm: float) -> Sensitive:
        """Return the sum of the rows, each scaled down to a length of at most `clip_norm`."""
        return self._sum(1, ordinary(clip_norm=clip_norm))

    def total_of_squares(self, *, clip_norm: float) -> Sensitive:
        """Return the sum of the rows of squared entries, each clipped to `clip_norm`."""
        return self._sum(2, ordinary(clip_norm=clip_norm))

    def limits(self, candidates: FloatArray) -> Sensitive:
        """Return scores for selecting a limit on the rows' lengths; see `limit_scores`."""
        return self._limits(1, candidates)

    def limits_of_squares(self, candidates: FloatArray) -> Sensitive:
        """Return scores for selecting a limit on the lengths of the rows of squared entries."""
        return self._limits(2, candidates)

    def _limits(self, power: int, candidates: FloatArray) -> Sensitive:
        return limit_scores(np.concatenate([length for _, length in self._blocks(power)]), candidates)

    def magnitudes(self) -> Magnitudes:
        """Return histograms of magnitudes, for selecting units."""
        return Magnitudes(self._table)

    def _sum(self, power: int, clip_norm: float) -> Sensitive:
        limit = clip_norm * (1 - ROUNDING_MARGIN)
        sums = []
        for block, length in self._blocks(power):
            factor = limit / np.maximum(length, limit)
            sums.append(np.asarray(block.T @ factor).ravel())
        return Sensitive(
            pairwise_sum(sums, np.zeros(self.columns)), norm=Norm.L2, add_remove=clip_norm, replace_one=2 * clip_norm
        )

    def _blocks(self, power: int) -> Iterator[tuple[Any, FloatArray]]:
        """Iterate over blocks in float64, entries raised to `power`; non-finite rows are zero."""
        rows = self._table.shape[0]
        for start in range(0, max(rows, 1), _ROWS):  # one empty block if there are no rows
            part: Any = self._table[start : start + _ROWS].astype(np.float64)
            values: NDArray[np.float64] = part.data if self.is_sparse else part
            with np.errstate(over="ignore", invalid="ignore"):
                if power == 2:
                    np.multiply(values, values, out=values)
                length = self._row_lengths(part)
            wrong = ~(length < 1e150)
            if wrong.any():
                if self.is_sparse:
                    part.data[np.repeat(wrong, np.diff(part.indptr))] = 0.0
                else:
                    part[wrong] = 0.0
                length = np.where(wrong, 0.0, length)
            yield part, length

    def _row_lengths(self, part: Any) -> FloatArray:
        squares = part.multiply(part).sum(axis=1) if self.is_sparse else np.einsum("ij,ij->i", part, part)
        return np.asarray(np.sqrt(np.asarray(squares, dtype=np.float64).ravel()))

    def _check_own(self) -> None:
        if not self._own:
            raise InvalidArgument(
                "rows must be moved before they are changed in place, or the caller's table would change. Call move."
            )

    def _per_column(self, numbers: FloatArray) -> FloatArray:
        vector = finite_vector(numbers=numbers)
        if vector.size != self.columns:
            raise InvalidArgument(
                f"numbers must be one for each of the {self.columns} columns; got {vector.size}. Check the length."
            )
        return vector
