"""Fitted pipelines that the tests of the store share."""

import functools

import numpy as np
from sklearn.pipeline import Pipeline

from privypurse.estimators import (
    PrivateGammaRegressor,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateRidge,
)
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._schema import Category, ClassTarget, Number, NumberTarget, Schema

COLUMNS = (Number(name="age", range=(0, 100), missing=True), Category(name="job", categories=("law", 'ca"re', "é")))
KINDS = {
    "logistic": (PrivateLogisticRegression, ("no", "yes")),
    "logistic, three classes": (PrivateLogisticRegression, ("a", "b", "c")),
    "svm": (PrivateLinearSVC, ("no", "yes")),
    "svm, three classes": (PrivateLinearSVC, ("a", "b", "c")),
    "ridge": (PrivateRidge, None),
    "huber": (PrivateHuberRegressor, None),
    "poisson": (PrivatePoissonRegressor, None),
    "gamma": (PrivateGammaRegressor, None),
}


def a_table(rows=600, seed=0):
    rng = np.random.default_rng(seed)
    return {"age": rng.uniform(-10, 120, rows), "job": rng.choice(["law", 'ca"re', "é", "other"], rows)}


@functools.cache
def a_pipeline(kind="logistic", seed=0):
    estimator, classes = KINDS[kind]
    table, rng = a_table(), np.random.default_rng(1)
    if classes is None:
        target, y = NumberTarget(name="y", range=(0, 9)), rng.uniform(0, 9, 600)
        low = 0.5 if estimator is PrivateGammaRegressor else 0
        model = estimator(1.0, target_bounds=(low, 9), random_state=seed)
    else:
        target, y = ClassTarget(name="y", classes=classes), rng.choice(classes, 600)
        model = estimator(1.0, classes=list(classes), random_state=seed)
    return Pipeline([("columns", TableEncoder(Schema(COLUMNS, target))), ("model", model)]).fit(table, y)
