"""Intervals of coefficients: how far noise moves them, from rehearsals on synthetic rows, without data.

An interval of a coefficient is for its mean, over fresh noise in preparation and steps, in this
training on the same records. It is not for the coefficient of a training without privacy, which has
none for a category that no record has. Its rows are drawn column by column, with the centre and
spread that the training released, and labelled by the trained model. There are fewer of them than
in the real table, with noise scaled down in proportion: only the ratio matters.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special, stats

from privypurse.accounting import convert
from privypurse.accounting._filters import GdpFilter
from privypurse.core._checks import FloatArray
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.estimators._compat import same_attributes
from privypurse.estimators._preparation import CENTRE_SHARE
from privypurse.purse._purse import Purse

RUNS, MOST_ROWS, MOST_REHEARSED, MOST_WEIGHTS = 12, 10_000, 1_500_000, 4_000
NOTE = (
    "Intervals are about noise alone. If this training were repeated many times on the same records with fresh noise, the mean "
    "of a coefficient would lie in its interval, for roughly 95 of 100 intervals. They come from "
    f"{RUNS} rehearsals of the whole training on synthetic rows, drawn from the centre and spread of columns that were released, "
    "columns taken as independent of each other; no data is used. Those of numbers that are strongly correlated with each other "
    "are too narrow. They say nothing about what another sample of people would "
    "give, nor what training without privacy would give: a budget ends training early and limits long rows, so coefficients of "
    "columns with few records are drawn towards zero, and others can be steeper."
)
Draw = Callable[[int, np.random.Generator, float], Any]


def half_widths(
    model: Any, draw: Draw, *, goes_on: Callable[[int], bool] = bool, seed: int = 0
) -> tuple[FloatArray, FloatArray] | None:
    """Return half-widths of the intervals of ``coef_`` and ``intercept_`` of a fitted model.

    ``draw(rows, rng, error)`` returns synthetic rows, with `error` the standard deviation of the
    noise in the centre of a column. ``goes_on(runs)`` is called after each run. Return None if it
    returns False, or if the budget of the training is not known: after a search, or a warm start.
    The seed is of synthetic rows and noise: no privacy depends on it.
    """
    spent, preparation, columns = model.privacy_spent_, model.preparation_, model.n_features_in_
    searched = model.certificate_.releases < model.n_iter_
    if not math.isfinite(spent.epsilon) or model.coef_.size > MOST_WEIGHTS or searched or model.warm_start:
        return None
    rows = int(min(MOST_ROWS, MOST_REHEARSED // columns, max(200.0, preparation.records)))
    rng = np.random.default_rng(seed)
    mu = convert.gdp_mu(spent.epsilon, spent.delta)
    twice = 1 if model.certificate_.neighbouring == Neighbouring.ADD_REMOVE.value else 2
    error = twice * float(np.max(preparation.unit)) / (math.sqrt(CENTRE_SHARE) * mu * preparation.records)
    X = draw(rows, rng, error)
    y = _labels(model, X, rng)
    # Keep the ratio of noise to rows.
    mu *= preparation.records / rows
    rule = GdpFilter(convert.gdp_epsilon(mu, spent.delta), spent.delta, model.certificate_.neighbouring)
    found = []
    for run in range(RUNS):
        purse = Purse.with_filter(rule, noise=NoiseSource(seed=seed + run))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about synthetic rows
            rehearsed = _like(model, rows).set_params(purse=purse).fit(X, y)
        found.append((rehearsed.coef_, np.asarray(rehearsed.intercept_)))
        if not goes_on(run + 1):
            return None
    factor = float(stats.t.ppf(0.975, RUNS - 1))
    coefficients, intercepts = (factor * np.std(part, axis=0, ddof=1) for part in zip(*found, strict=True))
    return coefficients, intercepts


def _labels(model: Any, X: Any, rng: np.random.Generator) -> Any:
    """Draw the target of each row by the model, without weights of classes."""
    model = same_attributes(model)
    model.intercept_ = model.intercept_ - model._class_shift
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows have no names of columns
        if not hasattr(model, "classes_"):
            _, half = model.preparation_.target
            return np.clip(model.predict(X) + 0.25 * half * rng.standard_normal(len(X)), *model.target_bounds)
        scores = model.predict_log_proba(X) if hasattr(model, "predict_log_proba") else model.decision_function(X)
        return drawn_classes(scores, rng)


def synthetic_rows(
    model: Any, groups: Sequence[Sequence[int]], rows: int, rng: np.random.Generator, error: float
) -> Any:
    """Draw rows of independent columns with the centre and spread that a model released.

    Each group of columns is one-hot, the others are normal. What was not released is zero for the
    centre, and for the spread the same for all columns; categories are then equally frequent.
    """
    preparation, width = model.preparation_, model.n_features_in_
    unit = np.broadcast_to(preparation.unit, width)
    centre = np.zeros(width) if preparation.centre is None else preparation.centre * unit
    spread = np.full(width, width**-0.5) if preparation.spread is None else preparation.spread
    made = centre + spread * unit * rng.standard_normal((rows, width))
    for group in groups:
        part, means = np.zeros((rows, len(group))), np.full(len(group), np.nan)
        if preparation.centre is not None:
            means = centre[list(group)]
        draw_categories(part, means, rng, error * float(np.max(unit[list(group)]) / np.max(unit)))
        made[:, list(group)] = part
    return made


# A smaller share of rows without any category may come from rows that were scaled down. Such rows
# would separate the intercept from the categories.
NOTICED = 0.1


def draw_categories(part: Any, means: FloatArray, rng: np.random.Generator, error: float) -> None:
    """Set at most one column of each row to one."""
    without = 1.0 - float(means.sum())  # share of rows without any; NaN if no shares were released
    means = np.where(means < 2 * error, 0.0, means)
    shares = _shares(means) if means.any() and not np.isnan(without) else np.full(len(means), 1 / len(means))
    chances = np.append(shares, without if without > NOTICED + 2 * error * len(means) ** 0.5 else 0.0)
    drawn = rng.choice(len(chances), size=len(part), p=chances / chances.sum())
    hit = drawn < len(means)
    part[np.flatnonzero(hit), drawn[hit]] = 1.0


def _shares(means: FloatArray) -> FloatArray:
    """Project noisy shares on those that are at least 0 and sum to at most 1, as shares of records do."""
    shares = np.maximum(means, 0.0)
    if shares.sum() <= 1:
        return shares
    ordered = np.sort(shares)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, ordered.size + 1)
    return np.asarray(np.maximum(shares - excess[ordered > excess][-1], 0.0))


def drawn_classes(scores: Any, rng: np.random.Generator) -> Any:
    """Draw a class for each row by its score, or by its scores of several classes."""
    if scores.ndim == 1:
        return (rng.random(len(scores)) < special.expit(scores)).astype(int)
    chances = np.cumsum(special.softmax(scores, axis=1), axis=1)
    return np.minimum((rng.random((len(scores), 1)) > chances).sum(axis=1), scores.shape[1] - 1)


def _like(model: Any, rows: int) -> Any:
    """Return an unfitted model with the same settings, for the synthetic rows."""
    names = ("fit_intercept", "l2", "feature_norm", "standardize", "method")
    settings: dict[str, Any] = {name: getattr(model, name) for name in names}
    settings["n_public"] = None if model.n_public is None else rows
    if hasattr(model, "classes_"):
        settings["classes"] = list(range(len(model.classes_)))
    else:
        settings["target_bounds"] = model.target_bounds
    like = type(model)(None, **settings)
    like._declared_scales = model._declared_scales
    return like
