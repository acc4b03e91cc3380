"""[RAW DATA] Engine and loader: samples in, clipped sums of backward passes out, noisy gradients set."""

import contextlib
import hashlib
import math
import secrets
import sys
import types
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from privypurse.core._checks import positive_integer
from privypurse.core._errors import (
    BudgetExhausted,
    InvalidArgument,
    SharedAcrossProcesses,
    charges_so_far,
    spending_noted,
)
from privypurse.core._formats import counted
from privypurse.core._sensitive import Sample
from privypurse.oracles._sampling import poisson_rows
from privypurse.pytorch._budgets import Payments, Settings
from privypurse.pytorch._clipping import ClippedSum, clipped_sum
from privypurse.pytorch._compiled import ClippedSums, bound_of, sum_in_pieces
from privypurse.pytorch._module_state import ModuleState
from privypurse.pytorch._processes import Processes
from privypurse.pytorch._rows import Indexes, Record, RecordSource, made_up, records_in, way_of_calling
from privypurse.pytorch._taps import reduction_of_loss
from privypurse.pytorch._trial import Trials, put_untried, wrong_reduction
from privypurse.training._trace import Trace

UNREAD = "that the loop's own loss treats records alike and is a mean or a sum as was said: it could not be read"
LEFT_OUT = "batches that were taken from the loader and not trained on: whether that depended on their records is not known here"


@dataclass(eq=False)
class _Drawn:
    """The current sample: its token, and what was done with its chunks so far."""

    token: Sample = field(default_factory=Sample)
    number: int = 0  # of the current chunk, from 1 on
    chunk: int | None = None  # records in it; None before the first and after the release
    handed: int | None = None  # records in its batch, counting a synthetic one
    used: bool = False  # whether a backward pass was made over it
    flat: Tensor | None = None
    within: Tensor | None = None


