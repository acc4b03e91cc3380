"""The sigmoid purse: budgets that follow a sigmoid over whatever remains (ADP-SGD, in its sound form)."""

from collections.abc import Sequence
from dataclasses import dataclass

from privypurse.core.charges import GaussianCharge
from privypurse.core.checks import non_negative, positive, positive_integer, probability
from privypurse.core.queries import Query
from privypurse.core.released import Released
from privypurse.mechanisms.base import Mechanism
from privypurse.schedules import shapes
from privypurse.schedules.base import Budget
from privypurse.schedules.growing import check_selection_share
from privypurse.schedules.rounds import Rounds


@dataclass(frozen=True)
class SigmoidPurse:
    """Before each round, share out what remains in proportion to a sigmoid; redraws and selections are paid like all else.

    Parameters
    ----------
    rounds : int
        Rounds of the run.
    steepness : float, default 0.2
        Slope of the sigmoid.
    ratio : float, default 4.0
        Budget of the last rounds relative to the first.
    selection_share : float, default 0.3
        Share of a round for the selection of its learning rate.
    growth : float, default 0.5
        Budget of a redraw, relative to the look before it.
    flatten : float, default 0.9
        The steepness is multiplied by this at each refusal, which moves budget to the rounds that come soon.
    most_redraws : int, default 1
        Redraws in one round at most.
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
            # The gradient has taken its share of this round's part; the selection is the other share of the same part.
            return budget.selection(budget.left * part * self.selection_share / (1 - part * (1 - self.selection_share)))
        if standing.redraws == 0:
            return budget.gaussian(budget.left * part * (1 - self.selection_share))
        # Past gradients cost as 1/noise^2; a redraw costs `growth` times the last, and leaves enough for its selection.
        looks = [released.charge for released in past if isinstance(released.charge, GaussianCharge)]
        last = (budget.noise_multiplier / looks[-1].noise_multiplier) ** 2
        return budget.gaussian(min(self.growth * last, budget.left * (1 - self.selection_share)))
