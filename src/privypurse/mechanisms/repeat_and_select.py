"""Releasing the best of a random number of private trials: hyper-parameter search that pays.

The trials run inside `draw`, after payment. How many there were, and everything about those that lost, is private and stays
there.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse.core.charges import RepeatAndSelectCharge
from privypurse.core.checks import FloatArray, non_negative, positive
from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Norm, Sensitive, SensitiveTrials
from privypurse.core.trial_counts import LARGEST_MEAN, draw_below, draw_trial_count


@dataclass(frozen=True)
class RepeatAndSelect:
    """Run a random number of trials, each with a candidate drawn evenly, and release the one with the highest score.

    Parameters
    ----------
    mean : float
        Expected number of trials, 1 or more. There is always at least one, and there may be many more than the mean.
    shape : float, default 0.0
        Shape of the number's distribution, from 0 (logarithmic) to 1 (geometric). For the same noise in each trial, 0 allows more
        trials.

    Guarantees
    ----------
    * Papernot and Steinke (ICLR 2022, arXiv:2110.03620), Theorem 2; proof note ``docs/proofs/repeat_and_select.md``. The number
      of trials is drawn from the stated distribution, in full: no largest number is imposed.
    * The trials are independent runs of one random experiment, the drawing of the candidate included. Of equal scores the first
      wins, which has the same law as choosing among them at random.
    * A trial that raises an exception, or whose score is not a number, has the score minus infinity. Nothing of a trial that lost
      leaves `draw`: no number, no exception, no warning. How long it takes does, and tells the number of trials.
    """

    mean: float
    shape: float = 0.0

    def __post_init__(self) -> None:
        mean, shape = positive(mean=self.mean), non_negative(shape=self.shape)
        if not 1 <= mean <= LARGEST_MEAN:
            raise InvalidArgument(
                f"mean must be between 1 and {LARGEST_MEAN:g}; got {mean!r}. Pass for example mean=5.0."
            )
        if shape > 1:
            raise InvalidArgument(
                f"shape must be between 0 (logarithmic) and 1 (geometric); got {shape!r}. Pass shape=0.0."
            )
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "shape", shape)

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> RepeatAndSelectCharge:
        """Describe the release."""
        if not isinstance(box, SensitiveTrials):
            raise InvalidArgument(f"box must hold trials; got {box!r}. Make it with SensitiveTrials.")
        return RepeatAndSelectCharge(_multiplier(box.bound(neighbouring, Norm.MU)), self.mean, self.shape)

    def charge_seen_under(
        self, box: Sensitive, neighbouring: Neighbouring, other: Neighbouring
    ) -> RepeatAndSelectCharge:
        """Describe the release under the other relation: the same trials, with the mu they have there."""
        return self.charge(box, other)

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> None:
        """Refuse a source that may fall back on floating point within a trial, where nobody would put it on record.

        How many trials there are is drawn in floating point in any case: it is not added to anything.
        """
        if noise.secure and not noise.strict:
            raise InvalidArgument("noise must be 'secure' or 'plain' for trials; got 'auto'. Pass noise='secure'.")

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        """Run the trials, hand over the result of the best, and return which candidate it had and its score."""
        trials: Any = box
        trial: Any = box._value
        winner, highest, result = -1, -math.inf, None
        for _ in range(draw_trial_count(self.mean, self.shape, noise)):
            candidate = draw_below(trials.candidates, noise)
            try:
                score, outcome = trial(candidate, noise)
                score = float(score)
            except Exception:
                score, outcome = -math.inf, None
            if winner < 0 or score > highest:  # false for a score that is not a number
                winner, highest, result = candidate, -math.inf if math.isnan(score) else score, outcome
        trials.hand_over(result)
        return np.array([float(winner), highest])


def _multiplier(mu: float) -> float:
    """Return the largest number whose inverse is at least mu."""
    noise_multiplier = 1 / mu
    while 1 / noise_multiplier < mu:
        noise_multiplier = math.nextafter(noise_multiplier, 0.0)
    return noise_multiplier
