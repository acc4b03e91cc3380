"""Audit of the noise: scale, distribution and repetitions.

The noise of each release is known here, since the content of its box is. Divided by its declared
standard deviation it must be standard normal, and no value may repeat.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from privypurse.audit._listening import Transcript
from privypurse.core._checks import FloatArray

# Noise values are equal if they agree to this many decimals, beyond rounding of the box's content.
DIGITS = 10
# Probability that two values agree up to sign by chance: 1/sqrt(pi) times the last digit.
CHANCE_OF_A_PAIR = 0.56 * 10.0**-DIGITS
# Significance level of findings.
LEAST_CHANCE = 1e-6


@dataclass(frozen=True)
class Residuals:
    """Statistics of the noise of all releases."""

    count: int
    scale: float  # standard deviation, relative to the declared one
    p_value: float  # of a Kolmogorov-Smirnov test against the standard normal distribution
    repeated: int  # number of values that repeat an earlier one, up to sign

    @property
    def findings(self) -> tuple[str, ...]:
        """Violations, in words."""
        found = []
        if too_many_repeats(self.repeated, self.count):
            found.append(f"{self.repeated} of {self.count} noise numbers were used before")
        if not self.p_value >= LEAST_CHANCE:  # NaN for noise that is NaN
            scale = f"{self.scale:.3f} times its scale, p = {self.p_value:.1g}"
            found.append(f"the noise is not what was paid for: {scale}")
        return tuple(found)


def too_many_repeats(repeated: int, count: int) -> bool:
    """Return whether there are more repetitions than chance explains.

    The number of pairs that agree by chance is about Poisson: one pair among ten thousand values
    occurs once in some hundred audits.

    Examples
    --------
    >>> too_many_repeats(1, 10), too_many_repeats(1, 10_000), too_many_repeats(3, 10_000)
    (True, False, True)
    """
    pairs = count * (count - 1) / 2
    return bool(stats.poisson.sf(repeated - 1, pairs * CHANCE_OF_A_PAIR) < LEAST_CHANCE)


def residuals(transcripts: Sequence[Transcript]) -> Residuals:
    """Compute statistics of the noise of all Gaussian releases of some runs."""
    noise = np.concatenate([np.empty(0), *(noise_of(transcript) for transcript in transcripts)])
    if not noise.size:
        return Residuals(0, math.nan, 1.0, 0)
    digits = np.round(np.abs(noise), DIGITS)
    repeated = noise.size - np.unique(digits).size
    return Residuals(noise.size, float(np.std(noise)), float(stats.kstest(noise, "norm").pvalue), int(repeated))


def noise_of(transcript: Transcript) -> FloatArray:
    """Return the noise of a run's Gaussian releases, divided by its declared standard deviation.

    For a search, that of all trials: the noise of the best one is biased by selection.
    """
    parts = [np.empty(0)]
    for heard in transcript.releases:
        parts += [noise_of(trial) for trial in heard.trials]
        if heard.inside is not None and hasattr(heard.mechanism, "noise_std"):
            noise_std = heard.mechanism.noise_std(heard.box, heard.neighbouring)
            parts.append(np.ravel(heard.answer - heard.inside) / noise_std)
    return np.concatenate(parts)
