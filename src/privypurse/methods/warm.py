"""A method that starts from an earlier fit."""

from dataclasses import dataclass, replace

from privypurse.accounting.totals import Filter
from privypurse.core.checks import FloatArray
from privypurse.training.facts import Facts
from privypurse.training.optimizers.projections import StartingAt
from privypurse.training.plan import Method, Plan, Recipe


@dataclass(frozen=True, eq=False)
class WarmStarted:
    """Run another method from a public start.

    Parameters
    ----------
    method : Method
        Method to run.
    start : ndarray
        Starting point.
    """

    method: Method
    start: FloatArray

    @property
    def name(self) -> str:
        """Name of the inner method."""
        return self.method.name

    def recipe(self, facts: Facts) -> Recipe:
        """Return the inner method's recipe with another start."""
        recipe = self.method.recipe(facts)
        return replace(recipe, optimizer=StartingAt(recipe.optimizer, self.start))

    def plan(self, facts: Facts) -> Plan:
        """Return the inner method's plan."""
        return self.method.plan(facts)

    def filter(self, facts: Facts) -> Filter:
        """Return the inner method's filter."""
        return self.method.filter(facts)
