"""Conversions between privacy notions: exact where possible, never optimistic.

Rounding goes to the safe side: epsilon and delta up, mu and rho down.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy import optimize, special

from privypurse.core._checks import non_negative, positive, small_probability
from privypurse.core._errors import InvalidArgument

__all__ = ["gdp_epsilon", "gdp_mu"]

Conversion = Literal["optimal", "classic"]

_SQRT2 = math.sqrt(2.0)
_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(24)
# Margins for floating-point error. The formulas are accurate to about 1e-14 relative (tests use
# 60-digit arithmetic); the margin for inverses must be the wider one.
_DELTA_MARGIN = 1e-12
_BUDGET_MARGIN = 1e-11


def gdp_delta(mu: float, epsilon: float) -> float:
    """Return the smallest delta for which mu-GDP implies (epsilon, delta)-DP.

    ``Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)``, rounded up by 1e-12 relative:
    Balle and Wang (2018); Dong, Roth and Su (2022). As printed the formula subtracts two nearly
    equal numbers. With ``a = epsilon/mu - mu/2`` and ``b = epsilon/mu + mu/2`` it equals
    ``exp(-a^2/2)/2 * (erfcx(a/sqrt2) - erfcx(b/sqrt2))``. For small mu the difference is the
    integral of the derivative of erfcx, whose terms are all positive, so nothing cancels.
    """
    mu, epsilon = non_negative(mu=mu), non_negative(epsilon=epsilon)
    return min(1.0, math.exp(_log_delta(mu, epsilon)))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon for which mu-GDP implies (epsilon, delta)-DP.

    Rounded up; zero where delta alone covers the loss.

    Examples
    --------
    >>> round(gdp_epsilon(0.01123, 1e-8), 4)
    0.05
    """
    mu, delta = non_negative(mu=mu), small_probability(delta=delta)
    if mu == 0:
        return 0.0
    log_delta = math.log(delta)

    def private_at(epsilon: float) -> bool:
        return _log_delta(mu, epsilon) <= log_delta

    if private_at(0.0):
        return 0.0
    # Twice the Chernoff bound mu^2/2 + mu sqrt(2 ln(1/delta)), so that rounding cannot matter.
    high = 2.0 * (mu * mu / 2 + mu * math.sqrt(-2 * log_delta)) + 1e-300
    return _smallest(private_at, 0.0, high)


