"""ADP-SGD as printed, errors included. NOT PRIVATE.

Kept to reproduce the published numbers; ``docs/papers.md`` lists its errors, and
`privypurse.methods.ADPSGD` is the sound version. In short: the learning rate is the argmin of exact
losses, which is not private at any epsilon; discarded gradients are not charged; noise of
``1/epsilon_t`` is no calibration. It does not run as printed: here t advances, and steps are also
made in the second half of the run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privypurse.accounting._filters import DeclaredNonPrivate
from privypurse.accounting._totals import Filter
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

REASON = "ADP-SGD as published: the learning rate is chosen by exact losses"
LEAST_SHARE = 0.1  # epsilon_min relative to the mean; the paper does not say


def printed_budgets(
    epsilon: float, rounds: int, steepness: float, shift: float | None = None, least: float = LEAST_SHARE
) -> FloatArray:
    """Return epsilon_t of Eq. 4 as printed: ``min + max/(1 + exp(-a t + b))``, ``b = a T/2``.

    They add up to more than epsilon. A `shift` other than ``a T/2`` is b before the slope changed;
    `least` is epsilon_min relative to the mean budget.
    """
    mean = epsilon / rounds
    times = np.arange(1, rounds + 1)
    b = steepness * rounds / 2 if shift is None else shift
    return np.asarray(least * mean + (2 - least) * mean / (1 + np.exp(-steepness * times + b)))


def mended_budgets(epsilon: float, rounds: int, steepness: float) -> FloatArray:
    """Return budgets that add up to epsilon: ``max - min`` above, and b = a (T+1)/2."""
    mean = epsilon / rounds
    times = np.arange(1, rounds + 1)
    rise = 1 / (1 + np.exp(-steepness * (times - (rounds + 1) / 2)))
    return np.asarray(LEAST_SHARE * mean + (2 - 2 * LEAST_SHARE) * mean * rise)


@dataclass(frozen=True)
class PublishedADPSGD(PlannedMethod):
    """ADP-SGD as published, for a *claimed* epsilon. NOT PRIVATE. Needs ``Purse.not_private()``.

    Parameters
    ----------
    claimed_epsilon : float
        Claimed epsilon.
    rounds : int, default 40
        T; not given in the paper.
    clip_norm : float, default 3.0
        C_grad.
    steepness : float or None
        a; by default ``10/rounds``. Not given in the paper.
    decay : float, default 0.9
        rho: factor of a when no learning rate descends.
    candidates : int, default 20
        Learning rates to choose from besides zero.
    largest_rate : float or None
        Largest learning rate on the mean gradient; by default 10/M, with M for rows of the clip
        norm.
    shrink : float, default 0.9
        lambda of Eq. 6, over the last ten rounds: over all history, as printed, the largest rate
        collapses.
    most_redraws : int, default 20
        Most gradients discarded in one round: as printed, the loop may not end.
    """

    claimed_epsilon: float
    rounds: int = 40
    clip_norm: float = 3.0
    steepness: float | None = None
    decay: float = 0.9
    candidates: int = 20
    largest_rate: float | None = None
    shrink: float = 0.9
    most_redraws: int = 20
    name: ClassVar[str] = "adp-sgd-as-published"

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the search."""
        facts.require_declared(self.name)
        rate = self.largest_rate
        if rate is None:
            smoothness = facts.bounds.smoothness
            rate = 10 / (smoothness if math.isfinite(smoothness) else self.clip_norm**2 / 4)
        search = FreeLineSearch(
            facts.records, rate, self.candidates, self.shrink, self.clip_norm, facts.l2, self.rounds, self.most_redraws
        )
        steepness = 10 / self.rounds if self.steepness is None else self.steepness
        schedule = PrintedSigmoid(self.claimed_epsilon, self.rounds, steepness, self.decay, self.most_redraws)
        return Recipe(search, schedule, 2 * self.rounds * (1 + self.most_redraws), notes=("NOT PRIVATE.",))

    def filter(self, facts: Facts) -> Filter:
        """Return the filter without a limit."""
        return DeclaredNonPrivate(facts.delta, facts.neighbouring)


