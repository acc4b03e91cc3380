"""Methods that minimise once: with noise on the result, or in the objective, or without any."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privypurse.accounting import _objective_perturbation as cost
from privypurse.accounting._filters import DeclaredNonPrivate, RdpFilter
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Filter
from privypurse.core._checks import positive
from privypurse.core._errors import BudgetExhausted, InvalidArgument, UnsupportedCharge
from privypurse.core.charges import ObjectivePerturbationCharge
from privypurse.core.queries import Objective, Query, Released
from privypurse.mechanisms._non_private import NonPrivateMinimiser
from privypurse.mechanisms._perturbed_minimiser import OUTPUT_NOISE_MULTIPLIER as OUTPUT_NOISE
from privypurse.mechanisms._perturbed_minimiser import TOLERANCE, ObjectivePerturbation, OutputPerturbation
from privypurse.methods.base import PlannedMethod
from privypurse.training import Facts, Plan, Recipe
from privypurse.training.optimizers._base import KeepsPoint, State
from privypurse.training.schedules._base import Budget


@dataclass(frozen=True)
class TakeTheMinimiser(KeepsPoint):
    """Ask for a minimiser and return it."""

    def ask(self, state: State) -> Query:
        return Objective()

    def tell(self, state: State, released: Released) -> State:
        return {"point": released.value}


@dataclass(frozen=True)
class Always:
    """Propose the same mechanism each time."""

    mechanism: Any

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Any:
        return self.mechanism


@dataclass(frozen=True)
class PerturbOutput:
    """Spend all that is left on the minimiser."""

    ridge: float

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> OutputPerturbation:
        return OutputPerturbation(budget.gaussian(1.0).noise_multiplier, self.ridge)


def check_minimisable(facts: Facts) -> None:
    """Raise InvalidArgument for a loss with a kink, or a clip norm: no loss has such gradients."""
    if facts.clips:
        raise InvalidArgument(f"clip_norm={facts.clip_norm!r} does not fit a minimiser. Pass the loss clip_derivative.")
    _ = facts.smoothness


@dataclass(frozen=True)
class NonPrivate(PlannedMethod):
    """The model without privacy, for comparison. NOT PRIVATE: costs infinity, and is marked so.

    Runs only on ``Purse.not_private()``, or ``Purse.with_filter(method.filter(facts))``.

    Parameters
    ----------
    ridge : float, default 1.0
        Ridge on the sum of losses, as in scikit-learn's default.
    """

    ridge: float = 1.0
    name: ClassVar[str] = "non-private"

    def __post_init__(self) -> None:
        positive(ridge=self.ridge)

    def recipe(self, facts: Facts) -> Recipe:
        facts.require_declared(self.name)
        ridge = max(self.ridge, facts.l2 * facts.records, facts.bounds.smoothness)
        tolerance = 1e-7 * facts.records * facts.gradient_bound
        mechanism = NonPrivateMinimiser("baseline without privacy", ridge, tolerance)
        return Recipe(TakeTheMinimiser(), Always(mechanism), 1)

    def plan(self, facts: Facts) -> Plan:
        return Plan(self.name, 1, facts.gradient_bound, (), (0.0,), (float("inf"),), notes=("NOT PRIVATE.",))

    def filter(self, facts: Facts) -> Filter:
        return DeclaredNonPrivate(facts.delta, facts.neighbouring)


@dataclass(frozen=True)
class OutPert(PlannedMethod):
    """The minimiser with Gaussian noise; a record moves it by at most its gradient over the ridge.

    Parameters
    ----------
    ridge : float or None
        Ridge on the sum of losses. By default the one that minimises the sum of the loss to noise,
        about ``n M d G^2/(2 ridge^2 mu^2)``, and to shrinkage, ``ridge R^2/2``, for a best model of
        length R (the facts' ``radius``); or ``l2`` times the records if more.
    """

    ridge: float | None = None
    name: ClassVar[str] = "output-perturbation"

    def __post_init__(self) -> None:
        if self.ridge is not None:
            positive(ridge=self.ridge)

    def recipe(self, facts: Facts) -> Recipe:
        check_minimisable(facts)
        ridge = self._ridge(facts)
        notes = (f"Ridge on the sum of losses: {ridge:g}.",)
        return Recipe(TakeTheMinimiser(), PerturbOutput(ridge), 1, notes=notes)

    def plan(self, facts: Facts) -> Plan:
        """Return the noise on the minimiser; `noise_std` is on the model itself."""
        notes = self.recipe(facts).notes
        std = (facts.sensitivity + 2 * TOLERANCE * facts.gradient_bound) / self._ridge(facts) / facts.mu
        return Plan(self.name, 1, facts.gradient_bound, (), (std,), (facts.mu,), notes=notes)

    def _ridge(self, facts: Facts) -> float:
        noise = facts.records * facts.bounds.smoothness * facts.dimension * (facts.sensitivity / facts.mu) ** 2
        chosen = self.ridge or (2 * noise / facts.radius**2) ** (1 / 3)
        return max(chosen, facts.l2 * facts.records, facts.bounds.smoothness)


@dataclass(frozen=True)
class ObjPert(PlannedMethod):
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
        check_minimisable(facts)
        if facts.rule.name in ("gdp", "zcdp"):
            what = f"a {facts.rule.name} filter cannot price objective perturbation"
            raise UnsupportedCharge(f"{what}. Make the purse with training.purse_for.")
        mechanism = ObjectivePerturbation(self._noise_multiplier(facts), self._ridge(facts))
        return Recipe(TakeTheMinimiser(), Always(mechanism), 1)

    def plan(self, facts: Facts) -> Plan:
        """Return how the objective will be perturbed; `noise_std` is that of the linear term."""
        multiplier = self._noise_multiplier(facts)
        mu = facts.sensitivity / facts.gradient_bound / multiplier
        notes = (f"The objective has a ridge of {self._ridge(facts):g} on the sum of losses.",)
        return Plan(self.name, 1, facts.gradient_bound, (), (multiplier * facts.gradient_bound,), (mu,), notes=notes)

    def filter(self, facts: Facts) -> Filter:
        """Return a schedule of this one release, or the facts' own filter if it can price it."""
        if isinstance(facts.rule, RdpFilter | FixedSchedule):
            return facts.rule
        charge = ObjectivePerturbationCharge(self._noise_multiplier(facts), self._curvature_ratio(facts), OUTPUT_NOISE)
        return FixedSchedule([charge], facts.epsilon, facts.delta, facts.neighbouring)

    def _noise_multiplier(self, facts: Facts) -> float:
        ratio = self._curvature_ratio(facts)
        first = facts.rule.schedule[0] if isinstance(facts.rule, FixedSchedule) else None
        if isinstance(first, ObjectivePerturbationCharge):
            return first.noise_multiplier
        if isinstance(facts.rule, RdpFilter):
            return _least_within(facts.rule, facts, ratio)
        epsilon = facts.epsilon * (1 - 1e-8)
        return cost.noise_multiplier_for(epsilon, facts.delta, ratio, OUTPUT_NOISE, facts.neighbouring)

    def _ridge(self, facts: Facts) -> float:
        facts.require_budget()
        check_minimisable(facts)
        chosen = self.ridge or facts.bounds.smoothness * max(10 / facts.epsilon, 2.0)
        return max(chosen, facts.l2 * facts.records)

    def _curvature_ratio(self, facts: Facts) -> float:
        return facts.bounds.smoothness / self._ridge(facts)


def _least_within(rule: RdpFilter, facts: Facts, ratio: float) -> float:
    """Return the least noise multiplier that fits what is left under a Rényi filter."""
    left = np.array(rule.affordable(rule.start() if facts.spent is None else facts.spent))
    orders = np.array(rule.orders, dtype=float)

    def fits(multiplier: float) -> bool:
        charge = ObjectivePerturbationCharge(multiplier, ratio, OUTPUT_NOISE)
        return bool((cost.curve(charge, facts.neighbouring, orders) * (1 + 1e-9) <= left).all())

    least = cost.least(fits, 1e12)
    if math.isinf(least):
        raise BudgetExhausted("what is left does not cover objective perturbation with this ridge.")
    return least
