"""Descent with a private line search: noisy losses select the step, bad gradients are redrawn."""

from dataclasses import dataclass

import numpy as np

from privypurse.core._checks import positive, positive_integer
from privypurse.core.queries import GradientAt, LossesAlong, Query, Released
from privypurse.training.optimizers._base import KeepsPoint, State
from privypurse.training.optimizers._gradient_descent import check_momentum


@dataclass(frozen=True)
class LineSearch(KeepsPoint):
    """Ask for a gradient, then for the best of several steps along it, or "do not move".

    When "do not move" is selected, the momentum is dropped, and another gradient at the same point
    is requested and averaged in by precision, up to `most_redraws` times; then the round is given
    up. The longest step is halved from the second refusal on, and when a round is given up.
    """

    records: float
    largest_step: float  # at first, in units of the direction
    candidates: int = 20  # evenly spaced steps to choose from besides "do not move"
    normalise: bool = True  # a unit vector, and steps are distances; else the mean gradient
    widen: float = 1.1  # the longest step becomes this times the longest of the last `window`
    window: int = 10
    momentum: float = 0.0  # share of the previous direction that is added to the gradient
    l2: float = 0.0  # public, so added to gradients and scores without noise
    most_redraws: int | None = None  # of one gradient; None for no limit
    clip_norm: float | None = None
    clip_loss: float | None = None

    def __post_init__(self) -> None:
        positive_integer(candidates=self.candidates)
        positive(widen=self.widen)
        positive_integer(window=self.window)
        check_momentum(self.momentum)

    def init(self, dimension: int) -> State:
        return {
            "point": np.zeros(dimension),
            "gradient": np.zeros(dimension),  # noisy sum, averaged by precision over its draws
            "precision": np.zeros(1),  # 1/noise_std^2 of that average; zero before the first draw
            "mixed": np.zeros(dimension),  # its mean, with momentum and ridge
            "direction": np.zeros(dimension),
            "velocity": np.zeros(dimension),
            "selecting": np.zeros(1),
            "redraws": np.zeros(1),
            "longest": np.full(1, self.largest_step),
            "taken": np.zeros(0),  # steps since the longest one was reset
        }

    def ask(self, state: State) -> Query:
        if not state["selecting"][0]:
            return GradientAt(point=state["point"], clip_norm=self.clip_norm)
        steps = np.arange(self.candidates + 1.0) * (float(state["longest"][0]) / self.candidates)
        point, direction, ridge = state["point"], state["direction"], None
        if self.l2 > 0:
            ahead = point[:, None] - np.outer(direction, steps)
            ridge = self.records * self.l2 / 2 * (ahead**2).sum(axis=0)
        return LossesAlong(point=point, direction=direction, steps=steps, clip_loss=self.clip_loss, public_terms=ridge)

    def tell(self, state: State, released: Released) -> State:
        if not state["selecting"][0]:
            return self._look(state, released)
        state = {**state, "selecting": np.zeros(1)}
        fresh = {"precision": np.zeros(1), "gradient": np.zeros_like(state["gradient"]), "redraws": np.zeros(1)}
        chosen, longest = int(released.value), state["longest"]
        if chosen == 0:
            redraws = state["redraws"]
            give_up = self.most_redraws is not None and redraws[0] >= self.most_redraws
            # The momentum may cause the first refusal, too long steps the second.
            longest = longest / 2 if give_up or redraws[0] > 0 else longest
            stay = {"velocity": np.zeros_like(state["velocity"]), "longest": longest}
            return {**state, **(fresh if give_up else {"redraws": redraws + 1}), **stay}
        step = float(longest[0]) * chosen / self.candidates
        taken = np.append(state["taken"], step)
        if taken.size == self.window:
            longest, taken = np.array([self.widen * taken.max()]), np.zeros(0)
        moved = {"point": state["point"] - step * state["direction"], "velocity": state["mixed"]}
        return {**state, **fresh, **moved, "longest": longest, "taken": taken}

    def _look(self, state: State, released: Released) -> State:
        """Average the draws of one gradient by their precision."""
        precision = 1 / (released.noise_std or 1.0) ** 2
        total = state["precision"] + precision
        gradient = (state["precision"] * state["gradient"] + precision * released.value) / total
        mixed = self.momentum * state["velocity"] + gradient / self.records + self.l2 * state["point"]
        length = float(np.linalg.norm(mixed)) if self.normalise else 0.0
        looked = {"gradient": gradient, "precision": total, "mixed": mixed}
        return {**state, **looked, "direction": mixed / length if length > 0 else mixed, "selecting": np.ones(1)}
