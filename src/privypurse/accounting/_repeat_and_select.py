"""Rényi cost of releasing the best of a random number of private trials.

Papernot and Steinke (ICLR 2022, arXiv:2110.03620), Theorem 2: if each trial has Rényi divergences
e(a) at orders a, the number of trials is truncated negative binomial with parameters ``shape`` and
``g``, and only the best trial is released, then at order a > 1 the whole has at most

    e(a) + (1 + shape) ((1 - 1/b) e(b) + ln(1/g)/b) + ln(mean)/(a - 1)        for any b >= 1.

Here a trial is Gaussian-DP, so ``e(a) = a rho`` with ``rho = 1/(2 noise_multiplier^2)``, and the
best b is ``sqrt(ln(1/g)/rho)``, or 1. The proof note is ``docs/proofs/repeat_and_select.md``; tests
compare with dp-accounting's ``RepeatAndSelectDpEvent``, which tries its own list of orders for b.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privypurse.accounting._objective_perturbation import least
from privypurse.accounting._totals import inflate
from privypurse.core._checks import FloatArray
from privypurse.core._trial_counts import log_inverse_g
from privypurse.core.charges import RepeatAndSelectCharge

_MARGIN = 1e-12
_MOST_NOISE = 1e9

# Orders for a search. The term ln(mean)/(order - 1) needs larger ones than a plain Gaussian.
SEARCH_ORDERS: tuple[int, ...] = (*range(2, 257), *(round(256 * 2 ** (k / 16)) for k in range(1, 129)))


def curve(charge: RepeatAndSelectCharge, orders: FloatArray) -> FloatArray:
    """Return the Rényi divergence at each order; the same under either relation."""
    mu = 1 / charge.noise_multiplier
    rho = mu * mu / 2
    log_inverse = log_inverse_g(charge.mean, charge.shape)
    # (b - 1) rho + log_inverse/b at its best b; at b = 1 where that would be below 1.
    choice = 2 * np.sqrt(log_inverse * rho) - rho if log_inverse > rho else log_inverse
    return np.asarray((orders * rho + (1 + charge.shape) * choice + np.log(charge.mean) / (orders - 1)) * (1 + _MARGIN))


def noise_multiplier_for(budget: Sequence[float], orders: Sequence[int], mean: float, shape: float) -> float:
    """Return the least noise multiplier of a trial, within 1e-9, with which a search fits.

    The budget is a divergence at each order. Infinity where the choice among the trials alone costs more.
    """
    at, limits = np.array(orders, dtype=float), np.array(budget, dtype=float)
    return least(lambda noise_multiplier: bool(_fits(noise_multiplier, mean, shape, at, limits).all()), _MOST_NOISE)


def best_order(budget: Sequence[float], orders: Sequence[int], mean: float, shape: float) -> int:
    """Return the order at which a search needs the least noise; the last one where none fits."""
    at, limits = np.array(orders, dtype=float), np.array(budget, dtype=float)
    noise_multiplier = least(lambda z: bool(_fits(z, mean, shape, at, limits).any()), _MOST_NOISE)
    if np.isinf(noise_multiplier):
        return orders[-1]
    return orders[int(np.argmax(_fits(noise_multiplier, mean, shape, at, limits)))]


def _fits(
    noise_multiplier: float, mean: float, shape: float, orders: FloatArray, limits: FloatArray
) -> NDArray[np.bool_]:
    costs = curve(RepeatAndSelectCharge(noise_multiplier, mean, shape), orders)
    # Rounded as the filter does.
    return np.array([inflate(float(cost)) <= limit for cost, limit in zip(costs, limits, strict=True)])
