"""Budgets divided in proportions fixed before the run."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privypurse.core._checks import FloatArray, positive
from privypurse.core._errors import BudgetExhausted
from privypurse.core.queries import Query, Released
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.mechanisms._selection import ExponentialSelection
from privypurse.training.schedules._base import Budget
from privypurse.training.schedules.shapes import positive_vector


@dataclass(frozen=True)
class ConstantNoise:
    """A constant noise multiplier; the run stops when the budget does."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        positive(noise_multiplier=self.noise_multiplier)

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Gaussian:
        return Gaussian(self.noise_multiplier)


@dataclass(frozen=True)
class EvenSplit:
    """The run's budget divided evenly over its steps; the last step spends the rounding."""

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Gaussian | ExponentialSelection:
        last = len(past) + 1 >= budget.steps
        return budget.mechanism(query, 1.0 if last else 1 / budget.steps)


@dataclass(frozen=True)
class Weighted:
    """The run's budget divided in proportion to weights; the last step spends the rounding.

    A weight is a share of the budget, hence (for releases of all records) proportional to
    ``1/noise_std^2``. ``privypurse.training.schedules.shapes`` has the usual ones.

    Parameters
    ----------
    weights : sequence of float
        One positive number for each step. Shares below a ten-millionth of the budget are raised to
        that.

    Examples
    --------
    >>> Weighted((1, 3)).shares.tolist()
    [0.25, 0.75]
    """

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        weights = positive_vector(weights=self.weights)
        # Raise a share so small that it would count as nothing left.
        floored = np.maximum(weights, 1e-7 * weights.sum())
        object.__setattr__(self, "weights", tuple(floored.tolist()))

    @functools.cached_property
    def shares(self) -> FloatArray:
        """Share of the budget for each step."""
        weights = np.array(self.weights)
        return np.asarray(weights / weights.sum())

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Gaussian | ExponentialSelection:
        step = len(past)
        if step >= len(self.weights):
            raise BudgetExhausted(f"the schedule has {len(self.weights)} steps, and all are made.")
        last = step + 1 == len(self.weights)
        return budget.mechanism(query, 1.0 if last else float(self.shares[step]))
