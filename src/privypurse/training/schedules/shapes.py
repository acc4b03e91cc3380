"""Shapes of a budget over time, as weights for `Weighted`: public, fixed before the run.

A weight is a share of the budget, for releases of all records proportional to ``1/noise_std^2``.
Only ratios count.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from privypurse.core._checks import FloatArray, finite_vector, non_negative, positive, positive_integer
from privypurse.core._errors import InvalidArgument

__all__ = ["exponential", "influence", "noise", "sigmoid", "step_decay", "uniform"]

Weights = tuple[float, ...]


def uniform(steps: int) -> Weights:
    """Return the same share at each step."""
    return (1.0,) * positive_integer(steps=steps)


def exponential(steps: int, ratio: float) -> Weights:
    """Return shares that grow by a constant factor, up to `ratio` times the first.

    The noise decays as ``noise_std_t = noise_std_0 exp(-k t)`` with
    ``exp(2 k (steps - 1)) = ratio``.

    Examples
    --------
    >>> exponential(3, 4.0)
    (1.0, 2.0, 4.0)
    """
    steps, ratio = positive_integer(steps=steps), positive(ratio=ratio)
    return _exponentials(math.log(ratio) * np.arange(steps) / max(1, steps - 1))


def step_decay(steps: int, ratio: float, every: int) -> Weights:
    """Return shares that are multiplied by `ratio` every so many steps.

    Examples
    --------
    >>> step_decay(4, 2.0, every=2)
    (1.0, 1.0, 2.0, 2.0)
    """
    steps, ratio, every = positive_integer(steps=steps), positive(ratio=ratio), positive_integer(every=every)
    return _exponentials(math.log(ratio) * (np.arange(steps) // every))


def sigmoid(steps: int, steepness: float, ratio: float) -> Weights:
    """Return shares that rise along a sigmoid from 1 to `ratio`, centred in the middle of the run.

    ``s_t = 1 + (ratio - 1) S(steepness (t - (T + 1)/2))`` for t = 1..T. Because
    ``S(x) + S(-x) = 1``, opposite steps add up to ``1 + ratio`` for any steepness, and all of them
    to ``T (1 + ratio)/2``.

    Examples
    --------
    >>> round(sum(sigmoid(50, 0.2, 5.0)), 9)
    150.0
    """
    steps, steepness = positive_integer(steps=steps), non_negative(steepness=steepness)
    if positive(ratio=ratio) < 1:
        raise InvalidArgument(f"ratio must be 1 or more; got {ratio!r}. Pass for example ratio=5.0.")
    times = np.arange(1, steps + 1)
    return tuple((1 + (ratio - 1) * special.expit(steepness * (times - (steps + 1) / 2))).tolist())


def noise(noise_std: Sequence[float]) -> Weights:
    """Return the shares of steps with given noise, up to a common factor.

    Examples
    --------
    >>> noise([4.0, 2.0])
    (0.25, 1.0)
    """
    levels = positive_vector(noise_std=noise_std)
    return tuple(((levels.min() / levels) ** 2).tolist())


def influence(influences: Sequence[float]) -> Weights:
    """Return the shares that minimise ``sum_t influence_t noise_std_t^2`` for a given budget.

    The budget is ``sum_t 1/noise_std_t^2``. By Cauchy-Schwarz the minimum,
    ``(sum sqrt(influence))^2 / budget``, has shares proportional to the square root of the
    influence.

    Examples
    --------
    >>> influence([1.0, 4.0])
    (1.0, 2.0)
    """
    return tuple(np.sqrt(positive_vector(influences=influences)).tolist())


def positive_vector(**named: Any) -> FloatArray:
    """Check for one or more positive finite numbers. Return them as an array."""
    ((name, given),) = named.items()
    values = finite_vector(**{name: np.asarray(given)})
    if values.size == 0 or not (values > 0).all():
        wrong = values[values <= 0].tolist()
        raise InvalidArgument(f"{name} must be positive numbers; got {wrong[:3] or 'none'}. Pass for example (1, 2).")
    return values


def _exponentials(exponents: "np.ndarray[Any, Any]") -> Weights:
    if float(np.ptp(exponents)) > 600:
        raise InvalidArgument("the weights overflow: the shape is too steep. Pass a ratio nearer to 1, or fewer steps.")
    return tuple(np.exp(exponents).tolist())
