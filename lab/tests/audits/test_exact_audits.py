"""Selections enumerated, objective perturbation integrated: no sampling, no confidence level."""

import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from scipy import stats

from privypurse.accounting.convert import gdp_delta
from privypurse.audit._verdicts import HOLDS, REFUTED
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.mechanisms import _exact_selection as exact_selection
from privypurse.mechanisms._exact_selection import ROUNDING_UNITS, Gaps
from privypurse.mechanisms._selection import ExponentialSelection, PermuteAndFlip
from privypurse_lab.audits.exact import (
    _log_density,
    _logistic,
    enumerate_exact_selection,
    enumerate_selection,
    exact_law,
    exact_law_of_flips,
    integrate_objective_perturbation,
    published_noisy_minimum,
)
from privypurse_lab.audits.selections import (
    HOSTILE_RANGE,
    LEAST_P_VALUE,
    attack_selection,
    compare_with_law,
    selection_lines,
)

SELECTIONS = [ExponentialSelection(0.5), PermuteAndFlip(0.5)]
NAMES = ["exponential", "flips"]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("candidates", [2, 3, 4])
def test_selections_keep_to_their_epsilon_and_use_it_up(epsilon, candidates):
    exponential = enumerate_selection(
        lambda scores: ExponentialSelection(epsilon).log_probabilities(scores, 2.0),
        score_range=2.0,
        candidates=candidates,
    )
    assert exponential.range == pytest.approx(epsilon, rel=1e-9)
    flips = enumerate_selection(
        lambda scores: PermuteAndFlip(epsilon).log_probabilities(scores, 2.0), score_range=2.0, candidates=candidates
    )
    assert flips.epsilon <= epsilon * (1 + 1e-9)


def sharper(factor):
    rate = exact_selection._rate
    return mock.patch.object(exact_selection, "_rate", lambda *public: Fraction(factor) * rate(*public))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("score_range", [1.0, HOSTILE_RANGE, 0.3, 1.999, 3e-90, 7e90])
@pytest.mark.parametrize("candidates", [2, 3])
def test_exact_selections_keep_to_their_epsilon_in_rational_numbers(epsilon, score_range, candidates):
    found = enumerate_exact_selection(epsilon, score_range=score_range, candidates=candidates)
    assert epsilon * (1 - 2.0**-38) < found.range <= epsilon
    assert 0.5 * epsilon < found.epsilon <= epsilon


def test_rounding_by_two_units_is_met_and_one_unit_would_not_do():
    """The enumeration uses up all but a thousandth of a unit, and refutes a sampler that leaves
    room for one only.
    """
    found = enumerate_exact_selection(1.0, score_range=HOSTILE_RANGE, candidates=2)
    assert 1 - 2.0**-49 < found.range <= 1
    exact_selection._rate.cache_clear()
    try:
        with mock.patch.object(exact_selection, "ROUNDING_UNITS", ROUNDING_UNITS - 1):
            assert enumerate_exact_selection(1.0, score_range=HOSTILE_RANGE, candidates=2).range > 1
    finally:
        exact_selection._rate.cache_clear()


@pytest.mark.parametrize("factor", ["1.000001", "1.5"])
def test_an_exact_selection_that_is_too_sharp_is_refuted_by_enumeration(factor):
    with sharper(factor):
        assert enumerate_exact_selection(1.0, score_range=1.0, candidates=2).range > 1


def test_the_exact_laws_are_the_planning_formulas_but_for_the_lattice():
    scores = np.array([0.3, 0.0, -1.7, 0.29])
    gaps = Gaps.of(scores, 0.9, 2.0)
    for law, mechanism in ((exact_law, ExponentialSelection(0.9)), (exact_law_of_flips, PermuteAndFlip(0.9))):
        np.testing.assert_allclose(law(gaps), np.exp(mechanism.log_probabilities(scores, 2.0)), rtol=1e-10)


def test_the_audit_of_selections_is_silent():
    lines = selection_lines(quick=True, seed=3)
    assert [line.verdict for line in lines] == [HOLDS] * 6, lines
    assert len({line.subject for line in lines}) == 6


