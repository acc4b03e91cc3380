"""A genetic search whose survivors are selected by noisy losses (PrivGene)."""

from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray, positive, positive_integer, probability
from privypurse.core.errors import InvalidArgument
from privypurse.core.queries import LossesAt
from privypurse.core.released import Released
from privypurse.optimizers.base import State


@dataclass(frozen=True)
class GeneticSearch:
    """Each generation crosses and mutates the survivors of the last one; one private selection a survivor.

    The randomness of crossing and mutating is public: it protects nothing, so it comes from a fixed seed.

    Parameters
    ----------
    offspring : int, default 50
        Models in a generation.
    survivors : int, default 4
        Models selected from each generation, without those already selected.
    spread : float, default 2.0
        Standard deviation of the first generation and of the first mutations, as the length of a vector.
    cooling : float, default 0.9
        Mutations shrink by this with each generation.
    seed : int, default 0
        Of the public randomness.
    """

    offspring: int = 50
    survivors: int = 4
    spread: float = 2.0
    cooling: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        if positive_integer(survivors=self.survivors) >= positive_integer(offspring=self.offspring):
            raise InvalidArgument(
                f"survivors must be fewer than offspring={self.offspring}; got {self.survivors}. Pass for example 4 of 100."
            )
        positive(spread=self.spread)
        probability(cooling=self.cooling)

    def init(self, dimension: int) -> State:
        """Start with one survivor, zero."""
        return self._next_generation({"generation": np.zeros(1)}, np.zeros((1, dimension)))

    def ask(self, state: State) -> LossesAt:
        """Ask for the losses of those not yet selected."""
        return LossesAt(points=state["offspring"])

    def tell(self, state: State, released: Released) -> State:
        """Move the selected one to the survivors; with enough of them, breed."""
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
            "offspring": np.vstack([parents, children]),  # the parents compete with their children
            "selected": np.zeros((0, dimension)),
            "best": parents[0],
        }
