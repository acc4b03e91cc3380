"""Format numbers for people: every text of the library takes its digits and rounding from here."""

import decimal
import math

# Limits of the badge, and of what the terminal says of a budget (docs/epsilon.md).
WEAK_EPSILON = 8.0  # above it the factor e^epsilon exceeds 2,980
NO_PROTECTION_EPSILON = 50.0  # above it Gaussian noise lets 999 of 1,000 guesses be right, at delta 1e-6


def rounded_up(value: float, digits: int = 4) -> str:
    """Format a number with so many digits, rounded up: for what is spent."""
    return _rounded(value, digits, decimal.ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """Format a number with so many digits, rounded down: for what is left."""
    return _rounded(value, digits, decimal.ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if math.isinf(value):
        return "infinity"
    rounded = decimal.Context(prec=digits, rounding=rounding).create_decimal(repr(float(value)))
    return f"{float(rounded):.{digits}g}"


def short(value: float, digits: int = 4) -> str:
    """Format a number with few digits, for a terminal."""
    return "infinite" if math.isinf(value) else f"{value:.{digits}g}"


def grouped(value: float, digits: int = 4) -> str:
    """Format a number with few digits and thousands separators, for a page.

    Examples
    --------
    >>> grouped(32540.4), grouped(0.000012345), grouped(0.5), grouped(1e-12)
    ('32,540', '0.00001234', '0.5', '1e-12')
    """
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinity" if value > 0 else "minus infinity"
    if 1000 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    written = f"{value:.{digits}g}"
    return f"{decimal.Decimal(written):f}" if 1e-9 <= abs(value) < 1 else written


def exact(value: float) -> str:
    """Format a number so that it is read back unchanged, whole numbers without a point."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def percent(share: float, places: int = 1, *, space: str = " ") -> str:
    """Format a share in percent."""
    return f"{100 * share:.{places}f}{space}%"


def about(count: float) -> str:
    """Format a noisy count with three significant digits."""
    return f"{round(count, -max(0, len(str(int(count))) - 3)):,.0f}"


def counted(number: int, what: str) -> str:
    """Format a count with its noun: 1 line, 2 lines."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def weakness(epsilon: float) -> str:
    """Say that a budget protects little or nothing; return an empty text for one that protects.

    >>> weakness(8.0), weakness(12.0), weakness(1e6)
    ('', 'epsilon 12 protects little', 'epsilon 1,000,000 protects nothing')
    """
    if not epsilon > WEAK_EPSILON:  # also for NaN, which is refused elsewhere
        return ""
    return f"epsilon {grouped(epsilon)} protects {'little' if epsilon <= NO_PROTECTION_EPSILON else 'nothing'}"
