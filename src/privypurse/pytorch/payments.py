"""[PUBLIC] Releases of a run of the engine: schedule, budget, charges and trace."""

import contextlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from privypurse.accounting.fixed_schedule import FixedSchedule
from privypurse.accounting.totals import Totals
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse.core.checks import shown
from privypurse.core.errors import BudgetExhausted, InvalidArgument, count_charge
from privypurse.core.queries import ModuleGradient, Released, ShareWithin
from privypurse.core.sensitive import Norm, Sample
from privypurse.mechanisms.gaussian import Gaussian
from privypurse.mechanisms.torch_gaussian import SensitiveTensor, TorchGaussian
from privypurse.purse.purse import Purse
from privypurse.pytorch.budgets import AdaptiveClip
from privypurse.training.checkpoint import remembered, single_charge
from privypurse.training.progress import Callback
from privypurse.training.schedules.base import Budget, Schedule
from privypurse.training.schedules.weighted import EvenSplit, Weighted
from privypurse.training.trace import Step, Trace

GRADIENT = ModuleGradient.__name__


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Public settings of a run, fixed before it begins."""

    steps: int
    sample_prob: float
    expected_batch: float
    chunks: int
    samples_per_pass: int
    piece: int
    mean_loss: bool
    block: int


class Payments:
    """Chooses the noise of each release before its sample is drawn, and charges it.

    An adaptive clip norm has looks at gradient norms, which are charged separately.

    Guarantees
    ----------
    The noise of a release depends on earlier releases only. The bound in the box is the clip norm
    that gradients were clipped to, which changes only after a release.
    """

    def __init__(
        self,
        purse: Purse,
        schedule: Schedule,
        clip_norm: float | AdaptiveClip,
        settings: Settings,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.purse, self.schedule, self.clip, self.settings = purse, schedule, clip_norm, settings
        self._adaptive = clip_norm if isinstance(clip_norm, AdaptiveClip) else None
        self.clip_norm = clip_norm.start if isinstance(clip_norm, AdaptiveClip) else clip_norm  # the current one
        self._callbacks = list(callbacks)
        self._fixed = isinstance(purse.filter, FixedSchedule)
        self.trace = Trace()
        self.gradients = 0
        self._past: tuple[Released, ...] = ()
        self._look_noise = self._noise_of_looks()
        self._budget = self._begin_budget()
        self._next: TorchGaussian | None = None
        self._started = self._reserved = False
        self._blocks = contextlib.ExitStack()

    @property
    def looking(self) -> bool:
        """Whether the next release is a look at gradient norms, for an adaptive clip norm."""
        looks = len(self.trace.steps) - self.gradients
        return self._adaptive is not None and self.gradients == looks * self._adaptive.every

    @property
    def looks(self) -> int:
        """Number of looks in the run."""
        return 0 if self._adaptive is None else self._adaptive.looks(self.settings.steps)

    def plan(self) -> None:
        """Choose the noise of the next release, or end the run if none fits the budget."""
        self._next = None
        if self.trace.stop_reason:
            return
        if self.gradients >= self.settings.steps:
            self.finish("steps")
            return
        try:
            multiplier = self._noise_multiplier()
        except BudgetExhausted:
            self.finish("budget")
            return
        # Schedules that divide the remaining budget always fit it; others are checked.
        if not isinstance(self.schedule, Weighted | EvenSplit):
            smallest = self.purse.filter.smallest_noise_multiplier(self.purse.totals, self.settings.sample_prob)
            if multiplier < smallest:
                self.finish("budget")
                return
        self._next = TorchGaussian(multiplier)

    def _noise_multiplier(self) -> float:
        budget = replace(self._budget, now=self.purse.totals) if self._fixed else self._budget
        if self.looking:
            if math.isinf(self._look_noise):
                raise BudgetExhausted("nothing is left of the budget.")
            return budget.gaussian(1.0).noise_multiplier if self._fixed else self._look_noise
        mechanism: Any = self.schedule.propose(ModuleGradient(clip_norm=self.clip_norm), self._past, budget)
        if not isinstance(mechanism, Gaussian):
            raise InvalidArgument(
                f"schedule must propose a Gaussian mechanism; {type(self.schedule).__name__} proposed {shown(mechanism)}. "
                "Return for example Gaussian(noise_multiplier=2.0), or budget.gaussian(0.01)."
            )
        return mechanism.noise_multiplier

    def pay(self, value: Tensor, sample: Sample) -> Tensor:
        """Release a sum through the purse and add it to the trace."""
        assert self._next is not None
        if not self._reserved:
            self._blocks.enter_context(self.purse.reserve(self.settings.block))
            self._reserved = True
        looking = self.looking
        # A look counts 1/2 for a record within the norm and -1/2 for others.
        bound, rate = 0.5 if looking else self.clip_norm, self.settings.sample_prob
        box = SensitiveTensor(
            value, norm=Norm.L2, add_remove=bound, replace_one=2 * bound, sample_prob=rate, sample=sample
        )
        query = ShareWithin(clip_norm=self.clip_norm) if looking else ModuleGradient(clip_norm=self.clip_norm)
        released = self.purse.release(box, self._next, what=type(query).__name__)
        noisy: Any = released.value
        seen = np.empty(0) if isinstance(self.schedule, Weighted | EvenSplit) else noisy.detach().cpu().numpy()
        released = replace(released, value=seen)
        if not looking:
            self._past = remembered(self._past, released)
            self._budget = self._budget.after(released.charge)
            self.gradients += 1
        self._record(Step.of(len(self.trace.steps) + 1, query, released, self.purse.fraction_left))
        return noisy  # type: ignore[no-any-return]

    def follow(self) -> None:
        """Count a release in a process that does not charge the purse."""
        count_charge()  # charged by the first process
        query = ShareWithin if self.looking else ModuleGradient
        self.gradients += not self.looking
        self.trace.steps.append(Step(len(self.trace.steps) + 1, query.__name__, {}, None, None, 0.0))

    def move_clip_norm(self, noisy_count: float) -> None:
        """Update the clip norm from the result of a look."""
        assert self._adaptive is not None
        self.clip_norm = self._adaptive.moved(self.clip_norm, noisy_count, self.settings.expected_batch)

    def finish(self, reason: str) -> None:
        """End the run."""
        if self.trace.stop_reason:
            return
        self.trace.stop_reason = reason
        self.close()
        if reason == "budget" and not self.trace.steps:
            warnings.warn(
                f"no step was made: what is left of the budget of data set {self.purse.dataset!r} does not cover the first "
                "one. The loader is empty and the module unchanged.",
                UserWarning,
                stacklevel=5,
            )
        for callback in self._callbacks:
            callback.on_end(self.trace)

    def close(self) -> None:
        """Return the unused part of the reservation."""
        self._blocks.close()
        self._reserved = False

    def state(self) -> dict[str, Any]:
        """Return the state of the run in JSON types, without `vectors`."""
        start = self._budget.start
        return {
            "settings": repr(self.settings),
            "schedule": repr(self.schedule),
            "clip": repr(self.clip),
            "trace": self.trace.to_json(),
            "start": [list(start.quanta), start.releases, start.non_private],
            "clip_norm": self.clip_norm,
            "look_noise": self._look_noise,
        }

    @property
    def vectors(self) -> list[Any]:
        """Latest noisy gradients, where the schedule uses them."""
        return [released.value for released in self._past if released.value.size]

    def go_on(self, state: dict[str, Any], vectors: list[Any]) -> None:
        """Continue a run from its `state`."""
        self.trace = Trace.from_json(state["trace"])
        self.clip_norm, self._look_noise = state["clip_norm"], state["look_noise"]
        gradients = [step for step in self.trace.steps if step.query == GRADIENT]
        self.gradients = len(gradients)
        quanta, releases, non_private = state["start"]
        start = Totals(tuple(quanta), releases, non_private)
        self._budget, self._past = replace(self._budget, start=start, now=start), ()
        empty = [np.empty(0)] * (len(gradients) - len(vectors))
        for step, vector in zip(gradients, [*empty, *vectors], strict=True):
            if step.charge:  # none in a process that does not charge
                charge = single_charge(step.charge)
                self._past = (*self._past, Released(vector, charge, step.noise_std))
                self._budget = self._budget.after(charge)

    def _record(self, step: Step) -> None:
        self.trace.steps.append(step)
        for callback in self._callbacks:
            if not self._started:
                callback.on_start(self.settings.steps + self.looks, step.number - 1)
            callback.on_step(step)
        self._started = True

    def _noise_of_looks(self) -> float:
        if self._adaptive is None or self._fixed:
            return 0.0
        spent, steps, rate = self.purse.totals, self.settings.steps, self.settings.sample_prob
        try:
            even = Budget(self.purse.filter, spent, spent, steps, rate).gaussian(1 / steps)
        except BudgetExhausted:
            return math.inf  # a finished run may be opened again
        return self._adaptive.noise_multiplier(self.settings.expected_batch, even.noise_multiplier)

    def _begin_budget(self) -> Budget:
        """Return the budget of gradients: the remaining budget less the cost of looks."""
        rule, start, rate = self.purse.filter, self.purse.totals, self.settings.sample_prob
        if self.looks and not self._fixed and math.isfinite(self._look_noise):
            start = rule.after(start, RepeatedCharge(GaussianCharge(self._look_noise, rate), self.looks))
        return Budget(rule, start, start, self.settings.steps, rate)
