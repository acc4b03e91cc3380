"""Noise that minimises privacy cost per unit of progress (PUR), from public constants: three kinds of loss.

Noise is on the *mean* gradient; ``sensitivity`` is that of the mean (C/n or 2C/n). Steps are numbered from 1. The budget rho is
``mu^2/2``, and a step with noise s costs ``sensitivity^2 / (2 s^2)``. The step size is ``1/(2M)`` throughout.

Where the paper's printed formulas differ (``docs/papers.md``): the number of steps for strongly convex losses printed there
spends about kappa times the budget; ``sum t^2 <= T^3`` is loose by a factor of three; sqrt(M B), not M sqrt(B), has the units
of a gradient.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from privypurse.core.checks import FloatArray


def nonconvex_noise(steps: int, *, smoothness: float, gap: float, dimension: int) -> FloatArray:
    """Return ``4 sqrt(M B / d) / s`` for s = 1..steps."""
    return np.asarray(4 * math.sqrt(smoothness * gap / dimension) / np.arange(1, steps + 1))


def convex_noise(steps: int, *, smoothness: float, radius: float, dimension: int) -> FloatArray:
    """Return ``4 M R / (sqrt(d) s)`` for s = 1..steps."""
    return np.asarray(4 * smoothness * radius / math.sqrt(dimension) / np.arange(1, steps + 1))


def strongly_convex_noise(steps: int, *, smoothness: float, convexity: float, gap: float, dimension: int) -> FloatArray:
    """Return ``sqrt(2 m B r^-(s-1) / d)`` for s = 1..steps, with ``r = 2k/(2k - 1)`` and k = M/m."""
    rate = 1 - convexity / (2 * smoothness)
    return np.asarray(np.sqrt(2 * convexity * gap / dimension * rate ** np.arange(steps)))


def capped(noise: FloatArray, *, gradient: float, dimension: int) -> FloatArray:
    """Limit noise to the length of the longest mean gradient: more than that wastes a step."""
    return np.minimum(noise, gradient / math.sqrt(dimension))


def nonconvex_cost(steps: int, *, sensitivity: float, smoothness: float, gap: float, dimension: int) -> float:
    """Return the exact rho of `steps` steps of `nonconvex_noise`."""
    return sensitivity**2 * dimension / (32 * smoothness * gap) * sum_of_squares(steps)


def convex_cost(steps: int, *, sensitivity: float, smoothness: float, radius: float, dimension: int) -> float:
    """Return the exact rho of `steps` steps of `convex_noise`."""
    return sensitivity**2 * dimension / (32 * (smoothness * radius) ** 2) * sum_of_squares(steps)


def strongly_convex_cost(
    steps: int, *, sensitivity: float, smoothness: float, convexity: float, gap: float, dimension: int
) -> float:
    """Return the exact rho of `steps` steps of `strongly_convex_noise`: a geometric sum."""
    kappa = smoothness / convexity
    unit = sensitivity**2 * dimension / (4 * convexity * gap) * (2 * kappa - 1)
    return unit * math.expm1(min(steps * math.log(2 * kappa / (2 * kappa - 1)), 700.0))


def sum_of_squares(steps: int) -> float:
    """Return 1 + 4 + ... + steps^2."""
    return steps * (steps + 1) * (2 * steps + 1) / 6


def steps_within(rho: float, cost: Callable[[int], float], most: int) -> int:
    """Return the largest number of steps, at most `most`, whose cost is within a budget; 0 if one step is too many."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= rho else (low, middle)
    return low


def cost_of(noise: Sequence[float] | FloatArray, sensitivity: float) -> FloatArray:
    """Return the rho of the first 1, 2, ... steps with the given noise."""
    return np.cumsum(sensitivity**2 / (2 * np.asarray(noise) ** 2))


def nonconvex_bound(steps: int, *, smoothness: float, gap: float) -> float:
    """Return the bound on the mean squared gradient norm: ``8 M B (1 + pi^2/3) / (3 T)``."""
    return 8 * smoothness * gap * (1 + math.pi**2 / 3) / (3 * steps)


def convex_bound(steps: int, *, smoothness: float, radius: float) -> float:
    """Return the bound on the excess loss, while the iterates stay within R of the optimum: ``16 M R^2 / (3 T)``."""
    return 16 * smoothness * radius**2 / (3 * steps)


def strongly_convex_bound(steps: int, *, smoothness: float, convexity: float, gap: float) -> float:
    """Return the bound on the excess loss: ``B (1 - m/(2M))^T``."""
    return gap * (1 - convexity / (2 * smoothness)) ** steps
