"""Descent along the running mean of gradients (the momentum of the dynamic-noise paper)."""

from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray, non_negative, positive
from privypurse.core.queries import GradientAt, Released
from privypurse.training.optimizers.base import State
from privypurse.training.optimizers.gradient_descent import check_momentum


@dataclass(frozen=True)
class SmoothedDescent:
    """Step against ``(1 - b)/(1 - b^t) sum_i b^(t-i) g_i``, the bias-corrected mean of gradients.

    Unlike heavy-ball momentum, this averages noise and does not lengthen steps.

    Parameters
    ----------
    step_size, records, clip_norm, l2
        As for `GradientDescent`.
    momentum : float, default 0.9
        The weight b of the past.
    """

    step_size: float
    records: float
    clip_norm: float | None = None
    momentum: float = 0.9
    l2: float = 0.0

    def __post_init__(self) -> None:
        positive(step_size=self.step_size)
        positive(records=self.records)
        non_negative(l2=self.l2)
        check_momentum(self.momentum)

    def init(self, dimension: int) -> State:
        """Start at zero."""
        return {"point": np.zeros(dimension), "mean_gradient": np.zeros(dimension), "made": np.zeros(1)}

    def ask(self, state: State) -> GradientAt:
        """Ask for the gradient at the point."""
        return GradientAt(point=state["point"], clip_norm=self.clip_norm)

    def tell(self, state: State, released: Released) -> State:
        """Move."""
        gradient = released.value / self.records + self.l2 * state["point"]
        made = state["made"] + 1
        mean = self.momentum * state["mean_gradient"] + (1 - self.momentum) * gradient
        corrected = mean / (1 - self.momentum ** float(made[0]))
        return {"point": state["point"] - self.step_size * corrected, "mean_gradient": mean, "made": made}

    def point(self, state: State) -> FloatArray:
        """Return the model."""
        return state["point"]
