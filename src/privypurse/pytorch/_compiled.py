"""[RAW DATA] Sums of clipped gradients where the loss is known: one compiled function.

On a GPU it is captured as a CUDA graph. Batches are processed in pieces of one size, which changes
memory and compiled code but not the sum.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from privypurse.core._checks import positive_integer, shown
from privypurse.core._errors import InvalidArgument
from privypurse.pytorch._clipping import ClippedSum, clipped_sum, full_precision, padded, places_of
from privypurse.pytorch._record_views import of_records
from privypurse.pytorch._taps import Taps

ClipNorms = float | tuple[float, ...]  # one, or one for each part of a module


def fill_up(batch: Sequence[Tensor], size: int) -> tuple[list[Tensor], Tensor]:
    """Return a batch padded to a size with copies of its last record, and weights: 1 for records, 0 for padding.

    Zeros are no input of every module: a length, for one.
    """
    weights = padded(torch.ones(len(batch[0]), device=batch[0].device), 0, size)
    missing = size - len(batch[0])
    return [
        torch.cat([part, part[-1:].expand(missing, *part.shape[1:])]) if missing else part for part in batch
    ], weights


class Replayed:
    """A compiled function of parameters, a batch, weights and a bound, as a CUDA graph.

    Records of an earlier batch that remain in the buffers have weight zero and contribute nothing.
    """

    def __init__(
        self, function: Any, values: list[Tensor], batch: Sequence[Tensor], weights: Tensor, bound: Tensor
    ) -> None:
        self._function = function
        self._batch, self._weights, self._bound = [part.clone() for part in batch], weights.clone(), bound.clone()
        self._places = torch.arange(len(weights), device=weights.device)
        self._record(values)

    def __call__(self, values: list[Tensor], batch: Sequence[Tensor], bound: Tensor) -> tuple[Tensor, Tensor]:
        """Replay the graph. The results are copies: the next replay overwrites the originals."""
        if [value.data_ptr() for value in values] != self._addresses:  # parameters moved
            self._record(values)
        count = len(batch[0])
        for buffer, part in zip(self._batch, batch, strict=True):
            buffer[:count].copy_(part, non_blocking=True)
        self._weights.copy_(self._places < count)
        self._bound.copy_(bound)
        self._graph.replay()
        flat, within = self._results
        return flat.clone(), within.clone()

    def _record(self, values: list[Tensor]) -> None:
        self._addresses = [value.data_ptr() for value in values]
        arguments = (*values, *self._batch, self._weights, self._bound)
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._function(*arguments)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._results = self._function(*arguments)


def bound_of(clip_norm: ClipNorms, where: torch.device) -> Tensor:
    """Return a clip norm as a tensor for `clipped_sum`, with a row for each part of a module."""
    bound = torch.tensor(clip_norm, dtype=torch.float32, device=where)
    return bound[:, None] if bound.dim() else bound


Loss = Callable[[Any, Any], Tensor]
# Smallest batch: a module that squeezes its outputs returns another shape for one record.
AT_LEAST = 2
Function = Callable[[list[Tensor], Sequence[Tensor], Tensor], tuple[Tensor, Tensor]]


class ClippedSums:
    """Sums of clipped gradients, as `clipped_sum`, by a function that is compiled once per shape.

    It runs eagerly without `compile` (by default on the CPU) or a working compiler. The loss of a
    record cannot depend on other records: see `per_record`. Batches have `views` rows for each record,
    whose gradient is the mean of theirs.
    """

    def __init__(
        self,
        module: nn.Module,
        taps: Taps,
        loss: Loss,
        trained: dict[str, nn.Parameter],
        *,
        compile: bool | None,
        parts: Mapping[str, int] | None = None,
        views: int = 1,
    ) -> None:
        if not callable(loss) or isinstance(loss, type):
            raise InvalidArgument(f"loss must be a function of outputs and targets; got {shown(loss)}.")
        self._module, self._taps, self._trained = module, taps, trained
        self._losses, self._views = per_record(loss), views
        self._places = places_of(module, {id(value): name for name, value in trained.items()})
        on_cpu = next(iter(trained.values())).device.type == "cpu"
        self._compile = not on_cpu if compile is None else bool(compile)
        self._functions: dict[Any, Any] = {}
        self._last_bound: tuple[ClipNorms, Tensor] | None = None
        self._parts = parts
        self.sizes = {name: parameter.shape for name, parameter in trained.items()}

    def __call__(self, batch: Sequence[Tensor], size: int, clip_norm: ClipNorms) -> ClippedSum:
        """Return the sum over at most `size` rows; compiled code pads them with rows of weight 0."""
        values = [parameter.detach() for parameter in self._trained.values()]
        bound = self._bound(clip_norm, values[0].device)
        with full_precision():
            if not self._compile:
                filled, weights = fill_up(batch, max(AT_LEAST, len(batch[0])))
                return ClippedSum(*self._run(*values, *filled, weights, bound))
            key = self._key(batch, size)
            if key not in self._functions:
                self._functions[key] = self._compiled(values, batch, size, bound)
            return ClippedSum(*self._functions[key](values, batch, bound))

    def _bound(self, clip_norm: ClipNorms, where: torch.device) -> Tensor:
        """Return the clip norm as a tensor, reused while it is the same: copies to a GPU block."""
        if self._last_bound is None or self._last_bound[0] != clip_norm:
            self._last_bound = clip_norm, bound_of(clip_norm, where)
        return self._last_bound[1]

    def losses(self, batch: Sequence[Tensor], size: int, values: dict[str, Tensor]) -> Tensor:
        """Return the loss of each record of at most `size` rows at other parameters. Not private."""
        records = len(batch[0])
        filled = fill_up(batch, size if self._compile else max(AT_LEAST, records))[0]
        arguments = (*values.values(), *filled)
        function, key = self._evaluate, ("losses", *self._key(batch, size))
        with torch.no_grad():
            if self._compile and key not in self._functions:
                self._functions[key] = self._traced(function, [*values.values()], batch, size)
            losses: Tensor = self._functions.get(key, function)(*arguments)
        return torch.unflatten(losses[:records], 0, (-1, self._views)).mean(1)

    def _key(self, batch: Sequence[Tensor], size: int) -> tuple[Any, ...]:
        return size, tuple((x.shape[1:], x.dtype) for x in batch), self._module.training

    def _evaluate(self, *arguments: Tensor) -> Tensor:
        count = len(self._trained)
        values, (*inputs, target) = dict(zip(self._trained, arguments[:count], strict=True)), arguments[count:]
        placed = {place: values[name] for place, name in self._places.items()}
        outputs = torch.func.functional_call(self._module, placed, tuple(inputs), tie_weights=False)
        return self._losses(outputs, target)

    def _run(self, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        *rest, weights, clip_norm = arguments
        self._taps.take()
        with torch.enable_grad(), self._taps.open(quietly=True):
            total = self._evaluate(*rest).sum()
            if self._compile:
                torch.autograd.grad(total, [self._taps.anchor], allow_unused=True)
            else:
                total.backward()  # type: ignore[no-untyped-call]  # plain, which checkpoints of activations support
                self._taps.anchor.grad = None
        uses = self._taps.take()
        if self._views > 1:
            uses, weights = [of_records(use, self._views) for use in uses], weights[:: self._views]
        result = clipped_sum(uses, self.sizes, weights, clip_norm, 1 / self._views, parts=self._parts)
        return result.flat, result.within

    def _traced(self, function: Any, values: list[Tensor], batch: Sequence[Tensor], size: int, *rest: Tensor) -> Any:
        """Return a function compiled for the shapes of a batch; itself where that fails.

        A number that a module reads out of a tensor becomes a constant of the trace. So the trace is
        of records of zeros, never of private ones, and is compared with the function on others.
        """
        from torch.fx.experimental.proxy_tensor import make_fx

        zeros = [x.new_zeros((size, *x.shape[1:])) for x in batch]
        rising = [
            torch.linspace(-1, 1, x.numel(), dtype=x.dtype, device=x.device).view(x.shape)
            if x.is_floating_point()
            else x
            for x in zeros
        ]
        try:
            graph = make_fx(function)(*values, *zeros, *rest)
            compiled = torch.compile(graph, fullgraph=True, dynamic=False)
            pair = [torch.utils._pytree.tree_leaves(run(*values, *rising, *rest)) for run in (compiled, function)]
            if not all(_nearly(*two) for two in zip(*pair, strict=True)):
                raise ValueError("it reads numbers out of its records")
            return compiled
        except Exception as error:
            slower = f"the module could not be compiled ({type(error).__name__}) and is computed eagerly: slower"
            warnings.warn(f"{slower}. Pass compile=False to silence this warning.", RuntimeWarning, stacklevel=5)
            self._compile = False
            return function

    def _compiled(self, values: list[Tensor], batch: Sequence[Tensor], size: int, bound: Tensor) -> Function:
        """Compile the sum for one batch size."""
        filled, weights = fill_up(batch, size)
        function = self._traced(self._run, values, batch, size, torch.ones_like(weights), bound)
        if weights.is_cuda and self._compile:
            return Replayed(function, values, filled, weights, bound)

        def call(values: list[Tensor], batch: Sequence[Tensor], bound: Tensor) -> Any:
            filled, weights = fill_up(batch, size)
            return function(*values, *filled, weights, bound)

        return call


def _nearly(one: Tensor, other: Tensor) -> bool:
    scale = float(other.abs().nan_to_num().max()) if other.numel() else 0.0
    return torch.allclose(one, other, rtol=1e-3, atol=1e-3 * scale, equal_nan=True)


def per_record(loss: Loss) -> Callable[[Any, Any], Tensor]:
    """Return a function of one loss for each record: PyTorch's own without reduction, or `vmap`."""
    if isinstance(loss, _KNOWN) and type(loss) in _KNOWN:
        settings = {name: getattr(loss, name) for name in _SETTINGS if hasattr(loss, name)}
        single = type(loss)(**settings | {"reduction": "none"})

        def each(outputs: Any, target: Any) -> Tensor:
            if not isinstance(single, nn.CrossEntropyLoss) and outputs.shape != target.shape:
                shapes = f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(target.shape)}"
                raise InvalidArgument(
                    f"{shapes} would be broadcast. Give them one shape, as by unsqueeze(1) or squeeze(1)."
                )
            values: Tensor = single(outputs, target)
            return values.flatten(1).mean(1) if values.dim() > 1 else values

        return each

    def one(outputs: Any, target: Any) -> Tensor:
        single = torch.utils._pytree.tree_map(lambda x: x.unsqueeze(0), (outputs, target))
        return loss(*single).reshape(())

    return torch.func.vmap(one)


