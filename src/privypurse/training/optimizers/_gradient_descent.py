"""Gradient descent: with momentum, look-ahead, projection, mean gradients, weight decay or a private line search."""

from dataclasses import dataclass

import numpy as np

from privypurse.core._checks import FloatArray, non_negative, positive, positive_integer
from privypurse.core._errors import InvalidArgument
from privypurse.core.queries import GradientAt, LossesAlong, Query, Released
from privypurse.training.optimizers._base import KeepsPoint, Projection, State
from privypurse.training.schedules.shapes import positive_vector


@dataclass(frozen=True)
class GradientDescent(KeepsPoint):
    """Step against the noisy mean gradient.

    Parameters
    ----------
    step_size : float or sequence of float
        Step per unit of mean gradient; a sequence has one for each step, and the last is repeated.
    records : float
        Public number of records by which the noisy sum is divided. Under add/remove the true number
        is private: pass a nominal or noisy one. With Poisson sampling, the expected sample size.
    clip_norm : float or None, default None
        Largest norm of one record's gradient; None where the loss bounds it.
    momentum, nesterov : float, bool
        Share of the last step that is repeated, below 1, and whether to take the gradient where
        the momentum alone would lead.
    l2 : float, default 0.0
        Ridge penalty ``l2/2 |w|^2`` on the mean loss; public, so added without noise or clipping.
    projection : Projection or None
        Public set to stay in, such as `Ball`.
    shrink : bool, default False
        Scale each step by the estimated share of signal in the release,
        ``1 - d noise_std^2/|g|^2``, which is the best step for that signal-to-noise ratio.
    """

    step_size: float | tuple[float, ...]
    records: float
    clip_norm: float | None = None
    momentum: float = 0.0
    nesterov: bool = False
    l2: float = 0.0
    projection: Projection | None = None
    shrink: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.step_size, float | int):
            positive(step_size=self.step_size)
        else:
            object.__setattr__(self, "step_size", tuple(positive_vector(step_size=self.step_size).tolist()))
        positive(records=self.records)
        non_negative(l2=self.l2)
        if self.clip_norm is not None:
            positive(clip_norm=self.clip_norm)
        check_momentum(self.momentum)

    def init(self, dimension: int) -> State:
        start = np.zeros(dimension)
        start = start if self.projection is None else self.projection(start)
        return {"point": start, "velocity": np.zeros(dimension), "made": np.zeros(1)}

    def ask(self, state: State) -> GradientAt:
        return GradientAt(point=self._place(state), clip_norm=self.clip_norm)

    def tell(self, state: State, released: Released) -> State:
        sizes, made = self.step_size, int(state["made"][0])
        size = float(sizes if isinstance(sizes, float | int) else sizes[min(made, len(sizes) - 1)])
        gradient = released.value / self.records + self.l2 * self._place(state)
        if self.shrink:
            size *= _signal_share(gradient, (released.noise_std or 0.0) / self.records)
        velocity = self.momentum * state["velocity"] - size * gradient
        point = state["point"] + velocity
        point = point if self.projection is None else self.projection(point)
        return {"point": point, "velocity": velocity, "made": state["made"] + 1}

    def _place(self, state: State) -> FloatArray:
        return state["point"] + self.momentum * state["velocity"] if self.nesterov else state["point"]


@dataclass(frozen=True)
class SmoothedDescent(KeepsPoint):
    """Step against ``(1 - b)/(1 - b^t) sum_i b^(t-i) g_i``, the bias-corrected mean of gradients.

    Unlike heavy-ball momentum, the momentum b averages noise and does not lengthen steps. It is
    that of the dynamic-noise paper.
    """

    step_size: float
    records: float
    clip_norm: float | None = None
    momentum: float = 0.9
    l2: float = 0.0

    def init(self, dimension: int) -> State:
        return {"point": np.zeros(dimension), "mean_gradient": np.zeros(dimension), "made": np.zeros(1)}

    def ask(self, state: State) -> GradientAt:
        return GradientAt(point=state["point"], clip_norm=self.clip_norm)

    def tell(self, state: State, released: Released) -> State:
        gradient = released.value / self.records + self.l2 * state["point"]
        made = state["made"] + 1
        mean = self.momentum * state["mean_gradient"] + (1 - self.momentum) * gradient
        corrected = mean / (1 - self.momentum ** float(made[0]))
        return {"point": state["point"] - self.step_size * corrected, "mean_gradient": mean, "made": made}


def check_momentum(momentum: float) -> float:
    """Raise InvalidArgument unless a momentum is from 0 to below 1."""
    if non_negative(momentum=momentum) >= 1:
        raise InvalidArgument(f"momentum must be below 1; got {momentum!r}. Pass for example momentum=0.9.")
    return momentum


def _signal_share(gradient: FloatArray, noise_std: float) -> float:
    """Estimate the share of a noisy gradient's squared length that is signal (James-Stein 1961)."""
    squared = float(gradient @ gradient)
    noise = gradient.size * noise_std**2
    return max(0.0, 1 - noise / squared) if squared > 0 else 0.0


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
