"""What a private fit has to know about a table before it begins, and what it pays for that.

The number of records, the length of rows, the centre and the spread of columns: each is declared by the user, or bought for a
small share of the budget. All of it is public afterwards.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from privypurse.core.checks import FloatArray
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.sensitive import Sensitive
from privypurse.mechanisms.selection import ExponentialSelection
from privypurse.oracles.magnitudes import EXPONENTS
from privypurse.oracles.rows import Rows
from privypurse.oracles.targets import Targets
from privypurse.purse.purse import Purse
from privypurse.schedules.base import Budget

# Shares of a fit's budget.
COUNT_SHARE, CENTRE_SHARE, SPREAD_SHARE = 0.03, 0.05, 0.05
# A length is selected for the least of these shares that lets the records speak, and at most for the largest.
LENGTH_SHARES = (0.01, 0.1)
SPEAKS_AT = 30.0  # records times epsilon of the selection
# A size is selected for each column if that costs at most this share in all; a column keeps the table's by this many nats.
UNITS_SHARE, STAYS = 0.05, 8.0
# The range of targets that counts, in terms of how far most of them are from their middle.
TARGET_ROOM = 4.0
# From this ratio of signal to noise on there is slack: rows and derivatives are cut less, up to so many times. Cuts save noise
# and bias coefficients and probabilities, so they are given up where noise is no longer what matters.
SLACK_AT, MOST_SLACK = 600.0, 2.0
# Columns are divided by their spread to this power: fully, rare ones would count too much, and they are noisy.
STRETCH = 0.75
# The constant column, as a part of the limit on rows: large enough to be learnt at once, small enough to cost no room.
CONSTANT = 0.25
# Below this ratio of signal to noise nothing can be learnt about columns one by one, and nothing is paid for it.
LEAST_CLARITY = 10.0
# A dense copy is made of a sparse table with at most this many entries.
MOST_DENSE = 50_000_000

# From candidate limits to a box of their scores.
Measure = Callable[[FloatArray], Sensitive]


@dataclass(frozen=True, eq=False, kw_only=True)
class Preparation:
    """Public numbers that turn a row into what the oracle sees: ``(x / unit - centre) * stretch``, and no longer than `length`.

    Parameters
    ----------
    records : float
        Number of records: declared, or noisy.
    unit : float or ndarray of shape (d,)
        What rows are divided by: one number, or one for each column.
    centre, stretch : ndarray of shape (d,) or None
        Subtracted from, and multiplied with, each column after that.
    length : float
        Rows are scaled down to this length after that.
    constant : float
        Value of the constant column, which is added to the rows then; 0 for none.
    log_odds : ndarray or None
        Logarithms of the shares of the classes, as far as they were bought.
    target : pair of float
        Middle and half of the range that a regression's target was mapped to [-1, 1] from; (0, 1) for classes.
    slack : float
        How much less is cut off rows and derivatives than where the budget is small.
    """

    records: float
    unit: float | FloatArray
    centre: FloatArray | None
    stretch: FloatArray | None
    length: float
    constant: float
    log_odds: FloatArray | None = None
    target: tuple[float, float] = (0.0, 1.0)
    slack: float = 1.0

    def start(self, outputs: int | None, columns: int) -> FloatArray | None:
        """Return weights that predict the shares of the classes and nothing else, or None where these are not known."""
        if self.log_odds is None or not self.constant:
            return None
        weights = np.zeros((columns + 1, outputs)) if outputs else np.zeros(columns + 1)
        weights[-1] = (self.log_odds if outputs else self.log_odds[1] - self.log_odds[0]) / self.constant
        return weights

    def apply(self, rows: Rows) -> None:
        """Change rows that are as the user gave them."""
        rows.move(self.unit, self.centre)
        if self.stretch is not None:
            rows.stretch(self.stretch)
        rows.limit(self.length)

    @property
    def row_limit(self) -> float:
        """Length of the longest row, the constant included."""
        return math.hypot(self.length, self.constant) * (1 + 1e-6)  # rows are in single precision

    def limited(self, X: Any, coefficients: FloatArray, intercept: FloatArray) -> FloatArray:
        """Return the scores of rows as the user gives them, scaled down as in training where they are too long."""
        at_centre = intercept
        if self.centre is not None:
            at_centre = intercept + self.centre @ (coefficients.T * self.unit).T
        scores = np.asarray(X @ coefficients) + (intercept - at_centre)
        factors = self._factors(X)
        return np.asarray((scores.T * factors).T + at_centre)

    def _factors(self, X: Any) -> FloatArray:
        lengths = np.empty(X.shape[0])
        step = max(1, 1_000_000 // X.shape[1])
        for start in range(0, len(lengths), step):
            part = X[start : start + step]
            part = np.asarray(part.toarray() if sparse.issparse(part) else part, dtype=np.float64)
            with np.errstate(over="ignore"):
                part = part / self.unit
                part = part if self.centre is None else part - self.centre
                part = part if self.stretch is None else part * self.stretch
                lengths[start : start + step] = np.sqrt(np.einsum("ij,ij->i", part, part))
        return self.length / np.maximum(lengths, self.length)

    def to_columns(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Turn weights, one row for each column and the constant's last, into those of the user's own columns and target.

        Returns the coefficients and the intercept: ``X @ coefficients + intercept`` is the score of rows within the limit.
        """
        middle, half = self.target
        features = weights[:-1] if self.constant else weights
        stretched = features if self.stretch is None else (features.T * self.stretch).T
        intercept = self.constant * weights[-1] if self.constant else np.zeros(weights.shape[1:])
        if self.centre is not None:
            intercept = intercept - self.centre @ stretched
        return half * (stretched.T / self.unit).T, np.asarray(middle + half * intercept)

    def from_columns(self, coefficients: FloatArray, intercept: FloatArray) -> FloatArray:
        """Undo `to_columns`: where a fit that goes on begins."""
        middle, half = self.target
        features = (coefficients.T * self.unit).T / half
        centred = (intercept - middle) / half + (0.0 if self.centre is None else self.centre @ features)
        features = features if self.stretch is None else (features.T / self.stretch).T
        return np.concatenate([features, (centred / self.constant)[None]]) if self.constant else features


