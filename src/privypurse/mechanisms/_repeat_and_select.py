"""Release of the best of a random number of private trials: charged hyper-parameter search.

The trials run inside `draw`, after the charge. Their number and everything about those that lost
stays private.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse.core._checks import FloatArray, non_negative, positive
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive, SensitiveTrials
from privypurse.core._trial_counts import draw_below, draw_trial_count
from privypurse.core.charges import RepeatAndSelectCharge, SingleCharge

LARGEST_MEAN = 1e6


@dataclass(frozen=True)
class RepeatAndSelect:
    """Run a random number of trials with random candidates and release the one with the best score.

    `mean` is the expected number of trials: at least one, and there may be many more. `shape` is
    that of its distribution, from 0 (logarithmic) to 1 (geometric). For the same noise in each
    trial, 0 allows more trials.

    Guarantees
    ----------
    * Papernot and Steinke (ICLR 2022, arXiv:2110.03620), Theorem 2; proof note
      ``docs/proofs/repeat_and_select.md``. The number of trials is drawn from the full stated
      distribution, without a maximum.
    * The trials are independent runs of one random experiment, which includes drawing the
      candidate. Of equal scores the first wins, which has the same distribution as choosing at
      random.
    * A trial that raises an exception, or whose score is NaN, has the score minus infinity. Nothing
      of a trial that lost leaves `draw`: no number, no exception, no warning. The running time
      does, and reveals the number of trials.
    """

    mean: float
    shape: float = 0.0

    def __post_init__(self) -> None:
        mean, shape = positive(mean=self.mean), non_negative(shape=self.shape)
        if not 1 <= mean <= LARGEST_MEAN:
            raise InvalidArgument(f"mean must be between 1 and {LARGEST_MEAN:g}; got {mean!r}. Pass mean=5.0.")
        if shape > 1:
            raise InvalidArgument(f"shape must be between 0 and 1; got {shape!r}. Pass shape=0.0.")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "shape", shape)

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> RepeatAndSelectCharge:
        if not isinstance(box, SensitiveTrials):
            raise InvalidArgument(f"box must hold trials; got {box!r}. Make it with SensitiveTrials.")
        return RepeatAndSelectCharge(_multiplier(box.bound(neighbouring, Norm.MU)), self.mean, self.shape)

    def charge_seen_under(self, box: Sensitive, neighbouring: Neighbouring, other: Neighbouring) -> SingleCharge:
        return self.charge(box, other)

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> None:
        """Raise InvalidArgument for noise that may fall back to floating point inside a trial.

        That would go unrecorded. The number of trials is drawn in floating point in any case.
        """
        if noise.secure and not noise.strict:
            raise InvalidArgument("noise must be 'secure' or 'plain' for trials; got 'auto'. Pass noise='secure'.")

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        """Run the trials, hand over the best result, and return its candidate and its score."""
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
            if winner < 0 or score > highest:  # false for NaN
                winner, highest, result = candidate, -math.inf if math.isnan(score) else score, outcome
        trials.hand_over(result)
        return np.array([float(winner), highest])


def _multiplier(mu: float) -> float:
    """Return the largest number whose inverse is at least mu."""
    noise_multiplier = 1 / mu
    while 1 / noise_multiplier < mu:
        noise_multiplier = math.nextafter(noise_multiplier, 0.0)
    return noise_multiplier
