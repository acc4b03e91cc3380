"""Columns that few records support, and columns in different units: coefficients that the records
can account for.
"""

import numpy as np
import pytest
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline

from privypurse.estimators import BoundedScaler, DeclaredOneHot, PrivateLogisticRegression
from tests.estimators.tables import a_table_with_rare_categories


def logistic(epsilon, seed, **settings):
    return PrivateLogisticRegression(epsilon, classes=[0, 1], random_state=seed, **settings)


def test_no_coefficient_of_a_rare_category_explodes_in_thirty_fits():
    _, X, y = a_table_with_rare_categories()
    tables = [X] * 20 + [sparse.csr_matrix(X)] * 10
    largest = [np.abs(logistic(0.5, seed).fit(table, y).coef_).max() for seed, table in enumerate(tables)]
    assert max(largest) < 50


def test_no_coefficient_explodes_behind_declared_preprocessing():
    columns, _, y = a_table_with_rare_categories()
    encode = make_column_transformer((BoundedScaler([0, 0], [1, 1]), [0, 1]), (DeclaredOneHot([list(range(100))]), [2]))
    X = encode.fit_transform(columns)
    for seed in range(10):
        fitted = make_pipeline(encode, logistic(0.5, seed)).fit(columns, y)
        assert np.abs(fitted[-1].coef_).max() < 50
        assert fitted[-1].coef_.shape == (1, X.shape[1])


def test_columns_in_very_different_units_are_learnt_beside_empty_ones():
    rng = np.random.default_rng(0)
    known = np.column_stack([rng.standard_normal((20_000, 3)), rng.integers(0, 2, 20_000)])
    y = (known @ [1.5, -1.0, 0.5, 1.0] - 0.5 + rng.logistic(size=20_000) > 0).astype(int)
    for units in ([1, 1, 1, 1], [1e-6, 1, 1e9, 1], [1e9, 1e-6, 1e3, 1e-3], [1e4, 1e4, 1e4, 1]):
        X = np.column_stack([known * units, np.zeros((20_000, 20))])
        fitted = logistic(1.0, 0).fit(X, y)
        assert fitted.score(X, y) > 0.77  # 0.782 without noise
        assert fitted.coef_[0, :4] * units == pytest.approx([1.5, -1.0, 0.5, 1.0], abs=0.4)


def test_a_declared_feature_norm_is_in_the_units_of_the_table():
    rng = np.random.default_rng(0)
    known = rng.standard_normal((20_000, 3))
    y = (known @ [1.5, -1.0, 0.5] + rng.logistic(size=20_000) > 0).astype(int)
    X = known * [1e6, 1e5, 1e4]
    assert logistic(1.0, 0, feature_norm=1e6).fit(X, y).score(X, y) > 0.75  # 0.77 without noise


@pytest.mark.filterwarnings("ignore::privypurse.estimators.SimulationWarning")
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_a_skewed_column_of_another_size_does_not_wreck_a_fit(epsilon):
    """Turnovers of firms beside four ordinary columns: a column had to show its size by a fourth of
    its records.
    """
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(8_000, 4))
    y = (rng.random(8_000) < 1 / (1 + np.exp(-2 * Z[:, 0] + Z[:, 1]))).astype(int)
    X = np.column_stack([Z, np.exp(14 + 2.5 * rng.normal(size=8_000))])
    scores = [
        PrivateLogisticRegression(epsilon, classes=[0, 1], random_state=seed).fit(X, y).score(X, y) for seed in range(6)
    ]
    assert min(scores) > 0.76
