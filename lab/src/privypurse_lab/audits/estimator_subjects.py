"""The scikit-learn estimators, the search and preprocessing, as subjects of an audit."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from privypurse.accounting.convert import gdp_epsilon
from privypurse.audit.subjects import COLUMNS, DELTA, Subject, contradicted_table, gaussian_purse
from privypurse.core._checks import FloatArray
from privypurse.core._randomness import NoiseSource
from privypurse.estimators import (
    PrivateAdditiveClassifier,
    PrivateGammaRegressor,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateRangeScaler,
    PrivateRidge,
)
from privypurse.estimators._base import PrivateLinearModel
from privypurse.estimators._private_statistics import (
    gaussian,
    private_class_counts,
    private_count,
    private_mean,
    private_quantiles,
)
from privypurse.estimators._search import PrivateSearchCV
from privypurse.oracles.statistics import histograms, residual_sums
from privypurse.purse._purse import Purse
from privypurse_lab.audits.canaries import on_last_column

# Few, so that a fit has few steps: audits fit thousands of times.
RECORDS = 32
# Longer than any clipping limit that could be chosen for the other rows.
LONG = 100.0
# Declared, so that the whole budget goes to gradients.
DECLARED: dict[str, Any] = {"n_public": RECORDS, "feature_norm": 1.0, "standardize": False}
TARGET_BOUNDS = (-4.0, 4.0)
# Candidates for quantiles: as many below as between and above the two deciding numbers.
GRID, MIDDLES, THIRDS = np.arange(300.0), (100.5, 200.5), (74.5, 149.5, 224.5)


def two_classes(present: bool) -> tuple[Any, FloatArray]:
    """Return a table with two classes."""
    rows, labels, canary = contradicted_table(RECORDS)
    return _added(rows, labels, LONG * canary, 1.0, present)


def two_classes_sparse(present: bool) -> tuple[Any, FloatArray]:
    """Return the same table as a sparse matrix."""
    rows, labels = two_classes(present)
    return sparse.csr_matrix(rows), labels


def three_classes(present: bool) -> tuple[Any, FloatArray]:
    """Return a table with three classes; the canary's last column contradicts its class."""
    rows, _, canary = contradicted_table(RECORDS)
    labels = np.array([0.0, 1.0, 2.0] * RECORDS)[:RECORDS]
    rows[:, -1] = np.where(labels == 2, -0.8, 0.8)
    return _added(rows, labels, LONG * canary, 2.0, present)


def two_classes_replaced(present: bool) -> tuple[Any, FloatArray]:
    """Return a table with the canary, or with its opposite in its place."""
    rows, labels, canary = contradicted_table(RECORDS)
    rows[:, -1] = 0.0
    return _added(rows, labels, LONG * canary, float(present), True)


def numbers(present: bool) -> tuple[Any, FloatArray]:
    """Return a table whose target falls with the last column, against the canary's."""
    rows, _, canary = contradicted_table(RECORDS)
    return _added(rows, -rows[:, -1], LONG * canary, TARGET_BOUNDS[1], present)


def positive_numbers(present: bool) -> tuple[Any, FloatArray]:
    """Return the same table with targets of 0 or more."""
    rows, targets = numbers(present)
    return rows, targets + 1


def _added(
    rows: FloatArray, targets: FloatArray, canary: FloatArray, target: float, present: bool
) -> tuple[FloatArray, FloatArray]:
    return (np.vstack([rows, canary]), np.append(targets, target)) if present else (rows, targets)


def on_last_coefficient(result: FloatArray) -> float:
    """Return the weight of the canary's column for the last of three classes."""
    return float(result[3 * COLUMNS - 1])


def estimator_subject(
    name: str,
    make: Callable[..., PrivateLinearModel],
    table: Callable[[bool], Any],
    *,
    score: Callable[[FloatArray], float] = on_last_column,
    shows_half: bool = True,
    neighbouring: str = "add-remove",
    **settings: Any,
) -> Subject:
    """Return an estimator as a subject."""

    def run(data: Any, purse: Purse) -> list[Any]:
        model = make(epsilon=None, purse=purse, **settings).fit(*data)
        return [model.coef_, model.intercept_]

    def purse(mu: float, noise: NoiseSource) -> Purse:
        return gaussian_purse(mu, noise, neighbouring)

    return Subject(name, "estimator", run, table, purse, score=score, shows_half=shows_half)


