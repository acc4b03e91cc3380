"""Lower confidence bounds on mu and epsilon, from the error rates of a distinguishing attack.

An attack with false alarm rate alpha and miss rate beta refutes every claim whose trade-off curve
lies above (alpha, beta). Nothing is assumed about mechanism or attack: a bad attack gives a weak
bound, never a wrong one. The rates are bounded from above by Clopper and Pearson's intervals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from privypurse.core._checks import FloatArray, probability, small_probability
from privypurse.core._errors import InvalidArgument


@dataclass(frozen=True)
class LowerBound:
    """Lower bounds shown by an attack.

    With probability `confidence`, the subject is neither Gaussian-DP with any smaller `mu` nor
    (epsilon, `delta`)-DP with any smaller `epsilon`.
    """

    mu: float
    epsilon: float
    delta: float
    confidence: float
    trials: int  # runs of the attack, on both tables together
    false_alarms: float  # observed error rates at the threshold with the largest mu
    misses: float
    ceiling_mu: float  # mu for an attack without errors: no larger claim can be refuted with so many trials


def largest_rate(errors: int, trials: int, significance: float) -> float:
    """Return the upper end of Clopper and Pearson's one-sided interval for a probability.

    Examples
    --------
    >>> round(largest_rate(0, 100, 0.05), 4)
    0.0295
    """
    if not 0 <= errors <= trials or trials < 1:
        raise InvalidArgument(f"errors must be between 0 and trials; got {errors!r} of {trials!r}. Check the counts.")
    return 1.0 if errors == trials else float(special.betaincinv(errors + 1, trials - errors, 1 - significance))


def mu_of(false_alarms: float, misses: float) -> float:
    """Return the least mu that allows an attack with these error rates, at least 0."""
    if false_alarms + misses >= 1:
        return 0.0
    return float(special.ndtri(1 - false_alarms) - special.ndtri(misses))


def epsilon_of(false_alarms: float, misses: float, delta: float) -> float:
    """Return the least epsilon that allows these error rates in either direction, at least 0."""
    best = 0.0
    for alpha, beta in ((false_alarms, misses), (misses, false_alarms)):
        if 1 - delta - beta > alpha > 0:
            best = max(best, math.log((1 - delta - beta) / alpha))
    return best


def bound_from_scores(
    absent: Sequence[float] | FloatArray,
    present: Sequence[float] | FloatArray,
    *,
    thresholds: Sequence[float],
    delta: float = 1e-6,
    confidence: float = 0.95,
) -> LowerBound:
    """Bound mu and epsilon from the scores of independent runs of an attack without and with the record.

    A score from a threshold on says "present". Thresholds must be fixed before the scores are seen;
    each further one costs some confidence.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> bound = bound_from_scores(rng.normal(0, 1, 2_000), rng.normal(2, 1, 2_000), thresholds=[1.0])
    >>> 1.7 < bound.mu < 2.0
    True
    """
    confidence, delta = probability(confidence=confidence), small_probability(delta=delta)
    out, inside = np.asarray(absent, dtype=np.float64), np.asarray(present, dtype=np.float64)
    if not out.size or not inside.size or not len(thresholds):
        what = f"absent, present and thresholds must not be empty; got {out.size}, {inside.size} and {len(thresholds)}"
        raise InvalidArgument(f"{what}. Run the attack on both tables.")
    if np.isnan(out).any() or np.isnan(inside).any():
        # Comparisons with NaN are false: it would count as "absent" on both sides.
        what = f"absent and present must have no NaN; got {int(np.isnan(out).sum())} and {int(np.isnan(inside).sum())}"
        raise InvalidArgument(f"{what}. Check the runs whose scores are NaN.")
    # Each threshold has two error rates, used for both mu and epsilon.
    significance = (1 - confidence) / (2 * len(thresholds))
    mu, epsilon, errors = 0.0, 0.0, (1.0, 1.0)
    for threshold in thresholds:
        alarms, missed = int((out >= threshold).sum()), int((inside < threshold).sum())
        rates = largest_rate(alarms, out.size, significance), largest_rate(missed, inside.size, significance)
        epsilon = max(epsilon, epsilon_of(*rates, delta))
        if mu_of(*rates) > mu or errors == (1.0, 1.0):
            mu, errors = max(mu, mu_of(*rates)), (alarms / out.size, missed / inside.size)
    ceiling = mu_of(largest_rate(0, out.size, significance), largest_rate(0, inside.size, significance))
    return LowerBound(mu, epsilon, delta, confidence, out.size + inside.size, *errors, ceiling)
