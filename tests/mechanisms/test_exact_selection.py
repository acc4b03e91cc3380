"""Exact selections: the word at which the choice changes is the one that the exact probabilities
say.
"""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privypurse import Neighbouring, NoiseSource, Norm, Sensitive
from privypurse.mechanisms import ExponentialSelection, PermuteAndFlip
from privypurse.mechanisms import _exact_selection as exact_selection
from privypurse.mechanisms._exact_selection import LARGEST_GAP, Gaps, permute_and_flip, select

ADD_REMOVE = Neighbouring.ADD_REMOVE
SCORES = np.array([0.3, 1.0, -0.2, 0.95, 1.0])
PRIOR = (0.0, -3.5, 1.25, 0.1, -0.7)


def box(scores, score_range=1.0):
    return Sensitive(scores, norm=Norm.RANGE, add_remove=score_range, replace_one=2 * score_range)


def exact_cumulative(gaps, prior):
    """The sums of the probabilities, times 2^128, as whole numbers."""
    with mpmath.workdps(120):
        exponents = [-gaps.rate * int(gap) for gap in gaps.units]
        if prior is not None:
            exponents = [exponent + Fraction(weight) for exponent, weight in zip(exponents, prior, strict=True)]
        weights = [mpmath.exp(mpmath.mpf(e.numerator) / e.denominator) for e in exponents]
        total = mpmath.fsum(weights)
        return [int(mpmath.floor(mpmath.fsum(weights[: j + 1]) / total * 2**128)) for j in range(len(weights) - 1)]


@pytest.mark.parametrize("prior", [None, PRIOR, tuple(1e6 * weight for weight in PRIOR)], ids=["even", "prior", "far"])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
def test_the_choice_changes_at_exactly_the_right_word(epsilon, prior, script):
    gaps = Gaps.of(SCORES, epsilon, 1.0)
    for index, edge in enumerate(exact_cumulative(gaps, prior)):
        word, behind = divmod(edge, 2**64)
        if not 2 < word < 2**64 - 2:
            continue  # a candidate that is never chosen
        for first, second, offset in ((word - 1, 0, 0), (word + 1, 0, 1), (word, behind - 1, 0), (word, behind + 1, 1)):
            noise = script(first, second)
            chosen = select(gaps, prior, noise)
            assert (chosen > index) == bool(offset)
            assert noise.given == 2 or first != word, "the word on the edge needs another one"


def test_the_quick_way_takes_one_word_and_agrees_with_the_slow_one(script):
    words = NoiseSource(seed=1).words(300).tolist()
    gaps = Gaps.of(np.random.default_rng(0).normal(size=40), 3.0, 1.0)
    prior = tuple(np.random.default_rng(1).normal(size=40))
    sources = [script(word) for word in words]
    quick = [select(gaps, prior, noise) for noise in sources]
    assert all(noise.given == 1 for noise in sources)
    slow = [exact_selection._select_slowly(gaps, prior, exact_selection.Digits(word, 64), script()) for word in words]
    assert quick == slow
    assert len(set(quick)) > 10


@pytest.mark.parametrize("slowly", [False, True])
def test_frequencies_are_the_exact_ones(slowly, monkeypatch):
    if slowly:
        monkeypatch.setattr(exact_selection, "DOUBLE_ERROR", 1e6)
    noise, mechanism, held = NoiseSource(seed=5, secure=True), ExponentialSelection(2.0, PRIOR), box(SCORES)
    draws = 3_000 if slowly else 20_000
    counts = np.bincount([int(mechanism.draw(held, ADD_REMOVE, noise)) for _ in range(draws)], minlength=5)

    def p_value(epsilon):
        expected = np.exp(ExponentialSelection(epsilon, PRIOR).log_probabilities(SCORES, 1.0))
        return stats.chisquare(counts, draws * expected).pvalue

    assert p_value(2.0) > 1e-4
    assert p_value(2.0 * 2 / 3) < 1e-6
    assert p_value(2.0 * 3 / 2) < 1e-6


@pytest.mark.parametrize("slowly", [False, True])
def test_frequencies_of_permute_and_flip_are_the_exact_ones(slowly, monkeypatch):
    if slowly:
        monkeypatch.setattr(exact_selection, "DOUBLE_ERROR", 1e6)
    noise, mechanism, held = NoiseSource(seed=5, secure=True), PermuteAndFlip(2.0), box(SCORES)
    draws = 5_000 if slowly else 20_000
    counts = np.bincount([int(mechanism.draw(held, ADD_REMOVE, noise)) for _ in range(draws)], minlength=5)

    def p_value(epsilon):
        expected = np.exp(PermuteAndFlip(epsilon).log_probabilities(SCORES, 1.0))
        return stats.chisquare(counts, draws * expected / expected.sum()).pvalue

    assert p_value(2.0) > 1e-4
    assert p_value(2.0 * 2 / 3) < 1e-6
    assert p_value(2.0 * 3 / 2) < 1e-6


