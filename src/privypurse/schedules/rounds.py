"""Reading a line search back from its releases: rounds of a noisy gradient and a selection, where 0 means refused."""

from collections.abc import Sequence
from dataclasses import dataclass

from privypurse.core.queries import LossesAlong, Query
from privypurse.core.released import Released


@dataclass(frozen=True)
class Rounds:
    """Where a line search stands.

    Parameters
    ----------
    finished : int
        Rounds that ended, with a step or given up.
    refusals : int
        Selections of "do not move", ever.
    redraws : int
        How often the gradient of the round under way was refused.
    selecting : bool
        Whether the next release is a selection.
    """

    finished: int
    refusals: int
    redraws: int
    selecting: bool

    @classmethod
    def read(cls, query: Query, past: Sequence[Released], most_redraws: int | None) -> "Rounds":
        """Count; a round is given up when its gradient was refused once more than it may be redrawn."""
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
