"""[RAW DATA] How large the numbers of a table are, in powers of two: for units of measurement that nobody declared."""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privypurse.core.checks import FloatArray
from privypurse.core.sensitive import Norm, Sensitive

# Candidate units are two to these powers.
EXPONENTS = np.arange(-60, 61)
# Exponents of single precision, as stored: 0 for zero (and what is too small to matter), 255 for what is not finite.
_STORED, _BIAS = 256, 127
# Numbers looked at together.
_NUMBERS = 2_000_000
# Counts are whole numbers and worths powers of two, so only sums round: by far less than this for 10^8 records.
ROUNDING = 1e-5


class Magnitudes:
    """Histograms of the exponents of a table's numbers, from which units can be selected.

    A unit c is worth ``r`` to a number of r times that size if r is at most 1, and ``1/r^2`` if it is more: as for a limit on
    lengths (`limit_scores`). Numbers are rounded down to powers of two first. Zeros, and what is not finite, have no size.

    Parameters
    ----------
    table : ndarray or sparse matrix of shape (n, d)
        The records.

    Guarantees
    ----------
    A record is worth between 0 and 1 to each unit of each column, and to each unit of the table: what its numbers are worth on
    average. So scores move apart by at most 1 if a record is added or removed, and by at most 2 if one is replaced.
    """

    def __init__(self, table: Any) -> None:
        columns = table.shape[1]
        self._columns = np.zeros(columns * _STORED)
        self._table = np.zeros(_STORED)
        step = max(1, _NUMBERS // columns)
        for start in range(0, table.shape[0], step):
            for exponents, column, row in _entries(table[start : start + step]):
                self._columns += np.bincount(column * _STORED + exponents, minlength=columns * _STORED)
                in_row = np.bincount(row) if row.size else np.zeros(0)
                self._table += np.bincount(exponents, weights=1 / in_row[row], minlength=_STORED)

    def of_column(self, column: int) -> Sensitive:
        """Return the scores of the candidate units for one column."""
        return _scores(self._columns[column * _STORED : (column + 1) * _STORED])

    def of_table(self) -> Sensitive:
        """Return the scores of the candidate units for all numbers of the table."""
        return _scores(self._table)


def _entries(block: Any) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]]:
    """Return the exponents of a block's numbers, with their columns and rows; those that have a size."""
    with np.errstate(over="ignore", under="ignore"):
        if sparse.issparse(block):
            matrix = block.tocsr()
            values = matrix.data.astype(np.float32)
            column = matrix.indices.astype(np.intp)
            row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        else:
            values = np.asarray(block, dtype=np.float32)
            values = np.ascontiguousarray(values)
            row, column = np.divmod(np.flatnonzero(values), values.shape[1])
            values = values[row, column]
    exponents = ((values.view(np.int32) >> 23) & 255).astype(np.intp)
    sized = (exponents > 0) & (exponents < 255)
    yield exponents[sized], column[sized], row[sized]


@functools.cache
def _worth() -> FloatArray:
    """Return what each candidate unit is worth to a number with each stored exponent."""
    steps = (np.arange(_STORED) - _BIAS)[:, None] - EXPONENTS[None, :]
    return np.asarray(np.where(steps <= 0, 2.0**steps, 4.0 ** -steps.astype(float)))


def _scores(counts: FloatArray) -> Sensitive:
    bound = 1 + ROUNDING
    return Sensitive(counts @ _worth(), norm=Norm.RANGE, add_remove=bound, replace_one=2 * bound)
