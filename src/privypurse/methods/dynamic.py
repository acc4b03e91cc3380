"""Dynamic noise: budgets follow the influence of each step's noise on the final loss.

For a loss with curvature at most M that satisfies the Polyak-Lojasiewicz inequality with constant
m, gradient descent with steps of 1/M contracts the excess loss by ``gamma = 1 - m/M`` a step, so
noise of step t arrives at the end with weight ``gamma^(T-t)``. All is relative to the excess loss
at the start, B, with ``alpha = d sensitivity^2 / (2 mu^2 M n^2 B)``: the bound is
``gamma^T + alpha sum_t gamma^(T-t) / share_t``, where ``share_t`` is the share of mu^2 for step t.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from privypurse.accounting._filters import RdpFilter
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Filter
from privypurse.core._checks import FloatArray, positive, positive_integer, probability
from privypurse.core._errors import InvalidArgument
from privypurse.methods._dp_sgd import fixed_schedule, refuse_unsampled_rule
from privypurse.methods.base import PlannedMethod, check_choice, check_steps_and_size
from privypurse.training._plan import Bound, Facts, Plan, Recipe
from privypurse.training.optimizers._base import Optimizer
from privypurse.training.optimizers._gradient_descent import GradientDescent, SmoothedDescent, check_momentum
from privypurse.training.schedules import Weighted, shapes

__all__ = ["quadratic_influences"]


def relative_noise(facts: Facts) -> float:
    """Return the noise of a step with the whole budget, relative to the initial excess loss."""
    noise = facts.dimension * (facts.sensitivity / (facts.records * facts.mu)) ** 2
    return noise / (2 * facts.smoothness * facts.bounds.initial_gap)


def contraction(condition_number: float) -> float:
    """Return ``gamma = 1 - 1/kappa``."""
    return 1 - 1 / condition_number


def geometric_influences(steps: int, gamma: float) -> FloatArray:
    """Return ``gamma^(T-t)`` for t = 1..T."""
    return np.asarray(gamma ** np.arange(steps - 1, -1, -1.0))


def momentum_influences(steps: int, gamma: float, momentum: float) -> FloatArray:
    """Return the influences in the bound for the bias-corrected mean of gradients.

    The gradient of step i enters every later step t of `SmoothedDescent` with weight
    ``b^(t-i) (1-b)/(1-b^t)``: ``q_i = sum_{t >= i} gamma^(T-t) ((1-b)/(1-b^t))^2 b^(2(t-i))``. On
    a quadratic, where its effects add before squaring, `quadratic_influences` is sharper.
    """
    times = np.arange(1.0, steps + 1)
    weight = gamma ** (steps - times) * ((1 - momentum) / (1 - momentum**times)) ** 2
    lag = times[None, :] - times[:, None]
    decay = np.where(lag >= 0, momentum ** (2 * np.maximum(lag, 0)), 0.0)
    return np.asarray(decay @ weight)


def quadratic_influences(curvatures: FloatArray, step_size: float, steps: int, momentum: float = 0.0) -> FloatArray:
    """Return the exact influences on a quadratic loss with these curvatures.

    Without momentum ``eta^2/2 sum_j l_j (1 - eta l_j)^(2(T-t))``; with it, the response of
    `SmoothedDescent` to an impulse in each step's gradient. Curvatures must come from a public
    proxy, such as the covariance of similar public data, or from released statistics.
    """
    bends = np.asarray(curvatures, dtype=np.float64)[:, None]
    # One column for each step's impulse.
    moved, mean = np.zeros((bends.size, steps)), np.zeros((bends.size, steps))
    for step in range(steps):
        gradient = bends * moved
        gradient[:, step] += 1.0
        mean = momentum * mean + (1 - momentum) * gradient
        moved = moved - step_size * mean / (1 - momentum ** (step + 1))
    return np.asarray((bends / 2 * moved**2).sum(axis=0))


def loss_bound(shares: FloatArray, gamma: float, alpha: float) -> float:
    """Return the bound on the final excess loss, relative to the initial one, for any shares."""
    steps = len(shares)
    return float(gamma**steps + alpha * np.sum(geometric_influences(steps, gamma) / np.asarray(shares)))


def uniform_bound(steps: int, gamma: float, alpha: float) -> float:
    """Return `loss_bound` for equal shares: ``gamma^T + alpha T (1 - gamma^T)/(1 - gamma)``."""
    return gamma**steps + alpha * steps * (1 - gamma**steps) / (1 - gamma)


def dynamic_bound(steps: int, gamma: float, alpha: float) -> float:
    """Return `loss_bound` at its best: ``gamma^T + alpha ((1-gamma^(T/2))/(1-sqrt(gamma)))^2``."""
    return float(gamma**steps + alpha * ((1 - gamma ** (steps / 2)) / (1 - math.sqrt(gamma))) ** 2)


def best_uniform_steps(gamma: float, alpha: float, most: int) -> int:
    """Return the number of steps, at most `most`, with the least `uniform_bound`."""
    return min(range(1, most + 1), key=lambda steps: uniform_bound(steps, gamma, alpha))


def best_dynamic_steps(gamma: float, alpha: float, most: int) -> int:
    """Return the number of steps, at most `most`, with the least `dynamic_bound`.

    In ``x = gamma^(T/2)`` the bound is ``x^2 + c (1 - x)^2`` with
    ``c = alpha/(1 - sqrt(gamma))^2``, least at ``x = c/(1 + c)``:
    ``T = 2 ln(1 + 1/c) / ln(1/gamma)``, rounded to the better neighbour.
    """
    if gamma <= 0:  # one step is exact; more only add noise
        return 1
    c = alpha / (1 - math.sqrt(gamma)) ** 2
    exact = 2 * math.log1p(1 / c) / math.log(1 / gamma)
    below = min(max(math.floor(exact), 1), most)
    return min((below, min(below + 1, most)), key=lambda steps: dynamic_bound(steps, gamma, alpha))


@dataclass(frozen=True)
class Dynamic(PlannedMethod):
    """Descent with steps of 1/M and the noise schedule that is best for the final loss.

    Influence comes from public constants, or from `influences` computed on public or synthetic
    data. (Retraining on the private data, as published, would cost hundreds of runs.)

    Parameters
    ----------
    shape : {"dynamic", "uniform", "exponential", "step"}, default "dynamic"
        Influence-optimal, even, or one of the usual decays.
    condition_number : float or None
        kappa = M/m. By default what the ridge guarantees, but at most 20, since the worst case
        would allow few steps at a small budget. Too low a guess voids the bound, not the privacy.
    momentum : float, default 0.0
        Momentum of the bias-corrected mean of gradients; `influences` may be sharper.
    steps, most_steps : int or None, int
        By default the number with the least bound, at most 200.
    ratio, stairs : float, int
        Budget of the last step relative to the first for "exponential" and "step", 10 by default;
        number of levels for "step", 4 by default.
    influences : sequence of float, optional
        One positive number for each step: the influence of its noise, from a public proxy.
    sample_prob : float, default 1.0
        Poisson sampling rate; the whole schedule is then priced by privacy loss distributions.
    """

    shape: Literal["dynamic", "uniform", "exponential", "step"] = "dynamic"
    condition_number: float | None = None
    momentum: float = 0.0
    steps: int | None = None
    ratio: float = 10.0
    stairs: int = 4
    influences: tuple[float, ...] | None = None
    sample_prob: float = 1.0
    most_steps: int = 200

    def __post_init__(self) -> None:
        check_choice("shape", self.shape, ("dynamic", "uniform", "exponential", "step"))
        check_steps_and_size(self.steps, None)
        check_momentum(self.momentum)
        positive(ratio=self.ratio)
        positive_integer(stairs=self.stairs)
        positive_integer(most_steps=self.most_steps)
        probability(sample_prob=self.sample_prob)
        if self.condition_number is not None and positive(condition_number=self.condition_number) <= 1:
            raise InvalidArgument(f"condition_number must be above 1; got {self.condition_number!r}. Pass 20.0.")
        if self.influences is not None:
            values = shapes.positive_vector(influences=self.influences)
            if self.shape != "dynamic" or self.steps not in (None, values.size):
                what = f"influences decide shape and steps; got shape={self.shape!r} and steps={self.steps!r} with them"
                raise InvalidArgument(f"{what}. Omit these.")
            object.__setattr__(self, "influences", tuple(values.tolist()))

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name, with the shape where it is not the default."""
        return "dynamic" if self.shape == "dynamic" else f"dynamic-{self.shape}"

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the descent."""
        refuse_unsampled_rule(self.name, self.sample_prob, facts)
        weights = self._weights(facts)
        gamma, steps = self._gamma(facts), len(weights)
        # With momentum the paper's contraction, 1 - 1/(2 kappa), is for steps of 1/(2M).
        size = 1 / facts.smoothness if self.momentum == 0 else 1 / (2 * facts.smoothness)
        records = facts.sampled(self.sample_prob)
        optimizer: Optimizer = GradientDescent(size, records, clip_norm=facts.clip_norm, l2=facts.l2)
        if self.momentum > 0:
            optimizer = SmoothedDescent(size, records, facts.clip_norm, self.momentum, facts.l2)
        schedule = Weighted(weights)
        bound = None
        if self.momentum == 0 and self.sample_prob == 1:
            relative = loss_bound(schedule.shares, gamma, relative_noise(facts))
            words = f"expected excess loss, if the condition number is {self._kappa(facts):g}"
            bound = Bound(words, relative * facts.bounds.initial_gap)
        return Recipe(optimizer, schedule, steps, self.sample_prob, step_sizes=(size,), bound=bound)

    def plan(self, facts: Facts) -> Plan:
        """Return what a run will do under the method's own filter."""
        spent = None if self.sample_prob < 1 else facts.spent
        return super().plan(replace(facts, rule=self.filter(facts), spent=spent))

    def filter(self, facts: Facts) -> Filter:
        """Return the facts' own filter, or for samples a fixed schedule."""
        if self.sample_prob == 1 or isinstance(facts.rule, FixedSchedule | RdpFilter):
            return facts.rule
        return fixed_schedule(self._weights(facts), self.sample_prob, facts)

    def _weights(self, facts: Facts) -> shapes.Weights:
        if self.influences is not None:
            return shapes.influence(self.influences)
        gamma, alpha = self._gamma(facts), relative_noise(facts)
        if self.shape == "uniform":
            return shapes.uniform(self.steps or best_uniform_steps(gamma, alpha, self.most_steps))
        steps = self.steps or best_dynamic_steps(gamma, alpha, self.most_steps)
        if self.shape == "exponential":
            return shapes.exponential(steps, self.ratio)
        if self.shape == "step":
            stairs = min(self.stairs, steps)
            return shapes.step_decay(steps, self.ratio ** (1 / max(1, stairs - 1)), every=-(-steps // stairs))
        if self.momentum > 0:
            return shapes.influence(momentum_influences(steps, gamma, self.momentum).tolist())
        return shapes.influence(geometric_influences(steps, gamma).tolist())

    def _kappa(self, facts: Facts) -> float:
        if self.condition_number is not None:
            return self.condition_number
        guaranteed = facts.smoothness / facts.l2 if facts.l2 > 0 else np.inf
        return float(min(max(guaranteed, 1.0 + 1e-6), 20.0))

    def _gamma(self, facts: Facts) -> float:
        return contraction(self._kappa(facts) * (2 if self.momentum > 0 else 1))
