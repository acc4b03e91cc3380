"""What the training loop asks of an optimizer."""

from collections.abc import Mapping
from typing import Protocol

from privypurse.core.checks import FloatArray
from privypurse.core.queries import Query
from privypurse.core.released import Released

# Everything an optimizer remembers between steps, as named arrays: what a checkpoint keeps.
State = Mapping[str, FloatArray]


class Optimizer(Protocol):
    """A pure state machine: asks for something, is told a noisy answer, and moves.

    Guarantees
    ----------
    Everything it sees is public, so whatever it does is free. It keeps nothing outside the state.
    """

    def init(self, dimension: int) -> State:
        """Return the state before the first step."""
        ...

    def ask(self, state: State) -> Query:
        """Say what to ask the oracle next."""
        ...

    def tell(self, state: State, released: Released) -> State:
        """Return the state after a noisy answer."""
        ...

    def point(self, state: State) -> FloatArray:
        """Return the model."""
        ...
