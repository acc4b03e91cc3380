"""[RAW DATA] A compiled function recorded once on a GPU and played back: one launch in place of a hundred."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def fill_up(batch: Sequence[Tensor], size: int) -> tuple[list[Tensor], Tensor]:
    """Return a batch filled up to a size with zeros, and the weights of its records: 1, and 0 for what was filled in."""
    missing = size - len(batch[0])
    weights = torch.ones(size, device=batch[0].device)
    if missing == 0:
        return list(batch), weights
    weights[size - missing :] = 0
    return [F.pad(part, (0, 0) * (part.dim() - 1) + (0, missing)) for part in batch], weights


class Replayed:
    """A function of parameters, a batch, weights and a bound, as a CUDA graph.

    Parameters
    ----------
    function : callable
        The function, compiled.
    values : list of Tensor
        The parameters. The graph reads them where they lie; if they have moved, it is recorded anew.
    batch, weights, bound
        One example of the other arguments.

    Guarantees
    ----------
    Records of an earlier batch that are left in the buffers have weight zero, with which they contribute nothing.
    """

    def __init__(
        self,
        function: Callable[..., tuple[Tensor, Tensor]],
        values: list[Tensor],
        batch: Sequence[Tensor],
        weights: Tensor,
        bound: Tensor,
    ) -> None:
        self._function = function
        self._batch, self._weights, self._bound = [part.clone() for part in batch], weights.clone(), bound.clone()
        self._places = torch.arange(len(weights), device=weights.device)
        self._record(values)

    def __call__(self, values: list[Tensor], batch: Sequence[Tensor], bound: Tensor) -> tuple[Tensor, Tensor]:
        """Play the function back. What it returns is a copy: the next time writes over the original."""
        if [value.data_ptr() for value in values] != self._addresses:
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
