"""Preparation of a private fit: number of records, row norms, centre and spread of columns.

Each is declared by the user, or released for a small share of the budget. All of it is public.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy import sparse

from privypurse.core._checks import FloatArray
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._sensitive import Sensitive
from privypurse.mechanisms._selection import ExponentialSelection
from privypurse.oracles._kernels import row_products
from privypurse.oracles._rows import Rows
from privypurse.oracles._scores import EXPONENTS, Targets
from privypurse.purse._purse import Purse
from privypurse.training.schedules._base import Budget

# Shares of a fit's budget.
COUNT_SHARE, CENTRE_SHARE, SPREAD_SHARE, MEAN_SHARE = 0.03, 0.05, 0.05, 0.02
# A length is selected with the smallest share in this range that gives a reliable answer.
LENGTH_SHARES = (0.01, 0.1)
SPEAKS_AT = 30.0  # records times epsilon of the selection
# Units of columns are selected with at most UNITS_SHARE in all. Noise alone gives a column another
# unit than the table's with probability at most MISPLACED. One in MOVED_BY records is enough to
# move a unit if the share allows it; if one in LEAST_MOVED_BY is not, no unit is selected.
UNITS_SHARE, MISPLACED, MOVED_BY, LEAST_MOVED_BY = 0.05, 1e-3, 20.0, 1.5
# A reach is selected with the smallest share in this range that lets so many records be counted.
REACH_SHARES, REACH_SPEAKS_AT = (0.02, 0.1), 300.0
# How fast the prior falls with a reach: by at least the first, and by the second times sqrt(d) where
# enough records can be counted, in nats for each factor of e.
LEAST_FALL, FALL = 4.0, 1
FACTOR_DECADES = 4.0  # of candidate limits of exp(residual), from 1 on
TYPICAL = 0.68  # share of targets within their spread of the median
# Columns of a regression are decorrelated up to this many, for this share, from this many times
# d^1.5 on for n mu.
MOST_TURNED, TURN_SHARE, TURN_AT = 200, 0.1, 3.0
LEFT_TO_TURN = 0.5  # of the budget: of a small one, preparation takes most
# Clipping, which saves noise and adds bias, is relaxed above this ratio of signal to noise, by at
# most this factor.
SLACK_AT, MOST_SLACK = 600.0, 2.0
# Columns are divided by their spread to this power; 1 would give rare, noisy ones too much weight.
STRETCH = 0.75
CONSTANT = 0.25  # value of the constant column, as a part of the row norm
# Below this ratio of signal to noise nothing is spent on single columns.
LEAST_CLARITY = 10.0
MOST_DENSE = 50_000_000  # entries up to which a sparse table is centred, which makes it dense

PLACES = 10.0 ** (np.arange(-60, 1) / 10)  # of a spread, as parts of the largest distance

Measure = Callable[[FloatArray], Sensitive]


@dataclass(frozen=True, eq=False, kw_only=True)
class Preparation:
    """Public numbers that prepare a row for the oracle.

    A row becomes ``((x / unit - centre) * stretch) @ turn``, clipped to a length.
    """

    records: float  # declared, or noisy
    unit: float | FloatArray  # of rows, or of each column
    centre: FloatArray | None
    stretch: FloatArray | None
    length: float  # clipping norm of prepared rows
    constant: float  # value of the constant column that is added then; 0 for none
    log_odds: FloatArray | None = None  # logarithms of the shares of the classes, if released
    # Middle of a regression's target, and reach of nearly all; with a log link the logarithm of the
    # mean, and 1.
    target: tuple[float, float] = (0.0, 1.0)
    slack: float = 1.0  # factor by which clipping is relaxed
    spread: FloatArray | None = None  # noisy standard deviation of columns in their unit; at least 0
    turn: FloatArray | None = None  # symmetric matrix that decorrelates stretched columns
    curvature: float | None = None  # about that of a squared loss in every direction, after a turn
    turn_noise: float | None = None  # what the turn adds to the variance of each direction before, for the noise in it
    target_spread: float | None = None  # distance from the middle that most targets are within
    target_reach: float | None = None  # with a log link, the reach as a multiple of the mean

    @property
    def target_unit(self) -> tuple[float, float]:
        """What the loss subtracts from a target, and what it divides the difference by."""
        return self.target if self.target_reach is None else (0.0, math.exp(self.target[0]))

    def start(self, outputs: int | None, columns: int) -> FloatArray | None:
        """Return weights that predict the shares of the classes, or None if these are unknown."""
        if self.log_odds is None or not self.constant:
            return None
        weights = np.zeros((columns + 1, outputs)) if outputs else np.zeros(columns + 1)
        weights[-1] = (self.log_odds if outputs else self.log_odds[1] - self.log_odds[0]) / self.constant
        return weights

    def apply(self, rows: Rows) -> None:
        """Prepare rows, in place."""
        rows.move(self.unit, self.centre)
        if self.stretch is not None:
            rows.stretch(self.stretch)
        if self.turn is not None:
            rows.turn(self.turn)
        rows.limit(self.length)

    @property
    def row_limit(self) -> float:
        """Largest row norm, the constant included."""
        return math.hypot(self.length, self.constant) * (1 + 1e-6)  # rows are in single precision

    def limited(self, X: Any, coefficients: FloatArray, intercept: FloatArray) -> FloatArray:
        """Return the scores of unprepared rows, clipped as in training."""
        at_centre = intercept
        if self.centre is not None:
            at_centre = intercept + self.centre @ (coefficients.T * self.unit).T
        # Each row by itself: what is counted by scores moves by one record when one is added.
        each = X @ coefficients if sparse.issparse(X) else row_products(np.asarray(X), _as_columns(coefficients))
        scores = np.reshape(each, (X.shape[0], *coefficients.shape[1:])) + (intercept - at_centre)
        return np.asarray((scores.T * self._factors(X)).T + at_centre)

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
                part = part if self.turn is None else row_products(part, self.turn)
                lengths[start : start + step] = np.sqrt(np.einsum("ij,ij->i", part, part))
        return self.length / np.maximum(lengths, self.length)

    def scores(self, table: Any, weights: FloatArray) -> FloatArray:
        """Return the scores of prepared rows, each row by itself, in units of the target."""
        middle, half = self.target
        columns = weights[: table.shape[1]]
        each = table @ columns if sparse.issparse(table) else row_products(table, _as_columns(columns)).ravel()
        return np.asarray(middle + half * (each + (self.constant * weights[-1] if self.constant else 0.0)))

    def to_columns(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Convert weights of prepared columns, the constant's last, to coefficients and intercept."""
        middle, half = self.target
        features = weights[:-1] if self.constant else weights
        features = features if self.turn is None else self.turn @ features
        stretched = features if self.stretch is None else (features.T * self.stretch).T
        intercept = self.constant * weights[-1] if self.constant else np.zeros(weights.shape[1:])
        if self.centre is not None:
            intercept = intercept - self.centre @ stretched
        return half * (stretched.T / self.unit).T, np.asarray(middle + half * intercept)

    def from_columns(self, coefficients: FloatArray, intercept: FloatArray) -> FloatArray:
        """Undo `to_columns`, for a warm start."""
        middle, half = self.target
        features = (coefficients.T * self.unit).T / half
        centred = (intercept - middle) / half + (0.0 if self.centre is None else self.centre @ features)
        features = features if self.stretch is None else (features.T / self.stretch).T
        features = features if self.turn is None else np.asarray(np.linalg.solve(self.turn, features), dtype=np.float64)
        return np.concatenate([features, (centred / self.constant)[None]]) if self.constant else features