class Preparer:
    """Learns a `Preparation`, paying for what is not declared.

    Parameters
    ----------
    rows : Rows
        The table; left as the preparation makes it.
    purse : Purse
        Who pays. Shares are of what is left in it now.
    intercept : bool
        Whether the model has a constant; without one, columns are not centred.

    Guarantees
    ----------
    Every number that depends on a record passes `purse.release`. What is skipped, and which candidates are offered, depends on
    public numbers: the purse, the number of columns and what was released before.
    """

    def __init__(self, rows: Rows, purse: Purse, *, intercept: bool) -> None:
        self._rows, self._purse, self._start, self._intercept = rows, purse, purse.totals, intercept

    def run(
        self,
        *,
        records: float | None,
        feature_norm: float | None,
        standardize: bool,
        room: float = 1.0,
        target: Targets | None = None,
    ) -> Preparation:
        """Learn what is not given.

        Parameters
        ----------
        records : float or None
            The declared number of records; None to pay for a noisy one.
        feature_norm : float or None
            The declared length that rows are scaled down to; None to pay for one.
        standardize : bool
            Whether to pay for the centre and the spread of columns.
        room : float, default 1.0
            How much longer than what was selected the limit on rows is at least, where no length is declared. Where the budget
            is large there is more room, so that few rows are cut.
        target : Targets, optional
            For regression.
        """
        rows, columns = self._rows, self._rows.columns
        log_odds = None
        if records is None:
            records, log_odds = self._count()
        clarity = records * self._mu / math.sqrt(columns)
        worth_it = standardize and clarity >= LEAST_CLARITY
        slack = min(max((clarity / SLACK_AT) ** 0.5, 1.0), MOST_SLACK)
        room = max(room, slack)
        goal = (0.0, 1.0) if target is None else self._goal(target, records, standardize)
        units = self._units(records) if worth_it else None
        if units is not None:
            rows.move(units)
        unit = feature_norm
        if unit is None:
            unit = self._length(rows.limits, "row length", records, around=math.sqrt(columns) / 2, decades=8) * room
        centre = stretch = None
        length = 1.0
        if worth_it:
            if self._intercept and (not rows.is_sparse or records * columns <= MOST_DENSE):
                centre = self._centre(records, unit)
            rows.move(unit, centre)
            stretch = self._stretch(records)
            rows.stretch(stretch)
            length = self._length(rows.limits, "row length after standardising", records, around=1.0, decades=2) * room
        else:
            rows.move(unit)
        rows.limit(length)
        constant = CONSTANT * length if self._intercept else 0.0
        return Preparation(
            records=records,
            unit=unit if units is None else unit * units,
            centre=centre,
            stretch=stretch,
            length=length,
            constant=constant,
            log_odds=log_odds,
            target=goal,
            slack=slack,
        )

    def _units(self, records: float) -> FloatArray | None:
        """Select a power of two for each column, where that costs little: most columns keep the one that suits the table."""
        whole, columns = self._budget.selection_epsilon, self._rows.columns
        share = max((SPEAKS_AT / (records * whole)) ** 2, 1e-6)
        if share * columns > UNITS_SHARE:
            return None
        sizes = self._rows.magnitudes()
        prior = -np.log1p((EXPONENTS * math.log(2)) ** 2)
        chosen = self._select(sizes.of_table(), LENGTH_SHARES[0], prior, "size of numbers")
        # A column has to show by its own records that it is measured in something else.
        distance = np.abs(EXPONENTS - EXPONENTS[chosen])
        prior = np.where(distance == 0, 0.0, -STAYS - 0.05 * distance)
        with self._purse.reserve(columns):
            own = [self._select(sizes.of_column(j), share, prior, "size of a column") for j in range(columns)]
        # Where all columns have one unit, the length of rows says as much.
        return None if len(set(own)) == 1 else np.asarray(2.0 ** EXPONENTS[own])

    def _goal(self, target: Targets, records: float, select: bool) -> tuple[float, float]:
        """Return middle and half of the range that targets are mapped to [-1, 1] from: where most are, or the declared."""
        low, high = target.bounds
        middle, half = (low + high) / 2, (high - low) / 2
        if not select:
            return middle, half
        places = np.linspace(-1, 1, 513)
        share = self._length_share(records)
        prior = -np.log1p((10 * places) ** 2)  # the middle, where the budget cannot tell
        chosen = self._select(target.medians(middle + half * places), share, prior, "middle of targets")
        median = float(middle + half * places[chosen])
        spread = self._length(
            lambda candidates: target.spreads(median, candidates),
            "spread of targets",
            records,
            around=half / 4,
            decades=6,
        )
        return median, min(TARGET_ROOM * spread, max(high - median, median - low))

    @property
    def _mu(self) -> float:
        """The whole budget as the mu of one release whose bound is 1 under add/remove."""
        rule = self._purse.filter
        twice = 1 if rule.neighbouring is Neighbouring.ADD_REMOVE else 2
        return 1 / (rule.smallest_noise_multiplier(self._start) * twice)

    @property
    def _budget(self) -> Budget:
        return Budget(self._purse.filter, self._start, self._purse.totals, steps=1)

    def _count(self) -> tuple[float, FloatArray | None]:
        """Buy the number of records, of each class where there are classes."""
        noise = self._budget.gaussian(COUNT_SHARE)
        box = self._rows.class_counts() if self._rows.classes else self._rows.count()
        noisy = np.maximum(np.atleast_1d(self._purse.release(box, noise, what="number of records")), 0.0)
        error = noise.noise_std(box, self._purse.neighbouring)
        # Too many records make steps too short, too few make them too long, which is worse: a standard deviation is added.
        records = float(noisy.sum()) + error * math.sqrt(noisy.size)
        if not self._rows.classes:
            return records, None
        # As many of each class again as the noise may hide: shares are even where nothing is known.
        shares = (noisy + error) / (noisy + error).sum()
        return records, np.log(shares)

    def _length(self, measure: Measure, what: str, records: float, *, around: float, decades: int) -> float:
        """Select a limit on lengths among powers of ten in tenths, near `around` if the budget cannot tell."""
        powers = np.arange(-10 * decades, 10 * decades + 1) / 10
        candidates = around * 10.0**powers
        # Heavy tails: a few nats of evidence are enough for any unit of measurement.
        prior = -np.log1p((powers * math.log(10)) ** 2)
        return float(candidates[self._select(measure(candidates), self._length_share(records), prior, what)])

    def _length_share(self, records: float) -> float:
        least, most = LENGTH_SHARES
        return min(max((SPEAKS_AT / (records * self._budget.selection_epsilon)) ** 2, least), most)

    def _select(self, box: Sensitive, share: float, log_prior: FloatArray, what: str) -> int:
        selection = ExponentialSelection(self._budget.selection(share).epsilon, tuple(log_prior.tolist()))
        return int(self._purse.release(box, selection, what=what))

    def _centre(self, records: float, unit: float) -> FloatArray:
        noise = self._budget.gaussian(CENTRE_SHARE)
        box = self._rows.total(clip_norm=unit)
        centre = self._purse.release(box, noise, what="centre of columns") / (unit * records)
        error = noise.noise_std(box, self._purse.neighbouring) / (unit * records)
        squared = float(centre @ centre)
        # Shrunk by the share of noise in it (James and Stein 1961).
        share = max(0.0, 1 - centre.size * error**2 / squared) if squared > 0 else 0.0
        return np.asarray(centre * share)

    def _stretch(self, records: float) -> FloatArray:
        columns = self._rows.columns
        limit = self._length(
            self._rows.limits_of_squares, "length of squares", records, around=columns**-0.25, decades=4
        )
        noise = self._budget.gaussian(SPREAD_SHARE)
        box = self._rows.total_of_squares(clip_norm=limit)
        spread = np.maximum(self._purse.release(box, noise, what="spread of columns") / records, 0.0)
        error = noise.noise_std(box, self._purse.neighbouring) / records
        # What cannot be told from noise counts as noise, so that no column is stretched beyond what is known of it.
        spread = spread + error + 0.01 * spread.mean()
        return np.asarray((spread / spread.mean()) ** (-STRETCH / 2))
