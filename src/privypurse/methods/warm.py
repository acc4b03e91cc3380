"""A method that begins where an earlier fit ended."""

from dataclasses import dataclass, replace

from privypurse.accounting.totals import Filter
from privypurse.core.checks import FloatArray
from privypurse.optimizers.warm import StartingAt
from privypurse.planning.facts import Facts
from privypurse.planning.plan import Method, Plan, Recipe


@dataclass(frozen=True, eq=False)
class WarmStarted:
    """Another method, from a public start.

    Parameters
    ----------
    method : Method
        Who plans.
    start : ndarray
        Where to begin.
    """

    method: Method
    start: FloatArray

    @property
    def name(self) -> str:
        """What the other is called."""
        return self.method.name

    def recipe(self, facts: Facts) -> Recipe:
        """Take the other's recipe, begun elsewhere."""
        recipe = self.method.recipe(facts)
        return replace(recipe, optimizer=StartingAt(recipe.optimizer, self.start))

    def plan(self, facts: Facts) -> Plan:
        """Plan as the other does."""
        return self.method.plan(facts)

    def filter(self, facts: Facts) -> Filter:
        """Return the other's rule."""
        return self.method.filter(facts)
