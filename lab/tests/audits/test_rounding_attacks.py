"""The attacks on last digits succeed on naive noise and fail on exact noise."""

import numpy as np
import pytest

from privypurse.audit._verdicts import HOLDS, REFUTED
from privypurse.core._randomness import NoiseSource
from privypurse_lab.audits.rounding_attacks import attack_gaussian, attack_selection, fine_digits, rounding_lines


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("attack", "draws"), [(attack_gaussian, 10_000), (attack_selection, 1_000)], ids=["gaussian", "gumbel"]
)
def test_naive_noise_falls_and_exact_noise_stands(attack, draws, seed):
    naive, exact = attack(NoiseSource(seed=seed), draws), attack(NoiseSource(seed=seed, secure=True), draws)
    assert naive.verdict == REFUTED
    assert naive.shown_epsilon > 5 * naive.claimed_epsilon
    assert exact.verdict == HOLDS
    assert exact.shown_epsilon == 0.0


def test_one_plus_noise_never_has_fine_digits():
    """Not a matter of chance: no number below one can be the rounded sum of one and a double and
    have finer digits.
    """
    noise = np.random.default_rng(0).normal(0, 1, 200_000)
    assert fine_digits(1.0 + noise).sum() == 0
    assert fine_digits(noise).mean() > 0.2


def test_each_line_says_whose_noise_it_is():
    """A program in single precision falls that nobody here wrote for use: a reader must not take it
    for the library's.
    """
    assert {line.subject: line.kind for line in rounding_lines(quick=True)} == {
        "this library's plain Gaussian noise": "naive",
        "this library's exact Gaussian noise": "exact noise",
        "a single-precision Gumbel program (not this library's)": "naive",
        "this library's exact selection": "exact noise",
    }
