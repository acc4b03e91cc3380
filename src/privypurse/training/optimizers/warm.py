"""Start from the result of an earlier run."""

import hashlib
from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray, finite_vector
from privypurse.core.errors import InvalidArgument
from privypurse.core.queries import Query, Released
from privypurse.training.optimizers.base import Optimizer, State


@dataclass(frozen=True, eq=False, repr=False)
class StartingAt:
    """Run another optimizer from a public point instead of zero.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer that keeps its position under the name "point", as the descents do.
    start : array_like
        Starting point. Public: an earlier released model, or one that has not seen the data.
    """

    optimizer: Optimizer
    start: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", finite_vector(start=np.asarray(self.start)))

    def __repr__(self) -> str:
        # A hash: a deep model is too long to write out, and a checkpoint only compares it.
        return f"StartingAt({self.optimizer!r}, start={hashlib.sha256(self.start.tobytes()).hexdigest()[:16]})"

    def init(self, dimension: int) -> State:
        """Begin at the start."""
        state = self.optimizer.init(dimension)
        if "point" not in state or len(self.start) != dimension:
            raise InvalidArgument(
                f"start must have {dimension} numbers, and the optimizer must keep a point; got {len(self.start)} "
                f"numbers for {type(self.optimizer).__name__}. Fit without a warm start."
            )
        return {**state, "point": np.array(self.start)}

    def ask(self, state: State) -> Query:
        """Ask the inner optimizer's query."""
        return self.optimizer.ask(state)

    def tell(self, state: State, released: Released) -> State:
        """Pass the answer on."""
        return self.optimizer.tell(state, released)

    def point(self, state: State) -> FloatArray:
        """Return the inner optimizer's point."""
        return self.optimizer.point(state)