def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP implies (epsilon, delta)-DP.

    Rounded down by 1e-11 relative, so that ``gdp_epsilon(gdp_mu(e, d), d) <= e`` always.

    Examples
    --------
    >>> round(gdp_mu(1.6, 1e-5), 5)
    0.41043
    """
    epsilon, delta = positive(epsilon=epsilon), small_probability(delta=delta)
    log_delta = math.log(delta)
    return _largest_budget(lambda mu: _log_delta(mu, epsilon) > log_delta, 1.0)


def zcdp_epsilon(rho: float, delta: float, conversion: Conversion = "optimal") -> float:
    """Return an epsilon for which rho-zCDP implies (epsilon, delta)-DP.

    "optimal": Canonne, Kamath and Steinke (2020, arXiv:2004.00010), minimised over the order; any
    order is valid, so an inexact minimum is still an upper bound. "classic":
    ``rho + 2 sqrt(rho ln(1/delta))``, Bun and Steinke (2016, arXiv:1605.02065).
    """
    rho, delta = non_negative(rho=rho), small_probability(delta=delta)
    if rho == 0:
        return 0.0
    log_inverse = -math.log(delta)
    classic = rho + 2 * math.sqrt(rho * log_inverse)
    if _conversion(conversion) == "classic":
        return classic * (1 + _DELTA_MARGIN)

    def at(log_excess: float) -> float:
        excess = math.exp(log_excess)  # of the order above 1
        return (1 + excess) * rho + (log_inverse - math.log1p(excess)) / excess - math.log1p(1 / excess)

    # The best order is near that of the classic bound, 1 + sqrt(ln(1/delta)/rho).
    guess = 0.5 * math.log(log_inverse / rho)
    best = optimize.minimize_scalar(at, bounds=(guess - 8, guess + 8), method="bounded", options={"xatol": 1e-10})
    # A negative value means that (0, delta)-DP holds.
    return max(0.0, min(float(best.fun), classic) * (1 + _DELTA_MARGIN))


def zcdp_rho(epsilon: float, delta: float, conversion: Conversion = "optimal") -> float:
    """Return the largest rho for which rho-zCDP implies (epsilon, delta)-DP; rounded down."""
    epsilon, delta = positive(epsilon=epsilon), small_probability(delta=delta)
    log_inverse = -math.log(delta)
    if _conversion(conversion) == "classic":
        # (sqrt(L + eps) - sqrt(L))^2 without the subtraction.
        root = epsilon / (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse))
        return root * root * (1 - _BUDGET_MARGIN)
    return _largest_budget(lambda rho: zcdp_epsilon(rho, delta) > epsilon, epsilon)


def bounded_range_mu(epsilon: float) -> float:
    """Return the mu for which every epsilon-bounded-range mechanism is mu-GDP; rounded up.

    ``2 Phi^-1(e^(epsilon/2) / (1 + e^(epsilon/2)))``, about 0.627 epsilon; proof in
    ``docs/proofs/selection.md``. An epsilon-DP mechanism has a range of 2 epsilon.
    """
    half = positive(epsilon=epsilon) / 2
    # Phi^-1(1/2 + tanh(half/2)/2), by a formula that keeps its digits on each side.
    if half < 2:
        quantile = _SQRT2 * float(special.erfinv(math.tanh(half / 2)))
    else:
        quantile = -float(special.ndtri_exp(special.log_expit(-half)))
    return max(2 * quantile * (1 + _DELTA_MARGIN), 5e-324)


def _conversion(conversion: str) -> str:
    if conversion not in ("optimal", "classic"):
        raise InvalidArgument(f"conversion must be 'optimal' or 'classic'; got {conversion!r}. Omit it.")
    return conversion


def _log_delta(mu: float, epsilon: float) -> float:
    """Return the natural logarithm of the exact delta plus the margin; -inf for zero."""
    if mu == 0:
        return -math.inf
    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if low > 1e100:
        return -math.inf  # delta is below exp(-1e199)
    if mu <= 1:
        middle, half = epsilon / mu / _SQRT2, mu / (2 * _SQRT2)
        integral = half * float(_GAUSS_WEIGHTS @ _minus_erfcx_slope(middle + half * _GAUSS_NODES))
        log_difference = math.log(integral) if integral > 0 else -math.inf
        log_value = -low * low / 2 - math.log(2) + log_difference
    elif low < 0:
        tail = 0.5 * float(special.erfcx(high / _SQRT2)) * math.exp(-low * low / 2)
        log_value = math.log(float(special.ndtr(-low)) - tail)
    else:
        difference = float(special.erfcx(low / _SQRT2) - special.erfcx(high / _SQRT2))
        log_value = -low * low / 2 - math.log(2) + (math.log(difference) if difference > 0 else -math.inf)
    # The rounding error of `low`, a difference of numbers as large as `high`, enters times `low`.
    return min(0.0, log_value + _DELTA_MARGIN + 4e-16 * abs(low) * high)


def _minus_erfcx_slope(x: np.ndarray) -> np.ndarray:
    """Evaluate ``2/sqrt(pi) - 2 x erfcx(x)``, minus the slope of erfcx, without cancellation."""
    direct = 2 / math.sqrt(math.pi) - 2 * x * special.erfcx(x)
    # Asymptotic series 1/(sqrt(pi) x^2) (1 - 3/(2x^2) + 15/(4x^4) - 105/(8x^6) + 945/(16x^8)).
    inverse = (1 / np.maximum(x, 20.0)) ** 2
    series = (
        inverse / math.sqrt(math.pi) * np.polynomial.polynomial.polyval(inverse, (1.0, -1.5, 3.75, -13.125, 59.0625))
    )
    return np.asarray(np.where(x > 20, series, direct))


def _largest_budget(is_too_much: Callable[[float], bool], high: float) -> float:
    """Return the largest number that is not too much, rounded down; search upwards from `high`."""
    while not is_too_much(high):
        high *= 2
    return _smallest(is_too_much, 0.0, high) * (1 - _BUDGET_MARGIN)


def _smallest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Bisect for the smallest float where a monotone condition holds; it must hold at `high`."""
    while True:
        # Geometric steps reach small answers quickly; arithmetic ones are for the end and for 0.
        middle = math.sqrt(low) * math.sqrt(high) if low > 0 and high / low > 2 else low + (high - low) / 2
        if low == 0 and high > 1e-300:
            middle = high * 1e-3
        if not low < middle < high:
            return high
        low, high = (low, middle) if holds(middle) else (middle, high)
