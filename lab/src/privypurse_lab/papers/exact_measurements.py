"""Exact measurements of a run at each step, for the figures of the papers. NOT PRIVATE.

They are released through purses declared not private, never through that of the run.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privypurse.core._checks import FloatArray
from privypurse.core.queries import GradientAt, LossesAlong, Query, Released
from privypurse.mechanisms._non_private import NonPrivateRelease
from privypurse.purse._purse import Purse
from privypurse.training.optimizers._base import Optimizer, State

EXACT = NonPrivateRelease("measured exactly, to draw a figure of a paper")


@dataclass(frozen=True)
class Followed:
    """Optimizer that records the points of another.

    Attributes
    ----------
    points : list of ndarray
        The model before the first answer and after each one. Public, as the optimizer's state is.
    """

    optimizer: Optimizer
    points: list[FloatArray] = field(default_factory=list, repr=False, compare=False)

    def init(self, dimension: int) -> State:
        """Initialise, and record the point."""
        state = self.optimizer.init(dimension)
        self.points[:] = [np.array(self.optimizer.point(state))]
        return state

    def ask(self, state: State) -> Query:
        """Return the query of the other."""
        return self.optimizer.ask(state)

    def tell(self, state: State, released: Released) -> State:
        """Pass the answer on, and record the point."""
        state = self.optimizer.tell(state, released)
        self.points.append(np.array(self.optimizer.point(state)))
        return state

    def point(self, state: State) -> FloatArray:
        """Return the point of the other."""
        return self.optimizer.point(state)


class Exactly:
    """Exact means of losses and gradients of a data set, with the ridge. NOT PRIVATE.

    Parameters
    ----------
    oracle : Oracle
        The data.
    records : int
        Number of records.
    l2 : float
        Ridge penalty on the mean loss.
    clip_norm : float or None
        Clip norm, where the loss does not bound gradients; a large one gives the true gradient.
    """

    def __init__(self, oracle: Any, records: int, l2: float = 0.0, clip_norm: float | None = None) -> None:
        self._oracle, self._records, self._l2, self._clip_norm = oracle, records, l2, clip_norm
        self._purse = Purse.not_private()

    def gradient(self, point: FloatArray) -> FloatArray:
        """Return the gradient of the objective."""
        box = self._oracle.answer(GradientAt(point=point, clip_norm=self._clip_norm))
        return self._purse.release(box, EXACT, what="exact gradient").value / self._records + self._l2 * point

    def loss(self, point: FloatArray, clip_loss: float | None = 1e9) -> float:
        """Return the objective: mean loss plus ridge.

        Oracles return differences of losses, so this starts from the loss at zero, which is equal
        for all records of a classification, and of a regression on targets -1 and +1.
        """
        # From the point to zero: the release is the negated difference of the losses.
        query = LossesAlong(point=point, direction=point, steps=np.array([0.0, 1.0]), clip_loss=clip_loss)
        gains = self._purse.release(self._oracle.answer(query), EXACT, what="exact loss").value
        at_zero = float(self._oracle.bounds.initial_gap)
        return at_zero + float(gains[1] - gains[0]) / self._records + self._l2 / 2 * float(point @ point)
