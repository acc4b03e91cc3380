"""ADP-SGD with charged selections and redraws: budgets follow a sigmoid over what remains."""

from dataclasses import dataclass
from typing import ClassVar

from privypurse.core._checks import positive, positive_integer
from privypurse.methods._noisy_pgd import balanced_steps
from privypurse.methods.base import PlannedMethod
from privypurse.training._facts import Facts
from privypurse.training._plan import Recipe
from privypurse.training.optimizers._line_search import LineSearch
from privypurse.training.schedules._adaptive import SigmoidPurse


@dataclass(frozen=True)
class ADPSGD(PlannedMethod):
    """Full-batch descent with budgets along a sigmoid; noisy losses select the learning rate.

    Parameters
    ----------
    rounds : int or None
        Number of rounds; by default half of ``n mu/sqrt(d)``, between 10 and 100.
    steepness : float or None
        Slope of the sigmoid; by default ``10/rounds``.
    ratio, selection_share, growth, flatten, most_redraws
        As for `SigmoidPurse`.
    candidates : int, default 10
        Learning rates to choose from besides zero.
    largest_rate : float or None
        Largest learning rate at first; by default 10/M.
    widen, window
        As for `LineSearch`.
    momentum : float, default 0.5
        Share of the previous direction added to the gradient; 0 for the published algorithm. For a
        module 0.9: along single gradients the steps zigzag and get short.
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
        rounds = self.rounds or balanced_steps(facts, 20, 200) // 2
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
