"""Walking through a run without data: what would be asked, and how much noise it would get."""

from typing import Any

import numpy as np

from privypurse.accounting.filters import BY_NAME
from privypurse.core.charges import BoundedRangeCharge, GaussianCharge, SingleCharge
from privypurse.core.errors import BudgetExhausted
from privypurse.core.queries import GradientAt, LossesAlong, LossesAt
from privypurse.core.released import Released
from privypurse.planning.facts import Facts
from privypurse.planning.plan import Plan, Recipe
from privypurse.schedules.base import Budget


def rehearse(name: str, recipe: Recipe, facts: Facts) -> Plan:
    """Run optimizer and schedule on made-up answers that hold no surprise, and write down the noise.

    Gradients come back as long as they can be, selections choose the middle of their range. The schedule is the one that a real
    run would use, so the plan cannot differ from it except through what is released.
    """
    start = facts.rule.start() if facts.spent is None else facts.spent
    budget = Budget(facts.rule, start, start, recipe.steps, recipe.sample_prob)
    state = recipe.optimizer.init(facts.dimension)
    past: list[Released] = []
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
            released = Released(_longest_gradient(facts, recipe.sample_prob), charge, std)
            noise_std.append(std)
            mu.append(1 / mechanism.noise_multiplier)
        elif isinstance(query, LossesAlong):
            charge = BoundedRangeCharge(mechanism.epsilon, recipe.sample_prob)
            middle = query.steps.size // 2
            released = Released(np.asarray(middle), charge)
            epsilons.append(mechanism.epsilon)
            sizes.append(float(query.steps[middle]))
        elif isinstance(query, LossesAt):
            charge = BoundedRangeCharge(mechanism.epsilon, recipe.sample_prob)
            released = Released(np.asarray(0), charge)
            epsilons.append(mechanism.epsilon)
        else:
            break
        past.append(released)
        budget = budget.after(charge)
        state = recipe.optimizer.tell(state, released)
    listed = recipe.step_sizes or tuple(sizes)
    # The bound is about the noise that the method itself would choose, for gradients of the loss itself.
    holds = not facts.clips and facts.rule.name in BY_NAME
    return Plan(
        method=name,
        steps=len(noise_std) or len(epsilons),
        clip_norm=facts.gradient_bound,
        step_sizes=(listed * len(noise_std))[: len(noise_std)] if len(listed) == 1 else listed,
        noise_std=tuple(noise_std),
        mu=tuple(mu),
        selection_epsilon=tuple(epsilons),
        sample_prob=recipe.sample_prob,
        bound=recipe.bound if holds else None,
        notes=(*recipe.notes, *_notes(recipe, facts)),
    )


def _notes(recipe: Recipe, facts: Facts) -> tuple[str, ...]:
    if recipe.bound is None:
        return ()
    if facts.clips:
        return ("Gradients are clipped below the bound of the loss: no bound is stated.",)
    if facts.rule.name not in BY_NAME:
        return ("The noise was fixed in advance, not by this plan: no bound is stated.",)
    return ("The bound is for at most the stated number of records.",)


def _longest_gradient(facts: Facts, sample_prob: float) -> "np.ndarray[Any, np.dtype[np.float64]]":
    length = facts.records * sample_prob * facts.gradient_bound
    return np.full(facts.dimension, length / np.sqrt(facts.dimension))
