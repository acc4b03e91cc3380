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


def a_table_with_rare_categories(n=20_000, values=100, seed=0):
    """Return two numbers in [0, 1] and a category's code by column, the same with the category
    one-hot, and labels.

    True coefficients are within 2. Frequencies follow Zipf's law: many categories have a handful of
    records, the last ten none.
    """
    rng = np.random.default_rng(seed)
    frequency = np.arange(1.0, values + 1) ** -1.8
    frequency[-10:] = 0.0
    code = rng.choice(values, n, p=frequency / frequency.sum())
    numbers = np.clip([0.3, 0.6] + rng.standard_normal((n, 2)) * [0.1, 0.2], 0, 1)
    X = np.column_stack([numbers, np.eye(values)[code]])
    weights = np.concatenate([[2.0, -2.0], np.clip(rng.standard_normal(values), -2, 2)])
    y = (rng.random(n) < 1 / (1 + np.exp(-(X @ weights)))).astype(int)
    return np.column_stack([numbers, code]), X, y
