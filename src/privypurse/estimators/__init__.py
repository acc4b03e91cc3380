"""scikit-learn estimators that train under differential privacy, with nothing to tune."""

from privypurse.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from privypurse.estimators.regressors import PrivateHuberRegressor, PrivateRidge
from privypurse.estimators.search import PrivateSearchCV
from privypurse.purse.opening import SimulationWarning, UncountedSpending

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateSearchCV",
    "SimulationWarning",
    "UncountedSpending",
]
