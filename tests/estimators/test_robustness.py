"""No choice of table and budget makes a fit fail after it has paid, or worse than a constant by
more than noise explains.
"""

import numpy as np
import pytest
from scipy import sparse

from privypurse import Purse
from privypurse.accounting.convert import gdp_mu
from privypurse.estimators import PrivateHuberRegressor, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge

DELTA = 1e-8
SCALES = {
    "plain": lambda X, rng: X,
    "each column in another unit": lambda X, rng: X * 10.0 ** rng.integers(-6, 7, X.shape[1]),
    "huge": lambda X, rng: X * 1e6,
    "tiny": lambda X, rng: X * 1e-6,
    "far from zero": lambda X, rng: X + 100,
    "half of the columns constant": lambda X, rng: np.where(np.arange(X.shape[1]) % 2, X, 7.0),
    "all columns constant": lambda X, rng: np.full_like(X, 3.0),
    "all zero": lambda X, rng: np.zeros_like(X),
    "one record far out": lambda X, rng: np.where(np.arange(len(X))[:, None] == 0, 1e30, X),
    "heavy tails": lambda X, rng: X / rng.random(X.shape) ** 2,
}


def a_problem(rows, columns, scale, rare, seed=1):
    """Rows of which ten columns matter, and a share of positives; the second half is for testing."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns))
    score = X[:, :10].sum(axis=1) / min(columns, 10) ** 0.5 + 0.5 * rng.standard_normal(rows)
    y = (score > np.quantile(score, 1 - rare)).astype(int)
    return SCALES[scale](X, rng), y


def explained_by_noise(rows, epsilon):
    """How far below the majority an accuracy may be: little more than chance once records stand out
    of the noise of counting.
    """
    return 0.02 + 1 / rows**0.5 + min(1.0, (60 / (rows * gdp_mu(epsilon, DELTA))) ** 2)


def check(model, X, y, Xt, yt, epsilon):
    fitted = model(epsilon, delta=DELTA, random_state=0).fit(X, y)
    assert np.isfinite(fitted.coef_).all()
    assert np.isfinite(fitted.intercept_).all()
    assert fitted.privacy_spent_.epsilon <= epsilon
    assert fitted.stop_reason_ == "steps"
    majority = max(np.bincount(yt)) / len(yt)
    shortfall = majority - fitted.score(Xt, yt)
    assert shortfall <= explained_by_noise(len(y), epsilon), f"{shortfall:.3f} below the majority of {majority:.3f}"


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("rare", [0.5, 0.02])
@pytest.mark.parametrize(("rows", "columns"), [(400, 2), (400, 50), (4_000, 5), (2_000, 300), (40_000, 20)])
def test_no_table_and_no_budget_breaks_a_fit(rows, columns, scale, rare):
    X, y = a_problem(rows, columns, scale, rare)
    half = rows // 2
    for epsilon in (0.01, 0.1, 1.0, 10.0, 100.0):
        check(PrivateLogisticRegression, X[:half], y[:half], X[half:], y[half:], epsilon)
    check(PrivateLinearSVC, X[:half], y[:half], X[half:], y[half:], 1.0)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
def test_regressions_stay_finite(scale, epsilon):
    X, _ = a_problem(1_000, 5, scale, 0.5)
    y = np.random.default_rng(2).uniform(0, 10, 1_000)
    for model in (PrivateRidge, PrivateHuberRegressor):
        fitted = model(epsilon, target_bounds=(0, 10), random_state=0).fit(X, y)
        assert np.isfinite(fitted.coef_).all()
        assert np.isfinite(fitted.predict(X)).all()


def test_rare_and_absent_classes_of_several():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4_000, 6))
    y = np.where(X[:, 0] > 2.3, 1, np.where(X[:, 0] < -2.3, 2, 0))
    for model in (PrivateLogisticRegression, PrivateLinearSVC):
        for epsilon in (0.01, 1.0, 100.0):
            fitted = model(epsilon, delta=DELTA, classes=range(5), random_state=0).fit(X, y)
            assert np.isfinite(fitted.coef_).all()
            assert np.mean(y == 0) - fitted.score(X, y) <= explained_by_noise(4_000, epsilon)


def test_every_sparse_row_may_be_empty():
    X = sparse.csr_matrix((500, 30))
    fitted = PrivateLogisticRegression(1.0, random_state=0).fit(X, np.arange(500) % 2)
    assert np.isfinite(fitted.coef_).all()


def test_an_interrupted_fit_leaves_what_it_paid_on_the_ledger(tmp_path):
    X, y = a_problem(1_000, 5, "plain", 0.5)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db")

    class Stop:
        def on_start(self, steps, done): ...

        def on_step(self, step):
            if step.number == 3:
                raise KeyboardInterrupt

        def on_end(self, trace): ...

    with pytest.raises(KeyboardInterrupt):
        PrivateLogisticRegression(1.0, purse=purse, callbacks=[Stop()]).fit(X, y)
    assert purse.spent.releases >= 4
    assert 0 < Purse.reopen(tmp_path / "budget.db").spent.epsilon < 1


@pytest.mark.slow
def test_five_thousand_columns():
    X, y = a_problem(4_000, 5_000, "plain", 0.5)
    for epsilon in (0.01, 1.0, 100.0):
        check(PrivateLogisticRegression, X[:2_000], y[:2_000], X[2_000:], y[2_000:], epsilon)


@pytest.mark.slow
def test_ten_million_rows():
    X, y = a_problem(10_000_000, 2, "plain", 0.3)
    X = X.astype(np.float32)
    for epsilon in (0.01, 1.0):
        fitted = PrivateLogisticRegression(epsilon, delta=DELTA, random_state=0).fit(X, y)
        assert fitted.score(X[:100_000], y[:100_000]) > 0.8
