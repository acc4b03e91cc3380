"""[RAW DATA] The whole of forward, backward, lengths, clipping and sum as one compiled function, where the loss is known."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from privypurse.core.checks import shown
from privypurse.core.errors import InvalidArgument
from privypurse.pytorch.clipping import ClippedSum, check_records, clipped_sum, full_precision
from privypurse.pytorch.replayed import Replayed, fill_up
from privypurse.pytorch.taps import Taps

Loss = Callable[[Any, Any], Tensor]
Function = Callable[[list[Tensor], Sequence[Tensor], Tensor], tuple[Tensor, Tensor]]


class ClippedSums:
    """Sums of clipped gradients of batches, by one function that is traced once for each shape and compiled.

    Parameters
    ----------
    module : Module
        The module.
    taps : Taps
        Taps on it.
    loss : callable
        ``loss(module(*inputs), target)``: one record's loss, or their mean or sum. It is applied to each record on its own.
    trained : dict of Parameter
        The parameters that are trained.
    compile : bool
        Compile with `torch.compile`; else run eagerly. Without a working compiler it falls back, with a warning.

    Guarantees
    ----------
    As for `clipped_sum`. The loss of a record cannot see other records: it is called with one record at a time (`vmap`), or is
    one of PyTorch's own losses, asked for one number for each record.
    """

    def __init__(
        self, module: nn.Module, taps: Taps, loss: Loss, trained: dict[str, nn.Parameter], *, compile: bool
    ) -> None:
        if not callable(loss):
            raise InvalidArgument(
                f"loss must be a function of outputs and targets; got {shown(loss)}. Pass nn.CrossEntropyLoss()."
            )
        self._module, self._taps, self._trained = module, taps, trained
        self._losses = per_record(loss)
        self._compile = compile
        self._functions: dict[Any, Function] = {}
        self._last_bound: tuple[float, Tensor] | None = None
        self.sizes = {name: parameter.shape for name, parameter in trained.items()}

    def __call__(self, batch: Sequence[Tensor], size: int, clip_norm: float) -> ClippedSum:
        """Return the sum over a batch of at most `size` records: inputs and, last, targets.

        Compiled code wants batches of one size: what is missing is filled up with records of no weight.
        """
        values = [parameter.detach() for parameter in self._trained.values()]
        where, bound = values[0].device, self._bound(clip_norm, values[0].device)
        with full_precision():
            if not self._compile:
                weights = torch.ones(len(batch[0]), device=where)
                return ClippedSum(*self._run(*values, *batch, weights, bound))
            key = (size, tuple((x.shape[1:], x.dtype) for x in batch), self._module.training)
            if key not in self._functions:
                self._functions[key] = self._compiled(values, batch, size, bound)
            return ClippedSum(*self._functions[key](values, batch, bound))

    def _bound(self, clip_norm: float, where: torch.device) -> Tensor:
        """Return the clip norm as a tensor, the same one while it does not change: copies to a device make it wait."""
        if self._last_bound is None or self._last_bound[0] != clip_norm:
            self._last_bound = clip_norm, torch.tensor(clip_norm, dtype=torch.float32, device=where)
        return self._last_bound[1]

    def losses(self, batch: Sequence[Tensor], values: dict[str, Tensor] | None = None) -> Tensor:
        """Return the loss of each record, at the module's parameters or at others; sealed by whoever asks."""
        *inputs, target = batch
        with torch.no_grad():
            if values is None:
                return self._losses(self._module(*inputs), target)
            return self._losses(torch.func.functional_call(self._module, values, tuple(inputs)), target)

    def _run(self, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        *rest, weights, clip_norm = arguments
        count = len(self._trained)
        values, (*inputs, target) = dict(zip(self._trained, rest[:count], strict=True)), rest[count:]
        self._taps.take()
        with torch.enable_grad(), self._taps.open(quietly=True):
            losses = self._losses(torch.func.functional_call(self._module, values, tuple(inputs)), target)
            torch.autograd.grad(losses.sum(), [self._taps.anchor], allow_unused=True)
        uses = self._taps.take()
        check_records(uses, weights.shape[0])
        result = clipped_sum(uses, self.sizes, weights, clip_norm)
        return result.flat, result.within

    def _compiled(self, values: list[Tensor], batch: Sequence[Tensor], size: int, bound: Tensor) -> Function:
        """Trace and compile the function for one size of batches."""
        from torch.fx.experimental.proxy_tensor import make_fx

        filled, weights = fill_up(batch, size)
        arguments = (*values, *filled, weights, bound)
        graph = make_fx(self._run)(*arguments)
        try:
            function = torch.compile(graph, fullgraph=True, dynamic=False)
            function(*arguments)
        except Exception as error:
            warnings.warn(
                f"the gradients could not be compiled ({type(error).__name__}) and are computed eagerly, which is slower and "
                "gives the same. Pass compile=False to do without this message.",
                RuntimeWarning,
                stacklevel=5,
            )
            self._compile = False
            function = self._run
        if weights.is_cuda and self._compile:
            return Replayed(function, values, filled, weights, bound)

        def call(values: list[Tensor], batch: Sequence[Tensor], bound: Tensor) -> tuple[Tensor, Tensor]:
            filled, weights = fill_up(batch, size)
            flat, within = function(*values, *filled, weights, bound)
            return flat, within

        return call


def per_record(loss: Loss) -> Callable[[Any, Any], Tensor]:
    """Return a function that gives one loss for each record, whatever the loss reduces to."""
    if isinstance(loss, _KNOWN) and type(loss) in _KNOWN:
        reduction = {"reduction": "none"}
        single = type(loss)(**{name: getattr(loss, name) for name in _settings(loss)} | reduction)

        def each(outputs: Any, target: Any) -> Tensor:
            if not isinstance(single, nn.CrossEntropyLoss) and outputs.shape != target.shape:
                raise InvalidArgument(
                    f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(target.shape)} would be compared each "
                    "with each, records with other records. Give them one shape, for example with targets.unsqueeze(1)."
                )
            values = single(outputs, target)
            return _mean_of_rows(values)

        return each

    def one(outputs: Any, target: Any) -> Tensor:
        add = torch.utils._pytree.tree_map
        outputs, target = (add(lambda x: x.unsqueeze(0), part) for part in (outputs, target))
        return loss(outputs, target).reshape(())

    return torch.func.vmap(one)


def _mean_of_rows(values: Tensor) -> Tensor:
    return values.flatten(1).mean(1) if values.dim() > 1 else values


_KNOWN = (nn.CrossEntropyLoss, nn.MSELoss, nn.L1Loss, nn.BCEWithLogitsLoss, nn.HuberLoss, nn.SmoothL1Loss)


def _settings(loss: nn.Module) -> tuple[str, ...]:
    names = ("weight", "label_smoothing", "ignore_index", "pos_weight", "delta", "beta")
    return tuple(name for name in names if hasattr(loss, name))
