"""Rehearse trainings on synthetic rows, without data: their accuracy, and how far noise moves them.

An interval of a coefficient is for its mean, over fresh noise in preparation and steps, in this
training on the same records. It is not for the coefficient of a training without privacy, which has
none for a category that no record has. Its rows are drawn column by column, with the centre and
spread that the training released, and labelled by the trained model. There are fewer of them than
in the real table, with noise scaled down in proportion: only the ratio matters.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special, stats
from sklearn.linear_model import LogisticRegression

from privypurse.accounting import convert
from privypurse.accounting._filters import GdpFilter
from privypurse.core._checks import FloatArray, positive_integer
from privypurse.core._errors import PrivypurseError
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.estimators import PrivateLogisticRegression
from privypurse.estimators._preparation import CENTRE_SHARE, Preparation
from privypurse.losses._linear import Logistic, Softmax
from privypurse.methods._by_name import BY_NAME, method_by_name, ridge_for
from privypurse.purse._opening import check_delta
from privypurse.purse._purse import Purse
from privypurse.runs._progress import Progress
from privypurse.tables._schema import PARTS, Category, Column, Date, Number, Schema
from privypurse.training._plan import Facts, Plan

SEEDS = 5
MOST_ROWS, MOST_NUMBERS, TEST_ROWS = 10_000, 2_000_000, 10_000
SIGNAL = 3.0  # norm of the true weights: the best accuracy is about 85 %, as on the papers' tables
METHODS = tuple(BY_NAME)


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """The public facts of a problem: numbers of records, columns and classes, and the budget."""

    records: int
    features: int
    epsilon: float
    delta: float = 1e-6
    neighbouring: str = "add-remove"
    classes: int = 2

    @property
    def facts(self) -> Facts:
        """The facts in the form that methods take."""
        records, features = positive_integer(records=self.records), positive_integer(features=self.features)
        classes = positive_integer(classes=self.classes)
        check_delta(self.delta, records)
        loss: Any = Logistic(clip_derivative=0.5) if classes <= 2 else Softmax(classes)
        terms: Any = {"epsilon": self.epsilon, "delta": self.delta, "neighbouring": self.neighbouring}
        return Facts.of(loss, records=records, dimension=features * (1 if classes <= 2 else classes), **terms)


def plan_for(name: str, settings: PlanSettings) -> Plan:
    """Plan a method, one of ``METHODS``, from public facts."""
    return method_by_name(name).plan(replace(settings.facts, l2=ridge_for(name)))


@dataclass(frozen=True)
class Rehearsal:
    """Mean accuracy on synthetic tables, over several seeds."""

    private: float
    non_private: float
    majority: float
    loss: float  # non-private minus private
    loss_std: float  # standard deviation over seeds


def rehearse_accuracy(name: str, settings: PlanSettings, progress: Progress) -> Rehearsal | None:
    """Train on synthetic tables with the noise that the real training would have.

    Columns are independent and normal; a tenth have large weights. With at most 10,000 rows, noise
    is scaled down in proportion. Return None if the method cannot be rehearsed.
    """
    rows = int(min(MOST_ROWS, max(MOST_NUMBERS // settings.features, 200), settings.records))
    mu = convert.gdp_mu(settings.epsilon, settings.delta) * settings.records / rows
    epsilon = convert.gdp_epsilon(mu, settings.delta)
    found = []
    for seed in range(SEEDS):
        X, y = _made_table(settings, rows + TEST_ROWS, seed)
        train, test = slice(0, rows), slice(rows, None)
        try:
            private = _fit(name, settings, epsilon, seed, X[train], y[train])
        except PrivypurseError:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = LogisticRegression(max_iter=300).fit(X[train], y[train])
        shares = np.bincount(y[test], minlength=settings.classes) / TEST_ROWS
        found.append((private.score(X[test], y[test]), plain.score(X[test], y[test]), shares.max()))
        progress.update(seed + 1)
    table = np.array(found)
    losses = table[:, 1] - table[:, 0]
    private_mean, plain_mean, majority = table.mean(axis=0).tolist()
    return Rehearsal(private_mean, plain_mean, majority, float(losses.mean()), float(losses.std(ddof=1)))


def _made_table(settings: PlanSettings, rows: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng([seed, 1])
    X = rng.standard_normal((rows, settings.features), dtype=np.float32)
    outputs = settings.classes if settings.classes > 2 else 1
    weights = rng.standard_normal((settings.features, outputs))
    weights[rng.random(settings.features) > 0.1] *= 0.1
    weights *= SIGNAL / np.linalg.norm(weights, axis=0)
    scores = X @ weights.astype(np.float32)
    return X, drawn_classes(scores[:, 0] - 1.0 if outputs == 1 else scores, rng)


def drawn_classes(scores: Any, rng: np.random.Generator) -> Any:
    """Draw a class for each row by its score, or by its scores of several classes."""
    if scores.ndim == 1:
        return (rng.random(len(scores)) < special.expit(scores)).astype(int)
    chances = np.cumsum(special.softmax(scores, axis=1), axis=1)
    return np.minimum((rng.random((len(scores), 1)) > chances).sum(axis=1), scores.shape[1] - 1)


def _fit(name: str, settings: PlanSettings, epsilon: float, seed: int, X: Any, y: Any) -> Any:
    classes = list(range(max(2, settings.classes)))
    if name == "dp-sgd":
        # A fixed list of releases allows no others, so declare what other methods release first.
        declared: Any = {"n_public": len(X), "feature_norm": 1.25 * math.sqrt(X.shape[1]), "standardize": False}
        asked: Any = {"delta": settings.delta, "method": name, "classes": classes, "random_state": seed}
        model = PrivateLogisticRegression(epsilon, **asked, **declared)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(X, y)
    rule = GdpFilter(epsilon, settings.delta, settings.neighbouring)
    purse = Purse.with_filter(rule, noise=NoiseSource(seed=seed))
    model = PrivateLogisticRegression(None, method=name, classes=classes, purse=purse, l2=ridge_for(name))
    return model.fit(X, y)


# A smaller share of rows without any category may come from rows that were scaled down. Such rows
# would separate the intercept from the categories.
NOTICED = 0.1


def made_rows(schema: Schema, preparation: Preparation, rows: int, rng: np.random.Generator, error: float) -> Any:
    """Draw encoded rows with independent columns and the released centre and spread.

    Without a centre, categories are equally frequent; without a spread, numbers fill their range.
    `error` is the standard deviation of the noise in the centre of a column: a category whose share
    is below twice that counts as empty, as noise moves the coefficients of empty categories furthest.
    """
    width = len(schema.features)
    means = np.full(width, np.nan) if preparation.centre is None else preparation.centre * preparation.unit
    spreads = np.full(width, 0.25) if preparation.spread is None else preparation.spread * preparation.unit
    made = np.zeros((rows, width), dtype=np.float32)
    start = 0
    for column in schema.columns:
        for own, kind in _groups(column):
            part, place = made[:, start : start + own], slice(start, start + own)
            if kind == "categories":
                _draw_categories(part, means[place], rng, error)
            elif kind == "number":
                middle = 0.5 if np.isnan(means[start]) else float(np.clip(means[start], 0.0, 1.0))
                part[:, 0] = np.clip(middle + spreads[start] * rng.standard_normal(rows), 0.0, 1.0)
            else:
                part[:, 0] = rng.random(rows) < np.clip(np.nan_to_num(means[start], nan=0.0), 0.0, 1.0)
            start += own
    return made


def _groups(column: Column) -> list[tuple[int, str]]:
    """Return the widths of the parts of an encoded column, and what each is."""
    if isinstance(column, Category) or (isinstance(column, Number) and column.cuts):
        return [(len(column.features), "categories")]
    parts = column.parts if isinstance(column, Date) else ("position",)
    found = [(len(PARTS[part]), "categories") if PARTS[part] else (1, "number") for part in parts]
    return [*found, (1, "indicator")] if column.missing else found


def _draw_categories(part: Any, means: FloatArray, rng: np.random.Generator, error: float) -> None:
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


RUNS, MOST_REHEARSED, MOST_WEIGHTS = 12, 1_500_000, 4_000
NOTE = (
    "Intervals are about noise alone. If this training were repeated many times on the same records with fresh noise, the mean "
    "of a coefficient would lie in its interval, for roughly 95 of 100 intervals. They come from "
    f"{RUNS} rehearsals of the whole training on synthetic rows, drawn from the centre and spread of columns that were released, "
    "columns taken as independent of each other; no data is used. Those of numbers that are strongly correlated with each other "
    "are too narrow. They say nothing about what another sample of people would "
    "give, nor what training without privacy would give: a budget ends training early and limits long rows, so coefficients of "
    "columns with few records are drawn towards zero, and others can be steeper."
)


def noise_intervals(
    model: Any, schema: Schema, progress: Progress, *, interrupts: Sequence[int] = (), seed: int = 0
) -> tuple[FloatArray, FloatArray] | None:
    """Return half-widths of the intervals of ``coef_`` and ``intercept_`` of a fitted model.

    Return None if that is not possible, or on an interrupt. The seed is of synthetic rows and noise:
    no privacy depends on it.
    """
    spent, preparation, columns = model.privacy_spent_, model.preparation_, model.n_features_in_
    if not math.isfinite(spent.epsilon) or model.coef_.size > MOST_WEIGHTS:
        return None
    rows = int(min(MOST_ROWS, MOST_REHEARSED // columns, max(200.0, preparation.records)))
    rng = np.random.default_rng(seed)
    mu = convert.gdp_mu(spent.epsilon, spent.delta)
    twice = 1 if model.certificate_.neighbouring == Neighbouring.ADD_REMOVE.value else 2
    error = twice * float(np.max(preparation.unit)) / (math.sqrt(CENTRE_SHARE) * mu * preparation.records)
    X = made_rows(schema, preparation, rows, rng, error)
    if hasattr(model, "classes_"):
        y = drawn_classes(model.decision_function(X), rng)
    else:
        _, half = preparation.target
        y = np.clip(model.predict(X) + 0.25 * half * rng.standard_normal(len(X)), *model.target_bounds)
    # Keep the ratio of noise to rows.
    mu *= preparation.records / rows
    rule = GdpFilter(convert.gdp_epsilon(mu, spent.delta), spent.delta, model.certificate_.neighbouring)
    found = []
    progress.stage("rehearsing the noise", RUNS)
    for run in range(RUNS):
        if interrupts:
            return None
        purse = Purse.with_filter(rule, noise=NoiseSource(seed=seed + run))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about synthetic rows
            rehearsed = _like(model, rows).set_params(purse=purse).fit(X, y)
        found.append((rehearsed.coef_, np.asarray(rehearsed.intercept_)))
        progress.update(run + 1)
    factor = float(stats.t.ppf(0.975, RUNS - 1))
    coefficients, intercepts = (factor * np.std(part, axis=0, ddof=1) for part in zip(*found, strict=True))
    return coefficients, intercepts


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
