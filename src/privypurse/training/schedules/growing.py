"""Budgets that grow when a noisy gradient does not descend (DP-AGD)."""

from collections.abc import Sequence
from dataclasses import dataclass

from privypurse.core.checks import positive, positive_integer, probability
from privypurse.core.errors import InvalidArgument
from privypurse.core.queries import LossesAlong, Query, Released
from privypurse.mechanisms.base import Mechanism
from privypurse.training.schedules.base import Budget


@dataclass(frozen=True)
class Rounds:
    """Progress of a line search.

    Parameters
    ----------
    finished : int
        Number of finished rounds, with a step or given up.
    refusals : int
        Number of selections of "do not move".
    redraws : int
        How often the gradient of the current round was refused.
    selecting : bool
        Whether the next release is a selection.
    """

    finished: int
    refusals: int
    redraws: int
    selecting: bool

    @classmethod
    def read(cls, query: Query, past: Sequence[Released], most_redraws: int | None) -> "Rounds":
        """Count them; a round is given up at one refusal more than the redraws allowed."""
        finished = refusals = redraws = 0
        for released in past:
            if not released.is_selection:
                continue
            if int(released.value) > 0:
                finished, redraws = finished + 1, 0
            else:
                refusals += 1
                if most_redraws is not None and redraws >= most_redraws:
                    finished, redraws = finished + 1, 0
                else:
                    redraws += 1
        return cls(finished, refusals, redraws, isinstance(query, LossesAlong))


@dataclass(frozen=True)
class GrowingBudget:
    """Rounds of a line search cost the same until a gradient is refused; later gradients cost more.

    A refused gradient is kept: a second draw at `growth` times its budget is averaged in by
    precision, and the sum of both budgets is the cost of later gradients. The last round spends the
    remainder.

    Parameters
    ----------
    rounds : int
        Number of rounds that fit the budget if no gradient is refused.
    selection_share : float, default 0.3
        Share of a round for its selection.
    growth : float, default 0.1
        Budget of a second draw, relative to the cost of the gradient so far.
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
        # Cost of a whole gradient, which has grown with every refusal.
        gradient = (1 - self.selection_share) / self.rounds * (1 + self.growth) ** standing.refusals
        if standing.selecting:
            # If what would be left does not cover another round, this is the last one.
            return budget.selection(1.0 if left - selection < (gradient + selection) * (1 - 1e-9) else selection)
        wanted = gradient if standing.redraws == 0 else gradient * self.growth / (1 + self.growth)
        if left < (wanted + selection + gradient + selection) * (1 - 1e-9):
            wanted = left * (1 - self.selection_share)
        return budget.gaussian(wanted)


def check_selection_share(share: float) -> float:
    """Raise InvalidArgument unless a share leaves something for gradients."""
    if probability(selection_share=share) >= 1:
        raise InvalidArgument(f"selection_share must be below 1; got {share!r}. Pass for example 0.3.")
    return share
