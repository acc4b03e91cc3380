"""The method of those who do not want to choose one."""

import math
from dataclasses import dataclass
from typing import ClassVar

from privypurse.core.checks import positive
from privypurse.core.errors import InvalidArgument
from privypurse.methods.base import PlannedMethod
from privypurse.optimizers.gradient_descent import GradientDescent
from privypurse.planning.facts import Facts
from privypurse.planning.noisy_descent import balanced_steps
from privypurse.planning.plan import Recipe
from privypurse.schedules.weighted import EvenSplit

MOST_STEPS = 120
# Models with this many weights are worse conditioned, and are given more steps and more momentum.
MANY_WEIGHTS, MOST_STEPS_OF_MANY, MOST_MOMENTUM_OF_MANY = 1_000, 300, 0.98
# How far to go in all, in steps of 1/M for each step of ``n mu/sqrt(d)``.
REACH = 5.0
# Noise in a score grows with the reach and not with the number of columns, so few columns are no reason to go further.
FEWEST_DIMENSIONS = 64
MOST_MOMENTUM = 0.95


@dataclass(frozen=True)
class Auto(PlannedMethod):
    """Accelerated descent whose reach follows the budget.

    In a flat direction the noise of a run depends on the number and size of its steps only through their product, the *reach*
    ``steps * step size / (1 - momentum)``: splitting a budget over more steps adds noise to each and shortens each alike. So the
    reach is set, in proportion to ``n mu/sqrt(d)``, the number of steps whose gradients stand out of their noise; steps are of
    size 1/M, as many as that number up to 120 (300 for a thousand weights and more), and momentum makes up what is missing.

    Nothing is tuned on the data; the constants were chosen on public tables (``docs/estimators.md`` says which).

    Parameters
    ----------
    slack : float, default 1.0
        How many times longer than most rows the limit on rows is. The worst curvature, of rows that are all that long, is then
        not what the mean loss has, and steps may be longer than 1/M.
    """

    slack: float = 1.0
    name: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        if positive(slack=self.slack) < 1:
            raise InvalidArgument(f"slack must be 1 or more; got {self.slack!r}. Leave it out.")

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the descent."""
        clarity = math.sqrt(min(1.0, facts.dimension / FEWEST_DIMENSIONS)) / facts.noise_floor
        many = facts.dimension >= MANY_WEIGHTS
        steps = balanced_steps(facts, most=MOST_STEPS_OF_MANY if many else MOST_STEPS)
        # Not all of slack^2, which the curvature of the mean loss would allow if no row were longer than most.
        longest = self.slack**1.5 / facts.smoothness
        # How far one step must lead, momentum included.
        effective = REACH * clarity * longest / steps
        size = min(longest, effective)
        momentum = min(1 - size / effective, MOST_MOMENTUM_OF_MANY if many else MOST_MOMENTUM)
        optimizer = GradientDescent(
            step_size=size,
            records=facts.records,
            clip_norm=facts.clip_norm,
            momentum=momentum,
            nesterov=True,
            l2=facts.l2,
        )
        return Recipe(optimizer, EvenSplit(), steps, step_sizes=(size,))
