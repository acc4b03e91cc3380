"""Projected noisy descent with averaging, and its bound.

With T gradient releases that share a budget mu, each mean gradient has noise of standard deviation
``s = sensitivity sqrt(T) / (n mu)`` in each coordinate. All formulas hold under either relation.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from privypurse.core._checks import positive_integer
from privypurse.core._errors import InvalidArgument
from privypurse.methods.base import PlannedMethod, check_choice, check_steps_and_size
from privypurse.training._plan import Bound, Facts, Recipe
from privypurse.training.optimizers._base import Averaged, Ball, Optimizer, Projection
from privypurse.training.optimizers._gradient_descent import GradientDescent
from privypurse.training.schedules._base import EvenSplit


def excess_bound(distance: float, gradient: float, noise_squared: float, steps: int) -> float:
    """Return the bound on the expected excess loss of averaged projected descent.

    ``R sqrt((G^2 + d s^2)/T)`` for a convex loss, mean gradients of norm at most G and a start
    within R of the best point, averaged over the T points with gradients.
    """
    return distance * math.sqrt((gradient**2 + noise_squared) / steps)


def projected_step_size(distance: float, gradient: float, noise_squared: float, steps: int) -> float:
    """Return the step size at which `excess_bound` holds: ``R / sqrt(T (G^2 + d s^2))``."""
    return distance / math.sqrt(steps * (gradient**2 + noise_squared))


def noise_squared(facts: Facts, steps: int) -> float:
    """Return ``d s^2``, the expected squared noise on a mean gradient, for an even split."""
    return facts.dimension * steps * (facts.sensitivity / (facts.records * facts.mu)) ** 2


def projected_steps(facts: Facts, gradient: float, most: int) -> int:
    """Return the steps at which both parts of the bound are equal, within limits.

    They are ``R G/sqrt(T)`` and the floor ``R sqrt(d) sensitivity/(n mu)``: the bound is within a
    factor of sqrt(2) of its floor.
    """
    return min(max(round(gradient**2 / noise_squared(facts, 1)), 1), most)


@dataclass(frozen=True)
class NoisyPGD(PlannedMethod):
    """Projected descent with equal noise, a step size from the proof, and averaging.

    The expected excess loss of the mean over the best point of the set is at most
    ``R sqrt((G^2 + d s^2)/T)``, for any convex loss, smooth or not.

    Parameters
    ----------
    projection : Projection, "ball" or None, default "ball"
        Set to stay in: `Ball`, `Box`, `Simplex`, a ball of the facts' radius, or all points (then
        `radius` is a guess of the distance of the best point, and the bound holds if it is right).
    average : {"all", "tail", "last"}, default "all"
        Mean of all points, of the last half, or the last point. The bound is for "all".
    steps, most_steps : int or None, int
        By default where the two parts of the bound are equal, at most 150.
    step_size : float or None
        By default the one that minimises the bound.
    """

    projection: Projection | Literal["ball"] | None = "ball"
    average: Literal["all", "tail", "last"] = "all"
    steps: int | None = None
    step_size: float | None = None
    most_steps: int = 150
    name: ClassVar[str] = "noisy-pgd"

    def __post_init__(self) -> None:
        check_steps_and_size(self.steps, self.step_size)
        shaped = self.projection is None or self.projection == "ball" or hasattr(self.projection, "reach")
        if not shaped or isinstance(self.projection, type):
            raise InvalidArgument(f"projection must be 'ball', None or a set; got {self.projection!r}. Pass 'ball'.")
        check_choice("average", self.average, ("all", "tail", "last"))
        positive_integer(most_steps=self.most_steps)

    def recipe(self, facts: Facts) -> Recipe:
        projection = Ball(facts.radius) if isinstance(self.projection, str) else self.projection
        reach = facts.radius if projection is None else projection.reach(facts.dimension)
        # The ridge's gradient is at most l2 times the longest point, which is known within a set.
        longest = facts.radius if projection is None else projection.longest(facts.dimension)
        gradient = facts.gradient_bound + facts.l2 * longest
        steps = self.steps or projected_steps(facts, gradient, self.most_steps)
        noise = noise_squared(facts, steps)
        best = projected_step_size(reach, gradient, noise, steps)
        size = self.step_size or best
        optimizer: Optimizer = GradientDescent(size, facts.records, facts.clip_norm, l2=facts.l2, projection=projection)
        if self.average != "last":
            optimizer = Averaged(optimizer, skip=0 if self.average == "all" else steps // 2)
        bound = None
        if self.average == "all" and size == best and (projection is not None or facts.l2 == 0):
            value = excess_bound(reach, gradient, noise, steps)
            bound = Bound("expected excess loss of the average over the best point within reach", value)
        return Recipe(optimizer, EvenSplit(), steps, step_sizes=(size,), bound=bound)
