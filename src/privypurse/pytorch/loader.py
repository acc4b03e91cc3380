"""[RAW DATA] The loader: fresh Poisson samples, until the run has ended."""

from collections.abc import Iterator
from typing import Any

from privypurse.pytorch.engine import Engine


class PrivateLoader:
    """Gives the batches of a private run, one sample for each step, and ends with the run.

    Going through it once is an epoch: as many samples as would cover the records once. An epoch after the run has ended is empty.
    Where samples come in several batches (``accumulate``), each sample has exactly that many, some of which may be empty.

    Guarantees
    ----------
    Which records are in a sample is decided here by coins from the purse's noise source, at the rate that is priced; nothing of
    the loader it was made from, nor the number of records, enters.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __len__(self) -> int:
        settings = self._engine.settings
        return max(1, round(1 / settings.sample_prob)) * settings.chunks

    def __iter__(self) -> Iterator[Any]:
        for _ in range(len(self) // self._engine.settings.chunks):
            chunks = self._engine.draw_sample()
            if chunks is None:
                return
            for number, rows in enumerate(chunks, 1):
                yield self._engine.begin_chunk(rows, number == len(chunks))

    def __repr__(self) -> str:
        settings = self._engine.settings
        return f"<PrivateLoader: Poisson samples with probability {settings.sample_prob:g}, {settings.steps} steps>"
