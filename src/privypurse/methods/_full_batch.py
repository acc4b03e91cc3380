"""Full-batch descent with even budgets: `NoisyPGD` and its bounds, `Nesterov`, and the default `Auto`.

With T gradient releases that share a budget mu, each mean gradient has noise of standard deviation
``s = sensitivity sqrt(T) / (n mu)`` in each coordinate. All formulas hold under either relation.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from privypurse.core._checks import positive, positive_integer
from privypurse.core._errors import InvalidArgument
from privypurse.methods.base import PlannedMethod, check_choice, check_steps_and_size
from privypurse.training._plan import Bound, Facts, Recipe
from privypurse.training.optimizers._base import Averaged, Ball, Optimizer, Projection
from privypurse.training.optimizers._gradient_descent import GradientDescent, check_momentum
from privypurse.training.schedules._base import EvenSplit

FEWEST_STEPS, MOST_STEPS = 10, 200


def balanced_steps(facts: Facts, fewest: int = FEWEST_STEPS, most: int = MOST_STEPS) -> int:
    """Return the number of steps for accelerated descent: ``n mu / sqrt(d)``, within limits."""
    return min(max(round(1 / facts.noise_floor), fewest), most)


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
            raise InvalidArgument(
                f"projection must be 'ball', None or a set such as Ball(1.0); got {self.projection!r}. Pass one."
            )
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


MOST_STEPS_OF_FEW = 120
# Models with this many weights are worse conditioned.
MANY_WEIGHTS, MOST_STEPS_OF_MANY, MOST_MOMENTUM_OF_MANY = 1_000, 300, 0.98
# Total reach, in steps of 1/M for each step of ``n mu/sqrt(d)``.
REACH = 5.0
# Noise in a score grows with the reach, not with the columns, so few columns do not extend it.
FEWEST_DIMENSIONS = 64
MOST_MOMENTUM = 0.95


def reach(facts: Facts) -> float:
    """Return the total reach that the budget pays for, in steps of 1/M."""
    return REACH * math.sqrt(min(1.0, facts.dimension / FEWEST_DIMENSIONS)) / facts.noise_floor


@dataclass(frozen=True)
class Auto(PlannedMethod):
    """Default method: Nesterov descent whose reach is set by the budget.

    In a flat direction the noise of a run depends on the number and size of its steps only through
    their product, the *reach* ``steps * step size / (1 - momentum)``: splitting a budget over more
    steps adds noise to each and shortens each alike. The reach is proportional to ``n mu/sqrt(d)``,
    the number of steps whose gradients stand out of their noise. Steps have size 1/M, as many as
    that number up to 120 (300 for a thousand weights and more); momentum makes up the rest.

    Nothing is tuned on the data; the constants were chosen on public tables
    (``docs/estimators.md``).

    Parameters
    ----------
    slack : float, default 1.0
        Length of the row limit relative to most rows, 1 or more. The curvature of the mean loss is
        then below the worst case, and steps may be longer than 1/M.
    """

    slack: float = 1.0
    name: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        if positive(slack=self.slack) < 1:
            raise InvalidArgument(f"slack must be 1 or more; got {self.slack!r}. Omit it.")

    def recipe(self, facts: Facts) -> Recipe:
        many = facts.dimension >= MANY_WEIGHTS
        steps = balanced_steps(facts, most=MOST_STEPS_OF_MANY if many else MOST_STEPS_OF_FEW)
        # Less than slack^2, which would require that no row is longer than most.
        longest = self.slack**1.5 / facts.smoothness
        # Required reach of one step, momentum included.
        effective = reach(facts) * longest / steps
        size = min(longest, effective)
        momentum = min(1 - size / effective, MOST_MOMENTUM_OF_MANY if many else MOST_MOMENTUM)
        optimizer = GradientDescent(size, facts.records, facts.clip_norm, momentum, nesterov=True, l2=facts.l2)
        return Recipe(optimizer, EvenSplit(), steps, step_sizes=(size,))
