"""Private stochastic gradient descent on Poisson samples."""

from dataclasses import dataclass, replace
from typing import Literal

from privypurse.accounting.filters import RdpFilter
from privypurse.accounting.fixed_schedule import FixedSchedule
from privypurse.accounting.totals import Filter
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse.core.checks import probability
from privypurse.core.errors import InvalidArgument
from privypurse.methods.base import PlannedMethod, check_choice, check_steps_and_size
from privypurse.optimizers.averaging import Averaged
from privypurse.optimizers.base import Optimizer
from privypurse.optimizers.gradient_descent import GradientDescent, check_momentum
from privypurse.optimizers.projections import Projection
from privypurse.planning.facts import Facts
from privypurse.planning.noisy_descent import balanced_steps
from privypurse.planning.plan import Plan, Recipe
from privypurse.planning.sampled import advanced_composition_multiplier, fixed_schedule, refuse_unsampled_rule
from privypurse.schedules import shapes
from privypurse.schedules.base import Schedule
from privypurse.schedules.constant import ConstantNoise
from privypurse.schedules.weighted import Weighted


@dataclass(frozen=True)
class DPSGD(PlannedMethod):
    """Clipped gradients of fresh Poisson samples, with momentum. The accountant reads the sampling rate from the sampler.

    A sampled release has no price in Gaussian DP, so a purse for this method is made from the method's own filter:
    ``Purse.with_filter(method.filter(facts))``.

    Parameters
    ----------
    sample_prob : float or None
        Sampling rate. By default a tenth, or more where that would be fewer than 1,000 records.
    steps : int or None
        By default ``n mu/sqrt(d)``, between 10 and 200: at the noise of small budgets a sample buys time, not accuracy, so the
        number of steps is that of full batches.
    momentum : float, default 0.9
        Heavy-ball momentum.
    step_size : float or None
        By default 1/M.
    accounting : {"pld", "rdp", "advanced"}, default "pld"
        A schedule fixed in advance, composed exactly; a Rényi filter, which also allows other budgets later; or the noise that
        advanced composition would ask for (the published SGD-Adv): sound, wasteful, a baseline.
    projection : Projection or None
        A public set to stay in, such as `Ball`. Give ``momentum=0`` with it for the lecture's private SGD.
    average : {"last", "tail", "all"}, default "last"
        Return the last point, or the mean of the last half or of all points where gradients were taken.
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
        """The accounting is part of the name, where it is not the default."""
        return "dp-sgd" if self.accounting == "pld" else f"dp-sgd-{self.accounting}"

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the descent."""
        steps, rate = self._steps(facts), self._rate(facts)
        refuse_unsampled_rule(self.name, rate, facts)
        size = self.step_size or 1 / facts.smoothness
        optimizer: Optimizer = GradientDescent(
            step_size=size,
            records=facts.sampled(rate),
            clip_norm=facts.clip_norm,
            momentum=self.momentum,
            l2=facts.l2,
            projection=self.projection,
        )
        if self.average != "last":
            optimizer = Averaged(optimizer, skip=0 if self.average == "all" else steps // 2)
        schedule: Schedule = Weighted(shapes.uniform(steps))
        if self.accounting == "advanced" and not isinstance(facts.rule, FixedSchedule):
            schedule = ConstantNoise(advanced_composition_multiplier(steps, rate, facts))
        return Recipe(optimizer, schedule, steps, rate, step_sizes=(size,))

    def plan(self, facts: Facts) -> Plan:
        """Say what a run will do, under the method's own filter."""
        return super().plan(replace(facts, rule=self.filter(facts), spent=None))

    def filter(self, facts: Facts) -> Filter:
        """Return the stopping rule that prices samples; unlike for other methods it is not the facts' own."""
        if isinstance(facts.rule, FixedSchedule | RdpFilter):
            return facts.rule
        steps, rate = self._steps(facts), self._rate(facts)
        if self.accounting == "rdp":
            reference = fixed_schedule((1.0,) * steps, rate, facts).schedule[0]
            kind = reference if isinstance(reference, GaussianCharge) else GaussianCharge(1.0, rate)
            return RdpFilter(facts.epsilon, facts.delta, facts.neighbouring, reference=kind)
        if self.accounting == "advanced":
            charge = GaussianCharge(advanced_composition_multiplier(steps, rate, facts), rate)
            return FixedSchedule([RepeatedCharge(charge, steps)], facts.epsilon, facts.delta, facts.neighbouring)
        return fixed_schedule((1.0,) * steps, rate, facts)

    def _steps(self, facts: Facts) -> int:
        if isinstance(facts.rule, FixedSchedule):
            planned = len(facts.rule.schedule)
            if self.steps not in (None, planned):
                raise InvalidArgument(
                    f"steps must be {planned}, as in the schedule of this purse; got {self.steps}. Open another purse."
                )
            return planned
        return self.steps or balanced_steps(facts)

    def _rate(self, facts: Facts) -> float:
        return self.sample_prob or min(1.0, max(0.1, 1_000 / facts.records))