class Engine:
    """One private training run of a module, available as ``private.engine``.

    Guarantees
    ----------
    * All results leave through the purse: noisy sums of clipped gradients, and noisy counts for an
      adaptive clip norm. The sum is divided by the public expected batch size.
    * The engine draws one sample for each release. Each chunk of it allows one backward pass that
      succeeds, over exactly its records, each of which adds at most the clip norm.
    * An empty sample releases noise alone; the loop gets a synthetic record, which is left out.
    * The module is tried on synthetic records for each way of calling it, before the next release.
    * ``parameter.grad`` of every parameter of the optimizer is replaced before each step, by the
      noisy gradient or by None.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        trained: dict[str, nn.Parameter],
        rows: RecordSource,
        payments: Payments,
        *,
        sums: ClippedSums | None,
        trials: Trials,
        scaler: Any = None,
    ) -> None:
        self._processes = processes = Processes()
        self.module, self.optimizer, self.payments = module, optimizer, payments
        self.purse = payments.purse
        self.pays = processes.first  # whether this process charges the purse
        self._trained, self._rows, self._sums, self._trials, self._scaler = trained, rows, sums, trials, scaler
        self.sizes = {name: parameter.shape for name, parameter in trained.items()}
        self._lengths = [size.numel() for size in self.sizes.values()]
        self._dtypes = {parameter.dtype for parameter in trained.values()}
        self._noise, self._taps = payments.purse.noise, trials.taps
        self._known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        self._device = next(iter(trained.values())).device
        self._records = len(rows)
        if not processes.alone:
            self._meet()
        self._state, self._charges_before = ModuleState(module, trials.counters), charges_so_far()
        self._noted = self._looping = self._unread = self._in_step = False
        self._looked = -1  # the backward pass whose loss was read last
        self._drawn = _Drawn()
        weakref.finalize(self, payments.close)
        self._taps.on_backward, self._taps.on_outputs = self._after_backward, self._on_outputs
        self._taps.on_call, self._taps.on_end = self._on_call, self._state.check
        self._step_hook = optimizer.register_step_pre_hook(_calling(weakref.ref(self)))

    def _meet(self) -> None:
        """Take over the first process's parameters and buffers; refuse other records than it has."""
        for tensor in (*self.module.parameters(), *self.module.buffers()):
            dist.broadcast(tensor.data, 0)
        self._check_same("numbers of records", self._records)
        self._check_same("clip norms", repr(self.payments.clip))
        # A keyed digest of one record.
        key, row = self._processes.tell((secrets.token_bytes(32), secrets.randbelow(self._records)))
        record = self._rows.fetch(np.array([row], dtype=np.intp))
        parts = [x for x in torch.utils._pytree.tree_leaves(record) if isinstance(x, Tensor)]
        content = b"".join(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes() for x in parts)
        self._check_same("records", hashlib.blake2b(content, key=key).hexdigest())

    def _check_same(self, what: str, value: Any) -> None:
        """Raise InvalidArgument where processes have different values."""
        values: list[Any] = [None] * self._processes.count
        dist.all_gather_object(values, value)
        if any(other != values[0] for other in values):
            raise InvalidArgument(f"processes have different {what}. Give each the whole data set in the same order.")

    @property
    def trace(self) -> Trace:
        """Public record of the releases."""
        return self.payments.trace

    @property
    def gradients(self) -> int:
        """Number of gradients released so far."""
        return self.payments.gradients

    @property
    def settings(self) -> Settings:
        """Public settings of the run."""
        return self.payments.settings

    @property
    def in_sample(self) -> bool:
        """Whether records of a sample were handed out, and nothing of it was released."""
        return self._drawn.chunk is not None

    @property
    def clip_norm(self) -> float:
        """Bound on the gradient of a record at the next step."""
        return self.payments.clip_norm

    @property
    def noise_multiplier(self) -> float:
        """Noise multiplier of the next release; infinity where the run has ended."""
        return self.payments.noise_multiplier

    def extend(self, *, steps: int | None = None, epochs: int | None = None) -> None:
        """Lengthen the run by some steps or epochs, if the budget covers them. The loader then goes on.

        The schedule must have been opened for more than the run has used: by `noise_multiplier` with
        `epsilon`, or by a purse of more steps. Nothing is spent here. Module, optimizer and learning
        rates stay as they are.
        """
        if (steps is None) == (epochs is None):
            raise InvalidArgument(f"expected steps or epochs, got {steps!r} and {epochs!r}. Pass one of them.")
        if epochs is not None:
            more = positive_integer(epochs=epochs) * max(1, round(1 / self.settings.sample_prob))
        else:
            more = positive_integer(steps=steps)
        refusal = ""
        if self.pays:
            try:
                self.payments.extend(more)
            except InvalidArgument as error:  # sent to the other processes, which wait
                refusal = str(error)
        if not self._processes.alone:
            refusal = self._processes.tell(refusal)
        if refusal:
            raise InvalidArgument(refusal)
        if not self.pays:
            self.payments.extend(more)

    @property
    def stop_reason(self) -> str:
        """Why the run ended: "steps" or "budget", empty while it runs."""
        return self.trace.stop_reason

    def batches(self) -> Iterator[Any]:
        """Yield the batches of one pass over the loader, from fresh samples, until the run ends."""
        settings, alone = self.settings, self._processes.alone
        ahead: deque[int] = deque()  # numbers of records in batches that were drawn
        # Closed at the end: workers that persist would else keep the engine.
        with contextlib.closing(self._drawn_ahead(settings.samples_per_pass, ahead)) as wanted:
            batches = self._rows.stream(wanted)
            for _ in range(settings.samples_per_pass):
                if self._drawn.chunk is not None:
                    self._left_out(stacklevel=3)
                self._state.check(ends=True)
                if self.pays:
                    self.payments.plan()
                reason = self.payments.trace.stop_reason
                if not alone:
                    reason, self.payments.looking = self._processes.tell((reason, self.payments.looking))
                if reason:
                    self._finish(reason)
                    return
                self._drawn = drawn = _Drawn()
                try:
                    for number in range(1, settings.chunks + 1):
                        yield self._begin_chunk(drawn, number, batches, ahead)
                except GeneratorExit:  # the loop ended by a break or an error
                    if not sys.is_finalizing() and drawn is self._drawn:  # else module and PyTorch may be gone
                        self._let_go()
                    raise

    def _drawn_ahead(self, samples: int, ahead: "deque[int]") -> Generator[Indexes, None, None]:
        """Draw the samples of a pass, as far ahead as workers fetch; yield the rows of each batch.

        `ahead` gets their numbers of records. Batches are fetched by row 0 where they have none.
        """
        processes = self._processes
        for _ in range(samples):
            rows: Any = poisson_rows(self._records, self.settings.sample_prob, self._noise) if self.pays else None
            if not processes.alone:
                rows = processes.tell(rows)[processes.rank :: processes.count]
            for chunk in np.array_split(rows, self.settings.chunks):
                ahead.append(len(chunk))
                yield chunk if len(chunk) else np.zeros(1, dtype=np.intp)

    def _begin_chunk(self, drawn: _Drawn, number: int, batches: Iterator[Any], ahead: "deque[int]") -> Any:
        """Return the batch of a chunk; the next backward pass must be over its records."""
        if drawn is not self._drawn or number != drawn.number + 1:
            raise InvalidArgument("this loop over the loader is out of date: another has begun. Use one at a time.")
        if drawn.chunk and not drawn.used:
            self._left_out(stacklevel=4)
        self._state.check(ends=True)
        batch, records = next(batches), ahead.popleft()
        if not records:  # one synthetic record: modules may not accept empty batches
            batch = made_up(batch, records_in(batch), [Record(0)])
        drawn.number, drawn.chunk, drawn.handed, drawn.used = number, records, max(1, records), False
        self._taps.take()
        self._taps.queued = False  # a backward pass that failed may have left it
        for parameter in self._trained.values():
            parameter.grad = None
        self._taps.averaged_over = float(drawn.handed) if self.settings.mean_loss else None
        self._state.take()
        self._looping = True
        return batch

    def _let_go(self) -> None:
        """Check and restore the module's state when the loop over a sample ends before the step."""
        if self._looping:  # once: later changes are not of this batch
            self._looping = False
            try:
                self._state.check()
            except InvalidArgument as error:
                warnings.warn(str(error), UserWarning, stacklevel=3)

    def _left_out(self, *, stacklevel: int) -> None:
        """Declare once that a batch was not released, which may depend on its records."""
        if not self._noted and self.pays:
            self._noted = True
            self.purse.declare_uncovered(LEFT_OUT)
            warning = (
                "a batch was taken from the private loader and no step was made with it. If that depended on its records, it "
                "reveals them; the certificate now says so. Make a step with each batch, and accumulate with accumulate=k."
            )
            warnings.warn(warning, UserWarning, stacklevel=stacklevel)

    def backward(self, *batch: Tensor) -> None:
        """Run forward and backward over a batch of the loader, inputs and then targets, in one compiled call."""
        if self._sums is None:
            raise InvalidArgument("backward needs the loss: pass loss=nn.CrossEntropyLoss() to make_private.")
        if not all(isinstance(part, Tensor) for part in batch):
            raise InvalidArgument("backward expects inputs, then targets, as tensors. For others call loss.backward().")
        drawn, lengths = self._drawn, [len(part) for part in batch]
        if any(length != drawn.handed for length in lengths):
            raise InvalidArgument(f"backward expects the whole batch of the loader; got {lengths} records.")
        self._on_call(tuple(batch[:-1]), {})
        records = [part[: drawn.chunk] for part in batch]  # without a synthetic one
        clip_norm, size = self.payments.clip_norms, self.settings.piece
        try:
            self._use_chunk(partial(sum_in_pieces, self._sums, records, size, clip_norm, self._device))
        except Exception:
            self._state.check()
            raise

    def _on_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Try the module on the first call of each kind."""
        records = self._drawn.handed
        if records is None or way_of_calling(self.module, (args, kwargs), records) in self._trials.known:
            return
        unknown = self._trials.at_call((args, kwargs), records)
        if unknown and self.pays:
            put_untried(self.purse, unknown)

    def _on_outputs(self, outputs: Any) -> None:
        """Check the reduction of the loop's loss, once in each backward pass."""
        this_pass = torch._C._current_graph_task_id()
        if this_pass == self._looked:
            return
        # All objects are searched until the certificate names a loss that cannot be read.
        found = reduction_of_loss(outputs, scaled=self._scaler is not None, recent=self._unread)
        if found == ("sum" if self.settings.mean_loss else "mean"):
            raise wrong_reduction("the loss", self.settings.mean_loss)
        if found == "weighted mean":
            remedy = "Use reduction='sum', and pass loss_reduction='sum' to make_private"
            raise InvalidArgument(f"the loss is a mean over class weights, which mixes records. {remedy}.")
        if found == "broadcast":
            shapes = "the loss broadcasts outputs and targets of different shapes, which mixes records"
            raise InvalidArgument(f"{shapes}. Give both one shape, as by outputs.squeeze(1).")
        self._looked = this_pass
        # A loss that the module returns was tried with it.
        if found is None and not self._unread and any(len(x.shape) for x in getattr(outputs, "_input_metadata", ())):
            self._unread = True
            if self.pays:
                self.purse.declare_uncovered(UNREAD)

    def _after_backward(self) -> None:
        """Add up the clipped gradients of the chunk, at the end of a backward pass over it."""
        self._taps.queued = False
        uses, drawn = self._taps.take(), self._drawn
        if drawn.chunk is None or drawn.handed is None:
            what = "a backward pass was made on records that are not from the private loader"
            raise InvalidArgument(f"{what}. Use its batches, or torch.no_grad().")
        for name, parameter in self._trained.items():
            if parameter.grad is not None:  # cleared in _begin_chunk: the batch's own gradient, without noise
                unrecorded = f"the backward pass computed a gradient of {name} that hooks did not record"
                raise InvalidArgument(f"{unrecorded}. Train without checkpointing; for a penalty use weight_decay.")
        scale = 1.0 if self._scaler is None else 1 / self._scaler.get_scale()
        # A synthetic record has no weight.
        weights = torch.full((drawn.handed,), float(drawn.chunk > 0), device=self._device)
        norms = self.payments.clip_norms
        bound = norms if isinstance(norms, float) else bound_of(norms, self._device)
        self._use_chunk(partial(clipped_sum, uses, self.sizes, weights, bound, scale, self.payments.parts))
        if self._scaler is not None:
            for parameter in self._trained.values():  # a scaler skips the step unless there are gradients
                parameter.grad = torch.zeros_like(parameter)

    def _use_chunk(self, compute: Callable[[], ClippedSum]) -> None:
        """Add the sum of a chunk to that of the sample, once."""
        drawn = self._drawn
        if drawn.used:
            raise InvalidArgument("a second backward pass over one batch. Add up its losses and call backward once.")
        part = compute()
        drawn.used = True
        drawn.flat = part.flat.double() if drawn.flat is None else drawn.flat + part.flat
        drawn.within = part.within if drawn.within is None else drawn.within + part.within

    def _before_step(self, closure: Callable[[], Any] | None) -> None:
        """Release the gradient, after calling a closure that computes it, and set ``.grad``."""
        self._in_step = False
        if closure is not None:
            with torch.enable_grad():
                closure()
        for parameter in (parameter for group in self.optimizer.param_groups for parameter in group["params"]):
            if id(parameter) not in self._known:
                what = "optimizer has a parameter that make_private did not see"
                raise InvalidArgument(f"{what}. Add all parameters before make_private.")
            parameter.grad = None
        drawn = self._drawn
        if drawn.chunk is None:
            if self.stop_reason:
                raise BudgetExhausted(f"the run has ended ({self.stop_reason}). Stop when the loader does.")
            raise InvalidArgument("step was called without a batch. Take one from the private loader for each step.")
        if not drawn.used and drawn.chunk > 0:
            raise InvalidArgument(
                "step was called and no backward pass came through the module. Put it in training mode: module.train()."
            )
        self._state.check(ends=True)
        if drawn.number == self.settings.chunks:  # else the sample continues in the next batch
            self._release()
        self._in_step = True

    def _release(self) -> None:
        """Release the sample; without budget for it, the run ends and the step has no gradient."""
        looking, drawn = self.payments.looking, self._drawn
        value, length = (drawn.within, 1) if looking else (drawn.flat, sum(self._lengths))
        value = torch.zeros(length, device=self._device) if value is None else value.reshape(length)  # an empty sample
        self._drawn = _Drawn()
        pay = self.payments.pay if self._processes.alone else self._pay_together
        try:
            noisy = pay(value.double(), drawn.token)
        except BudgetExhausted:
            self._finish("budget")
            return
        if looking:
            self.payments.move_clip_norm(float(noisy))
            return
        mean = noisy / self.settings.expected_batch
        if len(self._dtypes) == 1:
            mean = mean.to(next(iter(self._dtypes)))
        for parameter, part in zip(self._trained.values(), torch.split(mean, self._lengths), strict=True):
            parameter.grad = part.view(parameter.shape).to(parameter.dtype)
        if self.payments.gradients == self.settings.steps:
            self._finish("steps")

    def _pay_together(self, value: Tensor, sample: Sample) -> Tensor:
        """Release the sum over all processes, paid for by the first; all of them fail if it does."""
        whole, noisy = value.clone(), torch.empty_like(value)
        dist.reduce(whole, 0)  # of use in the first process only
        failure: Exception | None = None
        if self.pays:
            try:
                noisy = self.payments.pay(whole, sample).contiguous()
            except Exception as error:  # sent to the other processes, which wait
                failure = error
        failed, refused = self._processes.tell((failure is not None, isinstance(failure, BudgetExhausted)))
        if failed:
            kind = BudgetExhausted if refused else SharedAcrossProcesses
            raise failure or kind("the process that charges the purse failed or has no budget left; no step was made.")
        dist.broadcast(noisy, 0)
        if not self.pays:
            self.payments.follow()
        return noisy

    def _finish(self, reason: str) -> None:
        self.payments.finish(reason)
        self._drawn = _Drawn()

    def close(self) -> None:
        """Return unused reservations and drop the current batch; the run may continue."""
        if self._drawn.chunk is not None:
            self._left_out(stacklevel=3)
        self._let_go()
        self.payments.close()

    def detach(self) -> None:
        """Remove all hooks. Further training of the module is NOT PRIVATE."""
        self.close()
        self._taps.remove()
        self._step_hook.remove()


