"""DP-AGD: budgets that grow when a noisy gradient does not descend, and a private line search, in sound form."""

from dataclasses import dataclass
from typing import ClassVar

from privypurse.core.checks import positive, positive_integer
from privypurse.methods.base import PlannedMethod
from privypurse.optimizers.gradient_descent import check_momentum
from privypurse.optimizers.line_search import LineSearch
from privypurse.planning.facts import Facts
from privypurse.planning.noisy_descent import balanced_steps
from privypurse.planning.plan import Recipe
from privypurse.schedules.growing import GrowingBudget, check_selection_share


@dataclass(frozen=True)
class DPAGD(PlannedMethod):
    """Adaptive descent: a noisy gradient, a step selected by noisy losses, a second look at gradients that are refused.

    Parameters
    ----------
    rounds : int or None
        Rounds the budget pays for if no gradient is refused. By default half of ``n mu/sqrt(d)``, between 10 and 70.
    selection_share : float, default 0.2
        Share of a round for its selection.
    growth : float, default 0.1
        Budget of a second look, relative to what the gradient has cost so far.
    candidates : int, default 12
        Steps to choose from besides "do not move".
    largest_step : float, default 3.0
        The longest step at first, as a distance.
    window : int, default 5
        After how many steps the longest step is set anew.
    momentum : float, default 0.7
        Search along the gradient plus this share of the previous direction; 0 for the published algorithm.
    clip_loss : float or None
        Clip each record's loss; by default the range of the losses along the searched segment needs no clipping.
    """

    rounds: int | None = None
    selection_share: float = 0.2
    growth: float = 0.1
    candidates: int = 12
    largest_step: float = 3.0
    window: int = 5
    momentum: float = 0.7
    clip_loss: float | None = None
    name: ClassVar[str] = "dp-agd"

    def __post_init__(self) -> None:
        if self.rounds is not None:
            positive_integer(rounds=self.rounds)
        check_selection_share(self.selection_share)
        positive(growth=self.growth)
        positive(largest_step=self.largest_step)
        check_momentum(self.momentum)

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the search."""
        rounds = self.rounds or balanced_steps(facts, 20, 140) // 2
        optimizer = LineSearch(
            records=facts.records,
            largest_step=self.largest_step,
            candidates=self.candidates,
            window=self.window,
            momentum=self.momentum,
            l2=facts.l2,
            clip_norm=facts.clip_norm,
            clip_loss=self.clip_loss,
        )
        # A refused gradient costs at least growth of a gradient and a selection, so the budget bounds the releases.
        most = 2 * rounds + 2 * int(rounds / min(self.growth, self.selection_share)) + 10
        schedule = GrowingBudget(rounds, self.selection_share, self.growth)
        return Recipe(
            optimizer, schedule, most, notes=("If no gradient is refused; step sizes are the middle of the range.",)
        )
