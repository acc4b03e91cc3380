"""A genetic search whose survivors are selected by noisy losses (PrivGene)."""

from dataclasses import dataclass

import numpy as np

from privypurse.core._checks import FloatArray, positive, positive_integer, probability
from privypurse.core._errors import InvalidArgument
from privypurse.core.queries import ClassCounts, LossesAt, Objective, Query, Released
from privypurse.training.optimizers._base import KeepsPoint, State


@dataclass(frozen=True)
class TakeTheMinimiser(KeepsPoint):
    """Ask for a minimiser and return it."""

    def ask(self, state: State) -> Query:
        return Objective()

    def tell(self, state: State, released: Released) -> State:
        return {"point": released.value}


@dataclass(frozen=True)
class ChooseModel:
    """Ask which of several public models has the least loss, and return that one."""

    models: tuple[tuple[float, ...], ...]
    clip_loss: float | None = None

    def init(self, dimension: int) -> State:
        return {"chosen": np.zeros(1)}

    def ask(self, state: State) -> Query:
        return LossesAt(points=np.array(self.models), clip_loss=self.clip_loss)

    def tell(self, state: State, released: Released) -> State:
        return {"chosen": np.array([float(released.value)])}

    def point(self, state: State) -> FloatArray:
        return np.array(self.models[int(state["chosen"][0])])


@dataclass(frozen=True)
class VoteOfTheMajority(KeepsPoint):
    """Ask for the class counts and always predict the largest class. Needs a constant column."""

    def ask(self, state: State) -> Query:
        return ClassCounts()

    def tell(self, state: State, released: Released) -> State:
        """Set the constant's weights, the last of a point, to the logarithms of the counts."""
        logarithms = np.log(np.maximum(released.value, 1.0))
        point = np.zeros_like(state["point"])
        if logarithms.size == 2:
            point[-1] = logarithms[1] - logarithms[0]
        else:
            point[-logarithms.size :] = logarithms
        return {"point": point}


@dataclass(frozen=True)
class GeneticSearch:
    """Each generation crosses and mutates the survivors of the last, each selected privately.

    Crossing and mutating use public randomness with a fixed seed: it protects nothing.
    """

    offspring: int = 50
    survivors: int = 4
    spread: float = 2.0  # standard deviation, as a vector length, of the first mutations
    cooling: float = 0.9  # factor on the mutations with each generation
    seed: int = 0

    def __post_init__(self) -> None:
        if positive_integer(survivors=self.survivors) >= positive_integer(offspring=self.offspring):
            raise InvalidArgument(
                f"survivors must be fewer than offspring={self.offspring}; got {self.survivors}. "
                "Pass for example 4 of 100."
            )
        positive(spread=self.spread)
        probability(cooling=self.cooling)

    def init(self, dimension: int) -> State:
        return self._next_generation({"generation": np.zeros(1)}, np.zeros((1, dimension)))

    def ask(self, state: State) -> LossesAt:
        """Ask for the losses of those not yet selected."""
        return LossesAt(points=state["offspring"])

    def tell(self, state: State, released: Released) -> State:
        """Move the selected model to the survivors; with enough of them, breed."""
        chosen = int(released.value)
        selected = np.vstack([state["selected"], state["offspring"][chosen]])
        rest = np.delete(state["offspring"], chosen, axis=0)
        if len(selected) == self.survivors:
            return self._next_generation(state, selected)
        return {**state, "selected": selected, "offspring": rest}

    def point(self, state: State) -> FloatArray:
        """Return the first survivor of the last generation."""
        return state["best"]

    def _next_generation(self, state: State, parents: FloatArray) -> State:
        number = int(state["generation"][0])
        public = np.random.default_rng([self.seed, number])
        dimension = parents.shape[1]
        mothers, fathers = public.integers(len(parents), size=(2, self.offspring))
        crossed = np.where(public.random((self.offspring, dimension)) < 0.5, parents[mothers], parents[fathers])
        size = self.spread * self.cooling**number / np.sqrt(dimension)
        children = crossed + size * public.standard_normal((self.offspring, dimension))
        return {
            "generation": np.array([number + 1.0]),
            "offspring": np.vstack([parents, children]),  # parents compete with their children
            "selected": np.zeros((0, dimension)),
            "best": parents[0],
        }
