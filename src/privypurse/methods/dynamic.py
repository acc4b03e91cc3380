"""Dynamic noise influence: budgets that follow how much each step's noise matters for the final loss."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from privypurse.accounting.filters import RdpFilter
from privypurse.accounting.fixed_schedule import FixedSchedule
from privypurse.accounting.totals import Filter
from privypurse.core.checks import finite_vector, positive, positive_integer, probability
from privypurse.core.errors import InvalidArgument
from privypurse.methods.base import PlannedMethod, check_choice, check_steps_and_size
from privypurse.optimizers.base import Optimizer
from privypurse.optimizers.gradient_descent import GradientDescent, check_momentum
from privypurse.optimizers.smoothed_descent import SmoothedDescent
from privypurse.planning import influence
from privypurse.planning.facts import Facts
from privypurse.planning.plan import Bound, Plan, Recipe
from privypurse.planning.sampled import fixed_schedule, refuse_unsampled_rule
from privypurse.schedules import shapes
from privypurse.schedules.weighted import Weighted

SHAPES = ("dynamic", "uniform", "exponential", "step")


@dataclass(frozen=True)
class Dynamic(PlannedMethod):
    """Descent with steps of 1/M and the schedule of noise that is best for the final loss.

    Influence comes from public constants, or from `influences` computed on public or made data. (Estimating it by retraining on
    the private data, as published, would cost hundreds of runs.)

    Parameters
    ----------
    shape : {"dynamic", "uniform", "exponential", "step"}, default "dynamic"
        Influence-optimal, even, or one of the usual decays.
    condition_number : float or None
        kappa = M/m. By default what the ridge guarantees, but at most 20: the worst case would allow a handful of steps at
        a small budget. A guess below the truth leaves privacy as it is and voids the bound.
    momentum : float, default 0.0
        Bias-corrected mean of gradients, with the influence its bound gives each step; `influences` takes a sharper one.
    steps : int or None
        By default the number with the least bound, at most `most_steps`.
    ratio : float, default 10.0
        For "exponential" and "step": budget of the last step relative to the first.
    stairs : int, default 4
        For "step": how many levels.
    influences : sequence of float, optional
        One positive number for each step: how much the noise of that step matters, from a public proxy.
    sample_prob : float, default 1.0
        Poisson sampling rate; the whole schedule is then priced by privacy loss distributions.
    most_steps : int, default 200
        Steps at most.
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
        check_choice("shape", self.shape, SHAPES)
        check_steps_and_size(self.steps, None)
        check_momentum(self.momentum)
        positive(ratio=self.ratio)
        positive_integer(stairs=self.stairs)
        positive_integer(most_steps=self.most_steps)
        probability(sample_prob=self.sample_prob)
        if self.condition_number is not None and positive(condition_number=self.condition_number) <= 1:
            raise InvalidArgument(f"condition_number must be above 1; got {self.condition_number!r}. Pass 20.0.")
        if self.influences is not None:
            values = finite_vector(influences=np.asarray(self.influences))
            shapes.influence(values.tolist())
            if self.shape != "dynamic" or self.steps not in (None, values.size):
                raise InvalidArgument(
                    f"influences decide the shape and the number of steps, {values.size}; got shape={self.shape!r} and "
                    f"steps={self.steps!r} with them. Leave these out."
                )
            object.__setattr__(self, "influences", tuple(values.tolist()))

    @property
    def name(self) -> str:  # type: ignore[override]
        """The shape is part of the name, where it is not the default."""
        return "dynamic" if self.shape == "dynamic" else f"dynamic-{self.shape}"

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the descent."""
        refuse_unsampled_rule(self.name, self.sample_prob, facts)
        weights = self._weights(facts)
        gamma, steps = self._gamma(facts), len(weights)
        # With momentum the paper's contraction, 1 - 1/(2 kappa), is for steps of half the length.
        size = 1 / facts.smoothness if self.momentum == 0 else 1 / (2 * facts.smoothness)
        records = facts.sampled(self.sample_prob)
        optimizer: Optimizer
        if self.momentum == 0:
            optimizer = GradientDescent(size, records, clip_norm=facts.clip_norm, l2=facts.l2)
        else:
            optimizer = SmoothedDescent(size, records, facts.clip_norm, self.momentum, facts.l2)
        schedule = Weighted(weights)
        bound = None
        if self.momentum == 0 and self.sample_prob == 1:
            relative = influence.loss_bound(schedule.shares, gamma, influence.alpha(facts))
            bound = Bound(
                f"expected excess loss, if the condition number is {self._kappa(facts):g}",
                relative * facts.bounds.initial_gap,
            )
        return Recipe(optimizer, schedule, steps, self.sample_prob, step_sizes=(size,), bound=bound)

    def plan(self, facts: Facts) -> Plan:
        """Say what a run will do, under the method's own filter."""
        return super().plan(
            replace(facts, rule=self.filter(facts), spent=None if self.sample_prob < 1 else facts.spent)
        )

    def filter(self, facts: Facts) -> Filter:
        """Return the facts' own rule, or for samples the schedule fixed in advance."""
        if self.sample_prob == 1 or isinstance(facts.rule, FixedSchedule | RdpFilter):
            return facts.rule
        return fixed_schedule(self._weights(facts), self.sample_prob, facts)

    def _weights(self, facts: Facts) -> shapes.Weights:
        if self.influences is not None:
            return shapes.influence(self.influences)
        gamma, alpha = self._gamma(facts), influence.alpha(facts)
        if self.shape == "uniform":
            return shapes.uniform(self.steps or influence.best_uniform_steps(gamma, alpha, self.most_steps))
        steps = self.steps or influence.best_dynamic_steps(gamma, alpha, self.most_steps)
        if self.shape == "exponential":
            return shapes.exponential(steps, self.ratio)
        if self.shape == "step":
            stairs = min(self.stairs, steps)
            return shapes.step_decay(steps, self.ratio ** (1 / max(1, stairs - 1)), every=-(-steps // stairs))
        if self.momentum > 0:
            return shapes.influence(influence.momentum_influences(steps, gamma, self.momentum).tolist())
        return shapes.influence(influence.geometric_influences(steps, gamma).tolist())

    def _kappa(self, facts: Facts) -> float:
        if self.condition_number is not None:
            return self.condition_number
        guaranteed = facts.smoothness / facts.l2 if facts.l2 > 0 else np.inf
        return float(min(max(guaranteed, 1.0 + 1e-6), 20.0))

    def _gamma(self, facts: Facts) -> float:
        # With momentum and steps of 1/(2M) the contraction is 1 - 1/(2 kappa).
        return influence.contraction(self._kappa(facts) * (2 if self.momentum > 0 else 1))
