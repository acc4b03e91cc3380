"""How far noise moves each coefficient, found by training again and again on made-up rows: public numbers only, no data.

The rows are drawn column by column, with the centre and spread that the training bought, and labelled by the trained model
itself. There are fewer of them than in the real table, with as much less noise: what matters is their ratio.
"""

import math
import warnings
from typing import Any

import numpy as np
from scipy import special, stats

from privypurse.accounting import convert
from privypurse.accounting.filters import GdpFilter
from privypurse.core.checks import FloatArray
from privypurse.core.randomness import NoiseSource
from privypurse.jobs.interrupts import Interrupts
from privypurse.jobs.made_rows import made_rows
from privypurse.jobs.progress import Progress
from privypurse.purse.purse import Purse
from privypurse.tables.schema import Schema

RUNS = 12
MOST_ROWS, MOST_NUMBERS = 10_000, 1_500_000
# The time of a rehearsal grows with the weights.
MOST_WEIGHTS = 4_000

NOTE = (
    f"Intervals say where noise alone would put a coefficient in 95 of 100 runs on the same data, roughly. They come from {RUNS} "
    "rehearsals of the whole training on made-up rows, drawn from the centre and spread of columns that were bought, columns "
    "taken as independent of each other; no data is used. They say nothing about what another sample of people would give."
)


def noise_intervals(
    model: Any, schema: Schema, progress: Progress, *, interrupts: Interrupts | None = None, seed: int = 0
) -> tuple[FloatArray, FloatArray] | None:
    """Return half-widths of the intervals of ``coef_`` and ``intercept_``; None where they cannot be rehearsed.

    Parameters
    ----------
    model : estimator
        A fitted private model, trained in Gaussian DP.
    schema : Schema
        The columns it was trained on.
    progress : Progress
        Told of runs.
    interrupts : Interrupts, optional
        Where somebody asks to stop, the rest is left out.
    seed : int, default 0
        Of the made-up rows and noise, which protect nobody.
    """
    spent, preparation, columns = model.privacy_spent_, model.preparation_, model.n_features_in_
    if not math.isfinite(spent.epsilon) or model.coef_.size > MOST_WEIGHTS:
        return None
    rows = int(min(MOST_ROWS, MOST_NUMBERS // columns, max(200.0, preparation.records)))
    rng = np.random.default_rng(seed)
    X = made_rows(schema, preparation, rows, rng)
    y = _made_targets(model, X, rng)
    # As much noise against the made-up rows as there was against the real ones.
    mu = convert.gdp_mu(spent.epsilon, spent.delta) * preparation.records / rows
    rule = GdpFilter(convert.gdp_epsilon(mu, spent.delta), spent.delta, model.certificate_.neighbouring)
    found = []
    progress.stage("rehearsing the noise", RUNS)
    for run in range(RUNS):
        if interrupts is not None and interrupts.pending:
            return None
        purse = Purse.with_filter(rule, noise=NoiseSource(seed=seed + run))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about made-up rows
            rehearsed = _like(model, rows).set_params(purse=purse).fit(X, y)
        found.append((rehearsed.coef_, np.asarray(rehearsed.intercept_)))
        progress.update(run + 1)
    factor = float(stats.t.ppf(0.975, RUNS - 1))
    coefficients, intercepts = (factor * np.std(part, axis=0, ddof=1) for part in zip(*found, strict=True))
    return coefficients, intercepts


def _made_targets(model: Any, X: Any, rng: np.random.Generator) -> Any:
    if not hasattr(model, "classes_"):
        low, high = model.target_bounds
        _, half = model.preparation_.target
        return np.clip(model.predict(X) + 0.25 * half * rng.standard_normal(len(X)), low, high)
    scores = model.decision_function(X)
    if scores.ndim == 1:
        return (rng.random(len(X)) < special.expit(scores)).astype(int)
    chances = np.cumsum(special.softmax(scores, axis=1), axis=1)
    return np.minimum((rng.random((len(X), 1)) > chances).sum(axis=1), scores.shape[1] - 1)


def _like(model: Any, rows: int) -> Any:
    """Return the same kind of model with the same settings, for the made-up rows."""
    names = ("fit_intercept", "l2", "feature_norm", "standardize", "method")
    settings: dict[str, Any] = {name: getattr(model, name) for name in names}
    settings["n_public"] = None if model.n_public is None else rows
    if hasattr(model, "classes_"):
        settings["classes"] = list(range(len(model.classes_)))
    else:
        settings["target_bounds"] = model.target_bounds
    return type(model)(None, **settings)
