"""Whether the noise is what was paid for: right scale, right shape, and never the same twice.

What was in a box is known here, so the noise of each release is known too. Divided by its declared standard deviation it must be
standard normal, and no number may come up again: not in another coordinate, release, run or process.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from privypurse.audit.listening import Transcript
from privypurse.core.checks import FloatArray

# Noise numbers are alike if they agree to this many digits after the point; what was in the box is rounded off first.
DIGITS = 10
# How likely two numbers are to agree so by chance, up to their sign: 1/sqrt(pi) times the step of the last digit.
CHANCE_OF_A_PAIR = 0.56 * 10.0**-DIGITS
# What is less likely than this, if nothing is wrong, is a finding.
LEAST_CHANCE = 1e-6


@dataclass(frozen=True)
class Residuals:
    """The noise of all releases.

    Parameters
    ----------
    count : int
        How many numbers.
    scale : float
        Their standard deviation, relative to the declared one.
    p_value : float
        Of a Kolmogorov-Smirnov test against the standard normal distribution.
    repeated : int
        How many numbers came up before, up to their sign.
    """

    count: int
    scale: float
    p_value: float
    repeated: int

    @property
    def findings(self) -> tuple[str, ...]:
        """What is wrong, in words."""
        found = []
        if too_many_repeats(self.repeated, self.count):
            found.append(f"{self.repeated} of {self.count} noise numbers were used before")
        if not self.p_value >= LEAST_CHANCE:  # noise that is not a number has no p-value
            found.append(
                f"the noise is not what was paid for: {self.scale:.3f} times its scale, p = {self.p_value:.1g}"
            )
        return tuple(found)


def too_many_repeats(repeated: int, count: int) -> bool:
    """Say whether so many of so many noise numbers came up before as chance does not explain.

    Of ten thousand numbers two agree by chance once in some hundred audits, and among many audits that happens; of ten it does
    not. Pairs that agree by chance are about as many as a Poisson number.

    Parameters
    ----------
    repeated : int
        How many numbers came up before.
    count : int
        How many numbers there are.

    Examples
    --------
    >>> too_many_repeats(1, 10), too_many_repeats(1, 10_000), too_many_repeats(3, 10_000)
    (True, False, True)
    """
    pairs = count * (count - 1) / 2
    return bool(stats.poisson.sf(repeated - 1, pairs * CHANCE_OF_A_PAIR) < LEAST_CHANCE)


def residuals(transcripts: Sequence[Transcript]) -> Residuals:
    """Look at the noise of all Gaussian releases of some runs."""
    noise = np.concatenate([np.empty(0), *(noise_of(transcript) for transcript in transcripts)])
    if not noise.size:
        return Residuals(0, math.nan, 1.0, 0)
    digits = np.round(np.abs(noise), DIGITS)
    repeated = noise.size - np.unique(digits).size
    return Residuals(noise.size, float(np.std(noise)), float(stats.kstest(noise, "norm").pvalue), int(repeated))


def noise_of(transcript: Transcript) -> FloatArray:
    """Return the noise of a run's Gaussian releases, in units of its declared standard deviation.

    Of a search, that of all its trials: the best one was chosen by its noise, so that its own does not look like noise.
    """
    parts = [np.empty(0)]
    for heard in transcript.releases:
        parts += [noise_of(trial) for trial in heard.trials]
        if heard.inside is not None and hasattr(heard.mechanism, "noise_std"):
            noise_std = heard.mechanism.noise_std(heard.box, heard.neighbouring)
            parts.append(np.ravel(heard.answer - heard.inside) / noise_std)
    return np.concatenate(parts)
