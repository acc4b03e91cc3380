"""Weights of classes: the boundary moves to where weighted training puts it, at no cost."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score

from privypurse import InvalidArgument, Purse
from privypurse.estimators import PrivateLinearSVC, PrivateLogisticRegression, PrivateSearchCV
from privypurse.estimators._linear_models import _score_at
from privypurse.losses import HuberHinge, Logistic
from privypurse.runs.folder import model_from_json, model_to_json

CLASSIFIERS = [PrivateLogisticRegression, PrivateLinearSVC]


def rare(rows=8_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    return X, (X @ [1.0, 0.5, 0.0] + rng.logistic(size=rows) > 3).astype(int)


@given(st.floats(-8, 8), st.sampled_from([Logistic(clip_derivative=0.5), Logistic(clip_derivative=0.8), HuberHinge()]))
def test_weighted_derivatives_balance_at_the_boundary(log_odds, loss):
    """A record with these odds is at the minimum of the mean loss weighted by their inverse."""
    score, odds = _score_at(loss, log_odds), math.exp(log_odds)
    assert float(loss.derivative(score, -1.0) + odds * loss.derivative(score, 1.0)) == pytest.approx(
        0, abs=1e-6 * (1 + odds)
    )
    assert score * log_odds >= 0


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_balanced_weights_find_a_rare_class(model):
    X, y = rare()
    plain = model(1.0, classes=[0, 1], random_state=0).fit(X, y)
    balanced = model(1.0, classes=[0, 1], random_state=0, class_weight="balanced").fit(X, y)
    scores = [balanced_accuracy_score(y, fitted.predict(X)) for fitted in (plain, balanced)]
    assert scores[0] < 0.65 < 0.7 < scores[1]
    assert (balanced.coef_ == plain.coef_).all()
    assert balanced.privacy_spent_ == plain.privacy_spent_
    released = dict(enumerate(np.exp(-balanced.preparation_.log_odds)))
    by_hand = model(1.0, classes=[0, 1], random_state=0, class_weight=released).fit(X, y)
    assert by_hand.intercept_ == pytest.approx(balanced.intercept_)


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_several_classes_move_towards_the_heavy_one(model):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4_000, 2))
    y = np.digitize(X[:, 0] + 0.5 * rng.standard_normal(4_000), [-0.5, 0.8])
    shares = []
    for weights in (None, {2: 1.0}, {2: 4.0}, {2: 1000.0, 0: 1e-4, 1: 1e-4}):
        fitted = model(2.0, classes=[0, 1, 2], random_state=0, class_weight=weights).fit(X, y)
        shares.append(np.mean(fitted.predict(X) == 2))
        if model is PrivateLogisticRegression:
            assert (fitted.predict_proba(X).argmax(axis=1) == fitted.predict(X)).all()
    assert shares[0] == shares[1] < shares[2] < shares[3]


def test_labels_agree_with_probabilities():
    X, y = rare()
    fitted = PrivateLogisticRegression(0.5, classes=[0, 1], random_state=0, class_weight={1: 9.0}).fit(X, y)
    assert ((fitted.predict_proba(X)[:, 1] > 0.5) == fitted.predict(X)).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"class_weight": "even"}, "'balanced' or None"),
        ({"class_weight": {1: 0.0}}, "class_weight must be"),
        ({"class_weight": {1: math.nan}}, "class_weight must be"),
        ({"class_weight": {"yes": 2.0}}, "class_weight must name classes"),
        ({"class_weight": "balanced", "n_public": 8_000}, "Omit n_public"),
        ({"class_weight": {1: 2.0}, "fit_intercept": False}, "fit_intercept"),
    ],
    ids=str,
)
@pytest.mark.parametrize("model", CLASSIFIERS)
def test_wrong_weights_are_refused_before_anything_is_spent(model, settings, words):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    with pytest.raises(InvalidArgument, match=words):
        model(0.5, classes=[0, 1], purse=purse, **settings).fit(*rare(200))
    assert purse.spent.releases == 0


def test_a_saved_model_and_a_warm_start_keep_the_weights():
    X, y = rare(2_000)
    purse = Purse(20.0, 1e-6, neighbouring="add-remove")
    fitted = PrivateLogisticRegression(4.0, classes=[0, 1], purse=purse, class_weight={1: 9.0}, warm_start=True).fit(
        X, y
    )
    read = model_from_json(model_to_json(fitted))
    assert (read.decision_function(X) == fitted.decision_function(X)).all()
    assert read.class_weight == {1: 9.0}
    before = fitted.intercept_[0]
    fitted.fit(X, y)
    assert fitted.intercept_[0] == pytest.approx(before, abs=0.5)  # the weights are not applied twice
    assert fitted._class_shift[0] > 1


def test_intervals_do_not_depend_on_weights():
    X, y = rare(2_000)
    fits = [
        PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0, class_weight=weights).fit(X, y)
        for weights in (None, {1: 9.0})
    ]
    plain, weighted = (fitted.coefficients() for fitted in fits)
    assert (weighted.high - weighted.low).tolist() == pytest.approx((plain.high - plain.low).tolist())


def test_labels_read_from_the_records_are_not_quoted():
    X, _ = rare(200)
    with pytest.raises(InvalidArgument, match="classes that are in y") as caught:
        PrivateLogisticRegression(0.5, class_weight={"other": 2.0}).fit(X, np.where(X[:, 0] > 0, "secret", "label"))
    assert "secret" not in str(caught.value)


def test_a_search_with_a_public_number_of_records_takes_balanced_weights():
    X, y = rare(2_000)
    model = PrivateLogisticRegression(classes=[0, 1], class_weight="balanced")
    search = PrivateSearchCV(model, {"l2": [0.0, 0.01]}, epsilon=3.0, n_public=2_000).fit(X, y)
    assert search.best_estimator_.preparation_.log_odds is not None
