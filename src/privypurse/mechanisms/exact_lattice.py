"""Gaussian noise on a lattice: values are rounded to whole multiples of a public unit before exact noise is added."""

import functools
import math
from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray
from privypurse.core.errors import InvalidArgument
from privypurse.core.randomness import NoiseSource
from privypurse.mechanisms.exact_gaussian import LARGEST_STD, Integers, compiled_kernels, exact_gaussian

# Values beyond this many units come out as this many: sums with noise of at most 2^62 cannot overflow.
LARGEST_UNITS = 2**61
# The unit is 2^-30 of the bound, or half that, for up to a million coordinates: sums of 2^30 records fit, and rounding adds
# 1e-6 to the bound at most.
_BOUND_BITS = 30
_ROUNDING_BITS = 20
_LEAST_ROUNDING_BITS = 10


@dataclass(frozen=True)
class Lattice:
    """The unit of a release and the noise on it, in units.

    Parameters
    ----------
    exponent : int
        The unit is this power of two.
    std : int
        Standard deviation of the noise, in units.

    Guarantees
    ----------
    * Both depend on public numbers only: the sensitivity, the noise multiplier, and the number of coordinates.
    * Rounding moves each coordinate by half a unit at most, and clipping brings no two values further apart; so two values within
      the sensitivity become lattice points within ``sensitivity/unit + sqrt(count)`` of each other. ``std`` is at least
      ``noise_multiplier`` times that, computed in whole numbers and rounded up.
    * What is released is a function of the whole number ``value + noise`` alone.

    Examples
    --------
    >>> lattice = Lattice.of(sensitivity=1.0, noise_multiplier=2.0, count=4)
    >>> lattice.unit == 2.0**-30, lattice.std == 2 * (2**30 + 2)
    (True, True)
    """

    exponent: int
    std: int

    @property
    def unit(self) -> float:
        """The distance between two points of the lattice."""
        return 2.0**self.exponent

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def of(
        sensitivity: float, noise_multiplier: float, count: int, discrete: bool = False, moves: int = 1
    ) -> "Lattice":
        """Choose the lattice for a release; refuses a noise multiplier that would leave too few units to the bound.

        ``moves`` is 2 where the sensitivity is that of two moves, each with roundings of its own.
        """
        root = moves * (math.isqrt(max(0, count - 1)) + 1)  # sqrt(count), rounded up
        bits = max(_BOUND_BITS, root.bit_length() + _ROUNDING_BITS)
        # The noise has at most one bit more than the bound and the multiplier together, and one for what rounding adds.
        bits = min(bits, LARGEST_STD.bit_length() - 3 - math.frexp(noise_multiplier)[1])
        if bits < root.bit_length() + _LEAST_ROUNDING_BITS:
            raise InvalidArgument(
                f"noise_multiplier={noise_multiplier!r} is too large for exact noise on {count} numbers. Lower it, or pass "
                "noise='plain'."
            )
        exponent = math.frexp(sensitivity)[1] - 1 - bits
        # multiplier (sensitivity/unit + root), rounded up; as one fraction of whole numbers, because schedules have another
        # multiplier for each release, and Fraction's common divisors take longer than the noise.
        above, below = noise_multiplier.as_integer_ratio()
        bound, parts = sensitivity.as_integer_ratio()
        bound, parts = bound << max(0, -exponent), parts << max(0, exponent)
        std = -(-above * (bound + root * parts) // (below * parts))
        if discrete and std >= 2**20:
            std += -std % 8  # drawn quicker
        return Lattice(exponent, std)

    def points(self, value: FloatArray) -> Integers:
        """Return the nearest lattice points, in units."""
        largest = math.ldexp(LARGEST_UNITS, self.exponent)
        # A power of two: the division is exact, but for numbers far below one unit, which round to zero either way. Not np.clip,
        # which takes longer than all the rest for a few numbers.
        clipped = np.minimum(np.maximum(value, -largest), largest)
        return np.asarray(np.rint(clipped * 2.0**-self.exponent), dtype=np.int64)

    def add_noise(self, value: FloatArray, noise: NoiseSource) -> FloatArray:
        """Round a value to the lattice, add exact noise, and return it as ordinary numbers."""
        drawn = exact_gaussian(value.size, self.std, noise)
        kernels = compiled_kernels()
        if kernels is not None:
            out = np.empty(value.size)
            kernels.place(value.reshape(-1), drawn, 2.0**-self.exponent, self.unit, LARGEST_UNITS, out)
            return out.reshape(value.shape)
        noisy = self.points(value) + drawn.reshape(value.shape)
        return np.asarray(np.minimum(np.maximum(noisy, -LARGEST_UNITS), LARGEST_UNITS) * self.unit, dtype=np.float64)


def lattice_for(
    sensitivity: float, noise_multiplier: float, shape: tuple[int, ...], noise: NoiseSource, moves: int = 1
) -> Lattice:
    """Choose the lattice for a release with a source of exact noise."""
    return Lattice.of(sensitivity, noise_multiplier, math.prod(shape), noise.sampler != "secure", moves)
