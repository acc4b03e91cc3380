"""[PUBLIC] Budget of a run of the engine: settings, and releases with the noise chosen for each."""

import contextlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Totals
from privypurse.core._checks import shown
from privypurse.core._errors import BudgetExhausted, InvalidArgument, count_charge
from privypurse.core._formats import counted
from privypurse.core._sensitive import Norm, Sample
from privypurse.core.charges import GaussianCharge, RepeatedCharge, to_json
from privypurse.core.queries import ModuleGradient, Released, ShareWithin
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.mechanisms._torch_gaussian import SensitiveTensor, TorchGaussian
from privypurse.purse._purse import Purse
from privypurse.pytorch._clip_norms import AdaptiveClip, ByPart, ByStep, Clip
from privypurse.pytorch._clipping import LEAST_CLIP_NORM, MOST_CLIP_NORM
from privypurse.training._checkpoint import single_charge
from privypurse.training._progress import Callback
from privypurse.training._trace import Step, Trace, forget, remembered
from privypurse.training.schedules._base import Budget, ConstantNoise, EvenSplit, Schedule, Weighted


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
    """Chooses the noise of each release before its batches are handed out, and charges it.

    The noise depends on earlier releases only. The bound in the box is the clip norm that gradients
    were clipped to, which changes only after a look at gradient norms, itself a release.
    """

    def __init__(
        self,
        purse: Purse,
        schedule: Schedule,
        clip_norm: Clip,
        settings: Settings,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.purse, self.schedule, self.clip, self.settings = purse, schedule, clip_norm, settings
        self._adaptive = clip_norm if isinstance(clip_norm, AdaptiveClip) else None
        self._steady = clip_norm if isinstance(clip_norm, float) else 0.0
        if isinstance(clip_norm, AdaptiveClip | ByPart):
            self._steady = clip_norm.start if isinstance(clip_norm, AdaptiveClip) else clip_norm.total
        self._looks = 0 if self._adaptive is None else self._adaptive.looks(settings.steps)  # in the whole run
        self._rule, self._callbacks = purse.filter, list(callbacks)
        self._fixed = isinstance(purse.filter, FixedSchedule)  # it decides what comes next, not the schedule
        self._divides = isinstance(schedule, Weighted | EvenSplit)  # such schedules always fit, and see no values
        self.trace, self.gradients = Trace(), 0
        self.looking = False  # whether the next release is a look at gradient norms, for an adaptive clip norm
        self._past: Sequence[Released] = ()
        self._look_noise, self._budget = self._begin()
        self._next: TorchGaussian | None = None
        self._started = self._reserved = False
        self._blocks = contextlib.ExitStack()

    @property
    def clip_norm(self) -> float:
        """Bound on the whole gradient of a record at the next step."""
        return self.clip.at(self.gradients) if isinstance(self.clip, ByStep) else self._steady

    @property
    def clip_norms(self) -> float | tuple[float, ...]:
        """Clip norm of the next step, or that of each part of the module."""
        return self.clip.norms if isinstance(self.clip, ByPart) else self.clip_norm

    @property
    def parts(self) -> dict[str, int] | None:
        """Part of the module that each parameter belongs to, where parts are clipped by themselves."""
        return self.clip.parts if isinstance(self.clip, ByPart) else None

    @property
    def noise_multiplier(self) -> float:
        """Noise multiplier of the next release; infinity where the budget covers none."""
        if self.gradients >= self.settings.steps:
            return math.inf
        if self._fixed:
            return self._rule.smallest_noise_multiplier(self.purse.totals, self.settings.sample_prob)
        try:
            return self._proposed(looking=self._look_is_next())
        except BudgetExhausted:
            return math.inf

    def extend(self, steps: int) -> None:
        """Lengthen the run, if its schedule does not divide the whole budget over the steps it had."""
        settings, adaptive = self.settings, self._adaptive
        total = settings.steps + steps
        looks = 0 if adaptive is None else adaptive.looks(total)
        if self._fixed:
            assert isinstance(self._rule, FixedSchedule)
            left = len(self._rule.schedule) - self.purse.totals.quanta[0]
            needed = total + looks - len(self.trace.steps)
            if needed > left:
                what = f"{counted(needed, 'more release')}, but the budget covers {left}"
                remedy = "Extend it by less, or begin with epsilon beside noise_multiplier, and a larger one"
                raise InvalidArgument(f"the run would have {what}. {remedy}.")
        elif self._divides:
            divided = "the schedule divides the whole budget over the steps of the run"
            raise InvalidArgument(f"{divided}: none is left for others. Begin with noise_multiplier and epsilon.")
        if isinstance(self.clip, ByStep):
            self.clip = self.clip.extended(total)
        whole = settings.samples_per_pass == settings.steps + self._looks
        each = total + looks if whole else settings.samples_per_pass
        self.settings, self._looks = replace(settings, steps=total, samples_per_pass=each), looks
        self.trace.stop_reason, self._started = "", False

    def plan(self) -> None:
        """Choose the noise of the next release, or end the run if none fits the budget."""
        self._next = None
        if self.gradients >= self.settings.steps:
            self.finish("steps")
        if self.trace.stop_reason:
            return
        self.looking = self._look_is_next()
        try:
            if self._fixed:
                now = self.purse.totals
                multiplier = self._rule.smallest_noise_multiplier(now, self.settings.sample_prob)
                if math.isinf(multiplier):  # raises: nothing is left, or another release comes next
                    replace(self._budget, now=now).gaussian(1.0)
            else:
                multiplier = self._proposed(looking=self.looking)
            self._next = TorchGaussian(multiplier)
        except BudgetExhausted:
            self.finish("budget")

    def _look_is_next(self) -> bool:
        looks = len(self.trace.steps) - self.gradients
        return self._adaptive is not None and self.gradients == looks * self._adaptive.every

    def _proposed(self, *, looking: bool) -> float:
        """Return the noise multiplier of a look, or that which the schedule proposes."""
        multiplier, least = self._look_noise, 0.0
        if not looking:
            mechanism = self.schedule.propose(ModuleGradient(clip_norm=self.clip_norm), self._past, self._budget)
            if not isinstance(mechanism, Gaussian):
                proposed = (
                    f"{type(self.schedule).__name__} proposed {shown(mechanism)}. Return budget.gaussian(0.01), say"
                )
                raise InvalidArgument(f"schedule must propose a Gaussian mechanism; {proposed}.")
            multiplier = mechanism.noise_multiplier
        if not self._divides:
            least = self._rule.smallest_noise_multiplier(self.purse.totals, self.settings.sample_prob)
        if multiplier < least or math.isinf(multiplier):
            raise BudgetExhausted("what is left of the budget does not cover the next release.")
        return multiplier

    def pay(self, value: Tensor, sample: Sample) -> Tensor:
        """Release a sum through the purse and add it to the trace."""
        assert self._next is not None
        if not self._reserved:
            self._blocks.enter_context(self.purse.reserve(self.settings.block))
            self._reserved = True
        # A look counts 1/2 for a record within the norm and -1/2 for others.
        bound, rate = 0.5 if self.looking else self.clip_norm, self.settings.sample_prob
        box = SensitiveTensor(
            value, norm=Norm.L2, add_remove=bound, replace_one=2 * bound, sample_prob=rate, sample=sample
        )
        name = (ShareWithin if self.looking else ModuleGradient).__name__
        released = self.purse.release(box, self._next, what=name)
        noisy: Any = released.value
        self.gradients += not self.looking
        if not (self.looking or self._fixed):
            seen = (
                np.empty(0)
                if self._divides or isinstance(self.schedule, ConstantNoise)
                else noisy.detach().cpu().numpy()
            )
            self._past = remembered(self._past, replace(released, value=seen))
            forget(self._past)
            self._budget = self._budget.after(released.charge)
        left, done = self.purse.fraction_left, len(self.trace.steps)
        step = Step(done + 1, name, to_json(released.charge), released.noise_std, None, left)
        self.trace.steps.append(step)
        for callback in self._callbacks:
            if not self._started:
                callback.on_start(self.settings.steps + self._looks, done)
            callback.on_step(step)
        self._started = True
        return noisy  # type: ignore[no-any-return]

    def follow(self) -> None:
        """Count a release in a process that does not charge the purse."""
        count_charge()  # charged by the first process
        query = ShareWithin if self.looking else ModuleGradient
        self.gradients += not self.looking
        self.trace.steps.append(Step(len(self.trace.steps) + 1, query.__name__, {}, None, None, 0.0))

    def move_clip_norm(self, noisy_count: float) -> None:
        """Update the clip norm from the result of a look."""
        clip = self._adaptive
        assert clip is not None
        share = min(max(noisy_count / self.settings.expected_batch + 0.5, 0.0), 1.0)
        moved = self.clip_norm * math.exp(clip.rate * (clip.quantile - share))
        self._steady = min(max(moved, LEAST_CLIP_NORM), MOST_CLIP_NORM)

    def finish(self, reason: str) -> None:
        """End the run."""
        if self.trace.stop_reason:
            return
        self.trace.stop_reason = reason
        self.close()
        if reason == "budget" and not self.trace.steps:
            left = f"what is left of the budget of data set {self.purse.dataset!r} does not cover the first one"
            warnings.warn(f"no step was made: {left}. The module is unchanged.", UserWarning, stacklevel=4)
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
        self._look_noise = state["look_noise"]
        if self._adaptive is not None:
            self._steady = state["clip_norm"]
        gradients = [step for step in self.trace.steps if step.query == ModuleGradient.__name__]
        self.gradients = len(gradients)
        quanta, releases, non_private = state["start"]
        start = Totals(tuple(quanta), releases, non_private)
        self._budget, self._past = replace(self._budget, start=start, now=start), ()
        empty = [np.empty(0)] * (len(gradients) - len(vectors))
        for step, vector in zip(gradients, [*empty, *vectors], strict=True):
            charge = single_charge(step.charge) if step.charge else None  # none in a process that does not charge
            if charge is not None and not self._fixed:
                self._past = (*self._past, Released(vector, charge, step.noise_std))
                self._budget = self._budget.after(charge)

    def _begin(self) -> tuple[float, Budget]:
        """Return the noise of looks, and the budget of gradients: the remaining one less their cost."""
        rule, start, steps, rate = self.purse.filter, self.purse.totals, self.settings.steps, self.settings.sample_prob
        whole = Budget(rule, start, start, steps, rate)
        if self._adaptive is None or self._fixed:
            return 0.0, whole
        try:
            even = whole.gaussian(1 / steps)
        except BudgetExhausted:
            return math.inf, whole  # a finished run may be opened again
        noise = self._adaptive.noise_multiplier(self.settings.expected_batch, even.noise_multiplier)
        if math.isfinite(noise):
            start = rule.after(start, RepeatedCharge(GaussianCharge(noise, rate), self._looks))
        return noise, Budget(rule, start, start, steps, rate)
