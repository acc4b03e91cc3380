"""Poisson and gamma regression: means as without privacy, paid for, in every setting."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import GammaRegressor, PoissonRegressor
from sklearn.metrics import d2_tweedie_score, r2_score

from privypurse import InvalidArgument, Purse
from privypurse.estimators import PrivateGammaRegressor, PrivatePoissonRegressor, PrivateRidge

MODELS = [PrivatePoissonRegressor, PrivateGammaRegressor]
PLAIN = {PrivatePoissonRegressor: PoissonRegressor, PrivateGammaRegressor: GammaRegressor}
BOUNDS = (0.001, 2_000.0)


def a_skewed_table(rows=20_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, 4))
    return X, np.maximum(np.exp(2 + X[:, 0] - 0.7 * X[:, 1]) * rng.gamma(2, 0.5, rows), BOUNDS[0])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("empty", [0, 200], ids=["decorrelated", "with momentum"])
def test_means_are_those_of_the_model_without_privacy(model, empty):
    X, y = a_skewed_table()
    X = np.hstack([X, np.zeros((len(X), empty))])
    fitted = model(2.0, target_bounds=BOUNDS, random_state=0).fit(X, y)
    assert (fitted.preparation_.turn is not None) == (empty == 0)
    assert fitted.coef_[:2] == pytest.approx([1, -0.7], abs=0.15)
    plain = PLAIN[model](alpha=0, max_iter=1_000).fit(X, y)
    assert r2_score(y, fitted.predict(X)) > r2_score(y, plain.predict(X)) - 0.02
    assert fitted.predict(X).mean() == pytest.approx(y.mean(), rel=0.05)
    assert fitted.score(X, y) == d2_tweedie_score(y, fitted.predict(X), power=1 + MODELS.index(model))
    assert fitted.score(X, y) == pytest.approx(plain.score(X, y), abs=0.02)


@pytest.mark.parametrize("model", MODELS)
def test_more_budget_is_not_worse_and_a_line_is(model):
    X, y = a_skewed_table()
    scores = [
        r2_score(y, model(epsilon, target_bounds=BOUNDS, random_state=1).fit(X, y).predict(X))
        for epsilon in (0.1, 0.5, 4.0)
    ]
    assert scores[0] < scores[1] < scores[2] + 0.01
    line = PrivateRidge(4.0, target_bounds=BOUNDS, random_state=1).fit(X, y)
    assert scores[1] > line.score(X, y) + 0.03


@pytest.mark.parametrize("model", MODELS)
def test_everything_is_paid_for(model):
    X, y = a_skewed_table(3_000)
    purse = Purse(2.0, 1e-6, neighbouring="replace-one", noise="secure")
    fitted = model(1.0, target_bounds=BOUNDS, purse=purse).fit(X, y)
    entries = [entry.what for entry in purse.ledger.entries(purse.dataset) if getattr(entry, "what", None)]
    assert "mean of targets" in entries
    assert fitted.privacy_spent_.releases == purse.spent.releases > fitted.n_iter_
    assert 0.999 < purse.spent.epsilon <= 1.0
    assert fitted.certificate_.private


@pytest.mark.parametrize("model", MODELS)
def test_every_setting_gives_means_within_the_bounds(model):
    X, y = a_skewed_table(4_000)
    for settings in (
        {"standardize": False},
        {"standardize": False, "n_public": 4_000, "feature_norm": 2.0, "method": "dp-sgd"},
        {"fit_intercept": False},
        {"method": "dp-agd"},
        {"method": "nesterov"},
        {"l2": 0.1},
        {"epsilon": 1e-3},
    ):
        fitted = model(**{"epsilon": 4.0, "target_bounds": (5.0, 30.0), "random_state": 0} | settings).fit(X, y)
        predicted = fitted.predict(1e6 * X)
        assert 5 <= predicted.min() <= predicted.max() <= 30
    thin = sparse.csr_matrix(X * (np.abs(X) > 0.5))
    fitted = model(4.0, target_bounds=BOUNDS, random_state=0).fit(thin, y)
    assert fitted.score(thin, y) > 0.2


@pytest.mark.parametrize("model", MODELS)
def test_copies_predict_the_same_and_a_warm_start_goes_on(model):
    X, y = a_skewed_table(4_000)
    purse = Purse(4.0, 1e-6, neighbouring="add-remove")
    fitted = model(1.0, target_bounds=BOUNDS, purse=purse, warm_start=True).fit(X, y)
    assert (pickle.loads(pickle.dumps(fitted)).predict(X) == fitted.predict(X)).all()
    first = r2_score(y, fitted.predict(X))
    fitted.fit(X, y)
    assert r2_score(y, fitted.predict(X)) > first - 0.05


def test_intervals_hold_the_coefficients_of_other_noise():
    X, y = a_skewed_table()
    fits = [PrivatePoissonRegressor(0.5, target_bounds=BOUNDS, random_state=seed).fit(X, y) for seed in range(3)]
    frame = fits[0].coefficients()
    assert ((frame.high - frame.low) < 0.5).all()
    assert np.mean([frame.low < np.append(fit.intercept_, fit.coef_) for fit in fits[1:]]) > 0.7


@pytest.mark.parametrize("model", MODELS)
def test_targets_that_are_all_zero_or_beyond_the_range_do_not_break_a_fit(model):
    X, _ = a_skewed_table(2_000)
    for y in (np.zeros(2_000), np.full(2_000, -9.0), np.full(2_000, 1e9)):
        predicted = model(1.0, target_bounds=BOUNDS, random_state=0).fit(X, y).predict(X)
        assert np.isfinite(predicted).all()


def test_a_lower_bound_that_cannot_be_divided_by_the_mean_is_refused_before_payment():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    model = PrivateGammaRegressor(None, target_bounds=(1e-310, 1e30), purse=purse)
    with pytest.raises(InvalidArgument, match="other units"):
        model.fit(np.zeros((20, 2)), np.ones(20))
    assert purse.spent.epsilon == 0
