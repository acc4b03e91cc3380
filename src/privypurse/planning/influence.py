"""How much the noise of each step matters for the final loss, and the schedules that follow from it.

For a loss with curvature at most M that satisfies the Polyak-Lojasiewicz inequality with constant m, gradient descent with
steps of 1/M contracts the excess loss by ``gamma = 1 - m/M`` a step, so noise of step t arrives at the end with weight
``gamma^(T-t)``. All is relative to the excess loss at the start, B, with ``alpha = d sensitivity^2 / (2 mu^2 M n^2 B)``: the
bound is ``gamma^T + alpha sum_t gamma^(T-t) / share_t``, where ``share_t`` is the share of the budget mu^2 that step t gets.
"""

import math

import numpy as np

from privypurse.core.checks import FloatArray
from privypurse.planning.facts import Facts


def alpha(facts: Facts) -> float:
    """Return the noise of a step that gets the whole budget, relative to the excess loss at the start."""
    noise = facts.dimension * (facts.sensitivity / (facts.records * facts.mu)) ** 2
    return noise / (2 * facts.smoothness * facts.bounds.initial_gap)


def contraction(condition_number: float) -> float:
    """Return ``gamma = 1 - 1/kappa``."""
    return 1 - 1 / condition_number


def geometric_influences(steps: int, gamma: float) -> FloatArray:
    """Return ``gamma^(T-t)`` for t = 1..T."""
    return np.asarray(gamma ** np.arange(steps - 1, -1, -1.0))


def momentum_influences(steps: int, gamma: float, momentum: float) -> FloatArray:
    """Return the influences in the bound for the bias-corrected mean of gradients (`SmoothedDescent`).

    The gradient of step i enters every later step t with weight ``b^(t-i) (1-b)/(1-b^t)``:
    ``q_i = sum_{t >= i} gamma^(T-t) ((1-b)/(1-b^t))^2 b^(2(t-i))``, summed exactly. The bound adds up the squares of what one
    gradient's noise does in each step; on a quadratic, where these effects can be added before squaring, `quadratic_influences`
    is sharper.
    """
    times = np.arange(1, steps + 1)
    weight = gamma ** (steps - times) * ((1 - momentum) / (1 - momentum ** times.astype(float))) ** 2
    lag = times[None, :] - times[:, None]
    decay = np.where(lag >= 0, momentum ** (2.0 * np.maximum(lag, 0)), 0.0)
    return np.asarray(decay @ weight)


def quadratic_influences(curvatures: FloatArray, step_size: float, steps: int, momentum: float = 0.0) -> FloatArray:
    """Return the exact influences on a quadratic loss with these curvatures.

    Without momentum ``eta^2/2 sum_j l_j (1 - eta l_j)^(2(T-t))``; with it, the response of `SmoothedDescent` to an impulse in
    each step's gradient. For curvatures from a public proxy, such as the covariance of public data of the same kind, or from
    paid-for statistics.
    """
    bends = np.asarray(curvatures, dtype=np.float64)[:, None]
    moved, mean = np.zeros((bends.size, steps)), np.zeros((bends.size, steps))  # one column for each step's impulse
    for step in range(steps):
        gradient = bends * moved
        gradient[:, step] += 1.0
        mean = momentum * mean + (1 - momentum) * gradient
        moved = moved - step_size * mean / (1 - momentum ** (step + 1))
    return np.asarray((bends / 2 * moved**2).sum(axis=0))


def loss_bound(shares: FloatArray, gamma: float, alpha: float) -> float:
    """Return the bound on the final excess loss, relative to the one at the start, for any shares of the budget."""
    steps = len(shares)
    return float(gamma**steps + alpha * np.sum(geometric_influences(steps, gamma) / np.asarray(shares)))


def uniform_bound(steps: int, gamma: float, alpha: float) -> float:
    """Return `loss_bound` for equal shares: ``gamma^T + alpha T (1 - gamma^T)/(1 - gamma)``."""
    return gamma**steps + alpha * steps * (1 - gamma**steps) / (1 - gamma)


def dynamic_bound(steps: int, gamma: float, alpha: float) -> float:
    """Return `loss_bound` for the best shares: ``gamma^T + alpha ((1 - gamma^(T/2))/(1 - sqrt(gamma)))^2``."""
    return float(gamma**steps + alpha * ((1 - gamma ** (steps / 2)) / (1 - math.sqrt(gamma))) ** 2)


def best_uniform_steps(gamma: float, alpha: float, most: int) -> int:
    """Return the number of steps, at most `most`, with the least `uniform_bound`."""
    return min(range(1, most + 1), key=lambda steps: uniform_bound(steps, gamma, alpha))


def best_dynamic_steps(gamma: float, alpha: float, most: int) -> int:
    """Return the number of steps, at most `most`, with the least `dynamic_bound`.

    In ``x = gamma^(T/2)`` the bound is ``x^2 + c (1 - x)^2`` with ``c = alpha/(1 - sqrt(gamma))^2``, least at ``x = c/(1 + c)``:
    ``T = 2 ln(1 + 1/c) / ln(1/gamma)``, of which the two whole neighbours are compared.
    """
    if gamma <= 0:  # one step is exact: more only add noise
        return 1
    c = alpha / (1 - math.sqrt(gamma)) ** 2
    exact = 2 * math.log1p(1 / c) / math.log(1 / gamma)
    below = min(max(math.floor(exact), 1), most)
    return min((below, min(below + 1, most)), key=lambda steps: dynamic_bound(steps, gamma, alpha))


def least_dynamic_bound(gamma: float, alpha: float) -> float:
    """Return the least of `dynamic_bound` over all real numbers of steps: ``c/(1 + c)``."""
    c = alpha / (1 - math.sqrt(gamma)) ** 2
    return c / (1 + c)
