"""Methods that select among models: the largest class, a finite public set, a genetic search."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privypurse.core._checks import FloatArray, positive, positive_integer, probability
from privypurse.core._errors import InvalidArgument
from privypurse.core.queries import ClassCounts, LossesAt, Query, Released
from privypurse.methods.base import PlannedMethod
from privypurse.training import Facts, Plan, Recipe
from privypurse.training.optimizers._base import KeepsPoint, State
from privypurse.training.schedules._base import EvenSplit


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
class Majority(PlannedMethod):
    """Release the class counts and always predict the largest class: the least any model must beat.

    The oracle needs a constant column.
    """

    name: ClassVar[str] = "majority"

    def recipe(self, facts: Facts) -> Recipe:
        if not facts.constant:
            raise InvalidArgument("Majority needs an oracle with a constant column. Make it with constant=True.")
        return Recipe(VoteOfTheMajority(), EvenSplit(), 1)

    def plan(self, facts: Facts) -> Plan:
        # A record is one count; a replacement moves two of them by one.
        sensitivity = (facts.sensitivity / facts.gradient_bound) ** 0.5
        return Plan(self.name, 1, facts.gradient_bound, (), (sensitivity / facts.mu,), (facts.mu,))


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
class FiniteModels(PlannedMethod):
    """Select the best of several models known in advance, for example from public data or a grid.

    The error is about ``range/epsilon * ln(models)`` in the sum of losses, whatever the dimension.

    Parameters
    ----------
    models : sequence of sequences of float
        One model a row, as long as the oracle's points.
    clip_loss : float or None
        Clip each record's loss. By default the distance between the models bounds its range.
    """

    models: tuple[tuple[float, ...], ...]
    clip_loss: float | None = None
    name: ClassVar[str] = "finite-models"

    def __post_init__(self) -> None:
        try:
            points: FloatArray = np.asarray(self.models, dtype=np.float64)
        except (TypeError, ValueError):
            points = np.empty(0)
        if points.ndim != 2 or points.size == 0 or not np.isfinite(points).all():
            raise InvalidArgument("models must be a table of finite numbers, one model a row. Pass [[0, 1], [1, 0]].")
        if self.clip_loss is not None:
            positive(clip_loss=self.clip_loss)
        object.__setattr__(self, "models", tuple(map(tuple, points.tolist())))

    def recipe(self, facts: Facts) -> Recipe:
        if len(self.models[0]) != facts.dimension:
            what = f"models must have {facts.dimension} numbers each; got {len(self.models[0])}"
            raise InvalidArgument(f"{what}. Check them.")
        return Recipe(ChooseModel(self.models, self.clip_loss), EvenSplit(), 1)


@dataclass(frozen=True)
class GeneticSearch:
    """Each generation crosses and mutates the survivors of the last, each selected privately."""

    offspring: int = 50
    survivors: int = 4
    spread: float = 2.0
    cooling: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        if positive_integer(survivors=self.survivors) >= positive_integer(offspring=self.offspring):
            raise InvalidArgument(f"survivors must be below offspring={self.offspring}; got {self.survivors}. Pass 4.")
        positive(spread=self.spread)
        probability(cooling=self.cooling)

    def init(self, dimension: int) -> State:
        return self._next_generation({"generation": np.zeros(1)}, np.zeros((1, dimension)))

    def ask(self, state: State) -> LossesAt:
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
        public = np.random.default_rng([self.seed, number])  # a fixed seed: it protects nothing
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


@dataclass(frozen=True)
class PrivGene(PlannedMethod):
    """Breed models; select survivors by the exponential mechanism, with an evenly divided budget.

    The range of one record's loss over a generation shrinks with the distance between its models,
    as mutations cool down. That is the idea of the paper's "enhanced" mechanism; here the oracle's
    bound.

    Parameters
    ----------
    generations : int, default 20
        Number of rounds of selection.
    offspring, survivors : int
        Number of models bred in each generation, and of those selected from it.
    spread : float, default 2.0
        Standard deviation of the first mutations, as a vector length.
    cooling : float, default 0.9
        Factor on the mutations with each generation.
    """

    generations: int = 20
    offspring: int = 50
    survivors: int = 4
    spread: float = 2.0
    cooling: float = 0.9
    name: ClassVar[str] = "priv-gene"

    def __post_init__(self) -> None:
        positive_integer(generations=self.generations)

    def recipe(self, facts: Facts) -> Recipe:
        search = GeneticSearch(self.offspring, self.survivors, self.spread, self.cooling)
        return Recipe(search, EvenSplit(), self.generations * self.survivors)
