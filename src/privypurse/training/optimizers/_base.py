"""Interface of optimizers, and what those that keep a point share."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from privypurse.core._checks import FloatArray
from privypurse.core.queries import Query, Released

# Everything an optimizer remembers between steps, as named arrays; saved in checkpoints.
State = Mapping[str, FloatArray]


class Optimizer(Protocol):
    """A pure state machine: it asks a query, is told a noisy answer, and moves.

    Guarantees
    ----------
    Everything it sees is public, so whatever it does is post-processing. All state is in `State`.
    """

    def init(self, dimension: int) -> State:
        """Return the state before the first step."""

    def ask(self, state: State) -> Query:
        """Return the next query for the oracle."""

    def tell(self, state: State, released: Released) -> State:
        """Return the state after a noisy answer."""

    def point(self, state: State) -> FloatArray:
        """Return the model."""


class KeepsPoint:
    """An optimizer whose model is the entry "point" of its state, at first zero."""

    def init(self, dimension: int) -> State:
        """Start at zero."""
        return {"point": np.zeros(dimension)}

    def point(self, state: State) -> FloatArray:
        """Return the model."""
        return state["point"]
