"""[RAW DATA] The engine: takes clipped sums from the backward pass to the purse, and noisy gradients to the optimizer."""

import hashlib
import math
import secrets
import warnings
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
from privypurse.pytorch.clipping import ClippedSum, check_records, clipped_sum
from privypurse.pytorch.compiled import ClippedSums
from privypurse.pytorch.payments import Payments, Settings
from privypurse.pytorch.pieces import sum_in_pieces
from privypurse.pytorch.processes import Processes
from privypurse.pytorch.rows import Indexes, Rows
from privypurse.pytorch.taps import Taps
from privypurse.pytorch.trial import changing_buffer
from privypurse.training.trace import Trace

LEFT_OUT = "batches that were taken from the loader and not trained on: whether that depended on their records is not known here"


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
        processes.check_same("numbers of records", len(rows))
        processes.check_same("records", self._fingerprint() if processes.count > 1 else "")
        self._finishing = False
        self._buffers: dict[str, tuple[int, int]] = {}
        self._noted = self._last = self._used = False
        self._number = 0
        self._sample = Sample()
        self._chunk: int | None = None
        self._flat: Tensor | None = None
        self._within: Tensor | None = None
        self._forget_sample()
        weakref.finalize(self, payments.close)
        taps.on_backward(self._on_backward)
        self._step_hook = optimizer.register_step_pre_hook(_calling(weakref.ref(self)))

    def _fingerprint(self) -> str:
        """Return a keyed digest of one record, the same one in each process, to tell whether they have the same records."""
        key, row = self._processes.tell((secrets.token_bytes(32), secrets.randbelow(len(self._rows))))
        record = self._rows.fetch(np.array([row], dtype=np.intp))
        parts = [x for x in torch.utils._pytree.tree_leaves(record) if isinstance(x, Tensor)]
        content = b"".join(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes() for x in parts)
        return hashlib.blake2b(content, key=key).hexdigest()

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

    def draw_sample(self) -> tuple[Sample, list[Indexes]] | None:
        """Draw a fresh sample, as its token and chunks of rows, or say None where the run has ended."""
        if self._chunk is not None:
            self._left_out()
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
        return self._sample, [mine] if chunks == 1 else np.array_split(mine, chunks)

    def begin_chunk(self, sample: Sample, number: int, rows: Indexes) -> Any:
        """Fetch a chunk of the sample; the next backward pass is over its records."""
        if sample is not self._sample or number != self._number + 1:
            raise InvalidArgument(
                "this loop over the loader is out of date: another one has begun a sample since. Go through the loader in one "
                "loop at a time. Nothing was spent."
            )
        if self._chunk and not self._used:
            self._left_out()
        batch = self._rows.fetch(rows)
        self._number, self._chunk, self._used = number, len(rows), False
        self._last = number == self.settings.chunks
        self._taps.take()
        for parameter in self._trained.values():
            parameter.grad = None
        self._taps.averaged_over = float(max(1, len(rows))) if self.settings.mean_loss else None
        self._buffers = {name: (id(buffer), buffer._version) for name, buffer in self.module.named_buffers()}
        return batch

    def _left_out(self) -> None:
        """Put on record, once, that records were handed out and not released: whether they were may have depended on them."""
        if not self._noted and self.pays:
            self._noted = True
            self.purse.declare_uncovered(LEFT_OUT)
            warnings.warn(
                "a batch was taken from the private loader and no step was made with it. If that depended on its records (a loss "
                "that was too large, an empty batch), it is a release that nobody paid for; the certificate now says so. Make a "
                "step with each batch, stop by steps= or epochs=, and accumulate gradients with accumulate=k.",
                UserWarning,
                stacklevel=4,
            )

    # What the backward pass brings.

    def backward(self, *batch: Tensor) -> None:
        """Do forward and backward over a batch of the loader in one compiled call: inputs and, last, targets.

        In place of ``loss = criterion(module(x), y); loss.backward()``, and faster. Needs the `loss` in `make_private`.
        """
        if self._sums is None:
            raise InvalidArgument(
                "backward needs the loss: pass loss=nn.CrossEntropyLoss() to make_private. Nothing was spent."
            )
        if not all(isinstance(part, Tensor) for part in batch):
            raise InvalidArgument(
                "backward takes the parts of a batch in order, inputs and then targets, as tensors. For batches of names call "
                "the module yourself, then loss.backward(). Nothing was spent."
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
            for parameter in self._trained.values():
                parameter.grad = torch.zeros_like(parameter)
        if self._chunk == 0:
            return
        scale = 1.0 if self._scaler is None else 1 / self._scaler.get_scale()
        weights = torch.ones(self._chunk, device=self._device)
        self._add(clipped_sum(uses, self._sizes, weights, self.clip_norm, scale))

    def _check_unheard(self) -> None:
        """Refuse a pass that put the batch's own gradient, which nobody pays for, where noisy gradients go."""
        for name, parameter in self._trained.items():
            if parameter.grad is not None:  # there was none when the batch was handed out
                raise InvalidArgument(
                    f"the backward pass computed a gradient of {name} past the taps, as activation checkpointing and penalties "
                    "on parameters in the loss do. Train without; for a penalty use the optimizer's weight_decay. Nothing was "
                    "spent."
                )

    def _check_buffers(self) -> None:
        """Refuse a module that keeps something of the records in its buffers."""
        for name, buffer in self.module.named_buffers():
            if self._buffers.get(name) != (id(buffer), buffer._version):
                raise changing_buffer(name)

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

    def before_step(self, closure: Callable[[], Any] | None) -> None:
        """Pay for the gradient, which a closure may have to compute first, and give it to the parameters."""
        if closure is not None:
            with torch.enable_grad():
                closure()
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
        self._check_buffers()
        if self._last:  # else the sample goes on in the next batch
            self._release()

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
        for parameter, part in zip(self._trained.values(), torch.split(mean, self._lengths), strict=True):
            part = part.view(parameter.shape)
            parameter.grad = part if part.dtype == parameter.dtype else part.to(parameter.dtype)

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
        if self._chunk is not None:
            self._left_out()
        self.payments.close()

    def detach(self) -> None:
        """Take all hooks off: the module and the optimizer are plain ones again, and further training is NOT PRIVATE."""
        self.close()
        self._taps.remove()
        self._step_hook.remove()

    def _forget_sample(self) -> None:
        self._chunk = self._flat = self._within = None
        self._number = 0
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
        it.before_step(closure)
        if closure is None:
            return None
        # Not the loss: an optimizer may step by it, and nobody paid for it.
        nothing = torch.full((), math.nan)
        return (optimizer, lambda: nothing), {name: value for name, value in kwargs.items() if name != "closure"}

    return hook
