"""The mean of the points where gradients were taken."""

from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray, non_negative
from privypurse.core.queries import GradientAt, Query
from privypurse.core.released import Released
from privypurse.optimizers.base import Optimizer, State


@dataclass(frozen=True)
class Averaged:
    """Run another optimizer and return the mean of the points at which it asked for gradients. Post-processing: free.

    It is the points where gradients were *taken* that a convergence proof averages: for T gradients, points 0 to T - 1.

    Parameters
    ----------
    optimizer : Optimizer
        What moves.
    skip : int, default 0
        Leave out this many first points: the tail is closer to the optimum.
    """

    optimizer: Optimizer
    skip: int = 0

    def __post_init__(self) -> None:
        non_negative(skip=self.skip)

    def init(self, dimension: int) -> State:
        """Start with nothing averaged."""
        return {**self.optimizer.init(dimension), "mean": np.zeros(dimension), "seen": np.zeros(1)}

    def ask(self, state: State) -> Query:
        """Ask what the other asks."""
        return self.optimizer.ask(state)

    def tell(self, state: State, released: Released) -> State:
        """Pass the answer on, and count the point in."""
        query, moved = self.optimizer.ask(state), dict(self.optimizer.tell(state, released))
        if isinstance(query, GradientAt):
            seen = state["seen"] + 1
            kept = max(float(seen[0]) - self.skip, 0.0)
            mean = state["mean"] + (query.point - state["mean"]) / kept if kept > 0 else state["mean"]
            return {**moved, "mean": mean, "seen": seen}
        return {**moved, "mean": state["mean"], "seen": state["seen"]}

    def point(self, state: State) -> FloatArray:
        """Return the mean, or where the other stands if there is none yet."""
        return state["mean"] if state["seen"][0] > self.skip else self.optimizer.point(state)
