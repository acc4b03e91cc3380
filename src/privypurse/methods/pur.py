"""PUR: noise that minimises privacy cost per unit of progress, for three kinds of loss, and its adaptive form."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from privypurse.core.checks import FloatArray, positive_integer
from privypurse.core.errors import InvalidArgument
from privypurse.methods.base import PlannedMethod, check_choice
from privypurse.optimizers.gradient_descent import GradientDescent
from privypurse.planning import pur
from privypurse.planning.facts import Facts
from privypurse.planning.plan import Bound, Recipe
from privypurse.schedules import shapes
from privypurse.schedules.gradient_norm import FollowGradientNorm
from privypurse.schedules.weighted import Weighted

CASES = ("non-convex", "convex", "strongly-convex")


@dataclass(frozen=True)
class PUR(PlannedMethod):
    """Steps of 1/(2M) with noise that falls as the gradient is bound to: as 1/t, or geometrically if strongly convex.

    The number of steps is the largest that the budget pays for, by exact sums; the noise is then scaled down so that the budget
    is spent to the end.

    Parameters
    ----------
    case : {"convex", "non-convex", "strongly-convex"}, default "convex"
        What is known about the loss. "strongly-convex" needs a ridge penalty (``l2``), "convex" the facts' ``radius``.
    most_steps : int, default 180
        Steps at most.
    cap : bool, default True
        No noise longer than the longest gradient there can be, which the published schedule begins with.
    """

    case: Literal["convex", "non-convex", "strongly-convex"] = "convex"
    most_steps: int = 180
    cap: bool = True

    def __post_init__(self) -> None:
        check_choice("case", self.case, CASES)
        positive_integer(most_steps=self.most_steps)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The case is part of the name."""
        return {"convex": "pur-convex", "non-convex": "pur-nonconvex"}.get(self.case, "pur-strongly-convex")

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the descent."""
        noise = self._noise(facts, self.most_steps)
        cost = pur.cost_of(noise, facts.sensitivity / facts.records)
        affordable = pur.steps_within(
            facts.mu**2 / 2, lambda steps: float(cost[steps - 1]) if steps else 0.0, self.most_steps
        )
        steps = max(1, affordable)
        size = 1 / (2 * facts.smoothness)
        optimizer = GradientDescent(step_size=size, records=facts.records, clip_norm=facts.clip_norm, l2=facts.l2)
        notes = () if affordable else ("The budget does not pay for one step of this schedule: no bound holds.",)
        return Recipe(
            optimizer,
            Weighted(shapes.noise(noise[:steps].tolist())),
            steps,
            step_sizes=(size,),
            bound=self._bound(facts, steps) if affordable else None,
            notes=notes,
        )

    def _noise(self, facts: Facts, steps: int) -> FloatArray:
        common = {"smoothness": facts.smoothness, "dimension": facts.dimension}
        if self.case == "non-convex":
            noise = pur.nonconvex_noise(steps, gap=facts.bounds.initial_gap, **common)  # type: ignore[arg-type]
        elif self.case == "convex":
            noise = pur.convex_noise(steps, radius=facts.radius, **common)  # type: ignore[arg-type]
        else:
            noise = pur.strongly_convex_noise(
                steps,
                smoothness=facts.smoothness,
                convexity=_convexity(facts),
                gap=facts.bounds.initial_gap,
                dimension=facts.dimension,
            )
        return (
            pur.capped(noise, gradient=longest_mean_gradient(facts), dimension=facts.dimension) if self.cap else noise
        )

    def _bound(self, facts: Facts, steps: int) -> Bound:
        smoothness, gap = facts.smoothness, facts.bounds.initial_gap
        if self.case == "non-convex":
            return Bound("mean squared gradient norm", pur.nonconvex_bound(steps, smoothness=smoothness, gap=gap))
        if self.case == "convex":
            value = pur.convex_bound(steps, smoothness=smoothness, radius=facts.radius)
            return Bound("expected excess loss, while iterates stay within the radius of the optimum", value)
        value = pur.strongly_convex_bound(steps, smoothness=smoothness, convexity=_convexity(facts), gap=gap)
        return Bound("expected excess loss", value)


@dataclass(frozen=True)
class AdaptivePUR(PlannedMethod):
    """PUR driven by the gradients themselves, as far as they were released: noise as long as the last gradient seems to be.

    Both the noise and the step size, ``(1 - d noise_std^2/|g|^2)/M``, are functions of what was released, so they are free.

    Parameters
    ----------
    fewest_steps, most_steps : int
        Limits on what one step may take of the budget: ``1/fewest_steps`` at most, ``1/most_steps`` at least.
    momentum : float, default 0.9
        Nesterov momentum; 0 for the published update.
    """

    fewest_steps: int = 10
    most_steps: int = 200
    momentum: float = 0.9
    name: ClassVar[str] = "pur-adaptive"

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the descent; how many steps it has depends on what is released."""
        # Noise as long as the longest gradient: sqrt(d) sensitivity/(n mu_1) = G.
        first = facts.noise_floor**2 * (facts.gradient_bound / longest_mean_gradient(facts)) ** 2
        size = 1 / facts.smoothness
        optimizer = GradientDescent(
            step_size=size,
            records=facts.records,
            clip_norm=facts.clip_norm,
            l2=facts.l2,
            momentum=self.momentum,
            nesterov=self.momentum > 0,
            shrink=True,
        )
        ridge = facts.l2 * facts.records
        schedule = FollowGradientNorm(min(first, 1.0), self.fewest_steps, self.most_steps, ridge)
        notes = (
            "If gradients stay as long as they can be: the most steps there can be. As they get shorter, steps get fewer.",
        )
        return Recipe(optimizer, schedule, self.most_steps + 1, step_sizes=(size,), notes=notes)


def longest_mean_gradient(facts: Facts) -> float:
    """Return a bound on the mean gradient's norm: each record's, or what curvature and the gap at the start allow.

    ``|grad F|^2 <= 2 M (F - F*)`` at the start; later points of a descent are lower in expectation.
    """
    return min(facts.gradient_bound, math.sqrt(2 * facts.smoothness * facts.bounds.initial_gap))


def _convexity(facts: Facts) -> float:
    if facts.l2 <= 0:
        raise InvalidArgument(
            "case='strongly-convex' needs l2 above 0, which makes the objective strongly convex. Pass l2=1e-3, or case='convex'."
        )
    return facts.l2
