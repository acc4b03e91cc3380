"""Beginning where an earlier run ended."""

import hashlib
from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray, finite_vector
from privypurse.core.errors import InvalidArgument
from privypurse.core.queries import Query
from privypurse.core.released import Released
from privypurse.optimizers.base import Optimizer, State


@dataclass(frozen=True, eq=False, repr=False)
class StartingAt:
    """Run another optimizer from a public point in place of zero.

    Parameters
    ----------
    optimizer : Optimizer
        What moves; one that keeps its place under the name "point", as the descents do.
    start : array_like
        Where to begin. Public: an earlier model that was paid for, or one that has not seen the data.
    """

    optimizer: Optimizer
    start: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", finite_vector(start=np.asarray(self.start)))

    def __repr__(self) -> str:
        # A deep model is too long to be written out, and a checkpoint only asks whether it is the same.
        return f"StartingAt({self.optimizer!r}, start={hashlib.sha256(self.start.tobytes()).hexdigest()[:16]})"

    def init(self, dimension: int) -> State:
        """Begin at the start."""
        state = self.optimizer.init(dimension)
        if "point" not in state or len(self.start) != dimension:
            raise InvalidArgument(
                f"start must have {dimension} numbers, and the optimizer must keep a point; got {len(self.start)} numbers for "
                f"{type(self.optimizer).__name__}. Fit without a warm start."
            )
        return {**state, "point": np.array(self.start)}

    def ask(self, state: State) -> Query:
        """Ask what the other asks."""
        return self.optimizer.ask(state)

    def tell(self, state: State, released: Released) -> State:
        """Pass the answer on."""
        return self.optimizer.tell(state, released)

    def point(self, state: State) -> FloatArray:
        """Return where the other stands."""
        return self.optimizer.point(state)