def _as_columns(coefficients: FloatArray) -> FloatArray:
    return np.ascontiguousarray(coefficients.reshape(len(coefficients), -1), dtype=np.float64)


class Preparer:
    """Prepares rows in place, releasing what is not declared for shares of what is left in a purse.

    Every number that depends on a record passes `purse.release`. What is skipped, and which
    candidates are offered, depends on public numbers: the purse, the number of columns and earlier
    releases. Without an intercept columns are not centred.
    """

    def __init__(self, rows: Rows, purse: Purse, *, intercept: bool) -> None:
        self._rows, self._purse, self._start, self._intercept = rows, purse, purse.totals, intercept

    def run(
        self,
        *,
        records: float | None,
        feature_norm: float | None,
        standardize: bool,
        declared_scales: bool = False,
        room: float = 1.0,
        turn_at: float = TURN_AT,
        target: Targets | None = None,
    ) -> Preparation:
        """Release what is not declared, and prepare the rows.

        With `declared_scales` every number is known to be from 0 to 1: then no units are selected,
        and no norms far from those of such rows. The clipping norm is at least `room` times the
        selected one. `target` is that of a regression, whose columns are decorrelated where the budget
        allows it.
        """
        rows, columns = self._rows, self._rows.columns
        records, log_odds = self._count() if records is None else (records, None)
        # The whole budget as the mu of one release with sensitivity 1 under add/remove.
        twice = 1 if self._purse.neighbouring is Neighbouring.ADD_REMOVE else 2
        mu = 1 / (self._budget.noise_multiplier * twice)
        clarity = records * mu / math.sqrt(columns)
        worth_it = standardize and clarity >= LEAST_CLARITY
        slack = min(max((clarity / SLACK_AT) ** 0.5, 1.0), MOST_SLACK)
        room = max(room, slack)
        goal = {} if target is None else self._goal(target, records, standardize)
        units = self._units(records) if worth_it and not (declared_scales or feature_norm) else None
        if units is not None:
            rows.move(units)
        unit = feature_norm
        if unit is None:
            around, decades = math.sqrt(columns) / 2, 2 if declared_scales else 8
            unit = self._length(rows.limits, "row length", records, around=around, decades=decades) * room
        centre = stretch = spread = turn = curvature = turn_noise = None
        length = 1.0
        if worth_it:
            if self._intercept and (not rows.is_sparse or records * columns <= MOST_DENSE):
                centre = self._centre(records, unit)
            rows.move(unit, centre)
            spread, stretch = self._stretch(records)
            rows.stretch(stretch)
            length = self._length(rows.limits, "row length after standardising", records, around=1.0, decades=2) * room
            few = columns <= MOST_TURNED and records * mu >= turn_at * columns**1.5
            if target is not None and few and self._budget.left > LEFT_TO_TURN and not rows.is_sparse:
                turn, curvature, turn_noise = self._turn(records, length)
                rows.turn(turn)
                length = self._reach(
                    rows.beyond, math.sqrt(curvature * columns), 1.0, records, "row length after turning"
                )
        else:
            rows.move(unit)
        rows.limit(length)
        return Preparation(
            records=records,
            unit=unit if units is None else unit * units,
            centre=centre,
            stretch=stretch,
            length=length,
            constant=(math.sqrt(curvature) if curvature else CONSTANT * length) if self._intercept else 0.0,
            log_odds=log_odds,
            slack=slack,
            spread=spread,
            turn=turn,
            curvature=curvature,
            turn_noise=turn_noise,
            **goal,
        )

    def _units(self, records: float) -> FloatArray | None:
        """Select a power of two for each column; None if all are equal or the budget is small."""
        whole, columns = self._budget.selection_epsilon, self._rows.columns
        stays = math.log(columns * EXPONENTS.size / MISPLACED)
        share = min(max((MOVED_BY * stays / (records * whole)) ** 2, 1e-6), UNITS_SHARE / columns)
        if records * whole * math.sqrt(share) < LEAST_MOVED_BY * stays:
            return None
        sizes = self._rows.magnitudes()
        prior = -np.log1p((EXPONENTS * math.log(2)) ** 2)
        chosen = self._select(sizes.of_table(), LENGTH_SHARES[0], prior, "size of numbers")
        prior = np.where(np.arange(EXPONENTS.size) == chosen, 0.0, -stays)
        with self._purse.reserve(columns):
            own = [self._select(sizes.of_column(j), share, prior, "size of a column") for j in range(columns)]
        # One unit for all columns is part of the row norm.
        return None if len(set(own)) == 1 else np.asarray(2.0 ** EXPONENTS[own])

    def _goal(self, target: Targets, records: float, select: bool) -> dict[str, Any]:
        """Return middle and reach of targets, and their spread where asked for: selected, or declared."""
        low, high = target.bounds
        middle, half = (low + high) / 2, (high - low) / 2
        if not select:
            if target.with_mean:
                return {"target": (math.log(middle), 1.0), "target_reach": half / middle}
            return {"target": (middle, half), "target_spread": half / 4 if target.with_spread else None}
        places = np.linspace(-1, 1, 513)
        candidates, prior = middle + half * places, -np.log1p((10 * places) ** 2)  # prefers the middle
        chosen = self._select(target.medians(candidates), self._length_share(records), prior, "middle of targets")
        median = float(candidates[chosen])
        farthest, spread = max(high - median, median - low), None
        reach = self._reach(functools.partial(target.beyond, median), farthest * 1e-6, 6.0, records, "reach of targets")
        if target.with_mean:
            total, error = self._noisy(target.total(median, reach), MEAN_SHARE, "mean of targets")
            # Add a deviation of the noise: the logarithm of too small a mean is further off.
            mean = max(low, median + float(total[0]) / records) + error / records
            return {"target": (math.log(mean), 1.0), "target_reach": reach / mean}
        if target.with_spread:
            candidates, prior = farthest * PLACES, -np.log1p((np.log(PLACES) - math.log(0.25)) ** 2)
            scores = target.spreads(median, TYPICAL, candidates)
            spread = float(candidates[self._select(scores, self._length_share(records), prior, "spread of targets")])
        return {"target": (median, reach), "target_spread": spread}

    def _reach(self, beyond: Measure, least: float, decades: float, records: float, what: str) -> float:
        """Select a limit that few records are beyond: fewer, the larger the budget.

        Noise grows with a limit, and the error of clipping with the records beyond it. So the prior
        falls like a power of the limit, and a limit scores minus the records beyond it.
        """
        candidates = least * 10.0 ** (np.arange(round(10 * decades) + 1) / 10)
        shortest, longest = REACH_SHARES
        share = min(max((REACH_SPEAKS_AT / (records * self._budget.selection_epsilon)) ** 2, shortest), longest)
        told = records * self._budget.selection(share).epsilon
        # Two thirds of the records outweigh the prior over all candidates.
        fall = min(max(LEAST_FALL, FALL * math.sqrt(self._rows.columns)), told / (1.5 * math.log(10) * decades))
        places = np.log(candidates / candidates[-1])
        prior = -np.log1p((places + math.log(4)) ** 2) - fall * places
        return float(candidates[self._select(beyond(candidates), share, prior - prior.max(), what)])

    def smearing(self, target: Targets, scores: FloatArray, records: float) -> float:
        """Return the noisy mean of ``exp(target - score)``, for all that is left in the purse.

        Each is clipped to a selected limit. It is at least 1, as where residuals have mean 0, and 1 if
        nothing is left.
        """
        if not self._budget.selection_epsilon > 0:
            return 1.0
        beyond = functools.partial(target.factors_beyond, scores)
        limit = self._reach(beyond, 1.0, FACTOR_DECADES, records, "limit of exp(residual)")
        total, _ = self._noisy(target.factors(scores, limit), 1.0, "mean of exp(residual)")
        return min(max(float(total[0]) / records, 1.0), limit)

    def _turn(self, records: float, length: float) -> tuple[FloatArray, float, float]:
        """Return the matrix that makes columns uncorrelated and alike, their variance then, and what noise was taken for."""
        columns, upper = self._rows.columns, np.triu_indices(self._rows.columns)
        total, noise_std = self._noisy(self._rows.products(clip_norm=length), TURN_SHARE, "products of columns")
        products = np.zeros((columns, columns))
        products[upper] = total / records
        products = (products + products.T) / np.where(np.eye(columns, dtype=bool), 2, math.sqrt(2))
        values, vectors = np.linalg.eigh(products)
        # Add the norm of the noise, so that no direction is scaled up by noise.
        added = math.sqrt(2 * columns) * noise_std / records
        known = np.maximum(values, 0.0) + added
        variance = float(known.mean())
        return (vectors * np.sqrt(variance / known)) @ vectors.T, variance, added

    @property
    def _budget(self) -> Budget:
        return Budget(self._purse.filter, self._start, self._purse.totals, steps=1)

    def _noisy(self, box: Sensitive, share: float, what: str) -> tuple[FloatArray, float]:
        """Release a value for a share of the budget. Return it and the standard deviation of its noise."""
        released = self._purse.release(box, self._budget.gaussian(share), what=what)
        return released.value, cast(float, released.noise_std)

    def _count(self) -> tuple[float, FloatArray | None]:
        """Release the number of records, by class if there are classes."""
        box = self._rows.class_counts() if self._rows.classes else self._rows.count()
        counts, error = self._noisy(box, COUNT_SHARE, "number of records")
        noisy = np.maximum(np.atleast_1d(counts), 0.0)
        # Too few records make steps too long, which is worse than too short: add a deviation.
        records = float(noisy.sum()) + error * math.sqrt(noisy.size)
        if not self._rows.classes:
            return records, None
        # Add the noise level to each class: shares are even if nothing is known.
        shares = (noisy + error) / (noisy + error).sum()
        return records, np.log(shares)

    def _length(self, measure: Measure, what: str, records: float, *, around: float, decades: int) -> float:
        """Select a norm among powers of ten, near `around` if the budget is small."""
        powers = np.arange(-10 * decades, 10 * decades + 1) / 10
        candidates = around * 10.0**powers
        # A prior with heavy tails: little evidence is enough for any unit of measurement.
        prior = -np.log1p((powers * math.log(10)) ** 2)
        return float(candidates[self._select(measure(candidates), self._length_share(records), prior, what)])

    def _length_share(self, records: float) -> float:
        least, most = LENGTH_SHARES
        return min(max((SPEAKS_AT / (records * self._budget.selection_epsilon)) ** 2, least), most)

    def _select(self, box: Sensitive, share: float, log_prior: FloatArray, what: str) -> int:
        selection = ExponentialSelection(self._budget.selection(share).epsilon, tuple(log_prior.tolist()))
        return int(self._purse.release(box, selection, what=what).value)

    def _centre(self, records: float, unit: float) -> FloatArray:
        total, noise_std = self._noisy(self._rows.total(clip_norm=unit), CENTRE_SHARE, "centre of columns")
        centre, error = total / (unit * records), noise_std / (unit * records)
        squared = float(centre @ centre)
        # Shrink by the share of noise (James and Stein 1961).
        share = max(0.0, 1 - centre.size * error**2 / squared) if squared > 0 else 0.0
        return np.asarray(centre * share)

    def _stretch(self, records: float) -> tuple[FloatArray, FloatArray]:
        """Return the noisy standard deviation and the factor of each column."""
        around, measure = self._rows.columns**-0.25, functools.partial(self._rows.limits, power=2)
        limit = self._length(measure, "length of squares", records, around=around, decades=4)
        box = self._rows.total(clip_norm=limit, power=2)
        total, noise_std = self._noisy(box, SPREAD_SHARE, "spread of columns")
        squares = np.maximum(total / records, 0.0)
        # Add the noise level, so that no column is scaled up by noise.
        known = squares + noise_std / records + 0.01 * squares.mean()
        return np.sqrt(squares), np.asarray((known / known.mean()) ** (-STRETCH / 2))
