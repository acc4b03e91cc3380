"""Private stochastic gradient descent on Poisson samples, with schedules priced as a whole."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from privypurse.accounting import convert
from privypurse.accounting._filters import RdpFilter
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Filter
from privypurse.accounting.calibrate import scale_to_budget
from privypurse.core._checks import probability
from privypurse.core._errors import InvalidArgument, UnsupportedCharge
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse.methods._nesterov import balanced_steps
from privypurse.methods.base import PlannedMethod, check_choice, check_steps_and_size
from privypurse.training import Facts, Plan, Recipe
from privypurse.training.optimizers._base import Averaged, Optimizer, Projection
from privypurse.training.optimizers._gradient_descent import GradientDescent, check_momentum
from privypurse.training.schedules import Schedule, Weighted, shapes
from privypurse.training.schedules._base import ConstantNoise

# Distinct noise levels of a sampled schedule; each costs a convolution per calibration step.
LEVELS = 12


def fixed_schedule(weights: Sequence[float], sample_prob: float, target: Facts | Filter) -> FixedSchedule:
    """Return the schedule with noise in proportion to weights that spends the budget (PLD)."""
    return calibrated(relative_charges(weights, sample_prob), target)


def calibrated(charges: Sequence[GaussianCharge], target: Facts | Filter) -> FixedSchedule:
    """Return the schedule with noise in these proportions that spends the budget."""
    runs = [RepeatedCharge(charge, sum(1 for _ in same)) for charge, same in itertools.groupby(charges)]
    scaled = scale_to_budget(runs, target.epsilon, target.delta, target.neighbouring)
    return FixedSchedule(scaled, target.epsilon, target.delta, target.neighbouring)


def relative_charges(weights: Sequence[float], sample_prob: float) -> list[GaussianCharge]:
    """Return releases whose noise follows these weights, up to a common factor.

    Noise goes as ``1/sqrt(weight)``, on a geometric grid of a few levels where the weights differ.
    (For sampled releases a weight is only approximately a share of the budget.)
    """
    levels = np.log(1 / np.sqrt(np.asarray(weights, dtype=np.float64)))
    if np.unique(levels).size > LEVELS:
        grid = np.linspace(levels.min(), levels.max(), LEVELS)
        levels = grid[np.abs(levels[:, None] - grid).argmin(axis=1)]
    return [GaussianCharge(float(math.exp(level)), sample_prob) for level in levels]


def advanced_composition_multiplier(steps: int, sample_prob: float, facts: Facts) -> float:
    """Return the noise multiplier of advanced composition: a baseline, far above the least one.

    Each step is (e0, d0)-DP without sampling and ``(ln(1 + q(exp(e0) - 1)), q d0)``-DP with it; T
    of these are ``(e1 sqrt(2 T ln(1/d')) + T e1 (exp(e1) - 1), T q d0 + d')``-DP (Dwork, Rothblum
    and Vadhan 2010), with half of delta for d'. A replacement is a removal and an addition.
    """
    epsilon, delta, per_sensitivity = facts.epsilon, facts.delta, 1.0
    if facts.neighbouring is Neighbouring.REPLACE_ONE:
        # Two steps of (e, d) are (2e, (1 + exp(e)) d); noise is relative to twice the sensitivity.
        epsilon, delta, per_sensitivity = epsilon / 2, delta / (1 + math.exp(epsilon / 2)), 0.5
    slack, per_step_delta = delta / 2, delta / (2 * steps * sample_prob)

    def composed(per_step: float) -> float:
        amplified = math.log1p(sample_prob * math.expm1(per_step))
        return amplified * math.sqrt(2 * steps * math.log(1 / slack)) + steps * amplified * math.expm1(amplified)

    low, high = 1e-12, 50.0
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if composed(middle) <= epsilon else (low, middle)
    return per_sensitivity / convert.gdp_mu(low, min(per_step_delta, 0.5))


def refuse_unsampled_rule(name: str, sample_prob: float, facts: Facts) -> None:
    """Raise UnsupportedCharge if the purse's filter has no price for samples."""
    if sample_prob < 1 and facts.rule.name in ("gdp", "zcdp"):
        what = f"{name} takes Poisson samples, which this purse's {facts.rule.name} filter cannot price"
        raise UnsupportedCharge(f"{what}. Use training.purse_for.")


@dataclass(frozen=True)
class DPSGD(PlannedMethod):
    """Clipped gradients of fresh Poisson samples, with momentum.

    The accountant reads the sampling rate from the sampler. A sampled release has no price in
    Gaussian DP, so use the method's own filter: ``Purse.with_filter(method.filter(facts))``.

    Parameters
    ----------
    sample_prob : float or None
        Sampling rate. By default a tenth, or more where that would be fewer than 1,000 records.
    steps : int or None
        By default ``n mu/sqrt(d)``, between 10 and 200, as for full batches: at the noise of small
        budgets a sample saves time but does not improve accuracy.
    momentum : float, default 0.9
        Heavy-ball momentum.
    step_size : float or None
        By default 1/M.
    accounting : {"pld", "rdp", "advanced"}, default "pld"
        "pld": a schedule fixed in advance, composed exactly. "rdp": a Rényi filter, which also
        allows other budgets later. "advanced": the noise of advanced composition (the published
        SGD-Adv), a wasteful but sound baseline.
    projection : Projection or None
        Public set to stay in, such as `Ball`. With ``momentum=0``: the lecture's private SGD.
    average : {"last", "tail", "all"}, default "last"
        Return the last point, or the mean of the last half or of all points with gradients.
    """

    sample_prob: float | None = None
    steps: int | None = None
    momentum: float = 0.9
    step_size: float | None = None
    accounting: Literal["pld", "rdp", "advanced"] = "pld"
    projection: Projection | None = None
    average: Literal["last", "tail", "all"] = "last"

    def __post_init__(self) -> None:
        if self.sample_prob is not None:
            probability(sample_prob=self.sample_prob)
        check_steps_and_size(self.steps, self.step_size)
        check_momentum(self.momentum)
        check_choice("average", self.average, ("last", "tail", "all"))
        check_choice("accounting", self.accounting, ("pld", "rdp", "advanced"))

    @property
    def name(self) -> str:  # type: ignore[override]
        return "dp-sgd" if self.accounting == "pld" else f"dp-sgd-{self.accounting}"

    def recipe(self, facts: Facts) -> Recipe:
        steps, rate = self._steps(facts), self._rate(facts)
        refuse_unsampled_rule(self.name, rate, facts)
        size = self.step_size or 1 / facts.smoothness
        optimizer: Optimizer = GradientDescent(
            size, facts.sampled(rate), facts.clip_norm, self.momentum, l2=facts.l2, projection=self.projection
        )
        if self.average != "last":
            optimizer = Averaged(optimizer, skip=0 if self.average == "all" else steps // 2)
        schedule: Schedule = Weighted(shapes.uniform(steps))
        if self.accounting == "advanced" and not isinstance(facts.rule, FixedSchedule):
            schedule = ConstantNoise(advanced_composition_multiplier(steps, rate, facts))
        return Recipe(optimizer, schedule, steps, rate, step_sizes=(size,))

    def plan(self, facts: Facts) -> Plan:
        return super().plan(replace(facts, rule=self.filter(facts), spent=None))

    def filter(self, facts: Facts) -> Filter:
        """Return a filter that prices samples, not the facts' own."""
        if isinstance(facts.rule, FixedSchedule | RdpFilter):
            return facts.rule
        steps, rate = self._steps(facts), self._rate(facts)
        if self.accounting == "rdp":
            reference: Any = fixed_schedule((1.0,) * steps, rate, facts).schedule[0]
            return RdpFilter(facts.epsilon, facts.delta, facts.neighbouring, reference=reference)
        if self.accounting == "advanced":
            charge = GaussianCharge(advanced_composition_multiplier(steps, rate, facts), rate)
            return FixedSchedule([RepeatedCharge(charge, steps)], facts.epsilon, facts.delta, facts.neighbouring)
        return fixed_schedule((1.0,) * steps, rate, facts)

    def _steps(self, facts: Facts) -> int:
        if isinstance(facts.rule, FixedSchedule):
            planned = len(facts.rule.schedule)
            if self.steps not in (None, planned):
                raise InvalidArgument(f"steps must be {planned}, as this purse has; got {self.steps}. Open another.")
            return planned
        return self.steps or balanced_steps(facts)

    def _rate(self, facts: Facts) -> float:
        return self.sample_prob or min(1.0, max(0.1, 1_000 / facts.records))
