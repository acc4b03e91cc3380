"""Confidence intervals of means."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats


def half_width(values: Sequence[float], tests: int = 1) -> float:
    """Return half the width of the 95 % interval of the mean (Student's t); infinity for one value.

    With several tests all such intervals hold jointly with 95 % (Bonferroni).
    """
    if len(values) < 2:
        return math.inf
    times = stats.t.ppf(1 - 0.025 / tests, len(values) - 1)
    return float(times * np.std(values, ddof=1) / math.sqrt(len(values)))