def test_coins_and_orders_of_permute_and_flip(script):
    gaps = Gaps.of(np.array([0.0, 1.0]), 1.0, 1.0)
    with mpmath.workdps(60):
        exponent = gaps.rate * int(gaps.units[0])
        chance = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
        edge, behind = divmod(int(mpmath.floor(chance * 2**128)), 2**64)
    for coin, more, index in ((edge - 1, 0, 0), (edge + 1, 0, 1), (edge, behind - 1, 0), (edge, behind + 1, 1)):
        assert permute_and_flip(gaps, script(1, 2, coin, 0, more)) == index
    assert permute_and_flip(gaps, script(2, 1, 0, 2**64 - 1)) == 1, "the best is taken when it comes first"
    # Equal keys have no order: they are drawn again.
    assert permute_and_flip(gaps, script(7, 7, 1, 2, edge - 1, 0)) == 0
    assert permute_and_flip(gaps, script(7, 7, 2, 1, edge - 1, 0)) == 1


@given(st.data())
def test_one_record_moves_the_exponents_by_a_range_of_at_most_epsilon(data):
    """In rational arithmetic, for scores of every size, common shifts of every size, and shifts on
    the edge of the range.
    """
    size = data.draw(st.integers(1, 6))
    score_range = data.draw(st.floats(1e-3, 1e3))
    scale = data.draw(st.sampled_from([1e-3, 1.0, 1e6, 1e15, 1e150]))
    scores = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=size, max_size=size))) * scale
    common = data.draw(st.sampled_from([0.0, 1.0, -1e4, 1e9, -1e160]))
    shift = np.array(data.draw(st.lists(st.floats(0, 1), min_size=size, max_size=size))) * score_range
    moved = scores + (common + shift)
    # What one record did, after the rounding of this test's own sum.
    exact = [Fraction(b) - Fraction(a) for a, b in zip(scores.tolist(), moved.tolist(), strict=True)]
    if max(exact) - min(exact) > Fraction(score_range):
        return
    before, after = (Gaps.of(values, 1.7, score_range) for values in (scores, moved))
    assert before.rate == after.rate
    ratios = [before.rate * (int(a) - int(b)) for a, b in zip(before.units, after.units, strict=True)]
    assert max(ratios) - min(ratios) <= Fraction(1.7)


def test_the_whole_range_is_used():
    """The rate is less than epsilon over the range by a little, not by a factor."""
    gaps = Gaps.of(np.array([0.0, 1.0]), 1.7, 1.0)
    assert 1.7 * (1 - 4e-12) < gaps.rate * int(gaps.units[0]) < 1.7


def test_two_units_for_rounding_are_enough_and_one_is_not():
    """Two scores are rounded in opposite directions on both data sets."""
    half, little, score_range = 2.0**-41, 2.0**-52, 1 + 2.0**-50
    before = Gaps.of(np.array([half - little, 1 + half + little]), 1.7, score_range)
    after = Gaps.of(np.array([half + little, half - little]), 1.7, score_range)
    ratio = before.rate * int((before.units - after.units)[0] - (before.units - after.units)[1])
    assert ratio <= Fraction(1.7)
    one_unit_less = Fraction(1.7) / (Fraction(1.7) / before.rate - 1)
    assert ratio / before.rate * one_unit_less > Fraction(1.7)


def test_gaps_are_whole_and_cut_at_the_largest():
    assert Gaps.of(np.array([1e150, -1e150, 1e150]), 1.0, 1.0).units.tolist() == [0, LARGEST_GAP, 0]
    assert Gaps.of(np.array([2.0**30, 0.0]), 1.0, 1.0).units.tolist() == [0, LARGEST_GAP]
    assert Gaps.of(np.array([0.25, 1.0]), 1.0, 1.0).units.tolist() == [3 * 2**38, 0]


@pytest.mark.parametrize(
    "scores", [[1e190, -1e190], [0.0], [5.0] * 300, [1e-150, 2e-150]], ids=["far", "one", "many", "tiny"]
)
def test_odd_scores_are_chosen_from(scores):
    noise = NoiseSource(seed=1, secure=True)
    for mechanism in (ExponentialSelection(1e3), PermuteAndFlip(1e-3)):
        assert 0 <= int(mechanism.draw(box(scores), ADD_REMOVE, noise)) < len(scores)


def test_the_number_of_words_does_not_depend_on_the_scores(script):
    given_by = {0: set(), 1: set()}
    for scores, (index, choose) in itertools.product(
        ([0.0] * 5, [1e9, 0.0, 0.0, 0.0, 1.0], SCORES), enumerate((lambda g, n: select(g, None, n), permute_and_flip))
    ):
        noise = script(*range(2**60, 2**60 + 10))
        choose(Gaps.of(np.array(scores), 1.0, 1.0), noise)
        given_by[index].add(noise.given)
    assert given_by == {0: {1}, 1: {10}}
