"""Selections with exact probabilities, independent of floating point.

Scores become integers on a lattice. A candidate whose score is g units below the best has the
rational exponent ``-rate g``. Proof: ``docs/proofs/exact_noise.md``.
"""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privypurse.core._checks import FloatArray
from privypurse.core._randomness import NoiseSource
from privypurse.mechanisms._exact_gaussian import Digits, exp_bounds, is_below_exp

# The unit is 2^-40 of the range, or half that.
_RANGE_BITS = 40
# Rounding moves each of two scores by at most half a unit on either data set: two units in all.
ROUNDING_UNITS = 2
# Larger gaps are counted as this many units.
LARGEST_GAP = 2**61
# Bound on the relative error of a few operations in double precision; the true one is below 2^-50.
DOUBLE_ERROR = 2.0**-48


@dataclass(frozen=True)
class Gaps:
    """Distance of each score from the best, in units, and the rate: epsilon over the enlarged range.

    Guarantees
    ----------
    If one record moves no score by more than ``score_range`` more than another, it moves
    ``-rate * units`` by values in an interval of length epsilon, up to a number that all share.
    Rounding adds `ROUNDING_UNITS` to the range, which the rate covers. The best score moves by a
    value in the same interval as all others. The larger of two numbers that both move by values in
    an interval moves by one in it, so the largest gap changes nothing.
    """

    units: NDArray[np.int64]
    rate: Fraction

    @classmethod
    def of(cls, scores: FloatArray, epsilon: float, score_range: float) -> "Gaps":
        """Round scores to the lattice of a range and compare them with the best."""
        exponent = math.frexp(score_range)[1] - 1 - _RANGE_BITS
        rate = _rate(epsilon, score_range, exponent)
        if np.abs(scores).max() < math.ldexp(LARGEST_GAP, exponent):
            points = np.rint(scores * 2.0**-exponent).astype(np.int64)
            return cls(np.minimum(points.max() - points, LARGEST_GAP), rate)
        # Numbers of more than 2^61 units are multiples of the unit already, but exceed 64 bits.
        unit = Fraction(2) ** exponent
        rounded = [round(Fraction(score) / unit) for score in scores.tolist()]
        best = max(rounded)
        return cls(np.array([min(best - score, LARGEST_GAP) for score in rounded], dtype=np.int64), rate)


@functools.lru_cache(maxsize=256)
def _rate(epsilon: float, score_range: float, exponent: int) -> Fraction:
    """Return ``epsilon / (score_range/unit + ROUNDING_UNITS)``. Cached: public numbers only."""
    above, below = epsilon.as_integer_ratio()
    length, parts = score_range.as_integer_ratio()
    length, parts = length << max(0, -exponent), parts << max(0, exponent)
    return Fraction(above * parts, below * (length + ROUNDING_UNITS * parts))


def select(gaps: Gaps, log_prior: tuple[float, ...] | None, noise: NoiseSource) -> int:
    """Draw candidate j with probability proportional to ``exp(log_prior_j - rate gap_j)``.

    Uses one random word, and no decision that depends on the scores, where the uniform number is
    further from the cumulative weights in double precision than their proved error; otherwise
    integer bounds and as many further bits as needed.
    """
    word = int(noise.words(1)[0])
    sums, error = _sums_of_weights(gaps, log_prior)
    aim = word * 2.0**-64 * sums[-1]
    index = int(sums.searchsorted(aim, side="right"))
    below = sums[index - 1] if index else -math.inf
    # The last sum ends the range of the uniform number, so no margin is needed there.
    above = sums[index] if index < sums.size - 1 else math.inf
    if index < sums.size and aim - below > error and above - aim > error:
        return index
    return _select_slowly(gaps, log_prior, Digits(word, 64), noise)


def _sums_of_weights(gaps: Gaps, log_prior: tuple[float, ...] | None) -> tuple[FloatArray, float]:
    """Return cumulative weights relative to the largest, and a bound on their error.

    Gap and prior have one sign, so an exponent has a relative error of a few roundings. After
    subtraction of the smallest, s, the absolute error of ``D = exponent - s`` is at most
    ``DOUBLE_ERROR (2 s + D)``. A weight ``e^-D`` errs by as much times ``e^-D``, less than
    ``DOUBLE_ERROR (2 s + 2)`` with the error of exp; a sum of k weights by k times that and, since
    the sum is at most k, by ``k^2`` roundings. The point and the total add the same again.
    """
    exponents = gaps.units * float(gaps.rate)
    smallest = 0.0  # the best score's
    if log_prior is not None:
        exponents += max(log_prior) - np.array(log_prior)
        smallest = float(exponents.min())
    sums = np.exp(smallest - exponents).cumsum()
    count = sums.size
    return sums, 3 * count * DOUBLE_ERROR * (2 * smallest + 2 + count)


def _select_slowly(gaps: Gaps, log_prior: tuple[float, ...] | None, uniform: Digits, noise: NoiseSource) -> int:
    exponents = [gaps.rate * gap for gap in gaps.units.tolist()]
    if log_prior is not None:
        largest = Fraction(max(log_prior))
        exponents = [each + largest - Fraction(weight) for each, weight in zip(exponents, log_prior, strict=True)]
    smallest = min(exponents)
    while True:
        # Bounds on each cumulative weight, and on the uniform number times the last of them.
        bounds = [exp_bounds(exponent - smallest, uniform.bits + 32) for exponent in exponents]
        sums_low, sums_high = (np.cumsum(np.array(side, dtype=object)) for side in zip(*bounds, strict=True))
        aim_low, aim_high = uniform.value * sums_low[-1], (uniform.value + 1) * sums_high[-1]
        below = 0
        for index, (low, high) in enumerate(zip(sums_low, sums_high, strict=True)):
            last = index == len(exponents) - 1
            if below <= aim_low and (last or aim_high <= low << uniform.bits):
                return index
            below = high << uniform.bits
        uniform.reveal(noise)


def permute_and_flip(gaps: Gaps, noise: NoiseSource) -> int:
    """Take candidates in random order, each with probability ``exp(-rate gap)``; return the first.

    Uses two words for each candidate, whatever the scores are, except for ties among 64-bit keys,
    after which all keys are drawn again, and for coins that 64 bits do not decide.
    """
    count = gaps.units.size
    keys = noise.words(count)
    while np.unique(keys).size < count:
        keys = noise.words(count)
    order = np.argsort(keys)
    coins = noise.words(count)
    exponents = gaps.units * float(gaps.rate)
    # Exponents are capped at 700, where the error of the coin is below 1e-300.
    chances = np.exp(-np.minimum(exponents, 700.0))
    errors = DOUBLE_ERROR * (chances * (2 + np.minimum(exponents, 700.0)) + 1)
    points = coins * 2.0**-64
    taken, open_coins = points < chances - errors, np.abs(points - chances) <= errors
    for index in order.tolist():
        coin, gap = int(coins[index]), int(gaps.units[index])
        if taken[index] or (open_coins[index] and is_below_exp(Digits(coin, 64), gaps.rate * gap, noise)):
            return int(index)
    raise AssertionError("the best candidate is always taken")  # pragma: no cover (its chance is 1)
