"""DP-AGD in sound form: a private line search refuses bad gradients, at a price."""

from dataclasses import dataclass
from typing import ClassVar

from privypurse.core._checks import positive
from privypurse.methods._nesterov import balanced_steps
from privypurse.methods.base import PlannedMethod
from privypurse.training._plan import Facts, Recipe
from privypurse.training.optimizers._gradient_descent import LineSearch, check_momentum
from privypurse.training.schedules._adaptive import GrowingBudget

IF_NONE_REFUSED = "If no gradient is refused; step sizes are the middle of the range."


@dataclass(frozen=True)
class DPAGD(PlannedMethod):
    """Adaptive descent: noisy losses select the step, and refused gradients are drawn again.

    Parameters
    ----------
    rounds : int or None
        Rounds that fit the budget if no gradient is refused. By default half of ``n mu/sqrt(d)``,
        between 10 and 70.
    selection_share : float, default 0.2
        Share of a round for its selection.
    growth : float, default 0.1
        Budget of a second draw, relative to the cost of the gradient so far.
    candidates : int, default 12
        Number of evenly spaced steps to choose from besides "do not move".
    largest_step, window : float, int
        The longest step at first, as a distance; after so many steps, 1.1 times their longest.
    momentum : float, default 0.7
        Share of the previous direction added to the gradient; 0 for the published algorithm.
    clip_loss : float or None
        Clip each record's loss. Not needed by default: the searched segment bounds its range.
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
        GrowingBudget(10 if self.rounds is None else self.rounds, self.selection_share, self.growth)
        positive(largest_step=self.largest_step)
        check_momentum(self.momentum)

    def recipe(self, facts: Facts) -> Recipe:
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
        # A refusal costs at least `growth` of a gradient and a selection, which bounds the releases.
        most = 2 * rounds + 2 * int(rounds / min(self.growth, self.selection_share)) + 10
        schedule = GrowingBudget(rounds, self.selection_share, self.growth)
        return Recipe(optimizer, schedule, most, notes=(IF_NONE_REFUSED,))
