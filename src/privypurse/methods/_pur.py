"""PUR: noise that minimises privacy cost per progress, for three kinds of loss; with variants.

Noise is on the *mean* gradient; ``sensitivity`` is that of the mean (C/n or 2C/n). Steps are
numbered from 1. The budget rho is ``mu^2/2``, and a step with noise s costs
``sensitivity^2 / (2 s^2)``. The step size is ``1/(2M)`` throughout.

Differences from the paper's printed formulas (``docs/papers.md``): its number of steps for strongly
convex losses spends about kappa times the budget; ``sum t^2 <= T^3`` is loose by a factor of three;
sqrt(M B), not M sqrt(B), has the units of a gradient.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from privypurse.accounting._filters import DeclaredNonPrivate
from privypurse.accounting._totals import Filter
from privypurse.accounting.convert import gdp_mu
from privypurse.core._checks import FloatArray, positive, positive_integer, small_probability
from privypurse.core._errors import BudgetExhausted, InvalidArgument
from privypurse.core.queries import GradientAt, Query, Released
from privypurse.mechanisms._non_private import NoiseAsLongAsTheValue
from privypurse.methods._auto import MOST_MOMENTUM, reach
from privypurse.methods.base import PlannedMethod, check_choice
from privypurse.training._plan import Bound, Facts, Plan, Recipe
from privypurse.training.optimizers._gradient_descent import GradientDescent, check_momentum
from privypurse.training.schedules import Budget, FollowGradientNorm, Weighted, shapes


def nonconvex_noise(steps: int, *, smoothness: float, gap: float, dimension: int) -> FloatArray:
    """Return ``4 sqrt(M B / d) / s`` for s = 1..steps."""
    return np.asarray(4 * math.sqrt(smoothness * gap / dimension) / np.arange(1, steps + 1))


def convex_noise(steps: int, *, smoothness: float, radius: float, dimension: int) -> FloatArray:
    """Return ``4 M R / (sqrt(d) s)`` for s = 1..steps."""
    return np.asarray(4 * smoothness * radius / math.sqrt(dimension) / np.arange(1, steps + 1))


def strongly_convex_noise(steps: int, *, smoothness: float, convexity: float, gap: float, dimension: int) -> FloatArray:
    """Return ``sqrt(2 m B r^-(s-1) / d)``, s = 1..steps, with ``r = 2k/(2k - 1)`` and k = M/m."""
    rate = 1 - convexity / (2 * smoothness)
    return np.asarray(np.sqrt(2 * convexity * gap / dimension * rate ** np.arange(steps)))


def capped(noise: FloatArray, *, gradient: float, dimension: int) -> FloatArray:
    """Limit noise to the length of the longest mean gradient; more wastes a step."""
    return np.minimum(noise, gradient / math.sqrt(dimension))


def cost_of(noise: FloatArray, sensitivity: float) -> FloatArray:
    """Return the rho of the first 1, 2, ... steps with the given noise."""
    return np.cumsum(sensitivity**2 / (2 * noise**2))


def steps_within(rho: float, noise: FloatArray, sensitivity: float) -> int:
    """Return how many steps with the given noise fit a budget."""
    return int(np.searchsorted(cost_of(noise, sensitivity), rho, side="right"))


def nonconvex_bound(steps: int, *, smoothness: float, gap: float) -> float:
    """Return the bound on the mean squared gradient norm: ``8 M B (1 + pi^2/3) / (3 T)``."""
    return 8 * smoothness * gap * (1 + math.pi**2 / 3) / (3 * steps)


def convex_bound(steps: int, *, smoothness: float, radius: float) -> float:
    """Return the bound on the excess loss while iterates stay within R: ``16 M R^2 / (3 T)``."""
    return 16 * smoothness * radius**2 / (3 * steps)


def strongly_convex_bound(steps: int, *, smoothness: float, convexity: float, gap: float) -> float:
    """Return the bound on the excess loss: ``B (1 - m/(2M))^T``."""
    return gap * (1 - convexity / (2 * smoothness)) ** steps


@dataclass(frozen=True)
class PUR(PlannedMethod):
    """Steps of 1/(2M) with noise that falls like the gradient's bound: as 1/t, or geometrically.

    The number of steps is the largest that fits the budget, by exact sums; the noise is then scaled
    down to spend the whole budget. Steps of 1/(2M) are short where the data is flatter than the
    worst case M: momentum extends them to the reach that the budget pays for, as in `Auto`.

    Parameters
    ----------
    case : {"convex", "non-convex", "strongly-convex"}, default "convex"
        What is known about the loss. "strongly-convex" needs a ridge penalty (``l2``), "convex" the
        facts' ``radius``.
    most_steps : int, default 180
        Most steps.
    cap : bool, default True
        Cap the noise at the longest possible gradient, which published noise exceeds at first.
    momentum : float or None, default None
        Nesterov momentum; None for the reach that the budget pays for. With 0, the published
        update, the plan states the paper's bound.
    """

    case: Literal["convex", "non-convex", "strongly-convex"] = "convex"
    most_steps: int = 180
    cap: bool = True
    momentum: float | None = None

    def __post_init__(self) -> None:
        check_choice("case", self.case, ("non-convex", "convex", "strongly-convex"))
        positive_integer(most_steps=self.most_steps)
        check_momentum(self.momentum or 0.0)

    @property
    def name(self) -> str:  # type: ignore[override]
        return {"convex": "pur-convex", "non-convex": "pur-nonconvex"}.get(self.case, "pur-strongly-convex")

    def recipe(self, facts: Facts) -> Recipe:
        noise = self._noise(facts, self.most_steps)
        affordable = steps_within(facts.mu**2 / 2, noise, facts.sensitivity / facts.records)
        steps = max(1, affordable)
        size = 1 / (2 * facts.smoothness)
        momentum = self.momentum
        if momentum is None:
            momentum = min(MOST_MOMENTUM, max(0.0, 1 - steps / (2 * reach(facts))))
        optimizer = GradientDescent(size, facts.records, facts.clip_norm, momentum, momentum > 0, facts.l2)
        schedule = Weighted(shapes.noise(noise[:steps].tolist()))
        bound = self._bound(facts, steps) if affordable and momentum == 0 else None
        notes = () if affordable else ("The budget does not pay for one step of this schedule: no bound holds.",)
        return Recipe(optimizer, schedule, steps, step_sizes=(size,), bound=bound, notes=notes)

    def _noise(self, facts: Facts, steps: int) -> FloatArray:
        smoothness, gap, dimension = facts.smoothness, facts.bounds.initial_gap, facts.dimension
        if self.case == "non-convex":
            noise = nonconvex_noise(steps, smoothness=smoothness, gap=gap, dimension=dimension)
        elif self.case == "convex":
            noise = convex_noise(steps, smoothness=smoothness, radius=facts.radius, dimension=dimension)
        else:
            noise = strongly_convex_noise(
                steps, smoothness=smoothness, convexity=_convexity(facts), gap=gap, dimension=dimension
            )
        return capped(noise, gradient=longest_mean_gradient(facts), dimension=dimension) if self.cap else noise

    def _bound(self, facts: Facts, steps: int) -> Bound:
        smoothness, gap = facts.smoothness, facts.bounds.initial_gap
        if self.case == "non-convex":
            return Bound("mean squared gradient norm", nonconvex_bound(steps, smoothness=smoothness, gap=gap))
        if self.case == "convex":
            value = convex_bound(steps, smoothness=smoothness, radius=facts.radius)
            return Bound("expected excess loss, while iterates stay within the radius of the optimum", value)
        value = strongly_convex_bound(steps, smoothness=smoothness, convexity=_convexity(facts), gap=gap)
        return Bound("expected excess loss", value)


@dataclass(frozen=True)
class AdaptivePUR(PlannedMethod):
    """PUR driven by released gradients: noise as long as the last gradient is estimated to be.

    Noise and step size, ``(1 - d noise_std^2/|g|^2)/M``, are functions of releases: free.

    Parameters
    ----------
    fewest_steps, most_steps : int
        A step's share of the budget is from ``1/most_steps`` to ``1/fewest_steps``.
    momentum : float, default 0.9
        Nesterov momentum; 0 for the published update.
    """

    fewest_steps: int = 10
    most_steps: int = 200
    momentum: float = 0.9
    name: ClassVar[str] = "pur-adaptive"

    def recipe(self, facts: Facts) -> Recipe:
        # Noise as long as the longest gradient: sqrt(d) sensitivity/(n mu_1) = G.
        first = facts.noise_floor**2 * (facts.gradient_bound / longest_mean_gradient(facts)) ** 2
        size = 1 / facts.smoothness
        optimizer = GradientDescent(
            size, facts.records, facts.clip_norm, self.momentum, self.momentum > 0, facts.l2, shrink=True
        )
        ridge = facts.l2 * facts.records
        schedule = FollowGradientNorm(min(first, 1.0), self.fewest_steps, self.most_steps, ridge)
        note = "If gradients stay as long as they can be: the most steps there can be. As they get shorter, steps get fewer."
        return Recipe(optimizer, schedule, self.most_steps + 1, step_sizes=(size,), notes=(note,))


def longest_mean_gradient(facts: Facts) -> float:
    """Return a bound on the mean gradient's norm, from each record's or from the initial gap.

    ``|grad F|^2 <= 2 M (F - F*)`` at the start; later points of a descent are lower in expectation.
    """
    return min(facts.gradient_bound, math.sqrt(2 * facts.smoothness * facts.bounds.initial_gap))


def _convexity(facts: Facts) -> float:
    if facts.l2 <= 0:
        raise InvalidArgument("case='strongly-convex' needs l2 above 0. Pass l2=1e-3, or case='convex'.")
    return facts.l2


@dataclass(frozen=True)
class OraclePUR:
    """Noise exactly as long as the true gradient, until a *claimed* budget is spent. NOT PRIVATE.

    The claim treats the scale of the noise as public. Runs only on ``Purse.not_private()``.

    Parameters
    ----------
    claimed_epsilon, claimed_delta, most_steps
        The budget to stop at, had the noise been public, and the most steps.
    """

    claimed_epsilon: float = 1.0
    claimed_delta: float = 1e-6
    most_steps: int = 300
    name: ClassVar[str] = "pur-oracle"

    def __post_init__(self) -> None:
        positive(claimed_epsilon=self.claimed_epsilon)
        small_probability(claimed_delta=self.claimed_delta)
        positive_integer(most_steps=self.most_steps)

    def recipe(self, facts: Facts) -> Recipe:
        facts.require_declared(self.name)
        size = 1 / (2 * facts.smoothness)
        optimizer = GradientDescent(size, facts.records, facts.clip_norm, l2=facts.l2)
        limit = gdp_mu(self.claimed_epsilon, self.claimed_delta) ** 2
        schedule = UntilTheClaimIsSpent(limit, facts.sensitivity, facts.l2 * facts.records)
        return Recipe(optimizer, schedule, self.most_steps, step_sizes=(size,))

    def plan(self, facts: Facts) -> Plan:
        """Return what a run would do if every gradient were as long as it can be."""
        std = facts.records * longest_mean_gradient(facts) / facts.dimension**0.5
        mu = facts.sensitivity / std
        steps = min(self.most_steps, max(1, int(gdp_mu(self.claimed_epsilon, self.claimed_delta) ** 2 / mu**2)))
        sizes, noise, notes = (1 / (2 * facts.smoothness),) * steps, (std,) * steps, ("NOT PRIVATE.",)
        return Plan(self.name, steps, facts.gradient_bound, sizes, noise, (mu,) * steps, notes=notes)

    def filter(self, facts: Facts) -> Filter:
        return DeclaredNonPrivate(facts.delta, facts.neighbouring)


@dataclass(frozen=True)
class UntilTheClaimIsSpent:
    """Oracle noise until the sum of ``(sensitivity/noise_std)^2`` exceeds a limit. NOT PRIVATE."""

    limit: float
    sensitivity: float
    ridge: float = 0.0

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> NoiseAsLongAsTheValue:
        # The noise of a step is known only afterwards, so the step that exceeds the limit is made.
        noise = [released.noise_std or 0.0 for released in past]
        if 0.0 in noise or sum((self.sensitivity / std) ** 2 for std in noise) >= self.limit:
            raise BudgetExhausted("the claimed budget is spent.")
        if self.ridge > 0 and isinstance(query, GradientAt):
            return NoiseAsLongAsTheValue(tuple((self.ridge * query.point).tolist()))
        return NoiseAsLongAsTheValue()
