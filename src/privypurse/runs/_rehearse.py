"""Rehearse trainings on synthetic rows, without data: their accuracy, and how far noise moves them."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from privypurse.accounting import convert
from privypurse.accounting._filters import GdpFilter
from privypurse.core._checks import FloatArray, positive_integer
from privypurse.core._errors import PrivypurseError
from privypurse.core._randomness import NoiseSource
from privypurse.estimators import PrivateLogisticRegression
from privypurse.estimators._noise_intervals import MOST_ROWS, RUNS, drawn_classes, half_widths
from privypurse.losses._linear import Logistic, Softmax
from privypurse.methods._by_name import BY_NAME, method_by_name, ridge_for
from privypurse.purse._opening import check_delta
from privypurse.purse._purse import Purse
from privypurse.runs._progress import Progress
from privypurse.tables._schema import PARTS, Category, Column, Date, Number, Schema
from privypurse.training._plan import Facts, Plan

SEEDS = 5
MOST_NUMBERS, TEST_ROWS = 2_000_000, 10_000
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


def groups_of(schema: Schema) -> list[tuple[int, str]]:
    """Return the parts of an encoded row, for `grouped_rows`."""
    return [group for column in schema.columns for group in _groups(column)]


def _groups(column: Column) -> list[tuple[int, str]]:
    """Return the widths of the parts of an encoded column, and what each is."""
    if isinstance(column, Category) or (isinstance(column, Number) and column.cuts):
        return [(len(column.features), "categories")]
    if isinstance(column, Date):
        found = [(len(PARTS[part]), "categories") if PARTS[part] else (1, "number") for part in column.parts]
    else:
        found = [(1 + len(column.knots), "curve") if column.knots else (1, "number")]
    return [*found, (1, "indicator")] if column.missing else found


def noise_intervals(
    model: Any, schema: Schema, progress: Progress, *, interrupts: Sequence[int] = (), seed: int = 0
) -> tuple[FloatArray, FloatArray] | None:
    """Return half-widths of the intervals of the coefficients and the intercept of a model fitted by a schema.

    Those of a curve are its values (`unfolded`). Return None if that is not possible, or on an interrupt.
    """

    def goes_on(done: int) -> bool:
        progress.update(done)
        return not interrupts

    progress.stage("rehearsing the noise", RUNS)
    return half_widths(model, groups_of(schema), goes_on=goes_on, seed=seed)
