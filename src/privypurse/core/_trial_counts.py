"""The number of trials of a search: truncated negative binomial, given its mean and shape.

``P(K = k)`` is proportional to ``(1 - g)^k`` times the product of ``(j + shape)/(j + 1)`` over j =
1 .. k - 1, for k = 1, 2, ... Shape 0 is the logarithmic distribution, shape 1 the geometric one; g
sets the mean (Papernot and Steinke 2022, arXiv:2110.03620, Definition 1).
"""

import functools
import math

from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import NoiseSource


@functools.lru_cache(maxsize=256)
def log_inverse_g(mean: float, shape: float) -> float:
    """Return ``ln(1/g)``, rounded up (the safe side for a price)."""
    low, high = 0.0, 700.0
    if mean_of(high, shape) < mean:
        raise InvalidArgument(f"mean must be a number from 1 to 1e300; got {mean!r}. Pass for example mean=5.0.")
    if mean == 1:
        return 0.0
    while math.nextafter(low, math.inf) < high and high - low > 1e-15 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if mean_of(middle, shape) < mean else (low, middle)
    return high


def mean_of(log_inverse: float, shape: float) -> float:
    """Return the mean for a positive value of ``ln(1/g)``; increasing."""
    # shape (1 - g) / (g (1 - g^shape)), and its limit where the exponent would underflow.
    exponent = shape * log_inverse
    below = -math.expm1(-exponent) / shape if exponent > 1e-200 else log_inverse
    return math.expm1(log_inverse) / below


def draw_trial_count(mean: float, shape: float, noise: NoiseSource) -> int:
    """Draw the number of trials, exact up to the 64 bits of each coin and without a maximum.

    Counting goes on with probability 1 - g, and each further count k is kept with
    probability ``(k + shape)/(k + 1)``; otherwise counting restarts from 1. So it stops at k with
    probability proportional to ``(1 - g)^(k - 1)`` times the product of these: the distribution
    above. No tail is cut off, so none has to be charged.
    """
    stop, count = math.exp(-log_inverse_g(mean, shape)), 1
    while not _coin(stop, noise):
        count = count + 1 if _coin((count + shape) / (count + 1), noise) else 1
    return count


def draw_below(count: int, noise: NoiseSource) -> int:
    """Draw a uniform integer from 0 to count - 1 by rejection."""
    while True:
        word = int(noise.words(1)[0])
        if word < 2**64 - 2**64 % count:
            return word % count


def _coin(chance: float, noise: NoiseSource) -> bool:
    return int(noise.words(1)[0]) < int(chance * 2.0**64)
