"""The lattice that exact sums lie on: one public step length for each query, a power of two.

Where noise is secure, every record's clipped gradient is rounded to whole steps before it is added, so that the sum is one of
whole numbers: exact, and the same in every order. Noise is then added in whole steps too (``docs/proofs/exact_noise.md``).
"""

import math

# Contributions are kept this much inside the stated bound, so that it holds for the sums as computed: see ``_kernels`` and
# ``_exact_kernels``. It costs 0.05 % more noise than exact arithmetic would need.
ROUNDING_MARGIN = 5e-4
# A bound is at least 2^22 and less than 2^23 steps: 10^9 records then have a sum below 2^53 steps, which a double holds exactly.
_BITS = 22


def lattice_unit(bound: float, dimension: int) -> float:
    """Return the step: a power of two, of which a bound has at least 2^22 and less than 2^23.

    A vector of so many numbers gets longer by at most half the square root of that many steps when each is rounded to the
    nearest. Half the rounding margin must cover it; beyond four million numbers the step is therefore finer.

    Examples
    --------
    >>> lattice_unit(1.0, 100) == 2.0**-22
    True
    >>> lattice_unit(1.999, 100) == 2.0**-22
    True
    """
    exponent = math.frexp(bound)[1] - 1 - _BITS
    while math.sqrt(dimension) / 2 * math.ldexp(1.0, exponent) > ROUNDING_MARGIN / 2 * bound:
        exponent -= 1
    return math.ldexp(1.0, exponent)
