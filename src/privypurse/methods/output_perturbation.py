"""Output perturbation: minimise, then add noise to the minimiser."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from privypurse.accounting.totals import Filter
from privypurse.core.checks import positive
from privypurse.core.errors import InvalidArgument
from privypurse.core.queries import Query, Released
from privypurse.mechanisms.perturbed_minimiser import TOLERANCE, OutputPerturbation
from privypurse.training.facts import Facts
from privypurse.training.optimizers.genetic import TakeTheMinimiser
from privypurse.training.plan import Plan, Recipe
from privypurse.training.schedules.base import Budget


@dataclass(frozen=True)
class OutPert:
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
        """Plan the one release."""
        check_minimisable(facts)
        ridge = self._ridge(facts)
        notes = (f"Ridge on the sum of losses: {ridge:g}.",)
        return Recipe(TakeTheMinimiser(), PerturbOutput(ridge), 1, notes=notes)

    def plan(self, facts: Facts) -> Plan:
        """Return the noise on the minimiser; `noise_std` is on the model itself."""
        check_minimisable(facts)
        sensitivity = (facts.sensitivity + 2 * TOLERANCE * facts.gradient_bound) / self._ridge(facts)
        return Plan(
            method=self.name,
            steps=1,
            clip_norm=facts.gradient_bound,
            step_sizes=(),
            noise_std=(sensitivity / facts.mu,),
            mu=(facts.mu,),
            notes=self.recipe(facts).notes,
        )

    def filter(self, facts: Facts) -> Filter:
        """Return the facts' own filter."""
        return facts.rule

    def _ridge(self, facts: Facts) -> float:
        noise = facts.records * facts.bounds.smoothness * facts.dimension * (facts.sensitivity / facts.mu) ** 2
        chosen = self.ridge or (2 * noise / facts.radius**2) ** (1 / 3)
        return max(chosen, facts.l2 * facts.records, facts.bounds.smoothness)


@dataclass(frozen=True)
class PerturbOutput:
    """Spend all that is left on the minimiser."""

    ridge: float

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> OutputPerturbation:
        """Return the mechanism that spends the rest."""
        return OutputPerturbation(budget.gaussian(1.0).noise_multiplier, self.ridge)


def check_minimisable(facts: Facts) -> float:
    """Raise InvalidArgument for a loss with a kink, or a clip norm: no loss has such gradients."""
    if facts.clips:
        raise InvalidArgument(
            f"clip_norm={facts.clip_norm!r} cannot be used with a minimiser. Pass a loss with clip_derivative=... instead."
        )
    return facts.smoothness
