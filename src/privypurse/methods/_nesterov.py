"""Accelerated descent with even noise."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from privypurse.methods.base import PlannedMethod, check_choice, check_steps_and_size
from privypurse.training._plan import Facts, Recipe
from privypurse.training.optimizers._base import Averaged, Optimizer
from privypurse.training.optimizers._gradient_descent import GradientDescent, check_momentum
from privypurse.training.schedules._base import EvenSplit

FEWEST_STEPS, MOST_STEPS = 10, 200


def balanced_steps(facts: Facts, fewest: int = FEWEST_STEPS, most: int = MOST_STEPS) -> int:
    """Return the number of steps for accelerated descent: ``n mu / sqrt(d)``, within limits."""
    return min(max(round(1 / facts.noise_floor), fewest), most)


@dataclass(frozen=True)
class Nesterov(PlannedMethod):
    """Nesterov's accelerated descent: steps of 1/M, momentum 0.9, an evenly divided budget.

    Nothing is tuned: with rows of length at most 1 and a logistic loss, M is a quarter for any
    data.

    Parameters
    ----------
    steps : int or None
        By default ``n mu/sqrt(d)``, between 10 and 200.
    momentum : float, default 0.9
        Share of the last step that is repeated.
    step_size : float or None
        Step size; by default 1/M, with M the largest curvature of the objective.
    average : {"last", "tail"}, default "last"
        Return the last point, or the mean of the last quarter of the points with gradients.
    """

    steps: int | None = None
    momentum: float = 0.9
    step_size: float | None = None
    average: Literal["last", "tail"] = "last"
    name: ClassVar[str] = "nesterov"

    def __post_init__(self) -> None:
        check_steps_and_size(self.steps, self.step_size)
        check_momentum(self.momentum)
        check_choice("average", self.average, ("last", "tail"))

    def recipe(self, facts: Facts) -> Recipe:
        steps = self.steps or balanced_steps(facts)
        size = self.step_size or 1 / facts.smoothness
        optimizer: Optimizer = GradientDescent(
            size, facts.records, facts.clip_norm, self.momentum, nesterov=True, l2=facts.l2
        )
        if self.average == "tail":
            optimizer = Averaged(optimizer, skip=steps - max(1, steps // 4))
        return Recipe(optimizer, EvenSplit(), steps, step_sizes=(size,))
