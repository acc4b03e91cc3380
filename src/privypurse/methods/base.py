"""What all methods share."""

from abc import ABC, abstractmethod
from typing import ClassVar

from privypurse.accounting.totals import Filter
from privypurse.core.checks import positive, positive_integer
from privypurse.core.errors import InvalidArgument
from privypurse.planning.facts import Facts
from privypurse.planning.plan import Plan, Recipe
from privypurse.planning.rehearsal import rehearse


class PlannedMethod(ABC):
    """A method whose plan is a rehearsal of its recipe."""

    name: ClassVar[str]

    @abstractmethod
    def recipe(self, facts: Facts) -> Recipe:
        """Choose optimizer, schedule and number of steps from public facts."""

    def plan(self, facts: Facts) -> Plan:
        """Say what a run that goes as expected will do. Needs no data."""
        return rehearse(self.name, self.recipe(facts), facts)

    def filter(self, facts: Facts) -> Filter:
        """Return the stopping rule to run under: the facts' own."""
        return facts.rule


def check_steps_and_size(steps: int | None, step_size: float | None) -> None:
    """Check two settings that may be left to the plan."""
    if steps is not None:
        positive_integer(steps=steps)
    if step_size is not None:
        positive(step_size=step_size)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse what is not one of a few words."""
    if value not in choices:
        raise InvalidArgument(f"{name} must be one of {', '.join(choices)}; got {value!r}. Pass {name}={choices[0]!r}.")
