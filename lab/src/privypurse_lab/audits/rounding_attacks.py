"""Attacks on the last digits, which succeed on floating-point noise and fail on exact noise.

*Gaussian noise.* Floats near zero have finer digits than floats near one. ``0 + noise`` may end in
any digit; ``1 + noise`` was rounded to the digits of a number near one, so its last digits are
zero. One small answer with fine digits distinguishes the two (Mironov 2012, for Gaussian noise Jin
et al. 2022).

*Gumbel noise.* ``score + noise`` in single precision, as on most accelerators, is rounded to the
digits of the score. Scores of some ten million have steps as wide as the noise: a record that moves
a score by a fifth moves it by a whole step or not at all, and the noise does not hide it.
"""

import numpy as np

from privypurse.accounting.convert import gdp_epsilon
from privypurse.audit._lower_bounds import bound_from_scores
from privypurse.audit._verdicts import HOLDS, REFUTED, Line
from privypurse.core._checks import FloatArray
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.mechanisms._selection import ExponentialSelection
from privypurse.purse._purse import Purse

DELTA = 1e-6
NOISE_MULTIPLIER = 10.0
# A number below one that was one plus noise is a multiple of this.
FINEST = 2.0**-53
# Charged epsilon of the selection, and scores of two candidates, which differ by just more than
# half a step of single precision with the record and by just less without it.
EPSILON = 0.2
HEIGHT, STEP = 2.0**26, 8.0


def fine_digits(answers: FloatArray) -> FloatArray:
    """Return 1 for each answer that cannot be one plus noise, else 0."""
    small = np.abs(answers) < 1
    return np.where(small & (answers / FINEST != np.rint(answers / FINEST)), 1.0, 0.0)


def attack_gaussian(noise: NoiseSource, draws: int) -> Line:
    """Distinguish 0 from 1 under noise of standard deviation 10, by the last digits."""
    purse = Purse.not_private(noise=noise)  # each coordinate is one release with a bound of one

    def answers(value: float) -> FloatArray:
        box = Sensitive(np.full(draws, value), norm=Norm.L2, add_remove=1.0, replace_one=1.0)
        return fine_digits(np.asarray(purse.release(box, Gaussian(NOISE_MULTIPLIER)).value))

    bound = bound_from_scores(answers(1.0), answers(0.0), thresholds=[0.5], delta=DELTA)
    claimed = gdp_epsilon(1 / NOISE_MULTIPLIER, DELTA)
    return Line(
        "this library's exact Gaussian noise" if noise.secure else "this library's plain Gaussian noise",
        "exact noise" if noise.secure else "naive",
        "rounding",
        claimed_mu=1 / NOISE_MULTIPLIER,
        claimed_epsilon=claimed,
        shown_mu=bound.mu,
        shown_epsilon=bound.epsilon,
        delta=DELTA,
        confidence=bound.confidence,
        trials=bound.trials,
        verdict=REFUTED if bound.epsilon > claimed else HOLDS,
    )


def single_precision_gumbel(scores: FloatArray, score_range: float, draws: int, noise: NoiseSource) -> FloatArray:
    """Select by scores plus Gumbel noise in single precision. NOT PRIVATE."""
    scaled = (scores * (EPSILON / score_range)).astype(np.float32)
    gumbel = noise.gumbel((draws, scores.size)).astype(np.float32)
    return np.asarray((scaled + gumbel).argmax(axis=1), dtype=np.float64)


def attack_selection(noise: NoiseSource, draws: int) -> Line:
    """Distinguish two tables by which of two candidates with large scores is selected.

    Parameters
    ----------
    noise : NoiseSource
        A plain source for single precision, a secure one for the library's selection.
    draws : int
        Selections on each side.
    """
    purse = Purse.not_private(noise=noise)
    # In units of the noise scale, the record moves one score by EPSILON; raw scores have range one.
    without = np.array([HEIGHT, HEIGHT + STEP / 2 - EPSILON / 2]) / EPSILON
    with_it = np.array([HEIGHT, HEIGHT + STEP / 2 + EPSILON / 2]) / EPSILON

    def chosen(scores: FloatArray) -> FloatArray:
        if not noise.secure:
            return single_precision_gumbel(scores, 1.0, draws, noise)
        box = Sensitive(scores, norm=Norm.RANGE, add_remove=1.0 + 1e-6, replace_one=2.0)
        with purse.reserve(draws):
            return np.array([float(purse.release(box, ExponentialSelection(EPSILON)).value) for _ in range(draws)])

    # Fixed in advance: the candidate whose score the record raises.
    bound = bound_from_scores(chosen(without), chosen(with_it), thresholds=[0.5], delta=DELTA)
    return Line(
        "this library's exact selection" if noise.secure else "a single-precision Gumbel program (not this library's)",
        "exact noise" if noise.secure else "naive",
        "rounding",
        claimed_epsilon=EPSILON,
        shown_epsilon=bound.epsilon,
        delta=DELTA,
        confidence=bound.confidence,
        trials=bound.trials,
        verdict=REFUTED if bound.epsilon > EPSILON else HOLDS,
    )


def rounding_lines(*, quick: bool = False, seed: int = 0) -> list[Line]:
    """Run both attacks on floating-point noise, where they must succeed, and on exact noise."""
    draws = 10_000 if quick else 100_000
    selections = 1_500 if quick else 20_000
    return [
        attack_gaussian(NoiseSource(seed=seed), draws),
        attack_gaussian(NoiseSource(seed=seed, secure=True), draws),
        attack_selection(NoiseSource(seed=seed), selections),
        attack_selection(NoiseSource(seed=seed, secure=True), selections),
    ]
