"""Pairs of columns in an additive model: which to take, by a paid score, and how they are encoded.

The values of a column are grouped into a few cells, of about equal shares of the records. A pair is
encoded by the products of the memberships of both columns: from 0 to 1, and 1 in all. A cell of a
curve is a sum of its hats, so that what a pair says of one column alone can be moved to its curve.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privypurse.core._checks import FloatArray
from privypurse.core._neighbouring import Neighbouring
from privypurse.estimators._private_statistics import gaussian
from privypurse.oracles.statistics import residual_sums
from privypurse.purse._purse import Purse

# Shares of what the knots leave: of a model without pairs, and of the sums of its residuals.
FIRST_SHARE, SCORE_SHARE = 0.15, 0.1
CELLS = 4  # of a column, at most
MOST_PAIRS, FEWEST_COLUMNS = 12, 3
# Pairs are scored as long as a mean residual of this part of the clip norm, in an even cell, stands
# out from so many standard deviations of the noise.
EFFECT, STANDS_OUT = 0.03, 1.5
COUNTED = 0.25  # part of the clip norm that a record adds to the count of a cell
VARIANCE = 0.5  # of residuals, as a part of the square of the clip norm
SURE = 4.0  # standard deviations of a score without any effect, beyond which a pair is taken


@dataclass(frozen=True, eq=False)
class CellPair:
    """Two columns in the model together: a value for each pair of their cells."""

    name: str
    columns: tuple[int, int]  # their places
    groups: tuple[NDArray[np.intp], NDArray[np.intp]]  # the cell of each value of both columns
    place: int  # of its first encoded column

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of cells of both columns."""
        return len(set(self.groups[0])), len(set(self.groups[1]))

    @property
    def values(self) -> slice:
        """Its encoded columns."""
        return slice(self.place, self.place + math.prod(self.sizes))

    def encode(self, first: FloatArray, second: FloatArray) -> NDArray[np.float32]:
        """Encode by the memberships of both columns in each of their values."""
        both = zip((first, second), self.groups, self.sizes, strict=True)
        one, other = (members @ np.eye(size, dtype=np.float32)[group] for members, group, size in both)
        return np.asarray((one[:, :, None] * other[:, None, :]).reshape(len(one), -1), dtype=np.float32)


def cells_of(shares: FloatArray, *, ordered: bool) -> NDArray[np.intp]:
    """Return the cell of each value of a column: of about equal shares, or the most frequent and the rest."""
    if ordered:
        cell = np.minimum(((np.cumsum(shares) - shares / 2) * CELLS).astype(np.intp), CELLS - 1)
    else:
        cell = np.full(len(shares), CELLS - 1)
        first = np.argsort(-shares, kind="stable")[: CELLS - 1]
        cell[first] = np.arange(len(first))
    return np.unique(cell, return_inverse=True)[1]


def scored_columns(records: float, purse: Purse) -> int:
    """Return how many columns have pairs that this budget can tell from noise, by public numbers."""
    twice = 1 if purse.neighbouring is Neighbouring.ADD_REMOVE else 2
    noise = STANDS_OUT * twice * gaussian(purse, SCORE_SHARE).noise_multiplier  # for each root of a pair
    pairs = (EFFECT * records / CELLS**2 / noise) ** 2
    return int((1 + math.sqrt(1 + 8 * pairs)) / 2)


def buy_pairs(
    cells: NDArray[np.intp],
    residuals: FloatArray,
    purse: Purse,
    *,
    sizes: Sequence[int],
    clip_norm: float,
    most: int,
) -> list[tuple[int, int]]:
    """Return the pairs of these columns whose residuals differ between cells, the best first.

    One release has the sums of residuals, and the counts of records, in all cells of all pairs. The
    rest is post-processing: what a column explains alone is removed from the sums of a pair, and
    their squares, less what noise and chance give, are added up.

    Guarantees
    ----------
    All that depends on a record is the release: at most one cell of each pair for a record, and
    there its clipped residual and its count, so the root of the number of pairs bounds its
    influence.
    """
    pairs = [both for both in itertools.combinations(range(len(sizes)), 2) if min(sizes[both[0]], sizes[both[1]]) > 1]
    if not pairs:
        return []
    clipped = residuals / np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True) / clip_norm, 1.0)
    table = np.column_stack([clipped, np.full(len(clipped), COUNTED * clip_norm)])
    box = residual_sums(table, cells, pairs=pairs, sizes=sizes, clip_norm=clip_norm * math.hypot(1, COUNTED))
    released = purse.release(box, gaussian(purse, SCORE_SHARE), what="residuals of pairs of columns")
    noise, start, found = float(released.noise_std or 0.0), 0, []
    for i, j in pairs:
        tables = released.value[start : start + table.shape[1] * sizes[i] * sizes[j]].reshape(table.shape[1], -1)
        start += tables.size
        counts = np.maximum(tables[-1] / (COUNTED * clip_norm), 0.0) + 1.0
        alone = np.hstack([np.repeat(np.eye(sizes[i]), sizes[j], axis=0), np.tile(np.eye(sizes[j]), (sizes[i], 1))])
        weighed = counts[:, None] * alone
        left = np.eye(len(counts)) - weighed @ np.linalg.pinv(alone.T @ weighed) @ alone.T
        sums = tables[:-1] @ left.T  # without the effects of both columns alone
        by_noise = noise**2 * (left**2).sum(axis=1)
        by_chance = (VARIANCE * clip_norm**2) * (left**2 @ counts)
        told = by_chance / (by_chance + by_noise)
        gain = float((told * (sums**2 / (by_chance + by_noise) - 1)).sum())
        if gain > SURE * math.sqrt(2 * len(sums) * float((told**2).sum())):
            found.append((gain, (i, j)))
    return [both for _, both in sorted(found, key=lambda scored: -scored[0])[:most]]


def purified(values: FloatArray, shares: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Split the values of a pair into what both columns say together, and what each says alone."""
    rows, columns = values @ shares[1], shares[0] @ values
    columns = columns - columns @ shares[1]
    return values - rows[:, None] - columns, rows, columns
