"""scikit-learn's own checks, all of them, on the release that is installed."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from privypurse.estimators import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSearchCV,
)

MODELS = [
    PrivateLogisticRegression(),
    PrivateLogisticRegression(epsilon=100.0, neighbouring="replace-one", n_public=300, standardize=False),
    PrivateLinearSVC(),
    PrivateRidge(target_bounds=(-200.0, 200.0)),
    PrivateHuberRegressor(target_bounds=(-200.0, 200.0)),
    PrivateSearchCV(PrivateLogisticRegression(), {"l2": [0.0, 0.1]}),
    PrivateSearchCV(PrivateRidge(target_bounds=(-200.0, 200.0)), {"l2": [0.0, 0.1]}, error_bound=100.0),
]


@parametrize_with_checks(MODELS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
