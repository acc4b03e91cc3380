"""Coefficients as a data frame: names, units, intervals."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from privypurse import InvalidArgument, Purse
from privypurse.estimators import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSearchCV,
)
from tests.estimators.tables import a_table, a_target

pd = pytest.importorskip("pandas")


def test_coefficients_are_named_and_in_the_units_of_the_columns():
    X, _ = a_table(8_000)
    y = a_target(X)
    table = pd.DataFrame(X * [1, 1000, 1, 1], columns=["age", "income in euros", "c", "d"])
    frame = PrivateRidge(1.0, target_bounds=(0, 100), random_state=0).fit(table, y).coefficients()
    assert frame.columns.tolist() == ["name", "value", "low", "high"]
    assert frame.name.tolist() == ["intercept", "age", "income in euros", "c", "d"]
    assert frame.value.tolist() == pytest.approx([50, 8, -0.004, 0, 0], abs=0.6)
    assert frame.value[2] == pytest.approx(-0.004, rel=0.2)
    assert (frame.low < frame.value).all()
    assert (frame.value < frame.high).all()


@pytest.mark.parametrize("model", [PrivateLogisticRegression, PrivateLinearSVC])
def test_several_classes_have_a_column_for_the_class(model):
    X, y = make_blobs(2_000, centers=3, n_features=2, random_state=2)
    fitted = model(2.0, classes=[0, 1, 2], random_state=0).fit(X, y)
    frame = fitted.coefficients()
    assert frame["class"].tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert frame.value[frame.name == "x1"].tolist() == fitted.coef_[:, 1].tolist()
    assert frame.value[frame.name == "intercept"].tolist() == fitted.intercept_.tolist()
    assert frame.notna().all(axis=None)


def test_nothing_is_spent_and_the_model_stays_as_it_is():
    X, y = a_table(2_000)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    fitted = PrivateLogisticRegression(0.5, classes=[0, 1], purse=purse).fit(X, y)
    before = purse.spent, fitted.coef_.copy(), sorted(vars(fitted))
    first, again = fitted.coefficients(), fitted.coefficients()
    assert purse.spent == before[0]
    assert (fitted.coef_ == before[1]).all()
    assert sorted(vars(fitted)) == before[2]
    pd.testing.assert_frame_equal(first, again)


def test_no_interval_where_the_budget_of_the_fit_is_not_known():
    X, y = a_table(2_000)
    search = PrivateSearchCV(
        PrivateLogisticRegression(classes=[0, 1]), {"l2": [0.0, 0.01]}, epsilon=5.0, random_state=0
    )
    for fitted in (
        search.fit(X, y).best_estimator_,
        PrivateHuberRegressor(0.5, target_bounds=(0, 100), random_state=0).fit(X, a_target(X)),
    ):
        frame = fitted.coefficients(intervals=fitted is search.best_estimator_)
        assert frame.value.notna().all()
        assert frame[["low", "high"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"names": ["a"]}, "one name for each of the 4 columns"),
        ({"one_hot": [["x1", "zip"]]}, "one_hot must name columns"),
    ],
)
def test_wrong_names_are_refused(settings, words):
    X, y = a_table(500)
    fitted = PrivateLogisticRegression(0.5, classes=[0, 1], random_state=0).fit(X, y)
    with pytest.raises(InvalidArgument, match=words):
        fitted.coefficients(**settings)


@pytest.mark.statistical
def test_intervals_hold_the_mean_over_noise_with_declared_one_hot_columns():
    rng = np.random.default_rng(0)
    drawn = rng.choice(6, size=4_000, p=[0.4, 0.25, 0.2, 0.1, 0.04, 0.01])
    X = np.column_stack([np.eye(6)[drawn], 50 + 10 * rng.standard_normal(4_000)])
    y = (X[:, 0] - X[:, 3] + 0.1 * (X[:, 6] - 50) + rng.logistic(size=4_000) > 1).astype(int)
    names = [*"abcdef", "age"]
    fits = [PrivateLogisticRegression(1.0, classes=[0, 1], random_state=seed).fit(X, y) for seed in range(8)]
    frames = [fitted.coefficients(names, one_hot=["abcdef"]) for fitted in fits]
    values, halves = (
        np.array([part(frame) for frame in frames]) for part in (lambda f: f.value, lambda f: f.high - f.value)
    )
    others = (values.sum(axis=0) - values) / (len(values) - 1)
    assert np.mean(np.abs(values - others) <= halves) >= 0.9


@pytest.mark.statistical
def test_intervals_of_a_regression_know_the_correlation_that_it_released():
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((10_000, 1))
    fits = []
    for correlation in (0.0, 0.9):
        X = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * rng.standard_normal((10_000, 4))
        y = X @ np.ones(4) + rng.standard_normal(10_000)
        fits.append([PrivateRidge(target_bounds=(-30, 30), random_state=seed).fit(X, y) for seed in range(8)])
    for models in fits:
        half = np.mean([(table["high"] - table["low"])[1:] / 2 for table in (one.coefficients() for one in models[:1])])
        noise = 1.96 * np.mean(np.std([one.coef_ for one in models], axis=0, ddof=1))
        assert 0.8 < half / noise < 3


def test_one_hot_columns_that_are_not_declared_get_no_interval():
    rng = np.random.default_rng(0)
    drawn = rng.choice(4, size=4_000, p=[0.4, 0.3, 0.2, 0.1])
    X = np.column_stack([np.eye(4)[drawn], 50 + 10 * rng.standard_normal(4_000), rng.random(4_000)])
    y = (X[:, 0] - X[:, 3] + 0.1 * (X[:, 4] - 50) + rng.logistic(size=4_000) > 1).astype(int)
    fitted = PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0).fit(X, y)
    names = [*"abcd", "age", "share"]
    with pytest.warns(UserWarning, match="look like zeros and ones: .*'a', 'b', 'c', 'd'"):
        frame = fitted.coefficients(names)
    assert frame.low.isna().tolist() == [True] * 5 + [False] * 2
    assert fitted.coefficients(names, one_hot=["abcd"]).notna().all(axis=None)
