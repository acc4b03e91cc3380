"""What the training loop asks of a schedule, and what a schedule may see."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from privypurse.core.checks import FloatArray
from privypurse.core.queries import Query
from privypurse.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Budget:
    """What a run may spend, as it was when the run began; a resumed run sees the same.

    Parameters
    ----------
    noise_multiplier : float
        The least noise of one release that spends all of it: ``1/mu`` in Gaussian DP.
    selection_epsilon : float
        The largest epsilon of one selection that spends all of it.
    steps : int
        How many steps the run has at most.
    sample_prob : float
        The Poisson sampling rate of the run's queries; 1 where all records take part.
    """

    noise_multiplier: float
    selection_epsilon: float
    steps: int
    sample_prob: float = 1.0


@dataclass(frozen=True, eq=False)
class Past:
    """One release of the run so far: what it was charged, and the noisy answer."""

    charge: dict[str, Any]
    answer: FloatArray


class Schedule(Protocol):
    """Chooses the mechanism of the next release.

    Guarantees
    ----------
    It sees the query, the releases so far and the budget: all public. Whatever it chooses is therefore sound; the purse refuses
    what does not fit.
    """

    def propose(self, query: Query, past: Sequence[Past], budget: Budget) -> Mechanism:
        """Return the mechanism for the next release."""
        ...
