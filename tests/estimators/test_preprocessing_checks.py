"""The contract of scikit-learn, all of it."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from privypurse.estimators import BoundedScaler, DeclaredOneHot, PrivateRangeScaler, RowNormalizer

CHECKS = parametrize_with_checks(
    [
        BoundedScaler(),
        BoundedScaler(lower=-3.0, upper=5.0, feature_range=(0.0, 1.0)),
        RowNormalizer(),
        DeclaredOneHot(categories=[0, 1, 2]),
        DeclaredOneHot(categories=[0, 1, 2], unknown="other", missing="column", sparse_output=False),
        PrivateRangeScaler(random_state=0),
    ]
)


# Before scikit-learn 1.6 they come as a generator, which new versions of pytest warn of.
@pytest.mark.parametrize(CHECKS.args[0], list(CHECKS.args[1]), **CHECKS.kwargs)
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)
