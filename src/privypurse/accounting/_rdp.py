"""Cost of a charge in Rényi differential privacy: one number per order, added over releases.

The Poisson-sampled Gaussian is computed here rather than by dp-accounting for two reasons. Its sum
is ``log(1 + tiny)`` with the 1 added first, which loses the whole cost at small sampling rates. And
it takes tens of milliseconds per noise level, of which an adaptive run has a new one at each step.
Tests compare the two. The conversion to (epsilon, delta) is dp-accounting's.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privypurse.accounting import _objective_perturbation as objective_perturbation
from privypurse.accounting import _repeat_and_select as repeat_and_select
from privypurse.accounting._totals import inflate
from privypurse.core._checks import FloatArray
from privypurse.core._errors import UnsupportedCharge
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import (
    BoundedRangeCharge,
    GaussianCharge,
    NonPrivateCharge,
    ObjectivePerturbationCharge,
    PureCharge,
    RepeatAndSelectCharge,
    SingleCharge,
)

# Integer orders only, where the sampled Gaussian has a finite sum. Dense where large budgets
# convert best, then geometric up to what epsilon = 0.05 at delta = 1e-8 needs.
ORDERS: tuple[int, ...] = (*range(2, 33), *(round(32 * 2 ** (k / 4)) for k in range(1, 25)))

# Generous bound on the relative error of the logarithmic sums below.
_MARGIN = 1e-10


@functools.lru_cache(maxsize=4096)
def curve(charge: SingleCharge, neighbouring: Neighbouring, orders: tuple[int, ...] = ORDERS) -> tuple[float, ...]:
    """Return the Rényi divergence bound of one release at each order, rounded up.

    Notes
    -----
    * Gaussian: ``order/(2 z^2)``.
    * Poisson-sampled Gaussian, add/remove: Mironov, Talwar and Zhang (2019, arXiv:1908.10530).
    * Poisson-sampled Gaussian, replace-one: a replacement is a removal and an addition, so the weak
      triangle inequality (Mironov 2017, arXiv:1702.07476, with Hölder exponent 2) bounds it by the
      add/remove divergences at twice the order; never more than without sampling.
    * Selections: ``min(order * rho, epsilon)``; sampled ones are ``ln(1 + q (e^epsilon - 1))``-DP
      under add/remove.
    * Objective perturbation and repeat-and-select: see their modules.
    """
    if isinstance(charge, NonPrivateCharge) or getattr(charge, "noise_multiplier", 1.0) == 0:
        return (math.inf,) * len(orders)
    at = np.array(orders, dtype=float)
    if isinstance(charge, GaussianCharge):
        costs = _gaussian(charge, neighbouring, at)
    elif isinstance(charge, ObjectivePerturbationCharge):
        costs = objective_perturbation.curve(charge, neighbouring, at)
    elif isinstance(charge, RepeatAndSelectCharge):
        costs = repeat_and_select.curve(charge, at)
    elif isinstance(charge, BoundedRangeCharge | PureCharge):
        costs = _selection(charge, neighbouring, at)
    else:
        raise UnsupportedCharge(f"the RDP filter has no price for {charge!r}. Use one of core.charges.")
    return tuple(inflate(float(cost)) for cost in costs)


def rdp_epsilon(orders: Sequence[int], costs: Sequence[float], delta: float) -> float:
    """Return the smallest epsilon over the orders of a curve (dp-accounting's conversion)."""
    from dp_accounting import rdp

    epsilon, _ = rdp.compute_epsilon(orders, costs, delta)
    return float(epsilon)


def largest_cost(order: int, epsilon: float, delta: float) -> float:
    """Return the largest Rényi divergence that implies (epsilon, delta)-DP; negative if none.

    Canonne, Kamath and Steinke (2020, arXiv:2004.00010), solved for the divergence.
    """
    return epsilon - math.log1p(-1 / order) + math.log(delta * order) / (order - 1)


def _selection(charge: BoundedRangeCharge | PureCharge, neighbouring: Neighbouring, orders: FloatArray) -> FloatArray:
    rho = charge.epsilon * charge.epsilon / (8 if isinstance(charge, BoundedRangeCharge) else 2)
    whole = np.minimum(orders * rho, charge.epsilon)
    # The amplification lemma covers add/remove only.
    if charge.sample_prob == 1 or charge.epsilon >= 500 or neighbouring is Neighbouring.REPLACE_ONE:
        return whole
    amplified = math.log1p(charge.sample_prob * math.expm1(charge.epsilon))
    return np.minimum(whole, np.minimum(orders * amplified**2 / 2, amplified))


def _gaussian(charge: GaussianCharge, neighbouring: Neighbouring, orders: FloatArray) -> FloatArray:
    mu = 1 / charge.noise_multiplier
    whole = orders / 2 * (mu * mu)
    if charge.sample_prob == 1:
        return whole
    if neighbouring is Neighbouring.ADD_REMOVE:
        return np.minimum(whole, _sampled_gaussian(charge.sample_prob, charge.noise_multiplier, orders))
    # The multiplier is relative to the replace-one sensitivity, twice the add/remove one.
    at_most = 2 * charge.noise_multiplier
    through_removal = (orders - 0.5) / (orders - 1) * _sampled_gaussian(charge.sample_prob, at_most, 2 * orders)
    through_removal += _sampled_gaussian(charge.sample_prob, at_most, 2 * orders - 1)
    return np.minimum(whole, through_removal)


def _sampled_gaussian(sample_prob: float, noise_multiplier: float, orders: FloatArray) -> FloatArray:
    r"""Return the add/remove divergence of the Poisson-sampled Gaussian at integer orders.

    ``exp((a-1) D) = sum_k C(a,k) (1-q)^(a-k) q^k exp((k^2-k)/(2z^2))``. The binomial weights sum to
    1 and the terms k = 0, 1 have exponent 0, so this is 1 plus the same sum with ``expm1`` from k =
    2 on. All terms are positive, and the 1 is never added.
    """
    order, count, log_binomial, starts = _binomials(tuple(int(a) for a in orders))
    mu = 1 / noise_multiplier
    exponent = (count * count - count) / 2 * (mu * mu)
    if not np.isfinite(exponent).all():
        return np.full(orders.shape, np.inf)
    with np.errstate(divide="ignore"):
        # log(expm1(x)) = x + log(1 - exp(-x)); -inf where x underflowed to zero, corrected below.
        terms = (
            log_binomial
            + count * math.log(sample_prob)
            + (order - count) * math.log1p(-sample_prob)
            + exponent
            + np.log(-np.expm1(-exponent))
        )
    peak = np.maximum.reduceat(terms, starts)
    # A charge is never free: an underflowed sum becomes the smallest positive number.
    peak = np.maximum(peak, -740.0)
    lengths = np.diff(np.append(starts, terms.size))
    log_sum = peak + np.log(np.maximum(np.add.reduceat(np.exp(terms - np.repeat(peak, lengths)), starts), 1e-300))
    value = np.where(
        log_sum < 30, np.log1p(np.exp(np.minimum(log_sum, 30))), log_sum + np.exp(-np.maximum(log_sum, 30))
    )
    return np.asarray(value / (orders - 1) * (1 + _MARGIN))


@functools.lru_cache(maxsize=16)
def _binomials(orders: tuple[int, ...]) -> tuple[NDArray[Any], ...]:
    """Return order, count and log-binomial for k = 2..order, concatenated, and the starts."""
    counts = [np.arange(2, order + 1, dtype=np.float64) for order in orders]
    count = np.concatenate(counts)
    order = np.repeat(np.array(orders, dtype=np.float64), [c.size for c in counts])
    log_binomial = special.gammaln(order + 1) - special.gammaln(count + 1) - special.gammaln(order - count + 1)
    starts = np.concatenate([[0], np.cumsum([c.size for c in counts])[:-1]])
    return order, count, log_binomial, starts.astype(np.intp)
