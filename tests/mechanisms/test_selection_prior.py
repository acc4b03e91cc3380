"""Selections with a public prior: drawn with its weights, at the price of one without."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privypurse import ExponentialSelection, InvalidArgument, Neighbouring, NoiseSource, Norm, Purse, Sensitive

ADD_REMOVE = Neighbouring.ADD_REMOVE
SCORES, PRIOR = np.array([0.0, 1.0, 2.5, 2.4, -3.0]), (0.5, 0.0, -2.0, 0.25, 1.5)


def box(scores, score_range=1.0):
    return Sensitive(scores, norm=Norm.RANGE, add_remove=score_range, replace_one=2 * score_range)


def plain_probabilities(scores, prior, epsilon, score_range):
    """The closed form, as it stands in a book."""
    weights = [math.exp(p) * math.exp(epsilon * s / score_range) for s, p in zip(scores, prior, strict=True)]
    return np.array(weights) / math.fsum(weights)


def drawn(mechanism, relation, trials=20_000, seed=11, scores=SCORES):
    noise, held = NoiseSource(seed=seed), box(scores)
    return np.array([int(mechanism.draw(held, relation, noise)) for _ in range(trials)])


@pytest.mark.statistical
@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("seed", [11, 23])
def test_draws_follow_the_prior_and_no_other(relation, seed):
    found = np.bincount(drawn(ExponentialSelection(1.5, PRIOR), relation, seed=seed), minlength=5)
    score_range = box(SCORES).bound(relation, Norm.RANGE)

    def p_value(prior=PRIOR, factor=1.0):
        expected = plain_probabilities(SCORES, prior, 1.5 * factor, score_range)
        return stats.chisquare(found, found.sum() * expected).pvalue

    assert p_value() > 1e-3
    assert p_value(factor=2 / 3) < 1e-6
    assert p_value(factor=3 / 2) < 1e-6
    for wrong in ([0.0] * 5, PRIOR[::-1], np.multiply(PRIOR, 2 / 3), np.multiply(PRIOR, 3 / 2), np.negative(PRIOR)):
        assert p_value(prior=wrong) < 1e-6


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.floats(-30, 30), st.floats(-20, 20)), min_size=1, max_size=6),
    st.floats(0.01, 5),
    st.floats(0.01, 100),
)
def test_probabilities_are_the_closed_form(pairs, epsilon, score_range):
    scores, prior = np.array(pairs).T
    scores = scores * score_range
    mechanism = ExponentialSelection(epsilon, tuple(prior))
    probabilities = np.exp(mechanism.log_probabilities(scores, score_range))
    assert probabilities == pytest.approx(plain_probabilities(scores, prior, epsilon, score_range), rel=1e-9)
    assert probabilities.sum() == pytest.approx(1)


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.floats(-50, 50), st.floats(-100, 100), st.floats(0, 1), st.booleans()), min_size=2, max_size=6
    ),
    st.floats(-1e3, 1e3),
    st.floats(0.01, 5),
    st.floats(0.01, 100),
)
def test_no_shift_shows_more_than_epsilon_whatever_the_prior(candidates, common, epsilon, score_range):
    scores, prior, part, extreme = (np.array(column) for column in zip(*candidates, strict=True))
    shift = common + score_range * np.where(extreme, np.round(part), part)
    mechanism = ExponentialSelection(epsilon, tuple(prior))
    ratio = mechanism.log_probabilities(scores + shift, score_range) - mechanism.log_probabilities(scores, score_range)
    slack = 1e-6 * epsilon + 1e-9
    assert np.ptp(ratio) <= epsilon + slack
    assert ratio.min() <= slack, "the losses lie on both sides of zero"
    assert ratio.max() >= -slack


def test_the_range_is_reached_under_a_prior():
    """So nothing smaller could be charged: the prior costs nothing, and buys nothing."""
    mechanism = ExponentialSelection(0.7, (4.0, -4.0, 0.0))
    ratio = mechanism.log_probabilities(np.array([2.0, 0.0, 0.0]), 2.0) - mechanism.log_probabilities(np.zeros(3), 2.0)
    assert np.ptp(ratio) == pytest.approx(0.7)
    without = ExponentialSelection(0.7)
    held = box([0.0, 1.0, 2.0])
    assert mechanism.charge(held, ADD_REMOVE) == without.charge(held, ADD_REMOVE)
    seen = [m.charge_seen_under(held, ADD_REMOVE, Neighbouring.REPLACE_ONE) for m in (mechanism, without)]
    assert seen[0] == seen[1]


@pytest.mark.parametrize("weight", [0.0, 1e16, -1e16, 1e300, -1e300])
def test_equal_weights_of_any_size_are_none(weight):
    """A weight that all share must not round the scores away: what is left of them then jumps by
    more than was paid for.
    """
    scores = np.array([0.0, 9.0, 10.5])
    plain, weighted = ExponentialSelection(0.1), ExponentialSelection(0.1, (weight,) * 3)
    expected = drawn(plain, ADD_REMOVE, trials=500, scores=scores)
    assert drawn(weighted, ADD_REMOVE, trials=500, scores=scores).tolist() == expected.tolist()
    assert weighted.log_probabilities(scores, 1.0) == pytest.approx(plain.log_probabilities(scores, 1.0))


def test_the_prior_speaks_where_the_scores_do_not():
    mechanism = ExponentialSelection(1e-3, (0.0, 50.0, 0.0))
    assert (drawn(mechanism, ADD_REMOVE, trials=200, scores=[3.0, 0.0, 5.0]) == 1).all()
    assert (drawn(mechanism, ADD_REMOVE, trials=200, scores=[0.0, 0.0, 1e6]) == 2).all(), "and is outvoted"


@pytest.mark.parametrize("prior", [(), (0.0,), (0.0, 1.0), (0.0,) * 4], ids=len)
def test_a_prior_of_another_length_is_refused_before_payment(prior):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    lines = purse.ledger.head()
    with pytest.raises(InvalidArgument, match="3 numbers, one for each candidate"):
        purse.release(box([1.0, 2.0, 3.0]), ExponentialSelection(0.1, prior))
    assert purse.ledger.head() == lines
    assert int(purse.release(box([1.0, 2.0, 3.0]), ExponentialSelection(0.1, (0.0, 1.0, 2.0))).value) in (0, 1, 2)


@pytest.mark.parametrize(
    "prior", [(0.0, math.nan), (math.inf, 0.0), (-math.inf, 0.0), ((0.0, 1.0),), ("a", "b"), 3.0], ids=repr
)
def test_wrong_priors_are_refused(prior):
    with pytest.raises(InvalidArgument, match="log_prior must be"):
        ExponentialSelection(1.0, prior)


def test_mechanisms_with_one_prior_are_equal():
    """Also from an array: a mechanism is compared, hashed and written down."""
    made = ExponentialSelection(1.0, np.array([0.0, 1.0]))
    assert made == ExponentialSelection(1.0, (0, 1)) != ExponentialSelection(1.0)
    assert hash(made) == hash(ExponentialSelection(1.0, [0.0, 1.0]))