def additive() -> Subject:
    """Return the additive classifier. The attack sees its score for the canary, clipped to the ranges."""
    canary = np.atleast_2d(LONG * contradicted_table(RECORDS)[2])

    def run(data: Any, purse: Purse) -> list[Any]:
        model = PrivateAdditiveClassifier(None, purse=purse, ranges=(-1, 1), classes=[0, 1]).fit(*data)
        return [model.decision_function(canary)]

    # Releases before training, and a canary that is clipped: no record reaches the bounds of all.
    shows: dict[str, Any] = {"score": lambda result: float(result[0]), "shows_half": False}
    return Subject("additive-classifier", "estimator", run, two_classes, gaussian_purse, **shows)


def search() -> Subject:
    """Return the search. The attack sees the best trial, which mostly trains on the canary."""

    def run(data: Any, purse: Purse) -> list[Any]:
        model = PrivateLogisticRegression(classes=[0, 1], fit_intercept=False, feature_norm=1.0, standardize=False)
        grid = {"l2": [0.0, 0.01]}
        settings: dict[str, Any] = {"mean_trials": 2.0, "n_public": RECORDS, "validation": 0.05}
        found = PrivateSearchCV(model, grid, epsilon=None, purse=purse, **settings).fit(*data)
        return [found.best_estimator_.coef_, found.best_params_["l2"], found.best_score_]

    def purse(mu: float, noise: NoiseSource) -> Purse:
        return Purse(gdp_epsilon(mu, DELTA), DELTA, neighbouring="add-remove", filter="rdp", noise=noise)

    return Subject("search", "estimator", run, two_classes, purse, score=on_last_column)


def bought(
    name: str,
    buy: Callable[[Any, Purse], Any],
    table: Callable[[bool], Any],
    *,
    shows_half: bool = True,
    neighbouring: str = "add-remove",
) -> Subject:
    """Return a release of preprocessing as a subject; ``buy(data, purse)`` makes it."""

    def purse(mu: float, noise: NoiseSource) -> Purse:
        return gaussian_purse(mu, noise, neighbouring)

    return Subject(
        name, "preprocessing", buy, table, purse, score=lambda result: float(result.sum()), shows_half=shows_half
    )


def column(present: bool) -> FloatArray:
    """Return a column whose upper quantiles depend on the canary.

    18 of 19 values are a twentieth of a record short of 95 %: candidates just below the last value
    are nearly right, those above it nearly a record off. With one more value above all, 19 of 20
    are 95 % and the reverse holds: scores change as far as they can. For 90 % the same happens one
    value earlier.
    """
    return np.array([0.0] * 17 + [MIDDLES[0], MIDDLES[1]] + ([2.0 * GRID[-1]] if present else []))


def replaced_in_column(present: bool) -> FloatArray:
    """Return a column with one value below or above all others, which changes both ends of a range.

    5 % of twenty values is one. With the value at the lower end, candidates below all others have
    one value below them, and those up to the middle two; with it at the upper end none and one. The
    other end of the range is symmetric.
    """
    return np.array([THIRDS[0]] + [THIRDS[1]] * 17 + [THIRDS[2]] + [2.0 * GRID[-1] if present else -1.0])


def counted_cells(data: Any, purse: Purse) -> Any:
    """Release histograms, as for the knots of curves, with all that is left."""
    box = histograms(np.clip(data[0].astype(np.intp), 0, 1), sizes=[2] * data[0].shape[1])
    return purse.release(box, gaussian(purse, 1.0), what="histogram of columns").value


def summed_residuals(data: Any, purse: Purse) -> Any:
    """Release residuals in cells of pairs, as for the pairs of additive models, with all that is left."""
    rows, labels = data
    columns = rows.shape[1]
    sizes, pairs = [2] + [1] * (columns - 1), [(0, other) for other in range(1, columns)]
    box = residual_sums(2 * labels[:, None] - 1, (rows > 0).astype(np.intp), pairs=pairs, sizes=sizes, clip_norm=1.0)
    return purse.release(box, gaussian(purse, 1.0), what="residuals of pairs of columns").value


def scaled_to(quantiles: tuple[float, float]) -> Callable[[Any, Purse], Any]:
    """Return a release of a range by `PrivateRangeScaler`."""

    def buy(data: FloatArray, purse: Purse) -> list[Any]:
        scaler = PrivateRangeScaler(None, purse=purse, quantiles=quantiles, candidates=GRID).fit(data[:, None])
        return [scaler.lower_, scaler.upper_]

    return buy


