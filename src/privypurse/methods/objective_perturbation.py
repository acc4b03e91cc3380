"""Objective perturbation: minimise once, with a random linear term in the objective."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privypurse.accounting import objective_perturbation as cost
from privypurse.accounting.filters import RdpFilter
from privypurse.accounting.fixed_schedule import FixedSchedule
from privypurse.accounting.totals import Filter
from privypurse.core.charges import ObjectivePerturbationCharge
from privypurse.core.checks import positive
from privypurse.core.errors import BudgetExhausted, UnsupportedCharge
from privypurse.core.queries import Query, Released
from privypurse.mechanisms.perturbed_minimiser import OUTPUT_NOISE_MULTIPLIER, ObjectivePerturbation
from privypurse.methods.output_perturbation import check_minimisable
from privypurse.training.facts import Facts
from privypurse.training.optimizers.genetic import TakeTheMinimiser
from privypurse.training.plan import Plan, Recipe
from privypurse.training.schedules.base import Budget


@dataclass(frozen=True)
class ObjPert:
    """The minimiser of a perturbed objective, released once, at about the cost of one gradient.

    Priced by the tight analysis of Redberg, Koskela and Wang (2023), as a schedule of one release
    fixed in advance: ``Purse.with_filter(method.filter(facts))``. A purse with ``filter="rdp"``
    also admits it, with other releases, at a higher price.

    Parameters
    ----------
    ridge : float or None
        Ridge on the sum of losses. By default the largest curvature of a record times 10/epsilon,
        but at least 2, or the facts' ``l2`` times the number of records if that is more.
    """

    ridge: float | None = None
    name: ClassVar[str] = "objective-perturbation"

    def __post_init__(self) -> None:
        if self.ridge is not None:
            positive(ridge=self.ridge)

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the one release."""
        check_minimisable(facts)
        if facts.rule.name in ("gdp", "zcdp"):
            raise UnsupportedCharge(
                f"the {facts.rule.name} filter of this purse cannot price objective perturbation. Make the purse with "
                "training.open_purse(oracle, method, ...)."
            )
        schedule = PerturbOnce(self._noise_multiplier(facts), self._ridge(facts))
        return Recipe(TakeTheMinimiser(), schedule, 1)

    def plan(self, facts: Facts) -> Plan:
        """Return how the objective will be perturbed; `noise_std` is that of the linear term."""
        multiplier = self._noise_multiplier(facts)
        return Plan(
            method=self.name,
            steps=1,
            clip_norm=facts.gradient_bound,
            step_sizes=(),
            noise_std=(multiplier * facts.gradient_bound,),
            mu=(facts.sensitivity / facts.gradient_bound / multiplier,),
            notes=(f"The objective has a ridge of {self._ridge(facts):g} on the sum of losses.",),
        )

    def filter(self, facts: Facts) -> Filter:
        """Return a schedule of this one release, or the facts' own filter if it can price it."""
        if isinstance(facts.rule, RdpFilter | FixedSchedule):
            return facts.rule
        charge = ObjectivePerturbationCharge(
            self._noise_multiplier(facts), self._curvature_ratio(facts), OUTPUT_NOISE_MULTIPLIER
        )
        return FixedSchedule([charge], facts.epsilon, facts.delta, facts.neighbouring)

    def _noise_multiplier(self, facts: Facts) -> float:
        ratio = self._curvature_ratio(facts)
        if isinstance(facts.rule, FixedSchedule):
            (first, *_) = facts.rule.schedule
            if isinstance(first, ObjectivePerturbationCharge):
                return first.noise_multiplier
        if isinstance(facts.rule, RdpFilter):
            return _least_within(facts.rule, facts, ratio)
        return cost.noise_multiplier_for(
            facts.epsilon * (1 - 1e-8), facts.delta, ratio, OUTPUT_NOISE_MULTIPLIER, facts.neighbouring
        )

    def _ridge(self, facts: Facts) -> float:
        facts.require_budget()
        check_minimisable(facts)
        chosen = self.ridge or facts.bounds.smoothness * max(10 / facts.epsilon, 2.0)
        return max(chosen, facts.l2 * facts.records)

    def _curvature_ratio(self, facts: Facts) -> float:
        return facts.bounds.smoothness / self._ridge(facts)


@dataclass(frozen=True)
class PerturbOnce:
    """Propose the same perturbation each time."""

    noise_multiplier: float
    ridge: float

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> ObjectivePerturbation:
        """Return the mechanism."""
        return ObjectivePerturbation(self.noise_multiplier, self.ridge)


def _least_within(rule: RdpFilter, facts: Facts, ratio: float) -> float:
    """Return the least noise multiplier that fits what is left under a Rényi filter."""
    left = np.array(rule.affordable(rule.start() if facts.spent is None else facts.spent))
    orders = np.array(rule.orders, dtype=float)

    def fits(multiplier: float) -> bool:
        charge = ObjectivePerturbationCharge(multiplier, ratio, OUTPUT_NOISE_MULTIPLIER)
        return bool((cost.curve(charge, facts.neighbouring, orders) * (1 + 1e-9) <= left).all())

    least = cost.least(fits, 1e12)
    if math.isinf(least):
        raise BudgetExhausted("what is left does not cover objective perturbation with this ridge.")
    return least
