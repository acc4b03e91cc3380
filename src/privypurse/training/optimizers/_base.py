"""Interface of optimizers, optimizers around others, and public sets to keep a model in.

Averages, starts and projections are post-processing, hence free.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from privypurse.core._checks import FloatArray, finite_vector, positive
from privypurse.core._errors import InvalidArgument
from privypurse.core.queries import GradientAt, Query, Released

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
        return {"point": np.zeros(dimension)}

    def point(self, state: State) -> FloatArray:
        return state["point"]


@dataclass(frozen=True)
class Averaged:
    """Return the mean of the points at which another optimizer took gradients, as proofs do."""

    optimizer: Optimizer
    skip: int = 0  # number of first points to leave out: the tail is closer to the optimum

    def init(self, dimension: int) -> State:
        return {**self.optimizer.init(dimension), "mean": np.zeros(dimension), "seen": np.zeros(1)}

    def ask(self, state: State) -> Query:
        return self.optimizer.ask(state)

    def tell(self, state: State, released: Released) -> State:
        query, mean, seen = self.optimizer.ask(state), state["mean"], state["seen"]
        if isinstance(query, GradientAt):
            seen = seen + 1
            kept = float(seen[0]) - self.skip
            mean = mean + (query.point - mean) / kept if kept > 0 else mean
        return {**self.optimizer.tell(state, released), "mean": mean, "seen": seen}

    def point(self, state: State) -> FloatArray:
        """Return the mean, or the inner optimizer's point if there is none yet."""
        return state["mean"] if state["seen"][0] > self.skip else self.optimizer.point(state)


@dataclass(frozen=True, eq=False)
class StartingAt:
    """Run another optimizer, which keeps its model under the name "point", from a public point."""

    optimizer: Optimizer
    start: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", finite_vector(start=np.asarray(self.start)))

    def init(self, dimension: int) -> State:
        state = self.optimizer.init(dimension)
        if "point" not in state or len(self.start) != dimension:
            got = f"got {len(self.start)} numbers for {type(self.optimizer).__name__}"
            what = f"start must have {dimension} numbers, and the optimizer must keep a point; {got}"
            raise InvalidArgument(f"{what}. Fit without a warm start.")
        return {**state, "point": np.array(self.start)}

    def ask(self, state: State) -> Query:
        return self.optimizer.ask(state)

    def tell(self, state: State, released: Released) -> State:
        return self.optimizer.tell(state, released)

    def point(self, state: State) -> FloatArray:
        return self.optimizer.point(state)


class Projection(Protocol):
    """A closed convex set."""

    def __call__(self, point: FloatArray) -> FloatArray:
        """Return the nearest point of the set."""

    def reach(self, dimension: int) -> float:
        """Return the largest distance from the start, the point nearest to zero."""

    def longest(self, dimension: int) -> float:
        """Return the largest length of a point of the set."""


@dataclass(frozen=True)
class Ball:
    """All points within a radius of zero.

    Examples
    --------
    >>> Ball(1.0)(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """

    radius: float

    def __post_init__(self) -> None:
        positive(radius=self.radius)

    def __call__(self, point: FloatArray) -> FloatArray:
        return point * min(1.0, self.radius / max(float(np.linalg.norm(point)), 1e-300))

    def reach(self, dimension: int) -> float:
        return self.radius

    longest = reach


@dataclass(frozen=True)
class Box:
    """All points with every coordinate between two numbers."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (np.isfinite([self.low, self.high]).all() and self.low < self.high):
            raise InvalidArgument(f"low must be below high; got {self.low!r} and {self.high!r}. Pass Box(-1.0, 1.0).")

    def __call__(self, point: FloatArray) -> FloatArray:
        return np.clip(point, self.low, self.high)

    def reach(self, dimension: int) -> float:
        start = min(max(0.0, self.low), self.high)
        return float(np.sqrt(dimension) * max(self.high - start, start - self.low))

    def longest(self, dimension: int) -> float:
        return float(np.sqrt(dimension) * max(abs(self.low), abs(self.high)))


@dataclass(frozen=True)
class Simplex:
    """All points with coordinates of zero or more that add up to a total.

    Examples
    --------
    >>> Simplex()(np.array([0.5, 2.0, -1.0]))
    array([0., 1., 0.])
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        positive(total=self.total)

    def __call__(self, point: FloatArray) -> FloatArray:
        """Shift all coordinates equally and cut at zero (Held, Wolfe and Crowder 1974)."""
        falling = np.sort(point)[::-1]
        excess = (np.cumsum(falling) - self.total) / np.arange(1, point.size + 1)
        shift = excess[np.nonzero(falling > excess)[0][-1]]
        return np.asarray(np.maximum(point - shift, 0.0))

    def reach(self, dimension: int) -> float:
        return float(self.total * np.sqrt(1 - 1 / dimension))

    def longest(self, dimension: int) -> float:
        return self.total
