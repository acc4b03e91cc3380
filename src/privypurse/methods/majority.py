"""Baseline that predicts the largest class."""

from dataclasses import dataclass
from typing import ClassVar

from privypurse.accounting.totals import Filter
from privypurse.core.errors import InvalidArgument
from privypurse.training.facts import Facts
from privypurse.training.optimizers.genetic import VoteOfTheMajority
from privypurse.training.plan import Plan, Recipe
from privypurse.training.schedules.weighted import EvenSplit


@dataclass(frozen=True)
class Majority:
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

    def filter(self, facts: Facts) -> Filter:
        """Return the facts' own filter."""
        return facts.rule
