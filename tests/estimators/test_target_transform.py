"""A ridge regression of log(1 + y): it predicts means, pays for them, and is kept with its models."""

import json
import pickle

import numpy as np
import pytest
from sklearn.metrics import r2_score

from privypurse import InvalidArgument, Purse
from privypurse.estimators import PrivateAdditiveRegressor, PrivateRidge
from privypurse.runs.folder import model_from_json, model_to_json

BOUNDS = (0.0, 5_000.0)


def a_lognormal_table(rows=20_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, 4))
    return X, np.exp(4 + X[:, 0] - 0.7 * X[:, 1] + 0.8 * rng.standard_normal(rows))


def fitted(X, y, epsilon=1.0, **settings):
    return PrivateRidge(
        epsilon, **{"target_bounds": BOUNDS, "target_transform": "log1p", "random_state": 0} | settings
    ).fit(X, y)


def test_it_predicts_means_and_a_line_does_worse():
    X, y = a_lognormal_table()
    model = fitted(X, y)
    assert model.coef_[:2] == pytest.approx([1, -0.7], abs=0.1)
    assert model.predict(X).mean() == pytest.approx(y.mean(), rel=0.05)
    assert model.smearing_ == pytest.approx(np.exp(0.8**2 / 2), rel=0.06)
    assert model.score(X, y) == r2_score(y, model.predict(X))
    assert model.score(X, y) > fitted(X, y, target_transform=None).score(X, y) + 0.02
    near = X[:5]
    assert model.predict(near) == pytest.approx(model.smearing_ * np.exp(near @ model.coef_ + model.intercept_) - 1)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_the_factor_is_paid_for_after_training(relation):
    X, y = a_lognormal_table(4_000)
    purse = Purse(2.0, 1e-6, neighbouring=relation, noise="secure")
    model = PrivateRidge(1.0, purse=purse, target_bounds=BOUNDS, target_transform="log1p").fit(X, y)
    bought = [entry.what for entry in purse.ledger.entries(purse.dataset) if getattr(entry, "what", None)]
    assert bought[-2:] == ["limit of exp(residual)", "mean of exp(residual)"]
    assert model.privacy_spent_.releases == purse.spent.releases > model.n_iter_
    assert 0.999 < purse.spent.epsilon <= 1.0
    plain = Purse(2.0, 1e-6, neighbouring=relation)
    assert PrivateRidge(1.0, purse=plain, target_bounds=BOUNDS).fit(X, y).stop_reason_ == model.stop_reason_ == "steps"


def test_predictions_stay_within_the_bounds_whatever_the_rows():
    X, y = a_lognormal_table(2_000)
    model = fitted(X, np.where(np.arange(2_000) % 2, y, -9.0), target_bounds=(10.0, 60.0))
    predicted = model.predict(1e9 * X)
    assert 10 <= predicted.min() <= predicted.max() <= 60
    assert fitted(X, y, standardize=False, epsilon=4.0).predict(X).mean() > 1
    assert fitted(X, y, method="nesterov").smearing_ >= 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_transform": "sqrt"}, "target_transform must be 'log1p'"),
        ({"target_bounds": (-1.0, 9.0)}, "target_bounds must start at 0"),
        ({"method": "dp-sgd", "n_public": 200, "feature_norm": 1.0, "standardize": False}, "no target_transform"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(settings, message):
    X, y = a_lognormal_table(200)
    with pytest.raises(InvalidArgument, match=f"{message}.*spent nothing"):
        fitted(X, y, **settings)


@pytest.mark.parametrize("settings", [{"target_transform": "sqrt"}, {"target_bounds": (-1.0, 9.0)}])
def test_an_additive_model_refuses_the_same(settings):
    X, y = a_lognormal_table(200)
    model = PrivateAdditiveRegressor(
        ranges=(-1, 1), **{"target_bounds": BOUNDS, "target_transform": "log1p"} | settings
    )
    with pytest.raises(InvalidArgument, match=f"{next(iter(settings))} must"):
        model.fit(X, y)


def test_it_is_kept_with_the_model():
    X, y = a_lognormal_table(2_000)
    model, plain = fitted(X, y), fitted(X, y, target_transform=None)
    for copy in (pickle.loads(pickle.dumps(model)), model_from_json(model_to_json(model))):
        assert (copy.predict(X) == model.predict(X)).all()
    # What an earlier version reads has nothing new in it.
    fields = json.loads(model_to_json(plain))
    assert "target_transform" not in fields["params"]
    assert "smearing" not in fields["fitted"]
    broken = model_to_json(model).replace('"smearing": ', '"smearing": -')
    with pytest.raises(InvalidArgument):
        model_from_json(broken)


def test_intervals_are_about_the_logarithm():
    X, y = a_lognormal_table()
    frame = fitted(X, y).coefficients()
    assert ((frame.high - frame.low) < 0.3).all()


def test_an_additive_model_takes_it_too():
    X, y = a_lognormal_table()
    y = y * np.exp(X[:, 2] ** 2)
    settings = {"ranges": (-2, 2), "target_bounds": (0, 20_000), "random_state": 0}
    curves = PrivateAdditiveRegressor(target_transform="log1p", **settings).fit(X, y)
    assert curves.score(X, y) > PrivateAdditiveRegressor(**settings).fit(X, y).score(X, y)
    assert curves.predict(X).mean() == pytest.approx(y.mean(), rel=0.1)


def test_scores_that_are_counted_do_not_depend_on_the_place_of_a_row():
    X, y = a_lognormal_table(2_000)
    preparation = fitted(X, y).preparation_
    weights = np.random.default_rng(0).standard_normal(5)
    for rows in range(1_001, 1_005):
        table = np.repeat(X[:1].astype(np.float32), rows, axis=0)
        assert len(np.unique(preparation.scores(table, weights))) == 1


def test_a_budget_of_delta_alone_trains_and_buys_what_it_can():
    rng = np.random.default_rng(0)
    purse = Purse(1e-4, 5e-3, neighbouring="add-remove")
    model = PrivateRidge(None, purse=purse, n_public=10, target_bounds=(0, 9), target_transform="log1p")
    model.fit(rng.standard_normal((60, 2)), rng.uniform(0, 9, 60))
    assert np.isfinite(model.predict(np.zeros((1, 2)))).all()
