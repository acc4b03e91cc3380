"""DP-AGD as in its authors' code, errors included. NOT PRIVATE.

Kept to reproduce the published numbers; ``docs/papers.md`` lists its errors, and
`privypurse.methods.DPAGD` is the sound version. In short: the noise of the selection is negated, so
that each selection costs up to twenty times its claimed epsilon; the step before the selected one
is made; an accepted step is charged twice; the average of looks is stale; the ridge is added to a
unit vector, and missing in the scores.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privypurse.accounting._filters import DeclaredNonPrivate
from privypurse.accounting._totals import Filter
from privypurse.accounting.convert import zcdp_rho
from privypurse.core._checks import FloatArray
from privypurse.core._errors import BudgetExhausted
from privypurse.core._randomness import NoiseSource
from privypurse.core.queries import GradientAt, LossesAlong, Query, Released
from privypurse.mechanisms._base import Mechanism
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.mechanisms._non_private import NonPrivateAnswer
from privypurse.methods.base import PlannedMethod
from privypurse.training._plan import Facts, Recipe
from privypurse.training.optimizers._base import State
from privypurse.training.schedules._base import Budget

REASON = "DP-AGD as published: the noise of its selections has the wrong sign"
MOST_RELEASES = 5_000


@dataclass(frozen=True)
class PublishedDPAGD(PlannedMethod):
    """DP-AGD as published, up to its *claimed* budget. NOT PRIVATE. Needs ``Purse.not_private()``.

    Parameters
    ----------
    claimed_epsilon, claimed_delta : float
        Claimed budget.
    splits : int, default 60
        The first selection gets ``claimed_epsilon/(2 splits)``.
    growth : float, default 0.1
        Relative growth of budgets when a gradient is refused (gamma).
    clip_norm, clip_loss : float, default 3.0
        C_grad and C_obj.
    candidates : int, default 20
        Steps to choose from besides "do not move".
    largest_step : float, default 2.0
        Initial and largest step.
    """

    claimed_epsilon: float
    claimed_delta: float = 1e-8
    splits: int = 60
    growth: float = 0.1
    clip_norm: float = 3.0
    clip_loss: float = 3.0
    candidates: int = 20
    largest_step: float = 2.0
    name: ClassVar[str] = "dp-agd-as-published"

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the search."""
        facts.require_declared(self.name)
        search = PublishedLineSearch(
            self.candidates, self.largest_step, self.growth, self.clip_norm, self.clip_loss, facts.l2
        )
        claimed = ClaimedBudget(
            zcdp_rho(self.claimed_epsilon, self.claimed_delta, "classic"),
            *self.first_budgets,
            self.growth,
            self.clip_loss,
        )
        return Recipe(search, claimed, MOST_RELEASES, notes=("NOT PRIVATE.",))

    @property
    def first_budgets(self) -> tuple[float, float]:
        """Claimed costs of the first gradient and of each selection, as rho of zCDP."""
        epsilon = 0.5 * self.claimed_epsilon / self.splits
        # Gradients use an (epsilon, delta) calibration, selections pure epsilon: 37 times the
        # budget.
        return epsilon**2 / (4 * math.log(1.25 / self.claimed_delta)), epsilon**2 / 2

    def filter(self, facts: Facts) -> Filter:
        """Return the filter without a limit."""
        return DeclaredNonPrivate(facts.delta, facts.neighbouring)


@dataclass(frozen=True)
class PublishedLineSearch:
    """The published line search. The module lists its errors."""

    candidates: int
    largest_step: float
    growth: float
    clip_norm: float
    clip_loss: float
    l2: float

    def init(self, dimension: int) -> State:
        """Start at zero."""
        zero = np.zeros(dimension)
        return {
            "point": zero,
            "first": zero,  # first noisy gradient of the round, which later averages use again
            "direction": zero,
            "selecting": np.zeros(1),
            "refused": np.zeros(1),
            "longest": np.full(1, self.largest_step),
            "chosen": np.zeros(0),
        }

    def ask(self, state: State) -> Query:
        """Return a query for a gradient, or for the losses along it."""
        if not state["selecting"][0]:
            return GradientAt(point=state["point"], clip_norm=self.clip_norm)
        return LossesAlong(
            point=state["point"], direction=state["direction"], steps=self._steps(state), clip_loss=self.clip_loss
        )

    def tell(self, state: State, released: Released) -> State:
        """Record a gradient, or make the step before the selected one."""
        if not state["selecting"][0]:
            return self._look(state, released.value)
        index, steps = int(released.value), self._steps(state)
        chosen, longest = np.append(state["chosen"], steps[index]), state["longest"]
        if chosen.size == 10:
            longest, chosen = np.array([min(1.1 * chosen.max(), self.largest_step)]), np.zeros(0)
        moved = state["point"] if index == 0 else state["point"] - steps[index - 1] * state["direction"]
        kept = {"point": moved, "longest": longest, "chosen": chosen, "selecting": np.zeros(1)}
        return {**state, **kept, "refused": np.full(1, float(index == 0))}

    def _look(self, state: State, gradient: FloatArray) -> State:
        first, direction = gradient, gradient
        if state["refused"][0]:
            first = state["first"]
            direction = (first + self.growth * gradient) / (1 + self.growth)
        direction = direction / np.linalg.norm(direction)
        if state["refused"][0]:
            direction = direction + self.l2 * state["point"]
        return {**state, "first": first, "direction": direction, "selecting": np.ones(1)}

    def point(self, state: State) -> FloatArray:
        """Return the model."""
        return state["point"]

    def _steps(self, state: State) -> FloatArray:
        return np.linspace(0, float(state["longest"][0]), self.candidates + 1)


@dataclass(frozen=True)
class ClaimedBudget:
    """The noise as published, until the *claimed* budget is spent. NOT PRIVATE."""

    rho: float
    first_gradient: float
    selection: float
    growth: float
    clip_loss: float

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Mechanism:
        """Return the noise of a gradient or of a selection, or end the run."""
        left, gradient, redraw = self._standing(past)
        if isinstance(query, LossesAlong):
            if left - self.selection < 0:
                raise BudgetExhausted("the claimed budget is used up.")
            scale = self.clip_loss / math.sqrt(2 * self.selection)
            return NonPrivateAnswer(REASON, NoisyMinimum(scale))
        if left <= 0:
            raise BudgetExhausted("the claimed budget is used up.")
        return Gaussian(1 / math.sqrt(2 * (gradient * self.growth / (1 + self.growth) if redraw else gradient)))

    def _standing(self, past: Sequence[Released]) -> tuple[float, float, bool]:
        """Return claimed budget left, cost of a gradient, and whether a second look is next."""
        left, gradient, redraw = self.rho, self.first_gradient, False
        for released in past:
            if not released.is_selection:
                left -= 0.0 if redraw else gradient
                continue
            left -= self.selection
            redraw = int(released.value) == 0
            if redraw:
                left -= self.growth * gradient
                gradient *= 1 + self.growth
            else:
                left -= gradient  # charged once more
        return left, gradient, redraw


@dataclass(frozen=True)
class NoisyMinimum:
    """Least loss after adding exponential noise; published as a noisy maximum of negated losses."""

    scale: float

    def __call__(self, scores: FloatArray, noise: NoiseSource) -> FloatArray:
        """Return an index; scores are negative losses."""
        return np.asarray(np.argmin(-scores + self.scale * noise.exponential(scores.shape)))
