"""Intervals of coefficients: how far noise moves them, from rehearsals on synthetic rows, without data.

An interval of a coefficient is for its mean, over fresh noise in preparation and steps, in this
training on the same records. It is not for the coefficient of a training without privacy, which has
none for a category that no record has. Its rows are drawn with the centre and spread of columns that
the training released, and labelled by the trained model. There are fewer of them than
in the real table, with noise scaled down in proportion: only the ratio matters.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from privypurse.accounting import convert
from privypurse.accounting._filters import GdpFilter
from privypurse.core._checks import FloatArray
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.estimators._compat import same_attributes
from privypurse.estimators._curves import Groups, unfolded
from privypurse.estimators._preparation import CENTRE_SHARE, Preparation
from privypurse.purse._purse import Purse

RUNS, MOST_ROWS, MOST_REHEARSED, MOST_WEIGHTS = 12, 10_000, 1_500_000, 4_000
# Of numbers with each other, in rehearsals, where that of the records was not released: noise moves
# coefficients of correlated numbers further.
CORRELATION = 0.9
# Since rehearsals on other rows are smoothed a little differently, and keep the knots of curves, which
# a training buys anew.
WIDER, WIDER_CURVES = 1.06, 1.25
NOTE = (
    "Intervals are about noise alone. If this training were repeated many times on the same records with fresh noise, the mean "
    "of a coefficient would lie in its interval, for roughly 95 of 100 intervals. They come from "
    f"{RUNS} rehearsals of the whole training on synthetic rows, drawn from the centre and spread of columns that were released, "
    "no data is used. Numbers are drawn with their released correlations, or, where none were released, with a correlation of "
    f"{CORRELATION:g}: then intervals of numbers that are correlated more strongly are too narrow, and others wider than needed. "
    "Other columns are taken as independent. Intervals say nothing about what another sample of people would "
    "give, nor what training without privacy would give: a budget ends training early and limits long rows, so coefficients of "
    "columns with few records are drawn towards zero, and others can be steeper."
)


def half_widths(
    model: Any,
    groups: Groups = (),
    *,
    one_hot: Sequence[Sequence[int]] = (),
    share: float = 1.0,
    goes_on: Callable[[int], bool] = bool,
    seed: int = 0,
) -> tuple[FloatArray, FloatArray] | None:
    """Return half-widths of the intervals of ``coef_`` and ``intercept_`` of a fitted model.

    Rows are drawn by `grouped_rows`, and curves are `unfolded`; without groups by `synthetic_rows`. `share`
    is the part of the budget, in squares of mu, that this fit had. ``goes_on(runs)`` is called after each
    run. Return None if it returns False, or if the budget of the training is not known: after a search, or a warm start.
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
    X = (
        grouped_rows(groups, preparation, rows, rng, error)
        if groups
        else synthetic_rows(model, one_hot, rows, rng, error)
    )
    y = _labels(model, X, rng)
    # Keep the ratio of noise to rows.
    mu *= math.sqrt(share) * preparation.records / rows
    rule = GdpFilter(convert.gdp_epsilon(mu, spent.delta), spent.delta, model.certificate_.neighbouring)
    found = []
    for run in range(RUNS):
        purse = Purse.with_filter(rule, noise=NoiseSource(seed=seed + run))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about synthetic rows
            rehearsed = _like(model, rows).set_params(purse=purse).fit(X, y)
        found.append((unfolded(rehearsed.coef_, groups, preparation), np.asarray(rehearsed.intercept_)))
        if not goes_on(run + 1):
            return None
    factor = float(stats.t.ppf(0.975, RUNS - 1))
    coefficients, intercepts = (factor * np.std(part, axis=0, ddof=1) for part in zip(*found, strict=True))
    wider = [WIDER_CURVES if kind == "curve" else WIDER for width, kind in groups for _ in range(width)]
    coefficients, intercepts = coefficients * (wider or WIDER), intercepts * WIDER
    finite = np.isfinite(coefficients).all() and np.isfinite(intercepts).all()
    return (coefficients, intercepts) if finite else None


def _labels(model: Any, X: Any, rng: np.random.Generator) -> Any:
    """Draw the target of each row by the model, without weights of classes."""
    model = same_attributes(model)
    model.intercept_ = model.intercept_ - model._class_shift
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows have no names of columns
        if not hasattr(model, "classes_"):
            return np.clip(model._drawn(X, rng), *model.target_bounds)
        scores = model.predict_log_proba(X) if hasattr(model, "predict_log_proba") else model.decision_function(X)
        return drawn_classes(scores, rng)


