"""scikit-learn's own checks, all of them, on the release that is installed."""

import sklearn.utils
from sklearn.utils.estimator_checks import parametrize_with_checks

from privypurse.estimators import (
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
    PrivateGammaRegressor,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateRidge,
    PrivateSearchCV,
)

# Before 1.6 a check wants every class to be predicted after a fit on a few dozen records, which
# epsilon 1 rightly hides.
GENEROUS = {} if hasattr(sklearn.utils, "get_tags") else {"epsilon": 50.0}
MODELS = [
    PrivateLogisticRegression(**GENEROUS),
    PrivateLogisticRegression(epsilon=50.0, neighbouring="replace-one", n_public=300, standardize=False),
    PrivateLinearSVC(**GENEROUS),
    PrivateAdditiveClassifier(ranges=(-10.0, 10.0), **GENEROUS),
    PrivateAdditiveRegressor(ranges=(-10.0, 10.0), target_bounds=(-200.0, 200.0)),
    PrivateRidge(target_bounds=(-200.0, 200.0)),
    PrivateHuberRegressor(target_bounds=(-200.0, 200.0)),
    PrivatePoissonRegressor(target_bounds=(0.0, 200.0)),
    PrivateGammaRegressor(target_bounds=(0.1, 200.0)),
    PrivateSearchCV(PrivateLogisticRegression(), {"l2": [0.0, 0.1]}),
    PrivateSearchCV(PrivateRidge(target_bounds=(-200.0, 200.0)), {"l2": [0.0, 0.1]}, error_bound=100.0),
]


@parametrize_with_checks(MODELS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
