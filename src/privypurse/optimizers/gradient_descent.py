"""Gradient descent with momentum."""

from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray, non_negative, positive
from privypurse.core.errors import InvalidArgument
from privypurse.core.queries import GradientAt
from privypurse.optimizers.base import State


@dataclass(frozen=True)
class GradientDescent:
    """Step against the noisy mean gradient.

    Parameters
    ----------
    step_size : float
        Length of a step per unit of mean gradient.
    records : float
        The public number of records that the noisy sum is divided by. Under add/remove the true number is private: pass a
        nominal one, or a noisy count. With Poisson sampling, the expected number of records in a sample.
    clip_norm : float or None, default None
        Largest norm of one record's gradient; None where the loss bounds it.
    momentum : float, default 0.0
        Share of the last step that is taken again, below 1.
    """

    step_size: float
    records: float
    clip_norm: float | None = None
    momentum: float = 0.0

    def __post_init__(self) -> None:
        positive(step_size=self.step_size)
        positive(records=self.records)
        if self.clip_norm is not None:
            positive(clip_norm=self.clip_norm)
        if non_negative(momentum=self.momentum) >= 1:
            raise InvalidArgument(f"momentum must be below 1; got {self.momentum!r}. Pass for example momentum=0.9.")

    def init(self, dimension: int) -> State:
        """Start at zero, at rest."""
        return {"point": np.zeros(dimension), "velocity": np.zeros(dimension)}

    def ask(self, state: State) -> GradientAt:
        """Ask for the gradient at the point."""
        return GradientAt(point=state["point"], clip_norm=self.clip_norm)

    def tell(self, state: State, answer: FloatArray) -> State:
        """Move."""
        velocity = self.momentum * state["velocity"] - self.step_size / self.records * answer
        return {"point": state["point"] + velocity, "velocity": velocity}

    def point(self, state: State) -> FloatArray:
        """Return the model."""
        return state["point"]
