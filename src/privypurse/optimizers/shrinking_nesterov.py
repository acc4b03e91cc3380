"""Nesterov's descent for noisy gradients of deep models: weights shrink a little at each step, the last points are averaged."""

from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray, positive, positive_integer, probability
from privypurse.core.errors import InvalidArgument
from privypurse.core.queries import GradientAt
from privypurse.core.released import Released
from privypurse.optimizers.base import State
from privypurse.optimizers.gradient_descent import check_momentum


@dataclass(frozen=True)
class ShrinkingNesterov:
    """Accelerated descent that forgets: noise makes the weights of a deep model grow, and shrinking them takes it out again.

    Parameters
    ----------
    step_size : float
        Length of a step per unit of mean gradient.
    records : float
        The public number of records that the noisy sum is divided by.
    steps : int
        How many steps there will be. Each shrinks the weights by ``shrink/steps``.
    clip_norm : float
        Largest norm of one record's gradient.
    momentum : float, default 0.9
        Share of the last step that is taken again.
    shrink : float, default 1.0
        The weights would shrink by ``exp(-shrink)`` over the run if there were no gradients.
    tail : float, default 0.1
        Return the mean of this last share of the points. Post-processing: free.
    l2 : float, default 0.0
        Ridge penalty on the mean loss.
    """

    step_size: float
    records: float
    steps: int
    clip_norm: float
    momentum: float = 0.9
    shrink: float = 1.0
    tail: float = 0.1
    l2: float = 0.0

    def __post_init__(self) -> None:
        positive(step_size=self.step_size)
        positive(records=self.records)
        positive_integer(steps=self.steps)
        positive(clip_norm=self.clip_norm)
        check_momentum(self.momentum)
        probability(tail=self.tail)
        if not 0 <= self.shrink <= self.steps:
            raise InvalidArgument(f"shrink must be from 0 to the number of steps; got {self.shrink!r}. Pass 1.0.")

    @property
    def averaged(self) -> int:
        """How many last points are averaged."""
        return max(1, round(self.tail * self.steps))

    def init(self, dimension: int) -> State:
        """Start at zero, at rest."""
        zeros = np.zeros(dimension)
        return {"point": zeros, "velocity": zeros, "mean": zeros, "made": np.zeros(1)}

    def ask(self, state: State) -> GradientAt:
        """Ask for the gradient at the point."""
        return GradientAt(point=state["point"], clip_norm=self.clip_norm)

    def tell(self, state: State, released: Released) -> State:
        """Move."""
        gradient = released.value / self.records + self.l2 * state["point"]
        velocity = self.momentum * state["velocity"] + gradient
        point = (1 - self.shrink / self.steps) * state["point"] - self.step_size * (gradient + self.momentum * velocity)
        made = state["made"] + 1
        counted = made[0] - (self.steps - self.averaged)
        mean = state["mean"] + (point - state["mean"]) / counted if counted > 0 else state["mean"]
        return {"point": point, "velocity": velocity, "mean": mean, "made": made}

    def point(self, state: State) -> FloatArray:
        """Return the mean of the last points; where a run was cut short, the last point."""
        return state["mean"] if state["made"][0] > self.steps - self.averaged else state["point"]
