"""Cost of objective perturbation: tight for one release, and in Rényi divergences for filters.

The privacy loss of releasing the minimiser is at most ``c + m^2/2 + |X|`` with ``X ~ N(0, m^2)``,
``m = 1/noise_multiplier`` and ``c = ln(1 + curvature_ratio)``, whichever of two neighbouring tables
is the true one: Redberg, Koskela and Wang (2023, arXiv:2401.00583), with a sharper c, by the proof
in ``docs/proofs/objective_perturbation.md``. All functions here are expectations over that bound. A
replacement is a removal and an addition.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from privypurse.accounting import convert
from privypurse.core._checks import FloatArray, positive, small_probability
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import ObjectivePerturbationCharge

# Epsilon reserved for the output noise, in units of its mu: at 15 its delta is below 1e-48.
_SLIVER = 15.0
_MARGIN = 1e-9


def exact_delta(noise_multiplier: float, curvature_ratio: float, epsilon: float) -> float:
    """Return the delta at an epsilon of releasing the *exact* minimiser, under add/remove."""
    m, left = 1 / positive(noise_multiplier=noise_multiplier), epsilon - math.log1p(curvature_ratio)
    if left >= m * m / 2:
        # E[1 - exp(left - m^2/2 - |X|)]+ is twice a Gaussian's delta.
        return min(1.0, 2 * convert.gdp_delta(m, left))
    # The loss always exceeds epsilon: 1 - exp(left - m^2/2) E[exp(-|X|)].
    return float(min(1.0, -math.expm1(left + math.log(2) + special.log_ndtr(-m)) * (1 + _MARGIN)))


def epsilon_of(charge: ObjectivePerturbationCharge, delta: float, neighbouring: Neighbouring) -> float:
    """Return an epsilon for which one release is (epsilon, delta)-DP; infinity above 200."""
    delta = small_probability(delta=delta)
    if neighbouring is Neighbouring.ADD_REMOVE:
        return least(lambda epsilon: _one_step(charge, epsilon) <= delta, 200.0)
    # Two steps: (e, d) for one is (2e, (1 + exp(e)) d) for two.
    return 2 * least(lambda epsilon: (1 + math.exp(epsilon)) * _one_step(charge, epsilon) <= delta, 100.0)


def noise_multiplier_for(
    epsilon: float, delta: float, curvature_ratio: float, output_noise_multiplier: float, neighbouring: Neighbouring
) -> float:
    """Return the least noise multiplier, within 1e-9, that gives (epsilon, delta)-DP."""

    def enough(noise_multiplier: float) -> bool:
        charge = ObjectivePerturbationCharge(noise_multiplier, curvature_ratio, output_noise_multiplier)
        if neighbouring is Neighbouring.ADD_REMOVE:
            return _one_step(charge, epsilon) <= delta
        return (1 + math.exp(epsilon / 2)) * _one_step(charge, epsilon / 2) <= delta

    multiplier = least(enough, 1e12)
    if math.isinf(multiplier):
        raise InvalidArgument(f"{curvature_ratio=} alone costs more than {epsilon=}. Use a larger ridge.")
    return multiplier


def curve(charge: ObjectivePerturbationCharge, neighbouring: Neighbouring, orders: FloatArray) -> FloatArray:
    """Return the Rényi divergence at each order; replace-one by the weak triangle inequality."""
    if neighbouring is Neighbouring.ADD_REMOVE:
        return _divergence(charge, orders)
    first, second = _divergence(charge, 2 * orders), _divergence(charge, 2 * orders - 1)
    return np.asarray((orders - 0.5) / (orders - 1) * first + second)


def _divergence(charge: ObjectivePerturbationCharge, orders: FloatArray) -> FloatArray:
    """Return the add/remove divergence, with the noise on the output.

    ``c + a m^2/2 + ln(2 Phi((a - 1) m))/(a - 1)``, as ``E exp(k|X|) = 2 exp(k^2 m^2/2) Phi(k m)``.
    """
    m, spread = 1 / charge.noise_multiplier, 1 / charge.output_noise_multiplier
    sides = (math.log(2) + special.log_ndtr((orders - 1) * m)) / (orders - 1)
    total = math.log1p(charge.curvature_ratio) + orders / 2 * (m * m + spread * spread) + sides
    return np.asarray(total * (1 + _MARGIN))


def _one_step(charge: ObjectivePerturbationCharge, epsilon: float) -> float:
    """Return the add/remove delta at an epsilon, with the output noise composed in."""
    spread = 1 / charge.output_noise_multiplier
    sliver = min(_SLIVER * spread, epsilon / 2)
    exact = exact_delta(charge.noise_multiplier, charge.curvature_ratio, epsilon - sliver)
    return min(1.0, exact + convert.gdp_delta(spread, sliver))


def least(enough: Callable[[float], bool], most: float) -> float:
    """Return the least sufficient number, within 1e-9 above; infinity if `most` is not enough."""
    if not enough(most):
        return math.inf
    low, high = 1e-12, most
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
