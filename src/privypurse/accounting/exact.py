"""Exact sums of costs, as whole numbers of a very small quantum.

A budget kept in floating point loses small charges (1 + 1e-17 == 1) and depends on the order of
addition. Here each cost is rounded *up* to a whole number of quanta of 2^-160, limits are rounded
*down*, and totals are Python integers. The smallest budget in use (epsilon 1e-4, delta 1e-15) is
about 2^127 quanta, so the rounding is invisible.
"""

import math

QUANTUM_BITS = 160


def quanta_up(cost: float) -> int:
    """Round a finite cost up to whole quanta; a positive cost is at least one quantum."""
    numerator, denominator = cost.as_integer_ratio()
    # The denominator is a power of two. Shifting a negative number right rounds down.
    shift = QUANTUM_BITS + 1 - denominator.bit_length()
    return numerator << shift if shift >= 0 else -(-numerator >> -shift)


def quanta_down(limit: float) -> int:
    """Round a finite limit down to whole quanta."""
    numerator, denominator = limit.as_integer_ratio()
    return (numerator << QUANTUM_BITS) // denominator


def float_up(quanta: int) -> float:
    """Convert quanta to the nearest float that is not smaller."""
    value = quanta / (1 << QUANTUM_BITS)
    return value if quanta_down(value) >= quanta else math.nextafter(value, math.inf)


def float_down(quanta: int) -> float:
    """Convert quanta to the nearest float that is not larger."""
    value = quanta / (1 << QUANTUM_BITS)
    return value if quanta_up(value) <= quanta else math.nextafter(value, -math.inf)


def inflate(cost: float, steps: int = 8) -> float:
    """Round a computed cost up past the error of the few floating-point operations behind it.

    Each step is one unit in the last place; k correctly rounded operations err by at most k units.
    Never returns zero.
    """
    if math.isinf(cost):
        return cost
    for _ in range(steps):
        cost = math.nextafter(cost, math.inf)
    return cost
