"""Selections: the probabilities are the closed form, and no shift of the scores reveals more than
was paid for.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privypurse.core._errors import InvalidArgument, UnboundedSensitivity
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core.charges import BoundedRangeCharge, PureCharge
from privypurse.mechanisms import ExponentialSelection, Gaussian, PermuteAndFlip

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE


def box(scores, score_range=1.0, **changes):
    return Sensitive(
        scores, **{"norm": Norm.RANGE, "add_remove": score_range, "replace_one": 2 * score_range} | changes
    )


def published_log_probabilities(losses, epsilon, score_range):
    """`argmin(loss + Exp(score_range/epsilon))`, as in the code published with DP-AGD. NOT PRIVATE
    at epsilon.

    Exactly: between consecutive sorted losses the survivors race with equal rates.
    """
    scaled = np.asarray(losses, dtype=float) * epsilon / score_range
    order = np.argsort(scaled, kind="stable")
    probability = np.zeros(scaled.size)
    for j in range(scaled.size):
        log_survive, total = 0.0, 0.0
        for rank in range(scaled.size):
            # On [here, there) candidates order[0..rank] have arrived and race.
            here = scaled[order[rank]]
            there = scaled[order[rank + 1]] if rank + 1 < scaled.size else math.inf
            racing = rank + 1
            if scaled[j] <= here:
                lasts = 1 - math.exp(-racing * (there - here)) if there < math.inf else 1.0
                total += math.exp(log_survive) * lasts / racing
            log_survive -= racing * (there - here) if there < math.inf else 0.0
        probability[j] = total
    return np.log(probability)


def worst_range(log_probabilities, candidates, shifts):
    """Largest spread of log-ratios over adversarial shifts of equal scores: the bounded range that
    is really needed.
    """
    base = log_probabilities(np.zeros(candidates))
    worst = 0.0
    for shift in shifts:
        ratio = log_probabilities(shift) - base
        worst = max(worst, ratio.max() - ratio.min())
    return worst


def worst_loss(log_probabilities, candidates, shifts):
    """Largest absolute log-ratio: the pure epsilon that is really needed."""
    base = log_probabilities(np.zeros(candidates))
    return max(float(np.abs(log_probabilities(shift) - base).max()) for shift in shifts)


def adversarial_shifts(candidates, score_range):
    """All zero-or-full shifts for few candidates; for many, every number of moved ones (candidates
    are symmetric).
    """
    if candidates <= 6:
        yield from (score_range * np.array(bits) for bits in itertools.product((0.0, 1.0), repeat=candidates))
    else:
        for moved in range(candidates + 1):
            yield score_range * (np.arange(candidates) < moved)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("candidates", [2, 3, 5, 21])
def test_no_shift_exceeds_the_claimed_range(epsilon, candidates):
    mechanism = ExponentialSelection(epsilon)
    shifts = list(adversarial_shifts(candidates, 2.0))
    needed = worst_range(lambda scores: mechanism.log_probabilities(scores, 2.0), candidates, shifts)
    assert needed <= epsilon * (1 + 1e-9)
    assert needed == pytest.approx(epsilon), "and the claim is tight"


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("candidates", [2, 5, 21])
def test_permute_and_flip_is_epsilon_dp_but_its_range_is_larger(epsilon, candidates):
    mechanism = PermuteAndFlip(epsilon)
    shifts = list(adversarial_shifts(candidates, 1.0))

    def log_probabilities(scores):
        return mechanism.log_probabilities(scores, 1.0)

    assert worst_loss(log_probabilities, candidates, shifts) <= epsilon * (1 + 1e-9)
    # So it may not be charged as a bounded-range mechanism of that epsilon.
    assert worst_range(log_probabilities, candidates, shifts) > epsilon * 1.05


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_the_published_noisy_min_fails_the_same_check(epsilon):
    """True epsilon is 20 times the claim at 21 candidates: negating the scores and not the noise."""
    shifts = list(adversarial_shifts(21, 1.0))

    def log_probabilities(losses):
        return published_log_probabilities(losses, epsilon, 1.0)

    assert worst_loss(log_probabilities, 21, shifts) == pytest.approx(20 * epsilon, rel=1e-9)
    assert worst_range(log_probabilities, 21, shifts) > 19 * epsilon


def test_the_published_formula_here_is_the_published_behaviour():
    losses, rng = np.array([0.0, 0.3, 1.0]), np.random.default_rng(5)
    winners = np.argmin(losses + rng.exponential(1 / 2.0, size=(200_000, 3)), axis=1)
    expected = np.exp(published_log_probabilities(losses, 2.0, 1.0))
    assert expected.sum() == pytest.approx(1.0)
    assert np.bincount(winners, minlength=3) / 200_000 == pytest.approx(expected, abs=0.005)


@settings(max_examples=200)
@given(
    st.lists(st.floats(-50, 50), min_size=2, max_size=6),
    st.data(),
    st.floats(0.01, 5),
    st.floats(0.01, 100),
)
def test_any_scores_and_any_shift_within_the_range(scores, data, epsilon, score_range):
    scores = np.array(scores)
    common = data.draw(st.floats(-1e3, 1e3))
    shift = common + np.array([data.draw(st.floats(0, score_range)) for _ in scores])
    mechanism = ExponentialSelection(epsilon)
    ratio = mechanism.log_probabilities(scores + shift, score_range) - mechanism.log_probabilities(scores, score_range)
    assert ratio.max() - ratio.min() <= epsilon * (1 + 1e-6) + 1e-9
    flip = PermuteAndFlip(epsilon)
    ratio = flip.log_probabilities(scores + shift, score_range) - flip.log_probabilities(scores, score_range)
    assert np.abs(ratio).max() <= epsilon * (1 + 1e-6) + 1e-9


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", [ExponentialSelection(1.5), PermuteAndFlip(1.5)], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("relation", list(Neighbouring))
def test_draws_follow_the_closed_form_and_no_other(mechanism, relation):
    scores, trials, noise = np.array([0.0, 1.0, 2.5, 2.4, -3.0]), 40_000, NoiseSource(seed=11)
    held = box(scores, score_range=1.0)
    picked = np.array([int(mechanism.draw(held, relation, noise)) for _ in range(trials)])
    found = np.bincount(picked, minlength=scores.size)
    actual_range = held.bound(relation, Norm.RANGE)

    def p_value(factor):
        expected = np.exp(type(mechanism)(mechanism.epsilon * factor).log_probabilities(scores, actual_range))
        return stats.chisquare(found, trials * expected / expected.sum()).pvalue

    assert p_value(1.0) > 1e-3
    assert p_value(2 / 3) < 1e-6
    assert p_value(3 / 2) < 1e-6


@pytest.mark.parametrize(
    ("mechanism", "kind"), [(ExponentialSelection(0.5), BoundedRangeCharge), (PermuteAndFlip(0.5), PureCharge)]
)
def test_charges(mechanism, kind):
    assert mechanism.charge(box([1.0, 2.0]), ADD_REMOVE) == kind(0.5)
    assert mechanism.charge(box([1.0, 2.0], sample_prob=0.1), ADD_REMOVE) == kind(0.5, 0.1)
    assert mechanism.charge_seen_under(box([1.0, 2.0]), ADD_REMOVE, REPLACE_ONE) == kind(1.0)
    drawn = mechanism.draw(box([0.0, 1e9]), ADD_REMOVE, NoiseSource(seed=1))
    assert drawn.shape == ()
    assert int(drawn) == 1


@pytest.mark.parametrize("mechanism", [ExponentialSelection(0.5), PermuteAndFlip(0.5)])
@pytest.mark.parametrize("score_range", [1e-100, 1.0, 5e99])
def test_scores_of_any_size_are_drawn_with_noise(mechanism, score_range):
    """Scores one range apart: the worse one is drawn with its true probability, also at the ends of
    what is allowed.
    """
    held, noise = box(np.array([0.0, -1.0, 0.0]) * score_range, score_range=score_range), NoiseSource(seed=3)
    with np.errstate(over="raise", invalid="raise", under="ignore"):
        picked = [int(mechanism.draw(held, ADD_REMOVE, noise)) for _ in range(4_000)]
    expected = np.exp(mechanism.log_probabilities(np.array([0.0, -1.0, 0.0]), 1.0))
    assert np.bincount(picked, minlength=3) / 4_000 == pytest.approx(expected, abs=0.04)
    largest = box([-9.9e199, 9.9e199, 0.0], score_range=score_range)
    with np.errstate(over="raise", invalid="raise"):
        assert int(mechanism.draw(largest, ADD_REMOVE, noise)) == 1


@pytest.mark.parametrize("mechanism", [ExponentialSelection, PermuteAndFlip])
def test_an_epsilon_that_is_no_privacy_is_refused(mechanism):
    with pytest.raises(InvalidArgument, match="epsilon must be at most"):
        mechanism(1e4)


@pytest.mark.parametrize("mechanism", [ExponentialSelection, PermuteAndFlip])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, True], ids=repr)
def test_wrong_epsilons_are_refused(mechanism, bad):
    with pytest.raises(InvalidArgument, match="epsilon must be"):
        mechanism(bad)


def test_wrong_boxes_are_refused():
    with pytest.raises(InvalidArgument, match="scores in one dimension"):
        ExponentialSelection(1.0).charge(box([[1.0, 2.0]]), ADD_REMOVE)
    with pytest.raises(InvalidArgument, match="scores in one dimension"):
        PermuteAndFlip(1.0).charge(box([]), ADD_REMOVE)
    vector = Sensitive([1.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)
    with pytest.raises(UnboundedSensitivity):
        ExponentialSelection(1.0).charge(vector, ADD_REMOVE)
    with pytest.raises(UnboundedSensitivity):
        Gaussian(1.0).charge(box([1.0]), ADD_REMOVE)
