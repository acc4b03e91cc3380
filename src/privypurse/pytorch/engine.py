"""[RAW DATA] The engine: takes clipped sums from the backward pass to the purse, and noisy gradients to the optimizer."""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privypurse.core.errors import BudgetExhausted, InvalidArgument, SharedAcrossProcesses
from privypurse.core.sensitive import Sample
from privypurse.oracles.sampling import poisson_rows
from privypurse.purse.purse import Purse
from privypurse.pytorch.clipping import ClippedSum, check_records, clipped_sum, margin_for
from privypurse.pytorch.compiled import ClippedSums
from privypurse.pytorch.payments import Payments, Settings
from privypurse.pytorch.pieces import sum_in_pieces
from privypurse.pytorch.processes import Processes
from privypurse.pytorch.rows import Indexes, Rows
from privypurse.pytorch.taps import Taps
from privypurse.training.trace import Trace


class Engine:
    """One private training run of a module.

    Made by `make_private`, and found as ``private.engine``.

    Guarantees
    ----------
    * What leaves, leaves through the purse: the noisy sum of clipped gradients, and noisy counts for an adaptive clip norm.
    * A sample is drawn by the engine for each release and used for one; each record of it adds at most the clip norm, because
      each chunk is good for one backward pass over exactly its records.
    * The sum is divided by the public expected batch size. An empty sample is a release of noise.
    * ``parameter.grad`` of every parameter of the optimizer is replaced before each step: by the noisy gradient, or by nothing.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        trained: dict[str, nn.Parameter],
        rows: Rows,
        payments: Payments,
        *,
        sums: ClippedSums | None,
        taps: Taps,
        processes: Processes,
        scaler: Any = None,
    ) -> None:
        self.module, self.optimizer, self.payments = module, optimizer, payments
        self._trained, self._rows, self._sums, self._taps, self._scaler = trained, rows, sums, taps, scaler
        self._sizes = {name: parameter.shape for name, parameter in trained.items()}
        self._lengths = [size.numel() for size in self._sizes.values()]
        self._dtypes = {parameter.dtype for parameter in trained.values()}
        self._known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        self._device = next(iter(trained.values())).device
        self._processes = processes
        processes.agree(module)
        self._finishing = False
        self._given: dict[str, Tensor] = {}
        self._chunk: int | None = None
        self._flat: Tensor | None = None
        self._within: Tensor | None = None
        self._forget_sample()
        weakref.finalize(self, payments.close)
        taps.on_backward(self._on_backward)
        self._step_hook = optimizer.register_step_pre_hook(_calling(weakref.ref(self)))

    # What is public about the run.

    @property
    def settings(self) -> Settings:
        """What the run is like."""
        return self.payments.settings

    @property
    def purse(self) -> Purse:
        """Who pays."""
        return self.payments.purse

    @property
    def trace(self) -> Trace:
        """The record of what was released."""
        return self.payments.trace

    @property
    def gradients(self) -> int:
        """How many gradients were released."""
        return self.payments.gradients

    @property
    def clip_norm(self) -> float:
        """The bound on the length of one record's gradient, now."""
        return self.payments.clip_norm

    @property
    def stop_reason(self) -> str:
        """Why the run ended: "steps", "budget", or nothing yet."""
        return self.trace.stop_reason

    @property
    def parameters(self) -> list[list[Any]]:
        """Names and shapes of what is trained."""
        return [[name, list(size)] for name, size in self._sizes.items()]

    @property
    def pays(self) -> bool:
        """Whether this process is the one that pays."""
        return self._processes.first

    @property
    def in_sample(self) -> bool:
        """Whether a sample was begun and not yet released."""
        return self._chunk is not None

    # What the loader asks.

    def draw_sample(self) -> list[Indexes] | None:
        """Draw a fresh sample, as chunks of rows, or say None where the run has ended."""
        if self.pays:
            self.payments.plan()
        reason = self._processes.tell(self.stop_reason)
        if reason:
            self._finish(reason)
            return None
        rows = np.empty(0, dtype=np.intp)
        if self.pays:
            rows = poisson_rows(len(self._rows), self.settings.sample_prob, self.purse.noise)
        self._forget_sample()
        mine, chunks = self._processes.share(rows), self.settings.chunks
        return [mine] if chunks == 1 else np.array_split(mine, chunks)

    def begin_chunk(self, rows: Indexes, last: bool) -> Any:
        """Fetch a chunk of the sample; the next backward pass is over its records."""
        batch = self._rows.fetch(rows)
        self._chunk, self._last, self._used = len(rows), last, False
        self._taps.take()
        return batch

    # What the backward pass brings.

    def backward(self, *batch: Tensor) -> None:
        """Do forward and backward over a batch of the loader in one compiled call: inputs and, last, targets.

        In place of ``loss = criterion(module(x), y); loss.backward()``, and faster. Needs the `loss` in `make_private`.
        """
        if self._sums is None:
            raise InvalidArgument(
                "backward needs the loss: pass loss=nn.CrossEntropyLoss() to make_private. Nothing was spent."
            )
        if len({len(part) for part in batch} | {-1 if self._chunk is None else self._chunk}) != 1:
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
            torch.autograd.Variable._execution_engine.queue_callback(self._after_backward)

    def _after_backward(self) -> None:
        self._finishing = False
        uses = self._taps.take()
        if self._chunk is None:
            raise InvalidArgument(
                "a backward pass was made on records that are not from the private loader. Take batches from the loader that "
                "make_private returned; use torch.no_grad() or module.eval() for anything else. Nothing was spent."
            )
        check_records(uses, self._chunk)
        self._check_unheard()
        self._use_chunk()
        if self._scaler is not None:
            # A scaler looks for gradients before the step, and would not step without them.
            for name, parameter in self._trained.items():
                parameter.grad = self._given[name] = torch.zeros_like(parameter)
        if self._chunk == 0:
            return
        scale = float(self._chunk) if self.settings.mean_loss else 1.0
        if self._scaler is not None:
            scale /= self._scaler.get_scale()
        weights = torch.ones(self._chunk, device=self._device)
        margin = margin_for(self.settings.expected_batch / self.settings.chunks)
        self._add(clipped_sum(uses, self._sizes, weights, self.clip_norm, scale, margin))

    def _check_unheard(self) -> None:
        """Refuse a pass that put the batch's own gradient, which nobody pays for, where noisy gradients go."""
        for name, parameter in self._trained.items():
            if parameter.grad is not None and parameter.grad is not self._given.get(name):
                raise InvalidArgument(
                    f"the backward pass computed a gradient of {name} past the taps, as activation checkpointing does. Train "
                    "without it. Nothing was spent."
                )

    def _use_chunk(self) -> None:
        if self._used:
            raise InvalidArgument(
                "a second backward pass was made over one batch: a record would count twice. Add the losses up and call "
                "backward once. Nothing was spent."
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
            if self.stop_reason:
                raise BudgetExhausted(
                    f"the run has ended ({self.stop_reason}): no further step is paid for. Nothing was spent, and the module is "
                    "as it was. Stop when the loader does."
                )
            raise InvalidArgument(
                "step was called without a batch: take batches from the loader that make_private returned, one step for each. "
                "Nothing was spent."
            )
        if not self._used and self._chunk > 0:
            raise InvalidArgument(
                "step was called and no backward pass came through the module: is it in training mode (module.train()), and is "
                "the loss computed from its output? Nothing was spent."
            )
        if self._last:  # else the sample goes on in the next batch
            self._release()
        return loss

    def _release(self) -> None:
        """Release the sample; where the budget does not pay for it, the run ends and the step is made with no gradient."""
        looking, sample = self.payments.looking, self._sample
        value = self._sum_of(self._within, 1) if looking else self._sum_of(self._flat, sum(self._lengths))
        whole = self._processes.add_up(value)
        self._forget_sample()
        noisy: Tensor | None = None
        failure: Exception | None = None
        if self.pays:
            try:
                noisy = self.payments.pay(whole, sample)
            except BudgetExhausted:
                pass  # the run ends, below
            except Exception as error:  # the others wait for word, and must not wait for ever
                failure = error
        failed, refused = self._processes.tell((failure is not None, noisy is None))
        if failed:
            raise failure or SharedAcrossProcesses("the process that pays could not, and the step was not made.")
        if refused:
            self._finish("budget")
            return
        noisy = self._processes.hand_out(noisy, whole)
        if not self.pays:
            self.payments.follow()
        if looking:
            self.payments.move_clip_norm(float(noisy))
        else:
            self._give(noisy)
            if self.gradients == self.settings.steps:
                self._finish("steps")

    def _give(self, noisy: Tensor) -> None:
        """Put the mean noisy gradient where the optimizer takes it from."""
        mean = noisy / self.settings.expected_batch
        if len(self._dtypes) == 1:
            mean = mean.to(next(iter(self._dtypes)))
        for (name, parameter), part in zip(self._trained.items(), torch.split(mean, self._lengths), strict=True):
            part = part.view(parameter.shape)
            parameter.grad = self._given[name] = part if part.dtype == parameter.dtype else part.to(parameter.dtype)

    def _clear_gradients(self) -> None:
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in self._known:
                    raise InvalidArgument(
                        "optimizer has a parameter that it did not have when make_private was called: its gradient would not "
                        "be private. Call make_private after all parameters are added. Nothing was spent."
                    )
                parameter.grad = None

    def _finish(self, reason: str) -> None:
        self.payments.finish(reason)
        self._forget_sample()

    def close(self) -> None:
        """Give back what was reserved and not used; the run may go on all the same."""
        self.payments.close()

    def detach(self) -> None:
        """Take all hooks off: the module and the optimizer are plain ones again, and further training is NOT PRIVATE."""
        self.close()
        self._taps.remove()
        self._step_hook.remove()

    def _forget_sample(self) -> None:
        self._chunk = self._flat = self._within = None
        self._last = self._used = False
        self._sample = Sample()

    def _sum_of(self, value: Tensor | None, length: int) -> Tensor:
        if value is None:  # an empty sample
            return torch.zeros(length, dtype=torch.float64, device=self._device)
        return value.double().reshape(length)


def _calling(engine: "weakref.ref[Engine]") -> Callable[..., Any]:
    """Return a hook for the optimizer that does not keep the engine alive by itself."""

    def hook(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        it = engine()
        if it is None:
            raise InvalidArgument(
                "the private engine of this optimizer is gone, and a step without it would not be private. Keep what "
                "make_private returned. Nothing was spent."
            )
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        loss = it.before_step(closure)
        if closure is None:
            return None
        return (optimizer, lambda: loss), {name: value for name, value in kwargs.items() if name != "closure"}

    return hook
