"""The minimiser itself. NOT PRIVATE."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from privypurse.accounting.filters import DeclaredNonPrivate
from privypurse.accounting.totals import Filter
from privypurse.core.checks import positive
from privypurse.core.queries import Query, Released
from privypurse.mechanisms.non_private import NonPrivateMinimiser
from privypurse.training.facts import Facts
from privypurse.training.optimizers.genetic import TakeTheMinimiser
from privypurse.training.plan import Plan, Recipe
from privypurse.training.schedules.base import Budget


@dataclass(frozen=True)
class NonPrivate:
    """The model without privacy, for comparison. NOT PRIVATE: costs infinity, and is marked so.

    Runs only on ``Purse.not_private()``, or ``Purse.with_filter(method.filter(facts))``.

    Parameters
    ----------
    ridge : float, default 1.0
        Ridge on the sum of losses, as in scikit-learn's default.
    """

    ridge: float = 1.0
    name: ClassVar[str] = "non-private"

    def __post_init__(self) -> None:
        positive(ridge=self.ridge)

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the one release."""
        facts.require_declared(self.name)
        ridge = max(self.ridge, facts.l2 * facts.records, facts.bounds.smoothness)
        schedule = AsItIs(ridge, tolerance=1e-7 * facts.records * facts.gradient_bound)
        return Recipe(TakeTheMinimiser(), schedule, 1)

    def plan(self, facts: Facts) -> Plan:
        """Return a plan without noise."""
        return Plan(self.name, 1, facts.gradient_bound, (), (0.0,), (float("inf"),), notes=("NOT PRIVATE.",))

    def filter(self, facts: Facts) -> Filter:
        """Return the filter without a limit."""
        return DeclaredNonPrivate(facts.delta, facts.neighbouring)


@dataclass(frozen=True)
class AsItIs:
    """Release the minimiser without noise. NOT PRIVATE."""

    ridge: float
    tolerance: float

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> NonPrivateMinimiser:
        """Return the declared non-private release."""
        return NonPrivateMinimiser("baseline without privacy", self.ridge, self.tolerance)
