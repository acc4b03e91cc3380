"""scikit-learn estimators and preprocessing under differential privacy."""

from typing import Any

from privypurse.estimators._additive import PrivateAdditiveClassifier, PrivateAdditiveRegressor
from privypurse.estimators._declared_one_hot import DeclaredOneHot
from privypurse.estimators._fit_budget import SimulationWarning, UncountedSpending
from privypurse.estimators._linear_models import (
    PrivateGammaRegressor,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateRidge,
)
from privypurse.estimators._private_statistics import (
    private_class_counts,
    private_count,
    private_mean,
    private_quantiles,
)
from privypurse.estimators._scalers import BoundedScaler, PrivateRangeScaler, RowNormalizer
from privypurse.estimators._search import PrivateSearchCV
from privypurse.estimators._uncovered import declare_pipeline

__all__ = [
    "BoundedScaler",
    "DeclaredOneHot",
    "PrivateAdditiveClassifier",
    "PrivateAdditiveRegressor",
    "PrivateGammaRegressor",
    "PrivateHuberRegressor",
    "PrivateImageClassifier",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivatePoissonRegressor",
    "PrivateRangeScaler",
    "PrivateRidge",
    "PrivateSearchCV",
    "RowNormalizer",
    "SimulationWarning",
    "UncountedSpending",
    "declare_pipeline",
    "private_class_counts",
    "private_count",
    "private_mean",
    "private_quantiles",
]


def __getattr__(name: str) -> Any:
    # PyTorch is an optional dependency, imported on demand.
    if name == "PrivateImageClassifier":
        from privypurse.estimators._images import PrivateImageClassifier

        return PrivateImageClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
