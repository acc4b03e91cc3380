"""scikit-learn estimators and preprocessing under differential privacy."""

from privypurse.estimators.declared_one_hot import DeclaredOneHot
from privypurse.estimators.fit_budget import SimulationWarning, UncountedSpending
from privypurse.estimators.linear_models import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)
from privypurse.estimators.private_statistics import (
    default_candidates,
    private_class_counts,
    private_count,
    private_mean,
    private_quantiles,
)
from privypurse.estimators.scalers import BoundedScaler, PrivateRangeScaler, RowNormalizer
from privypurse.estimators.search import PrivateSearchCV
from privypurse.estimators.uncovered import declare_fitted, declare_pipeline, uncovered_steps

__all__ = [
    "BoundedScaler",
    "DeclaredOneHot",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRangeScaler",
    "PrivateRidge",
    "PrivateSearchCV",
    "RowNormalizer",
    "SimulationWarning",
    "UncountedSpending",
    "declare_fitted",
    "declare_pipeline",
    "default_candidates",
    "private_class_counts",
    "private_count",
    "private_mean",
    "private_quantiles",
    "uncovered_steps",
]
