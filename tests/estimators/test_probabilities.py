"""Probabilities: the clip of derivatives does not bias them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from privypurse.estimators import PrivateLogisticRegression
from privypurse.estimators._linear_models import _log_probabilities
from privypurse.losses import Logistic, Softmax

scores_of = st.integers(2, 6).flatmap(lambda classes: st.lists(st.floats(-30, 30), min_size=classes, max_size=classes))


@given(scores_of, st.floats(1.0, 2.0))
def test_scores_minimise_the_mean_clipped_loss_at_these_probabilities(scores, slack):
    """The mean of the clipped derivatives is zero there, for any clip of an estimator."""
    classes = len(scores)
    clip = np.sqrt(1 - 1 / classes) * slack
    probabilities = np.exp(_log_probabilities(np.array([scores]), clip)[0])
    each = Softmax(classes, clip_derivative=clip).derivative(np.tile(scores, (classes, 1)), np.arange(classes))
    assert probabilities.sum() == pytest.approx(1)
    assert probabilities @ each == pytest.approx(0, abs=1e-9)


@given(scores_of, st.floats(1.0, 2.0))
def test_probabilities_rank_as_scores(scores, slack):
    logs = _log_probabilities(np.array([scores]), np.sqrt(1 - 1 / len(scores)) * slack)[0]
    assert (np.diff(logs[np.argsort(scores, kind="stable")]) >= -1e-9).all()


class AtScores(PrivateLogisticRegression):
    """A fitted model whose scores are its input."""

    def decision_function(self, X):
        return X


@pytest.mark.parametrize("slack", [1.0, 1.3, 2.0])
def test_two_classes_use_the_clip_of_their_loss(slack):
    X = np.random.default_rng(0).standard_normal((300, 2))
    fitted = AtScores(1.0, classes=[0, 1], random_state=0).fit(X, (X[:, 0] > 0).astype(int))
    object.__setattr__(fitted.preparation_, "slack", slack)
    scores, loss = np.linspace(-12, 12, 49), Logistic(clip_derivative=min(0.5 * slack, 1.0))
    negative, positive = fitted.predict_proba(scores).T
    assert positive * loss.derivative(scores, 1.0) + negative * loss.derivative(scores, -1.0) == pytest.approx(0)
    if slack == 2.0:  # nothing is clipped
        assert positive == pytest.approx(special.expit(scores))


@pytest.mark.parametrize("epsilon", [0.2, 0.4])
def test_mean_predicted_risk_is_the_true_share_of_a_rare_class(epsilon):
    """The sigmoid of the score is too low where derivatives are clipped: 0.072 for a true 0.1."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((20_000, 6))
    y = (rng.random(20_000) < special.expit(X @ [0.5, 0.4, -0.3, 0.0, 0.0, 0.1] - 2.45)).astype(int)
    fits = [PrivateLogisticRegression(epsilon, classes=[0, 1], random_state=seed).fit(X, y) for seed in range(5)]
    corrected = np.mean([fitted.predict_proba(X)[:, 1].mean() for fitted in fits])
    plain = np.mean([special.expit(fitted.decision_function(X)).mean() for fitted in fits])
    assert abs(corrected - y.mean()) < 0.008
    assert plain < y.mean() - 0.012
