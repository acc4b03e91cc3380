"""Numbers for people: what is spent is rounded up, what is left is rounded down."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privypurse.core import _formats as formats


@given(st.floats(1e-12, 1e12), st.integers(2, 9))
def test_spending_is_rounded_up_and_what_is_left_down(value, digits):
    up, down = float(formats.rounded_up(value, digits)), float(formats.rounded_down(value, digits))
    assert down <= value <= up
    assert up - down <= 10.0 ** (1 - digits) * value * (1 + 1e-6)  # the difference of two floats has fewer digits


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (formats.rounded_up(math.inf), "infinity"),
        (formats.rounded_up(1.00001), "1.001"),
        (formats.rounded_down(1.99999), "1.999"),
        (formats.short(math.inf), "infinite"),
        (formats.short(0.123456), "0.1235"),
        (formats.grouped(math.nan), "not a number"),
        (formats.grouped(math.inf), "infinity"),
        (formats.grouped(-math.inf), "minus infinity"),
        (formats.grouped(1234567.8), "1,234,568"),
        (formats.grouped(0.0001), "0.0001"),
        (formats.grouped(12.5), "12.5"),
        (formats.exact(3.0), "3"),
        (formats.exact(0.1), "0.1"),
        (formats.percent(0.12345), "12.3 %"),
        (formats.percent(0.5, 0, space=""), "50%"),
        (formats.about(32561.0), "32,600"),
        (formats.about(45.0), "45"),
    ],
)
def test_what_people_read(written, expected):
    assert written == expected
