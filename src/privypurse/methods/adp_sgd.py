"""ADP-SGD as a "sigmoid purse": budgets follow a sigmoid over what remains; selections and redraws are paid."""

from dataclasses import dataclass
from typing import ClassVar

from privypurse.core.checks import positive, positive_integer
from privypurse.methods.base import PlannedMethod
from privypurse.optimizers.line_search import LineSearch
from privypurse.planning.facts import Facts
from privypurse.planning.noisy_descent import balanced_steps
from privypurse.planning.plan import Recipe
from privypurse.schedules.sigmoid import SigmoidPurse


@dataclass(frozen=True)
class ADPSGD(PlannedMethod):
    """Full-batch descent whose learning rate is selected by noisy losses, with budgets along a sigmoid.

    Parameters
    ----------
    rounds : int or None
        By default half of ``n mu/sqrt(d)``, between 10 and 50.
    steepness : float or None
        Slope of the sigmoid; by default ``10/rounds``.
    ratio : float, default 4.0
        Budget of the last rounds relative to the first.
    selection_share : float, default 0.3
        Share of a round for the selection.
    growth : float, default 0.5
        Budget of a redraw relative to the look before it; all looks at a gradient are averaged by precision.
    flatten : float, default 0.9
        The slope is multiplied by this at each refusal.
    most_redraws : int, default 1
        Redraws in one round at most.
    candidates : int, default 10
        Learning rates to choose from besides zero.
    largest_rate : float or None
        The largest learning rate at first; by default 10/M.
    widen : float, default 1.1
        The largest rate becomes this times the largest chosen in the last `window` rounds.
    window : int, default 10
        How many rounds that looks back on.
    momentum : float, default 0.5
        Search along the gradient plus this share of the previous direction; 0 for the published algorithm.
    clip_loss : float or None
        As for `DPAGD`.
    """

    rounds: int | None = None
    steepness: float | None = None
    ratio: float = 4.0
    selection_share: float = 0.3
    growth: float = 0.5
    flatten: float = 0.9
    most_redraws: int = 1
    candidates: int = 10
    largest_rate: float | None = None
    widen: float = 1.1
    window: int = 10
    momentum: float = 0.5
    clip_loss: float | None = None
    name: ClassVar[str] = "adp-sgd"

    def __post_init__(self) -> None:
        if self.rounds is not None:
            positive_integer(rounds=self.rounds)
        if self.largest_rate is not None:
            positive(largest_rate=self.largest_rate)
        self._schedule(10)

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the search."""
        rounds = self.rounds or balanced_steps(facts, 20, 100) // 2
        optimizer = LineSearch(
            records=facts.records,
            largest_step=self.largest_rate or 10 / facts.smoothness,
            candidates=self.candidates,
            normalise=False,
            widen=self.widen,
            window=self.window,
            momentum=self.momentum,
            l2=facts.l2,
            most_redraws=self.most_redraws,
            clip_norm=facts.clip_norm,
            clip_loss=self.clip_loss,
        )
        notes = ("If no gradient is refused; step sizes are the middle of the range.",)
        return Recipe(optimizer, self._schedule(rounds), 2 * rounds * (1 + self.most_redraws), notes=notes)

    def _schedule(self, rounds: int) -> SigmoidPurse:
        steepness = 10 / rounds if self.steepness is None else self.steepness
        return SigmoidPurse(
            rounds, steepness, self.ratio, self.selection_share, self.growth, self.flatten, self.most_redraws
        )
