"""Budgets along a sigmoid over what remains (ADP-SGD, in its sound form)."""

from collections.abc import Sequence
from dataclasses import dataclass

from privypurse.core.charges import GaussianCharge
from privypurse.core.checks import non_negative, positive, positive_integer, probability
from privypurse.core.queries import Query, Released
from privypurse.mechanisms.base import Mechanism
from privypurse.training.schedules import shapes
from privypurse.training.schedules.base import Budget
from privypurse.training.schedules.growing import Rounds, check_selection_share


@dataclass(frozen=True)
class SigmoidPurse:
    """Before each round, divide what remains in proportion to a sigmoid; all releases are charged.

    Parameters
    ----------
    rounds : int
        Number of rounds.
    steepness : float, default 0.2
        Slope of the sigmoid.
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
    """

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
        check_selection_share(self.selection_share)
        shapes.sigmoid(self.rounds, self.steepness, self.ratio)

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Mechanism:
        """Return the mechanism for a gradient or for a selection."""
        standing = Rounds.read(query, past, self.most_redraws)
        weights = shapes.sigmoid(self.rounds, self.steepness * self.flatten**standing.refusals, self.ratio)
        to_come = weights[min(standing.finished, self.rounds - 1) :]
        part = to_come[0] / sum(to_come)
        if standing.selecting:
            # The gradient took its share of this round's part; the selection is the rest of that
            # part.
            return budget.selection(budget.left * part * self.selection_share / (1 - part * (1 - self.selection_share)))
        if standing.redraws == 0:
            return budget.gaussian(budget.left * part * (1 - self.selection_share))
        # Gradients cost as 1/noise^2; a redraw costs `growth` times the last, leaving its
        # selection.
        looks = [released.charge for released in past if isinstance(released.charge, GaussianCharge)]
        last = (budget.noise_multiplier / looks[-1].noise_multiplier) ** 2
        return budget.gaussian(min(self.growth * last, budget.left * (1 - self.selection_share)))
