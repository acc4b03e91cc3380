"""Output perturbation: minimise, then add noise to the minimiser."""

from dataclasses import dataclass
from typing import ClassVar

from privypurse.accounting.totals import Filter
from privypurse.core.checks import positive
from privypurse.core.errors import InvalidArgument
from privypurse.core.queries import Minimiser
from privypurse.optimizers.one_answer import TakeTheMinimiser
from privypurse.planning.facts import Facts
from privypurse.planning.plan import Plan, Recipe
from privypurse.schedules.weighted import EvenSplit


@dataclass(frozen=True)
class OutPert:
    """The minimiser with Gaussian noise. One record moves it by at most its gradient over the ridge.

    Parameters
    ----------
    ridge : float or None
        On the sum of losses. By default where the loss to noise, about ``n M d G^2/(2 ridge^2 mu^2)``, and to shrinkage,
        ``ridge R^2/2``, have the least sum for a best model of length R (the facts' ``radius``); or ``l2`` times the records if
        more.
    """

    ridge: float | None = None
    name: ClassVar[str] = "output-perturbation"

    def __post_init__(self) -> None:
        if self.ridge is not None:
            positive(ridge=self.ridge)

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the one release."""
        refuse_clipping(facts)
        ridge = self._ridge(facts)
        return Recipe(
            TakeTheMinimiser(self._query(facts)), EvenSplit(), 1, notes=(f"Ridge on the sum of losses: {ridge:g}.",)
        )

    def plan(self, facts: Facts) -> Plan:
        """Say how much noise the minimiser will get; `noise_std` is on the model itself."""
        refuse_clipping(facts)
        query = self._query(facts)
        sensitivity = (facts.sensitivity + 2 * query.tolerance) / query.ridge
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
        """Return the facts' own rule."""
        return facts.rule

    def _query(self, facts: Facts) -> Minimiser:
        return Minimiser(ridge=self._ridge(facts), tolerance=1e-6 * facts.gradient_bound)

    def _ridge(self, facts: Facts) -> float:
        noise = facts.records * facts.bounds.smoothness * facts.dimension * (facts.sensitivity / facts.mu) ** 2
        return max(self.ridge or (2 * noise / facts.radius**2) ** (1 / 3), facts.l2 * facts.records)


def refuse_clipping(facts: Facts) -> None:
    """Refuse a clip norm, which would make gradients that are not those of any loss: there is then nothing to minimise."""
    if facts.clips:
        raise InvalidArgument(
            f"clip_norm={facts.clip_norm!r} cannot be used with a minimiser. Pass a loss with clip_derivative=... in its place."
        )