def synthetic_rows(
    model: Any, groups: Sequence[Sequence[int]], rows: int, rng: np.random.Generator, error: float
) -> Any:
    """Draw rows with the centre and spread of columns that a model released.

    Each group of columns is one-hot, the others are normal (`correlated_normals`). What was not released is zero for the
    centre, and for the spread the same for all columns; categories are then equally frequent.
    """
    preparation, width = model.preparation_, model.n_features_in_
    unit = np.broadcast_to(preparation.unit, width)
    centre = np.zeros(width) if preparation.centre is None else preparation.centre * unit
    spread = np.full(width, width**-0.5) if preparation.spread is None else preparation.spread
    made = np.tile(centre, (rows, 1))
    numbers = np.setdiff1d(np.arange(width), [place for group in groups for place in group])
    made[:, numbers] += (spread * unit)[numbers] * correlated_normals(rows, numbers, preparation, rng)
    for group in groups:
        part, means = np.zeros((rows, len(group))), np.full(len(group), np.nan)
        if preparation.centre is not None:
            means = centre[list(group)]
        draw_categories(part, means, rng, error * float(np.max(unit[list(group)]) / np.max(unit)))
        made[:, list(group)] = part
    return made


def grouped_rows(groups: Groups, preparation: Preparation, rows: int, rng: np.random.Generator, error: float) -> Any:
    """Draw encoded rows with the released centre and spread; parts but numbers are independent.

    Parts are "categories", of which a row has at most one, a "number" from 0 to 1, an "indicator",
    and a "curve": a position and its hats (`hats`). Without a centre, categories and knots are
    equally frequent; without a spread, numbers fill their range. `error` is the standard deviation
    of the noise in the centre of a column: a category whose share is below twice that counts as
    empty, as noise moves the coefficients of empty categories furthest.
    """
    width = sum(own for own, _ in groups)
    means = np.full(width, np.nan) if preparation.centre is None else preparation.centre * preparation.unit
    spreads = np.full(width, 0.25) if preparation.spread is None else preparation.spread * preparation.unit
    made = np.zeros((rows, width), dtype=np.float32)
    starts = np.cumsum([0, *(own for own, _ in groups)])
    numbers = np.array(
        [at for at, (_, kind) in zip(starts, groups, strict=False) if kind in ("number", "curve")], dtype=np.intp
    )
    normals = iter(correlated_normals(rows, numbers, preparation, rng).T)
    start = 0
    for own, kind in groups:
        part, place = made[:, start : start + own], slice(start, start + own)
        if kind == "categories":
            draw_categories(part, means[place], rng, error)
        elif kind == "curve":
            draw_categories(part[:, 1:], means[place][1:], rng, error)
            # Between knots, or the records at one would say nothing of its neighbours.
            away = rng.triangular(-1.0, 0.0, 1.0, rows)
            at = part[:, 1:].argmax(axis=1)
            beside = np.clip(at + np.sign(away).astype(np.intp), 0, own - 2)
            part[:, 1:] = 0.0
            part[np.arange(rows), 1 + at] = 1 - np.abs(away)
            part[np.arange(rows), 1 + beside] += np.abs(away)
            part[:, 0] = part[:, 1:] @ np.linspace(0.0, 1.0, own - 1, dtype=np.float32)
        elif kind == "number":
            middle = 0.5 if np.isnan(means[start]) else float(np.clip(means[start], 0.0, 1.0))
            part[:, 0] = np.clip(middle + spreads[start] * next(normals), 0.0, 1.0)
        else:
            part[:, 0] = rng.random(rows) < np.clip(np.nan_to_num(means[start], nan=0.0), 0.0, 1.0)
        start += own
    return made


def correlated_normals(
    rows: int, places: NDArray[np.intp], preparation: Preparation, rng: np.random.Generator
) -> FloatArray:
    """Draw a standard normal number for each of these columns, with the released correlations if there are some."""
    columns = len(places)
    correlation = np.full((columns, columns), CORRELATION)
    if preparation.turn is not None:
        known = np.linalg.matrix_power(preparation.turn, -2) * (preparation.curvature or 1.0)
        products = (known - (preparation.turn_noise or 0.0) * np.eye(len(known)))[np.ix_(places, places)]
        sizes = np.sqrt(np.maximum(np.diag(products), 1e-9 * np.max(known)))
        correlation = products / np.outer(sizes, sizes)
    np.fill_diagonal(correlation, 1.0)
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(rng.standard_normal((rows, columns)) @ root.T)


def looks_one_hot(model: Any, groups: Sequence[Sequence[int]]) -> FloatArray:
    """Return which columns outside of groups have the released spread of zeros and ones, or go with such.

    Rehearsed as independent and normal, these would get intervals that are too narrow.
    """
    preparation, width = model.preparation_, model.n_features_in_
    if preparation.centre is None or preparation.spread is None:
        return np.zeros(width, dtype=bool)
    unit = np.broadcast_to(preparation.unit, width)
    centre, squares = preparation.centre * unit, (preparation.spread * unit) ** 2
    ratio = squares / np.maximum(centre * (1 - centre), 1e-9)
    common = (np.abs(centre - 0.5) < 0.45) & (ratio > 0.5) & (ratio < 1.5)
    rare = (np.abs(centre) <= 0.05) & (squares < 0.05)
    declared = np.isin(np.arange(width), [place for group in groups for place in group])
    return np.asarray((common | rare) & ~declared & (common & ~declared).any())


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
        if hasattr(model, "target_transform"):
            settings["target_transform"] = model.target_transform
    like = type(model)(None, **settings)
    like._declared_scales, like._turn_at, like._parts = model._declared_scales, model._turn_at, model._parts
    like._stands_for = model.preparation_.records / rows
    return like
