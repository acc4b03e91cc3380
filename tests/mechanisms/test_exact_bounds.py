"""Bounds on the exponential function in whole numbers, and uniform numbers known to some bits."""

from fractions import Fraction

import mpmath
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privypurse.core._randomness import NoiseSource
from privypurse.mechanisms._exact_gaussian import Digits, exp_bounds, floor_of_multiple, is_below_exp


def scaled_exp(exponent, bits):
    """``2^bits exp(-exponent)`` to 80 digits behind the point."""
    with mpmath.workdps(80 + bits):
        value = mpmath.mpf(2) ** bits * mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
        mantissa, power = value.man_exp
    return Fraction(int(mantissa)) * Fraction(2) ** int(power)


@given(st.fractions(min_value=0, max_value=300), st.integers(1, 260))
@example(Fraction(1, 2), 64)
@example(Fraction(1, 2**200), 64)
@example(Fraction(63), 64)
def test_the_bounds_enclose_and_are_close(exponent, bits):
    low, high = exp_bounds(exponent, bits)
    exact = scaled_exp(exponent, bits)
    assert low <= exact <= high
    assert high - low <= 2


def test_what_is_too_small_to_see_lies_between_zero_and_one():
    assert exp_bounds(Fraction(2**61, 3), 64) == (0, 1)


def test_more_bits_refine_what_is_known():
    digits = Digits(5, 3)
    before = digits.interval()
    digits.reveal(NoiseSource(seed=1))
    after = digits.interval()
    assert digits.bits == 67
    assert digits.value >> 64 == 5
    assert before[0] <= after[0] < after[1] <= before[1]


@pytest.mark.parametrize(
    "exponent", [Fraction(1), Fraction(1, 3), Fraction(1, 2**40), Fraction(30), Fraction(0)], ids=str
)
def test_a_coin_changes_side_exactly_at_the_exponential(exponent, script):
    edge = scaled_exp(exponent, 64) // 1
    assert is_below_exp(Digits(edge - 1, 64), exponent, script())
    if exponent == 0:
        return
    assert not is_below_exp(Digits(edge + 1, 64), exponent, script())
    # The same first word, decided by what follows.
    behind = scaled_exp(exponent, 128) // 1 - (edge << 64)
    for word, heads in ((0, True), (behind - 1, True), (behind + 1, False), (2**64 - 1, False)):
        noise = script(word)
        assert is_below_exp(Digits(edge, 64), exponent, noise) is heads
        assert noise.given == 1


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**60), st.integers(0, 2**64 - 1))
def test_whole_parts_are_those_of_the_number_with_all_its_bits(script, first, factor, second):
    noise = script(second)
    whole = floor_of_multiple(Digits(first, 64), factor, noise)
    known = Fraction((first << 64) + (second if noise.given else 0), 2**128)
    assert whole == factor * known // 1
    if not noise.given:
        assert whole == factor * Fraction(first + 1, 2**64) // 1 or factor * (first + 1) % 2**64 == 0
