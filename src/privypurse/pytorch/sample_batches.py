"""[RAW DATA] The batches of a sample for a framework that asks for all of them at once."""

from collections.abc import Iterator
from typing import Any


class Batches:
    """The batches of one sample, fetched one by one: the engine wants each used before the next."""

    def __init__(self, first: Any, rest: Iterator[Any], count: int) -> None:
        self._first, self._rest, self._count = first, rest, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        yield self._first
        for _ in range(self._count - 1):
            yield next(self._rest)


def get_batch_samples(iterator: Iterator[Any], count: int, *device: Any) -> tuple[Any, None]:
    """Do what the Trainer's own ``get_batch_samples`` does, one batch at a time."""
    for first in iterator:
        return Batches(first, iterator, count), None
    return [], None