@pytest.mark.parametrize("mechanism", SELECTIONS, ids=NAMES)
@pytest.mark.parametrize(
    ("factor", "draws"), [pytest.param("1.5", 6_000, marks=pytest.mark.slow), ("2", 800)], ids=["half-more", "twice"]
)
def test_the_attack_refutes_an_exact_selection_that_is_too_sharp(mechanism, factor, draws):
    """With the draws of a full and of a quick run."""
    with sharper(factor):
        line = attack_selection(mechanism, 0.5, draws=draws, secure=True)
    assert 0.5 < line.shown_epsilon < 0.5 * float(factor)
    assert line.verdict == REFUTED


@pytest.mark.parametrize("mechanism", SELECTIONS, ids=NAMES)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "exact"])
@pytest.mark.parametrize("factor", [2 / 3, 1.0, 3 / 2], ids=["blunt", "right", "sharp"])
def test_frequencies_tell_the_law_from_others(mechanism, secure, factor):
    """The sampler draws for another epsilon than the law was computed for."""
    draw, other = type(mechanism).draw, type(mechanism)(0.5 * factor)
    with mock.patch.object(type(mechanism), "draw", lambda self, *how: draw(other, *how)):
        p_value = compare_with_law(mechanism, draws=1_000, seed=1, secure=secure)
    assert (p_value > LEAST_P_VALUE) == (factor == 1.0)


def test_attacks_need_draws():
    with pytest.raises(InvalidArgument, match="draws"):
        attack_selection(SELECTIONS[0], 0.5, draws=0)


@pytest.mark.parametrize("mechanism", SELECTIONS, ids=NAMES)
@pytest.mark.parametrize("ranges", [(1.0, 2.0), (1.0, 1.0 + 2.0**-45), (1.5, 2.7), (3.0, 3.0)], ids=str)
def test_the_price_under_replace_one_covers_the_rate_of_exact_noise(mechanism, ranges):
    """In rational numbers: the rate is that of add/remove's lattice, the range that of replace-one,
    with its roundings.
    """
    box = Sensitive(np.zeros(2), norm=Norm.RANGE, add_remove=ranges[0], replace_one=ranges[1])
    own, other = ranges
    unit = Fraction(2) ** (math.frexp(own)[1] - 41)
    rate = Gaps.of(np.zeros(2), mechanism.epsilon, own).rate
    true = rate * (Fraction(other) / unit + ROUNDING_UNITS)
    charged = mechanism.charge_seen_under(box, Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE).epsilon
    assert true <= charged <= true * (1 + Fraction(1, 2**36))


@pytest.mark.parametrize("candidates", [2, 3, 4])
def test_the_published_noisy_minimum_costs_one_epsilon_for_each_other_candidate(candidates):
    found = enumerate_selection(published_noisy_minimum(0.7, 1.0), score_range=1.0, candidates=candidates)
    assert found.epsilon == pytest.approx(0.7 * (candidates - 1), rel=1e-6)


def test_the_published_probabilities_are_those_of_its_noise():
    scores, epsilon = np.array([0.0, -0.4, 1.1, 1.0]), 1.3
    probabilities = np.exp(published_noisy_minimum(epsilon, 1.0)(scores))
    assert probabilities.sum() == pytest.approx(1.0)
    noise = NoiseSource(seed=3).exponential((40_000, 4)) / epsilon
    counts = np.bincount((-scores + noise).argmin(axis=1), minlength=4)
    assert stats.chisquare(counts, 40_000 * probabilities).pvalue > 1e-4
    assert stats.chisquare(counts, 40_000 * probabilities[::-1]).pvalue < 1e-9


@pytest.mark.parametrize(
    ("noise_multiplier", "ratio", "epsilon"), [(4.0, 0.2, 1.0), (1.0, 0.5, 3.0), (2.0, 0.9, 1.0), (20.0, 0.1, 0.2)]
)
def test_objective_perturbation_is_within_its_claim(noise_multiplier, ratio, epsilon):
    found = integrate_objective_perturbation(noise_multiplier, ratio, epsilon)
    assert 0 < found.delta <= found.claimed_delta
    # One-sided Gaussian noise of that multiplier is less than what was found: the integral does see
    # something.
    assert found.delta > gdp_delta(1 / noise_multiplier, epsilon)


def test_the_densities_are_densities():
    for present in (0.0, 1.0):
        density = _log_density(1.25, 4.0, _logistic, 2.0, present)
        grid = np.linspace(-60, 60, 200_001)
        total = np.trapezoid([math.exp(density(w)) for w in grid[::20]], grid[::20])
        assert total == pytest.approx(1.0, abs=1e-6)
