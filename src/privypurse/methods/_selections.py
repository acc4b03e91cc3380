"""Methods that select among models: the largest class, a finite public set, a genetic search."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privypurse.core._checks import FloatArray, positive, positive_integer
from privypurse.core._errors import InvalidArgument
from privypurse.methods.base import PlannedMethod
from privypurse.training._facts import Facts
from privypurse.training._plan import Plan, Recipe
from privypurse.training.optimizers._genetic import ChooseModel, GeneticSearch, VoteOfTheMajority
from privypurse.training.schedules._weighted import EvenSplit


@dataclass(frozen=True)
class Majority(PlannedMethod):
    """Release the class counts and always predict the largest class: the least any model must beat.

    The oracle needs a constant column.
    """

    name: ClassVar[str] = "majority"

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the one release."""
        if not facts.constant:
            raise InvalidArgument(
                "Majority needs an oracle with a constant column. Make the oracle with constant=True."
            )
        return Recipe(VoteOfTheMajority(), EvenSplit(), 1)

    def plan(self, facts: Facts) -> Plan:
        """Return the noise on the counts."""
        # A record is one count; a replacement moves two of them by one.
        sensitivity = (facts.sensitivity / facts.gradient_bound) ** 0.5
        return Plan(self.name, 1, facts.gradient_bound, (), (sensitivity / facts.mu,), (facts.mu,))


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
            raise InvalidArgument(
                "models must be a table of finite numbers, one model of the same length in each row. "
                "Pass for example [[0.0, 1.0], [1.0, 0.0]]."
            )
        if self.clip_loss is not None:
            positive(clip_loss=self.clip_loss)
        object.__setattr__(self, "models", tuple(map(tuple, points.tolist())))

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the one selection."""
        if len(self.models[0]) != facts.dimension:
            raise InvalidArgument(
                f"models must have {facts.dimension} numbers each, like the oracle's points; got {len(self.models[0])}. "
                "Include the constant column."
            )
        return Recipe(ChooseModel(self.models, self.clip_loss), EvenSplit(), 1)


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
    offspring, survivors, spread, cooling
        As for `GeneticSearch`.
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
        """Plan the search."""
        search = GeneticSearch(self.offspring, self.survivors, self.spread, self.cooling)
        return Recipe(search, EvenSplit(), self.generations * self.survivors)