PREPROCESSING: dict[str, Callable[[], Subject]] = {
    "private-count": lambda: bought(
        "private-count", lambda data, purse: private_count(data[0], purse=purse, share=1.0), two_classes
    ),
    "private-class-counts": lambda: bought(
        "private-class-counts",
        lambda data, purse: private_class_counts(data[1], classes=[0, 1], purse=purse, share=1.0),
        two_classes,
    ),
    "histograms": lambda: bought("histograms", counted_cells, two_classes),
    "residual-sums": lambda: bought("residual-sums", summed_residuals, two_classes),
    "private-mean": lambda: bought(
        "private-mean", lambda data, purse: private_mean(data[0], purse=purse, share=1.0, clip_norm=1.0), two_classes
    ),
    # A selection from many candidates: shows half of mu from 2 on, and about half at 1.
    "private-quantiles": lambda: bought(
        "private-quantiles",
        lambda data, purse: private_quantiles(data, 0.95, purse=purse, candidates=GRID),
        column,
        shows_half=False,
    ),
    # Adding a record beyond one end hardly moves the other end, which takes half of the budget.
    "range-scaler": lambda: bought("range-scaler", scaled_to((0.05, 0.95)), column, shows_half=False),
    # Moving a record from one end to the other moves both.
    "range-scaler-replace-one": lambda: bought(
        "range-scaler-replace-one", scaled_to((0.05, 0.95)), replaced_in_column, neighbouring="replace-one"
    ),
    "range-scaler-upper": lambda: bought("range-scaler-upper", scaled_to((0.9, 0.95)), column, shows_half=False),
}

ESTIMATORS: dict[str, Callable[[], Subject]] = {
    "logistic-regression": lambda: estimator_subject(
        "logistic-regression", PrivateLogisticRegression, two_classes, classes=[0, 1]
    ),
    "logistic-regression-declared": lambda: estimator_subject(
        "logistic-regression-declared", PrivateLogisticRegression, two_classes, classes=[0, 1], **DECLARED
    ),
    "logistic-regression-no-intercept": lambda: estimator_subject(
        "logistic-regression-no-intercept",
        PrivateLogisticRegression,
        two_classes,
        classes=[0, 1],
        fit_intercept=False,
    ),
    "logistic-regression-three-classes": lambda: estimator_subject(
        "logistic-regression-three-classes",
        PrivateLogisticRegression,
        three_classes,
        score=on_last_coefficient,
        classes=[0, 1, 2],
    ),
    "logistic-regression-sparse": lambda: estimator_subject(
        # Without an intercept columns are not centred, and the table stays sparse.
        "logistic-regression-sparse",
        PrivateLogisticRegression,
        two_classes_sparse,
        classes=[0, 1],
        fit_intercept=False,
    ),
    "logistic-regression-dp-agd": lambda: estimator_subject(
        # No record reaches the bounds of both preprocessing and line search.
        "logistic-regression-dp-agd",
        PrivateLogisticRegression,
        two_classes,
        shows_half=False,
        classes=[0, 1],
        method="dp-agd",
    ),
    "logistic-regression-dp-agd-declared": lambda: estimator_subject(
        "logistic-regression-dp-agd-declared",
        PrivateLogisticRegression,
        two_classes,
        classes=[0, 1],
        method="dp-agd",
        **DECLARED,
    ),
    "logistic-regression-replace-one": lambda: estimator_subject(
        # The ridge keeps scores near zero, where a record and its opposite have slopes near 1/2.
        "logistic-regression-replace-one",
        PrivateLogisticRegression,
        two_classes_replaced,
        neighbouring="replace-one",
        classes=[0, 1],
        l2=1.0,
        **DECLARED,
    ),
    "additive-classifier": additive,
    "linear-svc": lambda: estimator_subject("linear-svc", PrivateLinearSVC, two_classes, classes=[0, 1]),
    "ridge": lambda: estimator_subject("ridge", PrivateRidge, numbers, target_bounds=TARGET_BOUNDS),
    "huber-regressor": lambda: estimator_subject(
        "huber-regressor", PrivateHuberRegressor, numbers, target_bounds=TARGET_BOUNDS
    ),
    "poisson-regressor": lambda: estimator_subject(
        "poisson-regressor", PrivatePoissonRegressor, positive_numbers, target_bounds=(0.0, 5.0)
    ),
    "gamma-regressor": lambda: estimator_subject(
        "gamma-regressor", PrivateGammaRegressor, positive_numbers, target_bounds=(0.1, 5.0)
    ),
    "ridge-log1p": lambda: estimator_subject(
        "ridge-log1p", PrivateRidge, positive_numbers, target_bounds=(0.0, 5.0), target_transform="log1p"
    ),
    "search": search,
    **PREPROCESSING,
}