_KNOWN = (nn.CrossEntropyLoss, nn.MSELoss, nn.L1Loss, nn.BCEWithLogitsLoss, nn.HuberLoss, nn.SmoothL1Loss)
_SETTINGS = ("weight", "label_smoothing", "ignore_index", "pos_weight", "delta", "beta")
# Default number of records at a time, enough to keep a device busy.
ON_CPU, ELSEWHERE = 512, 4096


def largest_batch(expected: float, sample_prob: float) -> int:
    """Return how many records to be ready for: the expected sample plus three deviations."""
    return max(1, math.ceil(expected + 3 * math.sqrt(expected * (1 - sample_prob))))


def piece_size(expected: float, sample_prob: float, at_most: int | None, device: torch.device) -> int:
    """Return how many records to process at a time: the largest sample to be ready for, divided."""
    largest = largest_batch(expected, sample_prob)
    usual = ON_CPU if device.type == "cpu" else ELSEWHERE
    limit = usual if at_most is None else positive_integer(micro_batch=at_most)
    passes = max(1, math.ceil(expected / limit)) if sample_prob == 1 else math.ceil(largest / limit)
    size = math.ceil(largest / passes)
    return min(-(-size // 8) * 8, limit) if limit >= 8 else limit


def sum_in_pieces(
    sums: ClippedSums, batch: Sequence[Tensor], size: int, clip_norm: ClipNorms, where: torch.device
) -> ClippedSum:
    """Return the sum over a batch, computed in pieces that are added in double precision."""
    count = sum(shape.numel() for shape in sums.sizes.values())
    flat, within = (torch.zeros(size, dtype=torch.float64, device=where) for size in ((count,), ()))
    for first in range(0, len(batch[0]), size):
        part = sums([x[first : first + size].to(where, non_blocking=True) for x in batch], size, clip_norm)
        flat, within = flat + part.flat, within + part.within
    return ClippedSum(flat, within)
