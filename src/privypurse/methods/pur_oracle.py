"""PUR with an oracle for the gradient's length. NOT PRIVATE: published to show what the private schedules aim at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from privypurse.accounting.convert import gdp_mu
from privypurse.accounting.filters import DeclaredNonPrivate
from privypurse.accounting.totals import Filter
from privypurse.core.checks import positive, positive_integer, small_probability
from privypurse.core.errors import BudgetExhausted
from privypurse.core.queries import GradientAt, Query
from privypurse.core.released import Released
from privypurse.mechanisms.non_private import NoiseAsLongAsTheValue
from privypurse.methods.pur import longest_mean_gradient
from privypurse.optimizers.gradient_descent import GradientDescent
from privypurse.planning.facts import Facts
from privypurse.planning.plan import Plan, Recipe
from privypurse.schedules.base import Budget


@dataclass(frozen=True)
class OraclePUR:
    """Noise exactly as long as the true gradient, steps of 1/(2M), until a *claimed* budget is used up. NOT PRIVATE.

    The claim counts the noise as if its scale were public. Runs only on ``Purse.not_private()``.

    Parameters
    ----------
    claimed_epsilon, claimed_delta : float
        The budget to stop at, had the noise been public.
    most_steps : int, default 300
        Steps at most.
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
        """Plan the descent; how long it is depends on the data."""
        facts.require_declared(self.name)
        size = 1 / (2 * facts.smoothness)
        optimizer = GradientDescent(step_size=size, records=facts.records, clip_norm=facts.clip_norm, l2=facts.l2)
        limit = gdp_mu(self.claimed_epsilon, self.claimed_delta) ** 2
        schedule = UntilTheClaimIsSpent(limit, facts.sensitivity, facts.l2 * facts.records)
        return Recipe(optimizer, schedule, self.most_steps, step_sizes=(size,))

    def plan(self, facts: Facts) -> Plan:
        """Say what a run would do if every gradient were as long as it can be."""
        std = facts.records * longest_mean_gradient(facts) / facts.dimension**0.5
        mu = facts.sensitivity / std
        steps = min(self.most_steps, max(1, int(gdp_mu(self.claimed_epsilon, self.claimed_delta) ** 2 / mu**2)))
        sizes = (1 / (2 * facts.smoothness),) * steps
        return Plan(
            self.name, steps, facts.gradient_bound, sizes, (std,) * steps, (mu,) * steps, notes=("NOT PRIVATE.",)
        )

    def filter(self, facts: Facts) -> Filter:
        """Return the rule without a limit."""
        return DeclaredNonPrivate(facts.delta, facts.neighbouring)


@dataclass(frozen=True)
class UntilTheClaimIsSpent:
    """The oracle's noise, until the sum of ``(sensitivity/noise_std)^2`` has passed a limit. NOT PRIVATE.

    The noise of a step is not known before it is made, so the step that passes the limit is still made.
    """

    limit: float
    sensitivity: float
    ridge: float = 0.0

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> NoiseAsLongAsTheValue:
        """Return the mechanism, or end the run."""
        noise = [released.noise_std or 0.0 for released in past]
        if 0.0 in noise or sum((self.sensitivity / std) ** 2 for std in noise) >= self.limit:
            raise BudgetExhausted("the claimed budget is used up.")
        if self.ridge > 0 and isinstance(query, GradientAt):
            return NoiseAsLongAsTheValue(tuple((self.ridge * query.point).tolist()))
        return NoiseAsLongAsTheValue()
