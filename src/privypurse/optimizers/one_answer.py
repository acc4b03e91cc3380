"""Optimizers that need one answer: the answer is the model, or says which model it is."""

from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray
from privypurse.core.queries import ClassCounts, LossesAt, Objective, Query
from privypurse.core.released import Released
from privypurse.optimizers.base import State


@dataclass(frozen=True)
class TakeTheMinimiser:
    """Ask for a minimiser and return it."""

    def init(self, dimension: int) -> State:
        """Start at zero."""
        return {"point": np.zeros(dimension)}

    def ask(self, state: State) -> Query:
        """Ask for the minimiser."""
        return Objective()

    def tell(self, state: State, released: Released) -> State:
        """Take it."""
        return {"point": released.value}

    def point(self, state: State) -> FloatArray:
        """Return the model."""
        return state["point"]


@dataclass(frozen=True)
class ChooseModel:
    """Ask which of several public models has the least loss, and return that one."""

    models: tuple[tuple[float, ...], ...]
    clip_loss: float | None = None

    def init(self, dimension: int) -> State:
        """Start with the first."""
        return {"chosen": np.zeros(1)}

    def ask(self, state: State) -> Query:
        """Ask for the losses of all."""
        return LossesAt(points=np.array(self.models), clip_loss=self.clip_loss)

    def tell(self, state: State, released: Released) -> State:
        """Remember the one that was selected."""
        return {"chosen": np.array([float(released.value)])}

    def point(self, state: State) -> FloatArray:
        """Return the model."""
        return np.array(self.models[int(state["chosen"][0])])


@dataclass(frozen=True)
class VoteOfTheMajority:
    """Ask for the class counts, and always predict the largest class. For oracles with a constant column."""

    def init(self, dimension: int) -> State:
        """Start at zero."""
        return {"point": np.zeros(dimension)}

    def ask(self, state: State) -> Query:
        """Ask for the counts."""
        return ClassCounts()

    def tell(self, state: State, released: Released) -> State:
        """Put the logarithms on the constant, whose weights (one for each class beyond two) are the last of a point."""
        logarithms = np.log(np.maximum(released.value, 1.0))
        point = np.zeros_like(state["point"])
        if logarithms.size == 2:
            point[-1] = logarithms[1] - logarithms[0]
        else:
            point[-logarithms.size :] = logarithms
        return {"point": point}

    def point(self, state: State) -> FloatArray:
        """Return the model."""
        return state["point"]
