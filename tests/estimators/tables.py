"""Tables and purses that the tests of the estimators share."""

import numpy as np

from privypurse import Purse


def a_table(rows=4_000, columns=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns))
    return X, (X[:, 0] - X[:, 1] + 0.3 * rng.standard_normal(rows) > 0).astype(int)


def a_target(X, seed=1):
    return 50 + 8 * X[:, 0] - 4 * X[:, 1] + np.random.default_rng(seed).standard_normal(len(X))


def a_purse(**settings):
    return Purse(2.0, 1e-6, neighbouring="add-remove", **settings)
