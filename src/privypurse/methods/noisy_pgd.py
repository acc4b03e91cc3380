"""Noisy projected gradient descent with averaging (the lecture's method)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from privypurse.core.checks import positive_integer
from privypurse.core.errors import InvalidArgument
from privypurse.methods.base import PlannedMethod, check_choice, check_steps_and_size
from privypurse.optimizers.averaging import Averaged
from privypurse.optimizers.base import Optimizer
from privypurse.optimizers.gradient_descent import GradientDescent
from privypurse.optimizers.projections import Ball, Projection
from privypurse.planning import noisy_descent
from privypurse.planning.facts import Facts
from privypurse.planning.plan import Bound, Recipe
from privypurse.schedules.weighted import EvenSplit


@dataclass(frozen=True)
class NoisyPGD(PlannedMethod):
    """Equal noise, a step size from the convergence proof, and the mean of the points where gradients were taken.

    The expected excess loss of the mean over the best point of the set is at most ``R sqrt((G^2 + d s^2)/T)``, for any convex
    loss, smooth or not.

    Parameters
    ----------
    projection : Projection, "ball" or None, default "ball"
        The set to stay in: `Ball`, `Box`, `Simplex`, a ball of the facts' radius, or all points (then `radius` is a guess of
        how far the best point is, and the bound holds if it is right).
    average : {"all", "tail", "last"}, default "all"
        The mean of all points, of the last half, or the last point. The bound is for "all".
    steps : int or None
        By default where the two parts of the bound are equal, at most `most_steps`.
    step_size : float or None
        By default the one that minimises the bound.
    most_steps : int, default 150
        Beyond this the bound shrinks slowly and time grows.
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
                f"projection must be 'ball', None or a set such as Ball(1.0), Box(-1.0, 1.0); got {self.projection!r}. Pass one."
            )
        check_choice("average", self.average, ("all", "tail", "last"))
        positive_integer(most_steps=self.most_steps)

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the descent."""
        projection = Ball(facts.radius) if isinstance(self.projection, str) else self.projection
        reach = facts.radius if projection is None else projection.reach(facts.dimension)
        # The ridge's gradient is at most l2 times the longest point; within a set that is known.
        longest = facts.radius if projection is None else projection.longest(facts.dimension)
        gradient = facts.gradient_bound + facts.l2 * longest
        steps = self.steps or noisy_descent.projected_steps(facts, gradient, self.most_steps)
        noise = noisy_descent.noise_squared(facts, steps)
        best = noisy_descent.projected_step_size(reach, gradient, noise, steps)
        size = self.step_size or best
        optimizer: Optimizer = GradientDescent(
            step_size=size, records=facts.records, clip_norm=facts.clip_norm, l2=facts.l2, projection=projection
        )
        bound = None
        if self.average != "last":
            optimizer = Averaged(optimizer, skip=0 if self.average == "all" else steps // 2)
        bounded = projection is not None or facts.l2 == 0
        if self.average == "all" and size == best and bounded:
            value = noisy_descent.excess_bound(reach, gradient, noise, steps)
            bound = Bound("expected excess loss of the average over the best point within reach", value)
        return Recipe(optimizer, EvenSplit(), steps, step_sizes=(size,), bound=bound)
