"""[RAW DATA] The engine: takes clipped sums from the backward pass to the purse, and noisy gradients to the optimizer."""

import contextlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privypurse.accounting.fixed_schedule import FixedSchedule
from privypurse.accounting.totals import Totals
from privypurse.core.charges import GaussianCharge, RepeatedCharge, SingleCharge
from privypurse.core.errors import BudgetExhausted, InvalidArgument
from privypurse.core.queries import ModuleGradient, ShareWithin
from privypurse.core.released import Released
from privypurse.core.sensitive import Norm, Sample, SensitiveTensor
from privypurse.mechanisms.torch_gaussian import TorchGaussian
from privypurse.oracles.sampling import poisson_rows
from privypurse.purse.purse import Purse
from privypurse.pytorch.adaptive_clip import AdaptiveClip
from privypurse.pytorch.clipping import ClippedSum, check_records, clipped_sum
from privypurse.pytorch.compiled import ClippedSums
from privypurse.pytorch.pieces import sum_in_pieces
from privypurse.pytorch.processes import Processes
from privypurse.pytorch.rows import Indexes, Rows
from privypurse.pytorch.taps import Taps
from privypurse.schedules.base import Budget, Schedule
from privypurse.schedules.weighted import EvenSplit, Weighted
from privypurse.training.progress import Callback
from privypurse.training.trace import Step, Trace


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run is like; public, and fixed before it begins."""

    steps: int
    sample_prob: float
    expected_batch: float
    chunks: int
    piece: int
    mean_loss: bool
    block: int


class Engine:
    """One private training run of a module.

    Made by `make_private`, and found as ``private.engine``.

    Guarantees
    ----------
    * What leaves, leaves through the purse: the noisy sum of clipped gradients, and noisy counts for an adaptive clip norm.
    * A sample is drawn by the engine for each release and used for one; each record of it adds at most the clip norm, because each
      chunk is good for one backward pass over exactly its records.
    * The sum is divided by the public expected batch size. An empty sample is a release of noise.
    * ``parameter.grad`` of every parameter of the optimizer is replaced before each step: by the noisy gradient, or by nothing.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        trained: dict[str, nn.Parameter],
        rows: Rows,
        purse: Purse,
        schedule: Schedule,
        clip_norm: float | AdaptiveClip,
        settings: Settings,
        *,
        sums: ClippedSums | None,
        taps: Taps,
        scaler: Any = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.module, self.optimizer, self.purse, self.schedule, self.settings = (
            module,
            optimizer,
            purse,
            schedule,
            settings,
        )
        self._trained, self._rows, self._sums, self._taps, self._scaler = trained, rows, sums, taps, scaler
        self._callbacks = list(callbacks)
        self.clip = clip_norm
        self._clip = clip_norm if isinstance(clip_norm, AdaptiveClip) else None
        self.clip_norm = clip_norm.start if isinstance(clip_norm, AdaptiveClip) else clip_norm
        self._sizes = {name: parameter.shape for name, parameter in trained.items()}
        self._known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        self._device = next(iter(trained.values())).device
        self._processes = Processes()
        self._processes.agree(module)
        self.trace = Trace()
        self.gradients = 0
        self._past: list[Released] = []
        self.look_noise = self._noise_of_looks()
        self._budget = self._begin_budget()
        self._forget_sample()
        self._finishing = self._started = False
        self._blocks = contextlib.ExitStack()
        self._reserved = False
        weakref.finalize(self, self._blocks.close)
        taps.on_backward(self._on_backward)
        self._step_hook = optimizer.register_step_pre_hook(_calling(weakref.ref(self)))

    # What the loader asks.

    @property
    def stop_reason(self) -> str:
        """Why the run ended: "steps", "budget", or nothing yet."""
        return self.trace.stop_reason

    @property
    def looking(self) -> bool:
        """Whether the next release is a look at the lengths of gradients, for an adaptive clip norm."""
        looks = len(self.trace.steps) - self.gradients
        return self._clip is not None and self.gradients == looks * self._clip.every

    def draw_sample(self) -> list[Indexes] | None:
        """Draw a fresh sample, as chunks of rows, or say None where the run has ended."""
        self._next = self._plan() if self._processes.first else None
        reason = self._processes.tell(self.trace.stop_reason)
        if reason:
            self._finish(reason)
            return None
        rows = None
        if self._processes.first:
            rows = poisson_rows(len(self._rows), self.settings.sample_prob, self.purse.noise)
        mine = self._processes.share(rows)  # type: ignore[arg-type]
        self._forget_sample()
        self._sample = Sample()
        return np.array_split(mine, self.settings.chunks)

    def begin_chunk(self, rows: Indexes, last: bool) -> Any:
        """Fetch a chunk of the sample; the next backward pass is over its records."""
        batch = self._rows.fetch(rows)
        self._chunk, self._last, self._used = len(rows), last, False
        self._taps.take()
        return batch

    # What a checkpoint asks.

    @property
    def pays(self) -> bool:
        """Whether this process is the one that pays."""
        return self._processes.first

    @property
    def in_sample(self) -> bool:
        """Whether a sample was begun and not yet released."""
        return self._chunk is not None

    @property
    def began_at(self) -> Totals:
        """What was spent when the run began, looks to come included."""
        return self._budget.start

    @property
    def last_value(self) -> Any:
        """The last noisy gradient, where the schedule looks at it."""
        return self._past[-1].value if self._past else np.empty(0)

    @property
    def parameters(self) -> list[list[Any]]:
        """Names and shapes of what is trained."""
        return [[name, list(size)] for name, size in self._sizes.items()]

    def go_on(
        self,
        trace: Trace,
        charges: Sequence[tuple[str, SingleCharge, float | None]],
        start: Totals,
        clip_norm: float,
        look_noise: float,
        last: Any,
    ) -> None:
        """Take up a saved run: its record, and what it had spent and planned."""
        gradients = [(charge, std) for query, charge, std in charges if query == ModuleGradient.__name__]
        self.trace, self.clip_norm, self.look_noise = trace, clip_norm, look_noise
        self.gradients = sum(step.query == ModuleGradient.__name__ for step in trace.steps)
        self._budget = replace(self._budget, start=start, now=start)
        for charge, std in gradients:
            self._past.append(Released(np.empty(0), charge, std))
            self._budget = self._budget.after(charge)
        if self._past:
            self._past[-1] = replace(self._past[-1], value=last)

    # What the backward pass brings.

    def backward(self, *batch: Tensor) -> None:
        """Do forward and backward over a batch of the loader in one compiled call: inputs and, last, targets.

        In place of ``loss = criterion(module(x), y); loss.backward()``, and faster. Needs the `loss` in `make_private`.
        """
        if self._sums is None:
            raise InvalidArgument(
                "backward needs the loss: pass loss=nn.CrossEntropyLoss() to make_private. Nothing was spent."
            )
        if len(batch) == 1 and isinstance(batch[0], tuple | list):
            batch = tuple(batch[0])
        if len({len(part) for part in batch} | {self._chunk if self._chunk is not None else -1}) != 1:
            raise InvalidArgument(
                f"backward must be given the batch of the loader as it came; got {[len(part) for part in batch]} records. "
                "Nothing was spent."
            )
        self._use_chunk()
        self._add(sum_in_pieces(self._sums, batch, self.settings.piece, self.clip_norm, self._device))

    def _on_backward(self) -> None:
        """Note that a gradient came back; the sum is made when the whole pass is over."""
        if not self._finishing:
            self._finishing = True
            torch.autograd.Variable._execution_engine.queue_callback(self._after_backward)  # type: ignore[attr-defined]

    def _after_backward(self) -> None:
        self._finishing = False
        uses = self._taps.take()
        if self._chunk is None:
            raise InvalidArgument(
                "a backward pass was made on records that are not from the private loader. Take batches from the loader that "
                "make_private returned; use torch.no_grad() or module.eval() for anything else. Nothing was spent."
            )
        check_records(uses, self._chunk)
        self._use_chunk()
        if self._chunk == 0:
            return
        scale = float(self._chunk) if self.settings.mean_loss else 1.0
        if self._scaler is not None:
            scale /= self._scaler.get_scale()
        weights = torch.ones(self._chunk, device=self._device)
        self._add(clipped_sum(uses, self._sizes, weights, self.clip_norm, scale))
        if self._scaler is not None:
            # A scaler looks for gradients before the step, and would not step without them.
            for parameter in self._trained.values():
                parameter.grad = torch.zeros_like(parameter)

    def _use_chunk(self) -> None:
        if self._used:
            raise InvalidArgument(
                "a second backward pass was made over one batch: a record would count twice. Add the losses up and call backward "
                "once. Nothing was spent."
            )
        self._used = True

    def _add(self, part: ClippedSum) -> None:
        flat = part.flat.double()
        self._flat = flat if self._flat is None else self._flat + flat
        self._within = part.within if self._within is None else self._within + part.within

    # What the optimizer is given.

    def before_step(self, closure: Callable[[], Any] | None) -> Any:
        """Pay for the gradient and give it to the parameters; returns what a closure returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._clear_gradients()
        if self._chunk is None:
            if self.trace.stop_reason:
                raise BudgetExhausted(
                    f"the run has ended ({self.trace.stop_reason}): no further step is paid for. Nothing was spent, and the module is "
                    "as it was. Stop when the loader does."
                )
            raise InvalidArgument(
                "step was called without a batch: take batches from the loader that make_private returned, one step for each. "
                "Nothing was spent."
            )
        if not self._used and self._chunk > 0:
            raise InvalidArgument(
                "step was called and no backward pass came through the module: is it in training mode (module.train()), and is the "
                "loss computed from its output? Nothing was spent."
            )
        if not self._last:
            return loss  # the sample goes on in the next batch
        try:
            self._release()
        except BudgetExhausted:
            self._finish("budget")
        return loss

    def _release(self) -> None:
        looking = self.looking
        flat = self._flat if self._flat is not None else self._zeros()
        value = (
            flat if not looking else (self._zeros()[:1] if self._within is None else self._within.double().reshape(1))
        )
        whole = self._processes.add_up(value)
        noisy, failed = None, False
        if self._processes.first:
            try:
                noisy = self._pay(whole, looking)
            except BudgetExhausted:
                failed = True
        if self._processes.tell(failed):
            raise BudgetExhausted("the budget does not pay for this step. Nothing was spent.")
        noisy = self._processes.hand_out(noisy, whole)
        if self._processes.count > 1 and not self._processes.first:
            self._follow(looking)
        self._forget_sample()
        if looking:
            assert self._clip is not None
            self.clip_norm = self._clip.moved(self.clip_norm, float(noisy), self.settings.expected_batch)
        else:
            self._give(noisy)
            self.gradients += 1

    def _pay(self, value: Tensor, looking: bool) -> Tensor:
        """Release a sum through the purse, and put it on record."""
        if not self._reserved:
            self._blocks.enter_context(self.purse.reserve(self.settings.block))
            self._reserved = True
        bound = 0.5 if looking else self.clip_norm
        box = SensitiveTensor(
            value,
            norm=Norm.L2,
            add_remove=bound,
            replace_one=2 * bound,
            sample_prob=self.settings.sample_prob,
            sample=self._sample,
        )
        mechanism = self._next
        assert mechanism is not None
        query = ShareWithin(clip_norm=self.clip_norm) if looking else ModuleGradient(clip_norm=self.clip_norm)
        noisy: Any = self.purse.release(box, mechanism, what=type(query).__name__)
        charge = mechanism.charge(box, self.purse.neighbouring)
        released = Released(self._kept(noisy), charge, mechanism.noise_std(box, self.purse.neighbouring))
        if not looking:
            if self._past:
                self._past[-1] = replace(self._past[-1], value=np.empty(0))
            self._past.append(released)
            self._budget = self._budget.after(charge)
        self._record(Step.of(len(self.trace.steps) + 1, query, released, self.purse.fraction_left))
        return noisy  # type: ignore[no-any-return]

    def _record(self, step: Step) -> None:
        self.trace.steps.append(step)
        for callback in self._callbacks:
            if not self._started:
                callback.on_start(self.settings.steps + self.looks, step.number - 1)
            callback.on_step(step)
        self._started = True

    def _follow(self, looking: bool) -> None:
        """Count along, in a process that does not pay."""
        query = ShareWithin(clip_norm=self.clip_norm) if looking else ModuleGradient(clip_norm=self.clip_norm)
        self.trace.steps.append(Step(len(self.trace.steps) + 1, type(query).__name__, {}, None, None, 0.0))

    def _kept(self, noisy: Tensor) -> Any:
        """Return what a schedule may want to see of a release; nothing for those that do not look."""
        if isinstance(self.schedule, Weighted | EvenSplit):
            return np.empty(0)
        return noisy.detach().cpu().numpy()

    def _give(self, noisy: Tensor) -> None:
        """Put the mean noisy gradient where the optimizer takes it from."""
        mean = noisy / self.settings.expected_batch
        kinds = {parameter.dtype for parameter in self._trained.values()}
        if len(kinds) == 1:
            mean = mean.to(kinds.pop())
        parts = mean.split([size.numel() for size in self._sizes.values()])
        for parameter, part in zip(self._trained.values(), parts, strict=True):
            parameter.grad = part.view(parameter.shape).to(parameter.dtype)

    def _clear_gradients(self) -> None:
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in self._known:
                    raise InvalidArgument(
                        "optimizer has a parameter that it did not have when make_private was called: its gradient would not be "
                        "private. Call make_private after all parameters are added. Nothing was spent."
                    )
                parameter.grad = None

    # The budget.

    @property
    def looks(self) -> int:
        """How many looks at the lengths of gradients the run has."""
        return 0 if self._clip is None else self._clip.looks(self.settings.steps)

    def _noise_of_looks(self) -> float:
        if self._clip is None or isinstance(self.purse.filter, FixedSchedule):
            return 0.0
        budget = Budget(
            self.purse.filter, self.purse.totals, self.purse.totals, self.settings.steps, self.settings.sample_prob
        )
        even = budget.gaussian(1 / self.settings.steps).noise_multiplier
        return self._clip.noise_multiplier(self.settings.expected_batch, even)

    def _begin_budget(self) -> Budget:
        """Return what gradients may spend: what is left, less what the looks will cost."""
        rule, start = self.purse.filter, self.purse.totals
        if self.looks and not isinstance(rule, FixedSchedule):
            start = rule.after(
                start, RepeatedCharge(GaussianCharge(self.look_noise, self.settings.sample_prob), self.looks)
            )
        return Budget(rule, start, start, self.settings.steps, self.settings.sample_prob)

    def _plan(self) -> TorchGaussian | None:
        """Choose the noise of the next release before its sample is drawn; where nothing more fits, the run ends."""
        if self.trace.stop_reason:
            return None
        if self.gradients >= self.settings.steps:
            self._finish("steps")
            return None
        rule, fixed = self.purse.filter, isinstance(self.purse.filter, FixedSchedule)
        budget = replace(self._budget, now=self.purse.totals) if fixed else self._budget
        try:
            if self.looking:
                multiplier = self.look_noise if not fixed else budget.gaussian(1.0).noise_multiplier
            else:
                query = ModuleGradient(clip_norm=self.clip_norm)
                multiplier = self.schedule.propose(query, self._past, budget).noise_multiplier  # type: ignore[attr-defined]
        except BudgetExhausted:
            self._finish("budget")
            return None
        if not isinstance(self.schedule, Weighted | EvenSplit):
            if multiplier < rule.smallest_noise_multiplier(self.purse.totals, self.settings.sample_prob):
                self._finish("budget")
                return None
        return TorchGaussian(multiplier)

    def _finish(self, reason: str) -> None:
        if not self.trace.stop_reason:
            self.trace.stop_reason = reason
            self.close()
            for callback in self._callbacks:
                callback.on_end(self.trace)
        self._forget_sample()

    def close(self) -> None:
        """Give back what was reserved and not used; the run may go on all the same."""
        self._blocks.close()
        self._reserved = False

    def detach(self) -> None:
        """Take all hooks off: the module and the optimizer are plain ones again, and further training is NOT PRIVATE."""
        self.close()
        self._taps.remove()
        self._step_hook.remove()

    def _forget_sample(self) -> None:
        self._chunk: int | None = None
        self._last = self._used = False
        self._flat: Tensor | None = None
        self._within: Tensor | None = None
        self._sample = Sample()

    def _zeros(self) -> Tensor:
        count = sum(size.numel() for size in self._sizes.values())
        return torch.zeros(count, dtype=torch.float64, device=self._device)


def _calling(engine: "weakref.ref[Engine]") -> Callable[..., Any]:
    """Return a hook for the optimizer that does not keep the engine alive by itself."""

    def hook(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        it = engine()
        if it is None:
            raise InvalidArgument(
                "the private engine of this optimizer is gone, and a step without it would not be private. Keep what make_private "
                "returned. Nothing was spent."
            )
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        loss = it.before_step(closure)
        if closure is None:
            return None
        return (optimizer, lambda: loss), {name: value for name, value in kwargs.items() if name != "closure"}

    return hook
