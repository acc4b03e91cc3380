"""Attacks on the last digits: what floating point lets through, and exact noise does not.

*Gaussian noise.* Numbers near zero have finer digits than numbers near one. ``0 + noise`` may end in any digit; ``1 + noise`` was
rounded to the digits of a number near one before it came near zero, and its last digits are zero for ever. One look at a small
answer with fine digits tells the two apart for certain (Mironov 2012, for Gaussian noise by Jin and others 2022).

*Gumbel noise.* ``score + noise`` in single precision, as on most accelerators, rounds both to the digits of the score. Scores of
some ten million have steps as wide as the noise itself: a record that moves a score by a fifth moves it by a whole step, or not
at all, and the noise does not hide it.
"""

import numpy as np

from privypurse.accounting.convert import gdp_epsilon
from privypurse.audit.lower_bounds import bound_from_scores
from privypurse.audit.results import HOLDS, REFUTED, Line
from privypurse.core.checks import FloatArray
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Norm, Sensitive
from privypurse.mechanisms.gaussian import Gaussian
from privypurse.mechanisms.selection import ExponentialSelection
from privypurse.purse.purse import Purse

DELTA = 1e-6
NOISE_MULTIPLIER = 10.0
# A number below one that was one plus noise is a multiple of this.
FINEST = 2.0**-53
# The selection: what it is charged for, and the scores of two candidates, which differ by just more than half of a step of single
# precision with the record and by just less without it.
EPSILON = 0.2
HEIGHT, STEP = 2.0**26, 8.0


def fine_digits(answers: FloatArray) -> FloatArray:
    """Return 1 for each answer that cannot have been one plus noise, and 0 for the others."""
    small = np.abs(answers) < 1
    return np.where(small & (answers / FINEST != np.rint(answers / FINEST)), 1.0, 0.0)


def attack_gaussian(noise: NoiseSource, draws: int) -> Line:
    """Tell 0 from 1 under noise of standard deviation 10, by the last digits.

    Parameters
    ----------
    noise : NoiseSource
        Plain or secure.
    draws : int
        Answers on each side.
    """
    purse = Purse.not_private(noise=noise)  # each coordinate is looked at alone, as one number with a bound of one

    def answers(value: float) -> FloatArray:
        box = Sensitive(np.full(draws, value), norm=Norm.L2, add_remove=1.0, replace_one=1.0)
        return fine_digits(np.asarray(purse.release(box, Gaussian(NOISE_MULTIPLIER))))

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
    """Select as a straightforward program on an accelerator does: scores plus Gumbel noise in single precision. NOT PRIVATE."""
    scaled = (scores * (EPSILON / score_range)).astype(np.float32)
    gumbel = noise.gumbel((draws, scores.size)).astype(np.float32)
    return np.asarray((scaled + gumbel).argmax(axis=1), dtype=np.float64)


def attack_selection(noise: NoiseSource, draws: int) -> Line:
    """Tell two tables apart by which of two candidates with large scores is selected.

    Parameters
    ----------
    noise : NoiseSource
        A plain source for the program in single precision, a secure one for the library's selection.
    draws : int
        Selections on each side.
    """
    purse = Purse.not_private(noise=noise)
    # In units in which the noise has scale one, the record moves one score by EPSILON; the range of raw scores is one.
    without = np.array([HEIGHT, HEIGHT + STEP / 2 - EPSILON / 2]) / EPSILON
    with_it = np.array([HEIGHT, HEIGHT + STEP / 2 + EPSILON / 2]) / EPSILON

    def chosen(scores: FloatArray) -> FloatArray:
        if not noise.secure:
            return single_precision_gumbel(scores, 1.0, draws, noise)
        box = Sensitive(scores, norm=Norm.RANGE, add_remove=1.0 + 1e-6, replace_one=2.0)
        with purse.reserve(draws):
            return np.array([float(purse.release(box, ExponentialSelection(EPSILON))) for _ in range(draws)])

    # Which candidate speaks for the record was fixed in advance: the one whose score it raises.
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
    """Run both attacks on naive noise, on which they must succeed, and on exact noise, on which they must not."""
    draws = 10_000 if quick else 100_000
    selections = 1_500 if quick else 20_000
    return [
        attack_gaussian(NoiseSource(seed=seed), draws),
        attack_gaussian(NoiseSource(seed=seed, secure=True), draws),
        attack_selection(NoiseSource(seed=seed), selections),
        attack_selection(NoiseSource(seed=seed, secure=True), selections),
    ]