@dataclass(frozen=True)
class FreeLineSearch:
    """Line search along the noisy gradient by exact losses. The module lists its errors."""

    records: float
    largest_rate: float
    candidates: int
    shrink: float
    clip_norm: float
    l2: float
    rounds: int
    most_redraws: int

    def init(self, dimension: int) -> State:
        """Start at zero."""
        zero = np.zeros(dimension)
        return {
            "point": zero,
            "direction": zero,
            "selecting": np.zeros(1),
            "redraws": np.zeros(1),
            "round": np.ones(1),
            "largest": np.full(1, self.largest_rate),
            "chosen": np.zeros(0),
        }

    def ask(self, state: State) -> Query:
        """Return a query for a gradient, or for the losses along it."""
        if not state["selecting"][0]:
            return GradientAt(point=state["point"], clip_norm=self.clip_norm)
        steps, direction = self._steps(state), state["direction"]
        ahead = state["point"][:, None] - np.outer(direction, steps)
        ridge = self.records * self.l2 / 2 * (ahead**2).sum(axis=0) if self.l2 > 0 else None
        return LossesAlong(point=state["point"], direction=direction, steps=steps, clip_loss=1e9, public_terms=ridge)

    def tell(self, state: State, released: Released) -> State:
        """Record a gradient, or make the selected step."""
        if not state["selecting"][0]:
            direction = released.value / self.records + self.l2 * state["point"]
            return {**state, "direction": direction, "selecting": np.ones(1)}
        index = int(released.value)
        if redrawn(index, int(state["redraws"][0]), int(state["round"][0]), self.rounds, self.most_redraws):
            return {**state, "redraws": state["redraws"] + 1, "selecting": np.zeros(1)}
        rate = float(self._steps(state)[index])
        chosen, largest = np.append(state["chosen"], rate), state["largest"]
        if chosen.size == 10:
            # A window without a step would end the run.
            largest, chosen = np.array([self.shrink * chosen.max() or float(largest[0])]), np.zeros(0)
        moved = {"point": state["point"] - rate * state["direction"], "largest": largest, "chosen": chosen}
        return {**state, **moved, "redraws": np.zeros(1), "round": state["round"] + 1, "selecting": np.zeros(1)}

    def point(self, state: State) -> FloatArray:
        """Return the model."""
        return state["point"]

    def _steps(self, state: State) -> FloatArray:
        return np.linspace(0, float(state["largest"][0]), self.candidates + 1)


def redrawn(index: int, redraws: int, number: int, rounds: int, most: int) -> bool:
    """Return whether a gradient is discarded: in the first half, if it does not descend."""
    return index == 0 and number < (rounds + 1) / 2 and redraws < most


@dataclass(frozen=True)
class PrintedSigmoid:
    """Noise of ``1/epsilon_t`` along the printed sigmoid; redraws are free. NOT PRIVATE."""

    epsilon: float
    rounds: int
    steepness: float
    decay: float
    most_redraws: int

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Mechanism:
        """Return the noise of a gradient, or the free argmin; end the run after the last round."""
        if isinstance(query, LossesAlong):
            return NonPrivateAnswer(REASON, least_loss)
        number, redraws, refusals = 1, 0, 0
        for released in past:
            if released.is_selection:
                again = redrawn(int(released.value), redraws, number, self.rounds, self.most_redraws)
                refusals, redraws, number = (refusals + 1, redraws + 1, number) if again else (refusals, 0, number + 1)
        if number > self.rounds:
            raise BudgetExhausted("all rounds are made.")
        # The slope falls with every refusal; b moves with it, or all budgets would fall.
        slope = self.steepness * self.decay**refusals
        return Gaussian(1 / float(printed_budgets(self.epsilon, self.rounds, slope)[number - 1]))


def least_loss(scores: FloatArray, noise: NoiseSource) -> FloatArray:
    """Return the index of the least loss, without noise; scores are negative losses."""
    return np.asarray(np.argmax(scores))
