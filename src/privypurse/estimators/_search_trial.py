"""[RAW DATA] One trial of a private search: train on some records, score on the others."""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.accounting import _gdp as gdp
from privypurse.accounting import convert
from privypurse.accounting._filters import GdpFilter
from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.oracles.statistics import clipped_sum
from privypurse.purse._purse import Purse

RowIndexes = NDArray[np.intp]

_COUNT_SHARE = 0.1  # of a trial's budget, to count the scored records if their number is private


@dataclass(frozen=True)
class Measure:
    """Score of one record's prediction, from -1/2 (worst) to 1/2 (best): its label, or its absolute error.

    The sensitivity of the sum is 1/2 under add/remove and 1 under replace-one.
    """

    error_bound: float | None = None  # absolute errors are clipped at this; None for labels

    def targets(self, y: Any) -> NDArray[Any]:
        """Return the targets as labels, or as numbers for an error."""
        labels = np.asarray(y)
        if self.error_bound is not None:
            try:
                labels = labels.astype(np.float64)
            except (TypeError, ValueError, OverflowError):
                raise InvalidArgument(f"y must hold numbers; got {labels.dtype}. Convert it first.") from None
        if labels.ndim != 1:
            raise InvalidArgument(f"y must have one dimension; got {labels.ndim}. Pass for example y.ravel().")
        return labels

    def judge(self, y: NDArray[Any], predicted: NDArray[Any]) -> FloatArray:
        """Return one number for each record."""
        if self.error_bound is None:
            return np.asarray(np.where(np.broadcast_to(predicted == y, y.shape), 0.5, -0.5))
        with np.errstate(all="ignore"):
            error = np.abs(y - predicted.astype(np.float64)) / self.error_bound
            return np.asarray(0.5 - np.clip(np.nan_to_num(error, nan=1.0, posinf=1.0), 0.0, 1.0))

    def score(self, mean: float) -> float:
        """Convert a mean of `judge` to the accuracy, or to minus the mean absolute error."""
        if self.error_bound is None:
            return float(np.clip(0.5 + mean, 0.0, 1.0))
        return float(-self.error_bound * np.clip(0.5 - mean, 0.0, 1.0))


def trial_limit(mu: float, delta: float, neighbouring: Neighbouring) -> GdpFilter:
    """Return the limit of one trial as a filter with at most, and nearly, this mu."""
    while (epsilon := convert.gdp_epsilon(mu, delta)) == 0:
        delta /= 10
    while (limit := GdpFilter(epsilon, delta, neighbouring)).mu > mu:
        epsilon *= 1 - 1e-10
    return limit


def split(rows: int, validation: float, noise: NoiseSource) -> tuple[RowIndexes, RowIndexes]:
    """Split positions at random. Return those to train on and those to score on."""
    scored = noise.words(rows) < np.uint64(int(validation * 2.0**64))
    return np.flatnonzero(~scored), np.flatnonzero(scored)


def take(X: Any, rows: RowIndexes) -> Any:
    """Return rows of a table of any kind."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    return X[rows] if hasattr(X, "shape") else np.asarray(X)[rows]


@dataclass(frozen=True, repr=False, eq=False)
class Trial:
    """One trial of a search.

    The model learns through a purse with this limit, and the score is released through another one
    with the same limit. A record is in one of the two parts, so either the model or the score given
    the model depends on it: a trial is Gaussian-DP with the mu of the limit.

    Targets were checked before payment, and a model of this library takes any rows (`for_a_trial`):
    to refuse its part of the records would be an unpaid release.
    """

    make: Callable[[int, Purse], Any]  # makes an unfitted model from the index of a candidate
    training: tuple[Any, NDArray[Any]]
    scored: tuple[Any, NDArray[Any]]
    measure: Measure
    limit: GdpFilter
    records: float | None  # public number of scored records; None to count them with noise

    def __call__(self, candidate: int, noise: NoiseSource) -> tuple[float, tuple[Any, float]]:
        """Return the noisy total, and the model with its score. The mechanism handles exceptions."""
        with _silence():
            purse = Purse.with_filter(self.limit, noise=noise)
            model = self.make(candidate, purse)
            model.fit(*self.training)
            if purse.totals.releases == 0:
                raise InvalidArgument("the estimator released nothing through its purse. Report this to its author.")
            total, records = self._noisy_total(model, noise)
            return total, (model, self.measure.score(total / max(records, 1.0)))

    def _noisy_total(self, model: Any, noise: NoiseSource) -> tuple[float, float]:
        """Return the noisy sum of scores, and the number to divide it by."""
        rows = self.scored[1].size
        judged = self._judge(model, np.arange(rows))
        purse = Purse.with_filter(self.limit, noise=noise)

        def released(each: FloatArray, clip_norm: float, multiplier: float, what: str) -> float:
            box = clipped_sum(each.reshape(-1, 1), clip_norm=clip_norm)
            return float(purse.release(box, Gaussian(multiplier), what=what).value[0])

        rest = self.limit.smallest_noise_multiplier
        if self.records is not None:
            return released(judged, 0.5, rest(purse.totals), "score of a trial"), self.records
        most = gdp.noise_multiplier_for((1 - _COUNT_SHARE) * self.limit.mu**2)
        total = released(judged, 0.5, most, "score of a trial")
        return total, released(np.ones(rows), 1.0, rest(purse.totals), "number of records that a trial is scored on")

    def _judge(self, model: Any, rows: RowIndexes) -> FloatArray:
        """Predict for all rows, or if that fails for each half: one record changes its own score only."""
        table, targets = self.scored
        if rows.size == 0:
            return np.empty(0)
        try:
            predicted = np.asarray(model.predict(take(table, rows)))
            if predicted.shape != rows.shape:
                raise ValueError
            return self.measure.judge(targets[rows], predicted)
        except Exception:
            if rows.size == 1:
                return np.array([-0.5])
        half = rows.size // 2
        return np.concatenate([self._judge(model, rows[:half]), self._judge(model, rows[half:])])


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Suppress warnings and output of a trial, which would reveal the number of trials."""
    nowhere = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        yield
