"""Uniform numbers known to some bits, and bounds on the exponential function in whole numbers: what exact sampling rests on."""

from fractions import Fraction

from privypurse.core.randomness import NoiseSource

_WORD = 64
# Further bits with which the series is summed, so that its rounding stays below the last bit that is asked for.
_GUARD = 24


class Digits:
    """A uniform real number in [0, 1) of which only the first bits are known; more are drawn when a decision needs them.

    Parameters
    ----------
    value : int
        The known bits: the number lies in ``[value, value + 1) / 2^bits``.
    bits : int
        How many are known.
    """

    __slots__ = ("bits", "value")

    def __init__(self, value: int, bits: int) -> None:
        self.value, self.bits = value, bits

    def reveal(self, noise: NoiseSource) -> None:
        """Draw 64 more bits."""
        self.value, self.bits = (self.value << _WORD) | int(noise.words(1)[0]), self.bits + _WORD

    def interval(self) -> tuple[Fraction, Fraction]:
        """Return two numbers between which it lies."""
        return Fraction(self.value, 1 << self.bits), Fraction(self.value + 1, 1 << self.bits)


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return whole numbers with ``low <= 2^bits exp(-exponent) <= high``, at most two apart.

    Parameters
    ----------
    exponent : Fraction
        Zero or more.
    bits : int
        The precision.

    Guarantees
    ----------
    Whole numbers only. The exponent is halved until it is at most 1/2; there the series of ``exp(-x)`` alternates and its terms
    fall, so that two successive partial sums enclose it; and every rounding on the way, in the series and in the squarings that
    undo the halvings, is away from the value that it bounds.

    Examples
    --------
    >>> exp_bounds(Fraction(0), 10)
    (1024, 1024)
    >>> exp_bounds(Fraction(1), 20)  # 2^20/e is 385749.99...
    (385749, 385750)
    """
    if exponent == 0:
        return 1 << bits, 1 << bits
    if exponent >= bits:  # e^-bits is less than 2^-bits
        return 0, 1
    halvings = max(0, (2 * exponent.numerator // exponent.denominator).bit_length())
    precision = bits + _GUARD + 2 * halvings
    scaled, remainder = divmod(exponent.numerator << precision, exponent.denominator << halvings)
    low = _series(scaled + (remainder > 0), precision)[0]
    high = _series(scaled, precision)[1]
    for _ in range(halvings):
        low, high = (low * low) >> precision, _shift_up(high * high, precision)
    return low >> (precision - bits), _shift_up(high, precision - bits)


def _shift_up(value: int, bits: int) -> int:
    """Divide by a power of two, rounded up."""
    return -(-value >> bits)


def _series(x: int, precision: int) -> tuple[int, int]:
    """Bound ``2^precision exp(-x/2^precision)`` for an x of at most half of ``2^precision``."""
    one = 1 << precision
    smallest = largest = one
    term_low = term_high = one
    count = 0
    while term_high > 1 or count % 2 == 0:
        count += 1
        term_low = ((term_low * x) >> precision) // count
        term_high = (_shift_up(term_high * x, precision) + count - 1) // count
        if count % 2:
            # What is left after a negative term is positive and no more than that term.
            smallest, largest = smallest - term_high, largest - term_low
        else:
            smallest, largest = smallest + term_low, largest + term_high
    return smallest, largest + term_high


def is_below_exp(uniform: Digits, exponent: Fraction, noise: NoiseSource) -> bool:
    """Flip a coin that shows heads with probability ``exp(-exponent)``: say whether the uniform number is below it."""
    while True:
        low, high = exp_bounds(exponent, uniform.bits)
        if uniform.value + 1 <= low:
            return True
        if uniform.value >= high:
            return False
        uniform.reveal(noise)


def floor_of_multiple(uniform: Digits, factor: int, noise: NoiseSource) -> int:
    """Return the whole part of ``factor`` times the uniform number: each of 0 .. factor - 1 is equally likely."""
    while True:
        low, high = uniform.value * factor, (uniform.value + 1) * factor
        if low >> uniform.bits == (high - 1) >> uniform.bits:
            return low >> uniform.bits
        uniform.reveal(noise)
