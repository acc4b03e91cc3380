"""The black-box audit: many final models, with and without the canary, and nothing else."""

import numpy as np

from privypurse.audit.lower_bounds import LowerBound, bound_from_scores
from privypurse.audit.subjects import DELTA
from privypurse.core.checks import FloatArray
from privypurse.core.errors import InvalidArgument

# With and without the canary: half of them choose a threshold.
FEWEST_MODELS = 8


def bound_from_models(absent: FloatArray, present: FloatArray, *, confidence: float = 0.95) -> LowerBound:
    """Bound mu and epsilon from scores of final models whose scale nobody knows in advance.

    One half of the runs chooses the threshold, and which side of it speaks for the canary; the other half is counted.

    Parameters
    ----------
    absent, present : ndarray
        A score for each model: without and with the canary.
    confidence : float
        Of the bound.
    """
    if min(absent.size, present.size) < FEWEST_MODELS:
        raise InvalidArgument(
            f"absent and present must have {FEWEST_MODELS} runs or more each; got {absent.size} and {present.size}. Run more."
        )
    first, second = (absent[::2], present[::2]), (absent[1::2], present[1::2])
    if np.median(first[0]) > np.median(first[1]):
        first, second = (-first[0], -first[1]), (-second[0], -second[1])
    candidates = np.quantile(np.concatenate(first), np.linspace(0.05, 0.95, 19))
    shown = [bound_from_scores(*first, thresholds=[threshold], delta=DELTA).mu for threshold in candidates]
    # Ties go to the middle, where a small sample says most.
    best = np.flatnonzero(np.array(shown) == max(shown))
    threshold = candidates[best[np.abs(best - len(candidates) // 2).argmin()]]
    return bound_from_scores(*second, thresholds=[float(threshold)], delta=DELTA, confidence=confidence)