class PrivateLoader:
    """Loader of a private run: one sample for each step, until the run ends; empty afterwards.

    One pass is an epoch, as many samples as would cover the records once, where the length of the
    run was given in epochs; otherwise it is the whole run. With ``accumulate``, each sample comes in
    exactly that many batches. Samples are drawn from the purse's noise source.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __len__(self) -> int:
        settings = self._engine.settings
        return settings.samples_per_pass * settings.chunks

    def __iter__(self) -> Iterator[Any]:
        return self._engine.batches()

    def __repr__(self) -> str:
        settings = self._engine.settings
        return f"<PrivateLoader: Poisson samples with probability {settings.sample_prob:g}, {counted(settings.steps, 'step')}>"


def _calling(engine: "weakref.ref[Engine]") -> Callable[..., Any]:
    """Return a hook for the optimizer that holds no strong reference to the engine."""

    def hook(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        it = engine()
        if it is None:
            raise InvalidArgument("the private engine of this optimizer was deleted. Keep what make_private returned.")
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        # A step that extends `step` of its base class calls the hook again, as the stack shows.
        caller: types.FrameType | None = sys._getframe(1)
        assert caller is not None
        calls, steps = caller.f_code, 0
        while it._in_step and caller is not None:
            steps += caller.f_code is calls and caller.f_locals.get("self") is optimizer
            caller = caller.f_back
        if steps <= 1:
            with spending_noted(it._charges_before, call="This step"):
                it._before_step(closure)
        if closure is None:
            return None
        # Not the loss, which is not private: an optimizer may use it.
        nothing = torch.full((), math.nan)
        return (optimizer, lambda: nothing), {name: value for name, value in kwargs.items() if name != "closure"}

    return hook
