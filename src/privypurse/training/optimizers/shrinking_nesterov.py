"""Nesterov's descent for noisy gradients of deep models, with weight decay and tail averaging."""

from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray, positive, positive_integer, probability
from privypurse.core.errors import InvalidArgument
from privypurse.core.queries import GradientAt, Released
from privypurse.training.optimizers.base import State
from privypurse.training.optimizers.gradient_descent import check_momentum


@dataclass(frozen=True)
class ShrinkingNesterov:
    """Accelerated descent with weight decay, which removes the noise that makes weights grow.

    Parameters
    ----------
    step_size, records, clip_norm, momentum, l2
        As for `GradientDescent`.
    steps : int
        Number of steps. Each shrinks the weights by ``shrink/steps``.
    shrink : float, default 1.0
        Without gradients the weights would shrink by ``exp(-shrink)`` over the run.
    tail : float, default 0.1
        Return the mean of this last share of the points (post-processing).
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
        """Number of last points that are averaged."""
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
        """Return the mean of the last points, or the last point of a run that was cut short."""
        return state["mean"] if state["made"][0] > self.steps - self.averaged else state["point"]
