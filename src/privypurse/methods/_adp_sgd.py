"""ADP-SGD in sound form: budgets follow a sigmoid, and selections and redraws are charged."""

from dataclasses import dataclass
from typing import ClassVar

from privypurse.core._checks import positive, positive_integer
from privypurse.methods._dp_agd import IF_NONE_REFUSED
from privypurse.methods._nesterov import balanced_steps
from privypurse.methods.base import PlannedMethod
from privypurse.training._plan import Facts, Recipe
from privypurse.training.optimizers._gradient_descent import LineSearch
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
    ratio : float, default 4.0
        Budget of the last rounds relative to the first.
    selection_share : float, default 0.3
        Share of a round for the selection of its learning rate.
    growth : float, default 0.5
        Budget of a redraw, relative to the draw before it.
    flatten : float, default 0.9
        Factor on the steepness at each refusal, which moves budget to earlier rounds.
    most_redraws : int, default 1
        Most redraws in one round.
    candidates : int, default 10
        Learning rates to choose from besides zero.
    largest_rate : float or None
        Largest learning rate at first; by default 10/M.
    widen, window : float, int
        After every `window` steps the largest rate becomes `widen` times the largest of them.
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
        if self.largest_rate is not None:
            positive(largest_rate=self.largest_rate)
        self._schedule(10 if self.rounds is None else self.rounds)

    def recipe(self, facts: Facts) -> Recipe:
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
        return Recipe(optimizer, self._schedule(rounds), 2 * rounds * (1 + self.most_redraws), notes=(IF_NONE_REFUSED,))

    def _schedule(self, rounds: int) -> SigmoidPurse:
        steepness = 10 / positive_integer(rounds=rounds) if self.steepness is None else self.steepness
        return SigmoidPurse(
            rounds, steepness, self.ratio, self.selection_share, self.growth, self.flatten, self.most_redraws
        )
