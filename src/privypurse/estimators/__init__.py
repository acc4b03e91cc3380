"""scikit-learn estimators that train under differential privacy, with nothing to tune."""

from privypurse.estimators.budget import UncountedSpending
from privypurse.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from privypurse.estimators.regressors import PrivateHuberRegressor, PrivateRidge

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "UncountedSpending",
]
