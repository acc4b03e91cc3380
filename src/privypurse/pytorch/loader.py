"""[RAW DATA] The loader: fresh Poisson samples, until the run has ended."""

from collections.abc import Iterator
from typing import Any

from privypurse.pytorch.engine import Engine


class PrivateLoader:
    """Gives the batches of a private run, one sample for each step, and ends with the run.

    Where the length of the run was given in epochs, going through it once is one of them: as many samples as would cover the
    records once. Where it was given in steps, going through it once is the whole run. After the run has ended it is empty.
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
        return settings.samples_per_pass * settings.chunks

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self._engine.settings.samples_per_pass):
            drawn = self._engine.draw_sample()
            if drawn is None:
                return
            sample, chunks = drawn
            for number, rows in enumerate(chunks, 1):
                yield self._engine.begin_chunk(sample, number, rows)

    def __repr__(self) -> str:
        settings = self._engine.settings
        return f"<PrivateLoader: Poisson samples with probability {settings.sample_prob:g}, {settings.steps} steps>"
