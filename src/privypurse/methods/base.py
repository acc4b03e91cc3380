"""Base class of methods, checks of their settings, and rehearsal of a run without data."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from privypurse.accounting._filters import BY_NAME
from privypurse.accounting._totals import Filter
from privypurse.core._checks import FloatArray, positive, positive_integer
from privypurse.core._errors import BudgetExhausted, InvalidArgument
from privypurse.core.charges import BoundedRangeCharge, GaussianCharge, SingleCharge
from privypurse.core.queries import GradientAt, LossesAlong, LossesAt, Released
from privypurse.training._plan import Facts, Method, Plan, Recipe
from privypurse.training.optimizers._base import StartingAt
from privypurse.training.schedules._base import Budget

__all__ = ["PlannedMethod"]


def rehearse(name: str, recipe: Recipe, facts: Facts) -> Plan:
    """Run optimizer and schedule on synthetic answers and return the resulting plan.

    Gradients are as long as they can be, and selections choose the middle of their range. The
    schedule is that of a real run, so the plan differs from it only through what is released.
    """
    start = facts.rule.start() if facts.spent is None else facts.spent
    budget = Budget(facts.rule, start, start, recipe.steps, recipe.sample_prob)
    state, past = recipe.optimizer.init(facts.dimension), list[Released]()
    length = facts.records * recipe.sample_prob * facts.gradient_bound
    longest = np.full(facts.dimension, length / np.sqrt(facts.dimension))
    noise_std, mu, epsilons, sizes = [], [], [], []
    for _ in range(recipe.steps):
        query = recipe.optimizer.ask(state)
        try:
            mechanism: Any = recipe.schedule.propose(query, past, budget)
        except BudgetExhausted:
            break
        if isinstance(query, GradientAt):
            charge: SingleCharge = GaussianCharge(mechanism.noise_multiplier, recipe.sample_prob)
            std = mechanism.noise_multiplier * facts.sensitivity
            released = Released(longest, charge, std)
            noise_std.append(std)
            mu.append(1 / mechanism.noise_multiplier)
        elif isinstance(query, LossesAlong | LossesAt):
            charge, middle = BoundedRangeCharge(mechanism.epsilon, recipe.sample_prob), 0
            epsilons.append(mechanism.epsilon)
            if isinstance(query, LossesAlong):
                middle = query.steps.size // 2
                sizes.append(float(query.steps[middle]))
            released = Released(np.asarray(middle), charge)
        else:
            break
        past.append(released)
        budget = budget.after(charge)
        state = recipe.optimizer.tell(state, released)
    listed = recipe.step_sizes or tuple(sizes)
    bound, note = None, "The bound is for at most the stated number of records."
    # The bound assumes the method's own noise and unclipped gradients of the loss.
    if facts.clips:
        note = "Gradients are clipped below the bound of the loss: no bound is stated."
    elif facts.rule.name not in BY_NAME:
        note = "The noise was fixed in advance, not by this plan: no bound is stated."
    else:
        bound = recipe.bound
    return Plan(
        method=name,
        steps=len(noise_std) or len(epsilons),
        clip_norm=facts.gradient_bound,
        step_sizes=listed * len(noise_std) if len(listed) == 1 else listed,
        noise_std=tuple(noise_std),
        mu=tuple(mu),
        selection_epsilon=tuple(epsilons),
        sample_prob=recipe.sample_prob,
        bound=bound,
        notes=(*recipe.notes, note) if recipe.bound is not None else recipe.notes,
    )


class PlannedMethod(ABC):
    """A method whose plan is a rehearsal of its recipe."""

    name: ClassVar[str]

    @abstractmethod
    def recipe(self, facts: Facts) -> Recipe:
        """Choose optimizer, schedule and number of steps from public facts."""

    def plan(self, facts: Facts) -> Plan:
        """Return what a run that goes as expected will do. Needs no data."""
        return rehearse(self.name, self.recipe(facts), facts)

    def filter(self, facts: Facts) -> Filter:
        """Return the filter to run under: the facts' own."""
        return facts.rule


@dataclass(frozen=True, eq=False)
class WarmStarted:
    """Run another method from a public start."""

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


def check_steps_and_size(steps: int | None, step_size: float | None) -> None:
    """Check two settings that may be left to the plan."""
    if steps is not None:
        positive_integer(steps=steps)
    if step_size is not None:
        positive(step_size=step_size)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise InvalidArgument unless `value` is one of `choices`."""
    if value not in choices:
        raise InvalidArgument(f"{name} must be one of {', '.join(choices)}; got {value!r}. Pass {name}={choices[0]!r}.")
