"""[RAW DATA] Rows of a table before they reach an oracle: scaled by public numbers."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privypurse.core._checks import FloatArray, finite_vector, ordinary, positive
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.oracles._encoding import ROUNDING_MARGIN, check_dense, check_sparse
from privypurse.oracles._kernels import row_products
from privypurse.oracles._partitions import pairwise_sum
from privypurse.oracles._scores import Magnitudes, limit_scores, tail_scores

_ROWS = 1024  # converted to float64 at a time


class Rows:
    """The rows of a table, for private standardisation.

    X is not changed, unless `overwrite` and if it is an array in single precision by row; `move`
    makes a copy. `target` is the class of each record, from 0 on, for `class_counts`. With
    `may_be_empty` X may have no rows, as the part of a trial of a search.

    Guarantees
    ----------
    * Everything but `table` is a sealed box, whose bound was enforced on each row where the sum was
      computed. A non-finite row contributes nothing.
    * `move`, `stretch`, `turn` and `limit` change each row by itself and public numbers alone.
    * Sums are in float64, block by block: contributions are kept `ROUNDING_MARGIN` inside their
      bound, far more than the rounding of two neighbouring sums of 10^8 rows.
    """

    def __init__(
        self, X: Any, target: Any = None, classes: int = 0, *, overwrite: bool = False, may_be_empty: bool = False
    ) -> None:
        check = check_sparse if sparse.issparse(X) else check_dense
        self._table: Any = check(X, may_be_empty=may_be_empty)
        # Public: the number of columns, and of classes (0 where records have none).
        self.columns, self.classes = int(self._table.shape[1]), classes
        self._target = target
        # Whether the table may be changed: it is a copy, or `overwrite` was set.
        in_place = isinstance(X, np.ndarray) and X.dtype == np.float32 and X.flags.c_contiguous and X.flags.writeable
        self._own = overwrite and in_place

    @property
    def is_sparse(self) -> bool:
        """Whether the table is stored as a sparse matrix."""
        return bool(sparse.issparse(self._table))

    @property
    def table(self) -> Any:
        """The current rows, for an oracle only."""
        return self._table

    def __repr__(self) -> str:
        return f"<Rows: {counted(self.columns, 'column')}{', sparse' if self.is_sparse else ''}>"

    def move(self, unit: float | FloatArray, centre: FloatArray | None = None) -> None:
        """Replace each row x by ``x / unit - centre``; a centre makes a sparse table dense."""
        by = positive(unit=unit) if isinstance(unit, float | int) else self._per_column(unit)
        if not np.all(by > 0):
            raise InvalidArgument("unit must be above 0 for each column. Check the units.")
        shift = None if centre is None else self._per_column(centre)
        with np.errstate(all="ignore"):  # a warning of overflow would reveal a row
            self._multiply(1 / by)
            if shift is not None:
                self._table = self._table.toarray() if self.is_sparse else self._table
                self._table -= shift.astype(np.float32)

    def stretch(self, factors: FloatArray) -> None:
        """Multiply each column by its factor. Only after `move`, whose copy is changed in place."""
        self._check_own()
        with np.errstate(all="ignore"):
            self._multiply(self._per_column(factors).astype(np.float32))

    def turn(self, matrix: FloatArray) -> None:
        """Multiply each row of a dense table by a square matrix. Only after `move`."""
        self._check_own()
        with np.errstate(all="ignore"):
            for start in range(0, len(self._table), _ROWS):
                part = self._table[start : start + _ROWS]
                part[:] = row_products(part, np.ascontiguousarray(matrix, dtype=np.float64))

    def _multiply(self, by: Any) -> None:
        """Multiply, by one number or one for each column; in place where the table may change."""
        if not self.is_sparse:
            out, by = self._table if self._own else None, np.asarray(by, dtype=np.float32)
            self._table = np.multiply(self._table, by, dtype=np.float32, casting="same_kind", order="C", out=out)
        elif np.ndim(by) == 0:
            self._table = (self._table.astype(np.float32) * np.float32(by)).astype(np.float32, copy=False)
        else:
            self._table = (self._table @ sparse.diags(by)).tocsr().astype(np.float32)
        self._own = True

    def limit(self, length: float) -> None:
        """Scale each row down to a length. Only after `move`, whose copy is changed in place."""
        self._check_own()
        length = positive(length=length)
        factors = (length / np.maximum(self._lengths(1), length)).astype(np.float32)
        if self.is_sparse:
            self._table.data *= np.repeat(factors, np.diff(self._table.indptr))
        else:
            self._table *= factors[:, None]

    def count(self) -> Sensitive:
        """Return the number of rows."""
        return Sensitive(self._table.shape[0], norm=Norm.L2, add_remove=1.0, replace_one=1.0)

    def class_counts(self) -> Sensitive:
        """Return the number of rows in each class; under add/remove it costs as much as `count`."""
        if self._target is None or self.classes < 1:
            raise InvalidArgument("target is needed to count classes; got None. Pass target and classes to Rows.")
        counts = np.bincount(self._target, minlength=self.classes)[: self.classes]
        return Sensitive(counts, norm=Norm.L2, add_remove=1.0, replace_one=math.sqrt(2))

    def total(self, *, clip_norm: float, power: int = 1) -> Sensitive:
        """Return the sum of the rows, or of their squared entries, each row clipped to `clip_norm`."""
        clip_norm = ordinary(clip_norm=clip_norm)
        limit, blocks = clip_norm * (1 - ROUNDING_MARGIN), self._blocks(power)
        sums = [np.asarray(block.T @ (limit / np.maximum(length, limit))).ravel() for block, length in blocks]
        total = pairwise_sum(sums, np.zeros(self.columns))
        return Sensitive(total, norm=Norm.L2, add_remove=clip_norm, replace_one=2 * clip_norm)

    def products(self, *, clip_norm: float) -> Sensitive:
        """Return the sum of the products of two columns, each row clipped to `clip_norm`.

        The upper triangle by row, with products of different columns times the square root of two:
        then a row of length r contributes a vector of length ``r^2``.
        """
        clip_norm = ordinary(clip_norm=clip_norm)
        limit, total = clip_norm * (1 - ROUNDING_MARGIN), np.zeros((self.columns, self.columns))
        sums = []
        for block, length in self._blocks(1):
            clipped = block * (limit / np.maximum(length, limit))[:, None]
            sums.append(clipped.T @ clipped)
        total = pairwise_sum(sums, total) * np.where(np.eye(self.columns, dtype=bool), 1.0, math.sqrt(2))
        bound = clip_norm**2
        upper = total[np.triu_indices(self.columns)]
        return Sensitive(upper, norm=Norm.L2, add_remove=bound, replace_one=2 * bound)

    def beyond(self, candidates: FloatArray) -> Sensitive:
        """Return scores for selecting a limit on the lengths of the rows that few are beyond."""
        return tail_scores(self._lengths(1), candidates)

    def limits(self, candidates: FloatArray, *, power: int = 1) -> Sensitive:
        """Return scores for selecting a limit on the lengths of the rows, or of their squared entries."""
        return limit_scores(self._lengths(power), candidates)

    def magnitudes(self) -> Magnitudes:
        """Return histograms of magnitudes, for selecting units."""
        return Magnitudes(self._table)

    def _lengths(self, power: int) -> FloatArray:
        return np.concatenate([length for _, length in self._blocks(power)])

    def _blocks(self, power: int) -> Iterator[tuple[Any, FloatArray]]:
        """Iterate over blocks in float64, entries raised to `power`; non-finite rows are zero."""
        for start in range(0, max(self._table.shape[0], 1), _ROWS):  # one empty block if there are no rows
            part: Any = self._table[start : start + _ROWS].astype(np.float64)
            values: NDArray[np.float64] = part.data if self.is_sparse else part
            with np.errstate(over="ignore", invalid="ignore"):
                if power == 2:
                    np.multiply(values, values, out=values)
                squares = part.multiply(part).sum(axis=1) if self.is_sparse else np.einsum("ij,ij->i", part, part)
                length = np.sqrt(np.asarray(squares, dtype=np.float64).ravel())
            wrong = ~(length < 1e150)
            if wrong.any():
                if self.is_sparse:
                    part.data[np.repeat(wrong, np.diff(part.indptr))] = 0.0
                else:
                    part[wrong] = 0.0
                length = np.where(wrong, 0.0, length)
            yield part, length

    def _check_own(self) -> None:
        if not self._own:
            raise InvalidArgument("rows must be moved before they are changed in place. Call move.")

    def _per_column(self, numbers: FloatArray) -> FloatArray:
        vector = finite_vector(numbers=numbers)
        if vector.size != self.columns:
            raise InvalidArgument(f"numbers must be {self.columns}, one for each column; got {vector.size}. Check X.")
        return vector
