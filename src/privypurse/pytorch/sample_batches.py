"""[RAW DATA] The batches of a sample for a framework that asks for all of them at once."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


class Batches:
    """The batches of one sample, fetched one by one: the engine wants each used before the next."""

    def __init__(self, first: Any, rest: Iterator[Any], count: int, ready: Callable[[Any], Any]) -> None:
        self._first, self._rest, self._count, self._ready = first, rest, count, ready

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        yield self._ready(self._first)
        for _ in range(self._count - 1):
            yield self._ready(next(self._rest))


def batches_of(model: nn.Module) -> Callable[..., Any]:
    """Return what the Trainer calls ``get_batch_samples``, and see to it that each record has its own positions."""
    records = 0

    def note(batch: Any) -> Any:
        nonlocal records
        records = len(next(value for value in batch.values() if isinstance(value, Tensor)))
        return batch

    def expand(layer: nn.Module, args: tuple[Any, ...]) -> Any:
        # Models look up positions once for all records; then there would be one gradient for all.
        if layer.training and torch.is_grad_enabled() and args and args[0].dim() > 1 and len(args[0]) == 1:
            return (args[0].expand(records, *args[0].shape[1:]), *args[1:])
        return None

    for layer in model.modules():
        if isinstance(layer, nn.Embedding):
            layer.register_forward_pre_hook(expand)

    def get(iterator: Iterator[Any], count: int, *device: Any) -> tuple[Any, None]:
        for first in iterator:
            return Batches(first, iterator, count, note), None
        return [], None

    return get
