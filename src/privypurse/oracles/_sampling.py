"""Poisson sampling: each row is included independently, by coins from the secret noise source."""

import math

import numpy as np
from numpy.typing import NDArray

from privypurse.core._checks import probability
from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import NoiseSource

LEAST_RATE = 1e-9


def check_sampling(sample_prob: float, noise: NoiseSource | None) -> float:
    """Check a sampling rate. Raise InvalidArgument if it needs a noise source and has none."""
    sample_prob = probability(sample_prob=sample_prob)
    if sample_prob < LEAST_RATE:
        raise InvalidArgument(f"sample_prob must be at least {LEAST_RATE:g}; got {sample_prob!r}. Pass 0.01.")
    if sample_prob < 1 and not isinstance(noise, NoiseSource):
        raise InvalidArgument(f"noise must be a NoiseSource if sample_prob < 1; got {noise!r}. Pass noise=purse.noise.")
    return sample_prob


def poisson_rows(rows: int, sample_prob: float, noise: NoiseSource) -> NDArray[np.intp]:
    """Draw which rows are in the sample, in order, by the geometric gaps between them."""
    if sample_prob == 1:
        return np.arange(rows, dtype=np.intp)
    positions: list[NDArray[np.intp]] = []
    last = -1
    while last < rows:
        expected = (rows - last) * sample_prob
        count = int(expected + 4 * math.sqrt(expected) + 16)
        # floor(log(uniform) / log(1 - p)) is the number of rows skipped before the next one.
        skipped = np.floor(np.log(noise.uniform((count,))) / math.log1p(-sample_prob))
        reached = last + np.cumsum(np.minimum(skipped, float(rows)) + 1.0)
        positions.append(reached[reached < rows].astype(np.intp))
        last = int(min(reached[-1], rows))
    return np.concatenate(positions)
