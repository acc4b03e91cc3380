"""Textbook bounds to compare with exact accounting: addition, advanced composition, sampling."""

import math

from privypurse.accounting import convert


def amplified(epsilon: float, sample_prob: float) -> float:
    """Return ``ln(1 + q (e^epsilon - 1))``: epsilon for a secret sample; delta becomes q delta.

    Examples
    --------
    >>> round(amplified(1.0, 0.01), 5)
    0.01704
    """
    return math.log1p(sample_prob * math.expm1(epsilon))


def added(noise_multiplier: float, steps: int, delta: float) -> float:
    """Return the epsilon of T Gaussian releases by addition: each is exactly (e, delta/T)-DP."""
    return steps * convert.gdp_epsilon(1 / noise_multiplier, delta / steps)


def advanced(epsilon: float, steps: int, slack: float) -> float:
    """Return the epsilon of T releases (Dwork, Rothblum and Vadhan 2010); delta grows by the slack.

    ``epsilon sqrt(2 T ln(1/slack)) + T epsilon (e^epsilon - 1)``.
    """
    return epsilon * math.sqrt(2 * steps * math.log(1 / slack)) + steps * epsilon * math.expm1(epsilon)


def advanced_gaussian(noise_multiplier: float, steps: int, delta: float, sample_prob: float = 1.0) -> float:
    """Return the epsilon of T releases by amplification and advanced composition, slack delta/2.

    Each release is exactly (e, d)-DP without sampling, with ``T q d = delta/2``.
    """
    one = convert.gdp_epsilon(1 / noise_multiplier, min(delta / (2 * steps * sample_prob), 0.5))
    return advanced(amplified(one, sample_prob), steps, delta / 2)


def boxed_lemma(noise_multiplier: float, steps: int, delta: float) -> float:
    """Return the epsilon of the lecture's lemma: noise of ``sqrt(2 T ln(1/delta))/epsilon``."""
    return math.sqrt(2 * steps * math.log(1 / delta)) / noise_multiplier


def lemma_holds_up_to(delta: float) -> float:
    """Return the largest epsilon up to which the lecture's lemma is true, by exact Gaussian DP.

    Examples
    --------
    >>> round(lemma_holds_up_to(1e-5), 2)
    7.97
    """

    def holds(epsilon: float) -> bool:
        # The noise does not depend on T once the whole is one Gaussian release.
        return convert.gdp_epsilon(epsilon / math.sqrt(2 * math.log(1 / delta)), delta) <= epsilon

    low, high = 0.01, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
