"""Gaussian noise on a lattice: values are rounded to a public unit before exact noise is added."""

import functools
import math
from dataclasses import dataclass

import numpy as np

from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import NoiseSource
from privypurse.mechanisms._exact_gaussian import LARGEST_STD, Integers, compiled_kernels, exact_gaussian

# Values are clipped to this many units; sums with noise of at most 2^62 cannot overflow.
LARGEST_UNITS = 2**61
# The unit is 2^-30 of the bound, or half that, for up to a million coordinates: sums of 2^30
# records fit, and rounding adds at most 1e-6 to the bound.
_BOUND_BITS = 30
_ROUNDING_BITS = 20
_LEAST_ROUNDING_BITS = 10


@dataclass(frozen=True)
class Lattice:
    """The unit of a release and the standard deviation of its noise.

    Parameters
    ----------
    exponent : int
        The unit is this power of two.
    std : int
        Standard deviation of the noise, in units.

    Guarantees
    ----------
    * Both depend on public numbers only: the sensitivity, the noise multiplier and the number of
      coordinates.
    * Rounding moves each coordinate by at most half a unit, and clipping brings no two values
      further apart. So two values within the sensitivity become lattice points within
      ``sensitivity/unit + sqrt(count)`` of each other. ``std`` is at least ``noise_multiplier``
      times that, computed in integers and rounded up.
    * The release is a function of the integer ``value + noise`` alone.

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
        """The distance between neighbouring lattice points."""
        return 2.0**self.exponent

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def of(
        sensitivity: float, noise_multiplier: float, count: int, discrete: bool = False, moves: int = 1
    ) -> "Lattice":
        """Choose the lattice for a release. Raise InvalidArgument if the noise is too large for it.

        ``moves`` is 2 where the sensitivity is that of two moves, each rounded separately.
        """
        root = moves * (math.isqrt(max(0, count - 1)) + 1)  # sqrt(count), rounded up
        bits = max(_BOUND_BITS, root.bit_length() + _ROUNDING_BITS)
        # The noise has at most two bits more than the bound and the multiplier together.
        bits = min(bits, LARGEST_STD.bit_length() - 3 - math.frexp(noise_multiplier)[1])
        if bits < root.bit_length() + _LEAST_ROUNDING_BITS:
            raise InvalidArgument(
                f"noise_multiplier={noise_multiplier!r} is too large for exact noise on {count} numbers. Lower it, "
                "or pass noise='plain'."
            )
        exponent = math.frexp(sensitivity)[1] - 1 - bits
        # multiplier (sensitivity/unit + root), rounded up, as one fraction of integers. Fraction
        # would take longer than the noise, and schedules have another multiplier for each release.
        above, below = noise_multiplier.as_integer_ratio()
        bound, parts = sensitivity.as_integer_ratio()
        bound, parts = bound << max(0, -exponent), parts << max(0, exponent)
        std = -(-above * (bound + root * parts) // (below * parts))
        if discrete and std >= 2**20:
            std += -std % 8  # faster to draw
        return Lattice(exponent, std)

    def points(self, value: FloatArray) -> Integers:
        """Return the nearest lattice points, in units."""
        largest = math.ldexp(LARGEST_UNITS, self.exponent)
        # Division by a power of two is exact, except far below one unit, where it rounds to zero
        # anyway. np.clip is slower for a few numbers.
        clipped = np.minimum(np.maximum(value, -largest), largest)
        return np.asarray(np.rint(clipped * 2.0**-self.exponent), dtype=np.int64)

    def add_noise(self, value: FloatArray, noise: NoiseSource) -> FloatArray:
        """Round a value to the lattice, add exact noise and return floats."""
        drawn = exact_gaussian(value.size, self.std, noise)
        kernels = compiled_kernels()
        if kernels is not None:
            out = np.empty(value.size)
            kernels.place(value.reshape(-1), drawn, 2.0**-self.exponent, 2.0**self.exponent, LARGEST_UNITS, out)
            return out.reshape(value.shape)
        noisy = self.points(value) + drawn.reshape(value.shape)
        return np.asarray(np.minimum(np.maximum(noisy, -LARGEST_UNITS), LARGEST_UNITS) * self.unit, dtype=np.float64)
