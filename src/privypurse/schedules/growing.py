"""Budgets that grow when a noisy gradient does not descend (DP-AGD)."""

from collections.abc import Sequence
from dataclasses import dataclass

from privypurse.core.checks import positive, positive_integer, probability
from privypurse.core.errors import InvalidArgument
from privypurse.core.queries import Query
from privypurse.core.released import Released
from privypurse.mechanisms.base import Mechanism
from privypurse.schedules.base import Budget
from privypurse.schedules.rounds import Rounds


@dataclass(frozen=True)
class GrowingBudget:
    """Each round of a line search costs the same until a gradient is refused; then all later gradients cost more.

    A refused gradient is not thrown away: `growth` times its budget buys a second look, the two are averaged by precision, and
    the sum of both budgets is what a gradient costs from then on. The last round spends the remainder.

    Parameters
    ----------
    rounds : int
        How many rounds the budget would pay for if no gradient were refused.
    selection_share : float, default 0.3
        Share of a round for its selection.
    growth : float, default 0.1
        Budget of a second look, relative to what the gradient has cost so far.
    """

    rounds: int
    selection_share: float = 0.3
    growth: float = 0.1

    def __post_init__(self) -> None:
        positive_integer(rounds=self.rounds)
        positive(growth=self.growth)
        check_selection_share(self.selection_share)

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Mechanism:
        """Return the mechanism for a gradient or for a selection."""
        standing, left = Rounds.read(query, past, None), budget.left
        selection = self.selection_share / self.rounds
        # What a whole gradient costs now; it has grown with every refusal.
        gradient = (1 - self.selection_share) / self.rounds * (1 + self.growth) ** standing.refusals
        if standing.selecting:
            # If what would be left does not pay for another round, this is the last one.
            return budget.selection(1.0 if left - selection < (gradient + selection) * (1 - 1e-9) else selection)
        wanted = gradient if standing.redraws == 0 else gradient * self.growth / (1 + self.growth)
        if left < (wanted + selection + gradient + selection) * (1 - 1e-9):
            wanted = left * (1 - self.selection_share)
        return budget.gaussian(wanted)


def check_selection_share(share: float) -> float:
    """Refuse a share that leaves nothing for gradients."""
    if probability(selection_share=share) >= 1:
        raise InvalidArgument(f"selection_share must be below 1; got {share!r}. Pass for example 0.3.")
    return share
