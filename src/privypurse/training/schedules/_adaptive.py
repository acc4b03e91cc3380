"""Schedules that follow the releases: their length (PUR), or refusals (DP-AGD, ADP-SGD)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privypurse.core._checks import non_negative, positive, positive_integer, probability
from privypurse.core._errors import InvalidArgument
from privypurse.core.charges import GaussianCharge
from privypurse.core.queries import GradientAt, LossesAlong, ModuleGradient, Query, Released
from privypurse.mechanisms._base import Mechanism
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.training.schedules import shapes
from privypurse.training.schedules._base import Budget


@dataclass(frozen=True)
class FollowGradientNorm:
    """Use noise as long as the gradient itself, which minimises privacy cost per progress.

    The length is estimated from the releases, ``|g|^2 - d noise_std^2``, at no cost; the published
    rule uses the true one, which is private. The last step spends the remainder.

    Parameters
    ----------
    first_share : float
        Share of the budget for the first step, whose noise is as long as the largest gradient.
    fewest_steps, most_steps : int
        No step takes more than ``1/fewest_steps`` of the budget or less than ``1/most_steps``.
    ridge : float, default 0.0
        Ridge on the sum of losses: ``ridge * point`` is the public part of the gradient's length.
    """

    first_share: float
    fewest_steps: int = 10
    most_steps: int = 300
    ridge: float = 0.0

    def __post_init__(self) -> None:
        positive(first_share=self.first_share)
        positive_integer(most_steps=self.most_steps)
        if positive_integer(fewest_steps=self.fewest_steps) > self.most_steps:
            raise InvalidArgument(f"fewest_steps must be at most {self.most_steps}; got {self.fewest_steps}. Lower it.")

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Gaussian:
        share = min(max(self._wanted(query, past, budget), 1 / self.most_steps), 1 / self.fewest_steps)
        left = budget.left
        return budget.gaussian(left if left < 2 * share else share)

    def _wanted(self, query: Query, past: Sequence[Released], budget: Budget) -> float:
        if not past or past[-1].noise_std is None or not isinstance(query, GradientAt | ModuleGradient):
            return self.first_share
        last, std = past[-1].value, past[-1].noise_std
        if isinstance(query, GradientAt):
            last = last + self.ridge * query.point
        # Estimated squared length per coordinate; if negative, the least noise is wanted.
        squared = (float(last @ last) - last.size * std**2) / last.size
        if squared <= 0:
            return math.inf
        # Shares go as 1/noise^2; the last release gives the noise of a share of one.
        share_of_last = (budget.noise_multiplier / getattr(past[-1].charge, "noise_multiplier", math.inf)) ** 2
        return float(np.minimum(share_of_last * std**2 / squared, 1.0))


def _counted(past: Sequence[Released], most_redraws: float) -> tuple[int, int, int]:
    """Count rounds, selections of "do not move", and those of the current round's gradient.

    A round ends with a step, or is given up at one refusal more than the redraws allowed.
    """
    rounds = refusals = redraws = 0
    for released in past:
        if released.is_selection:
            refused = int(released.value) == 0
            refusals += refused
            redraws += refused
            if not refused or redraws > most_redraws:
                rounds, redraws = rounds + 1, 0
    return rounds, refusals, redraws


@dataclass(frozen=True)
class GrowingBudget:
    """Rounds of a line search cost the same until a gradient is refused; later gradients cost more.

    A refused gradient is kept: a second draw at `growth` times its budget is averaged in by
    precision, and the sum of both budgets is the cost of later gradients. The last round spends the
    remainder.
    """

    rounds: int  # that fit the budget if no gradient is refused
    selection_share: float = 0.3  # of a round
    growth: float = 0.1

    def __post_init__(self) -> None:
        positive_integer(rounds=self.rounds)
        positive(growth=self.growth)
        _check_selection_share(self.selection_share)

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Mechanism:
        (_, refusals, redraws), left = _counted(past, math.inf), budget.left
        selection = self.selection_share / self.rounds
        # Cost of a whole gradient, which has grown with every refusal.
        gradient = (1 - self.selection_share) / self.rounds * (1 + self.growth) ** refusals
        if isinstance(query, LossesAlong):
            # If what would be left does not cover another round, this is the last one.
            return budget.selection(1.0 if left - selection < (gradient + selection) * (1 - 1e-9) else selection)
        wanted = gradient if redraws == 0 else gradient * self.growth / (1 + self.growth)
        if left < (wanted + selection + gradient + selection) * (1 - 1e-9):
            wanted = left * (1 - self.selection_share)
        return budget.gaussian(wanted)


@dataclass(frozen=True)
class SigmoidPurse:
    """Divide what remains before each round in proportion to a sigmoid. Settings as for `ADPSGD`."""

    rounds: int
    steepness: float = 0.2
    ratio: float = 4.0
    selection_share: float = 0.3
    growth: float = 0.5
    flatten: float = 0.9
    most_redraws: int = 1

    def __post_init__(self) -> None:
        positive_integer(rounds=self.rounds)
        positive(growth=self.growth)
        non_negative(most_redraws=self.most_redraws)
        probability(flatten=self.flatten)
        _check_selection_share(self.selection_share)
        shapes.sigmoid(self.rounds, self.steepness, self.ratio)

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Mechanism:
        finished, refusals, redraws = _counted(past, self.most_redraws)
        weights = shapes.sigmoid(self.rounds, self.steepness * self.flatten**refusals, self.ratio)
        to_come = weights[min(finished, self.rounds - 1) :]
        part = to_come[0] / sum(to_come)
        if isinstance(query, LossesAlong):
            # The gradient took its share of this round's part; the selection gets the rest.
            return budget.selection(budget.left * part * self.selection_share / (1 - part * (1 - self.selection_share)))
        if redraws == 0:
            return budget.gaussian(budget.left * part * (1 - self.selection_share))
        # Gradients cost as 1/noise^2; a redraw costs `growth` times the last.
        looks = [released.charge for released in past if isinstance(released.charge, GaussianCharge)]
        last = (budget.noise_multiplier / looks[-1].noise_multiplier) ** 2
        return budget.gaussian(min(self.growth * last, budget.left * (1 - self.selection_share)))


def _check_selection_share(share: float) -> None:
    if probability(selection_share=share) >= 1:
        raise InvalidArgument(f"selection_share must be below 1; got {share!r}. Pass for example 0.3.")
