"""PrivGene: genetic search with private selection (Zhang, Xiao, Yang, Zhang, Winslett 2013)."""

from dataclasses import dataclass
from typing import ClassVar

from privypurse.core.checks import positive_integer
from privypurse.methods.base import PlannedMethod
from privypurse.training.facts import Facts
from privypurse.training.optimizers.genetic import GeneticSearch
from privypurse.training.plan import Recipe
from privypurse.training.schedules.weighted import EvenSplit


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
