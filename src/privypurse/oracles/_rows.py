"""[RAW DATA] Rows of a table before they reach an oracle: scaled by public numbers."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privypurse.core._checks import FloatArray, finite_vector, ordinary, positive
from privypurse.core._errors import InvalidArgument
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.oracles._encoding import ROUNDING_MARGIN, check_dense, check_some_rows, check_sparse
from privypurse.oracles._partitions import pairwise_sum
from privypurse.oracles._scores import Magnitudes, limit_scores

# Rows converted to float64 at a time.
_ROWS = 1024


class Rows:
    """The rows of a table, for private standardisation.

    X is not changed, unless `overwrite` and if it is an array in single precision by row; `move`
    makes a copy. `target` is the class of each record, from 0 on, for `class_counts`.
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
        by = positive(unit=unit) if isinstance(unit, float | int) else self._per_column(unit)
        if not np.all(by > 0):
            raise InvalidArgument("unit must be above 0 for each column. Check the units.")
        shift = None if centre is None else self._per_column(centre)
        with _no_warnings():
            self._multiply(1 / by)
            if shift is not None:
                self._table = self._table.toarray() if self.is_sparse else self._table
                self._table -= shift.astype(np.float32)

    def stretch(self, factors: FloatArray) -> None:
        """Multiply each column by its factor. Only after `move`, whose copy is changed in place."""
        self._check_own()
        with _no_warnings():
            self._multiply(self._per_column(factors).astype(np.float32))

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
        return limit_scores(np.concatenate([length for _, length in self._blocks(1)]), candidates)

    def limits_of_squares(self, candidates: FloatArray) -> Sensitive:
        """Return scores for selecting a limit on the lengths of the rows of squared entries."""
        return limit_scores(np.concatenate([length for _, length in self._blocks(2)]), candidates)

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


def _no_warnings() -> np.errstate:
    """Ignore overflow, whose rows contribute nothing: a warning would reveal such a row."""
    return np.errstate(over="ignore", invalid="ignore", under="ignore")
