"""Selections enumerated, objective perturbation integrated: no sampling, no confidence level."""

import math

import numpy as np
import pytest
from scipy import stats

from privypurse.accounting.convert import gdp_delta
from privypurse.audit.exact import (
    _log_density,
    _logistic,
    enumerate_selection,
    integrate_objective_perturbation,
    published_noisy_minimum,
)
from privypurse.core.randomness import NoiseSource
from privypurse.mechanisms.selection import ExponentialSelection, PermuteAndFlip


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
    # One-sided Gaussian noise of that multiplier is less than what was found: the integral does see something.
    assert found.delta > gdp_delta(1 / noise_multiplier, epsilon)


def test_the_densities_are_densities():
    for present in (0.0, 1.0):
        density = _log_density(1.25, 4.0, _logistic, 2.0, present)
        grid = np.linspace(-60, 60, 200_001)
        total = np.trapezoid([math.exp(density(w)) for w in grid[::20]], grid[::20])
        assert total == pytest.approx(1.0, abs=1e-6)
