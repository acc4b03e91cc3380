"""[RAW DATA] The private loader: fresh Poisson samples until the run ends."""

import sys
from collections.abc import Iterator
from typing import Any

from privypurse.pytorch.engine import Engine


class Batches:
    """Batches of one sample, fetched lazily: the engine needs each used before the next."""

    def __init__(self, first: Any, rest: Iterator[Any], count: int) -> None:
        self._first, self._rest, self._count = first, rest, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        yield self._first
        for _ in range(self._count - 1):
            yield next(self._rest)


def get_batch_samples(iterator: Iterator[Any], count: int, *device: Any) -> tuple[Any, None]:
    """Replace the Trainer's ``get_batch_samples``, fetching one batch at a time."""
    for first in iterator:
        return Batches(first, iterator, count), None
    return [], None


class PrivateLoader:
    """Loader of a private run: one sample for each step, until the run ends.

    One pass is an epoch where the length of the run was given in epochs: as many samples as would
    cover the records once. Otherwise one pass is the whole run. After the run it is empty. With
    ``accumulate``, each sample comes in exactly that many batches. A synthetic record replaces an
    empty batch; its gradient is left out.

    Guarantees
    ----------
    The records of a sample are drawn from the purse's noise source at the rate that is priced,
    independently of the original loader and of the number of records.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __len__(self) -> int:
        settings = self._engine.settings
        return settings.samples_per_pass * settings.chunks

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self._engine.settings.samples_per_pass):
            drawn = self._engine.draw_sample()
            if drawn is None:
                return
            sample, chunks = drawn
            try:
                for number, rows in enumerate(chunks, 1):
                    yield self._engine.begin_chunk(sample, number, rows)
            except GeneratorExit:  # the loop ended by a break or an error
                if not sys.is_finalizing():  # else module and PyTorch may be gone
                    self._engine.let_go(sample)
                raise

    def __repr__(self) -> str:
        settings = self._engine.settings
        return f"<PrivateLoader: Poisson samples with probability {settings.sample_prob:g}, {settings.steps} steps>"
