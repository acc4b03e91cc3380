"""Attack on selections drawn through the purse, on scores that one record moves."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privypurse.audit._lower_bounds import largest_rate
from privypurse.audit._verdicts import HOLDS, REFUTED, Line
from privypurse.core._checks import FloatArray, positive_integer
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core.charges import BoundedRangeCharge
from privypurse.mechanisms._base import Mechanism
from privypurse.mechanisms._exact_selection import Gaps
from privypurse.mechanisms._selection import ExponentialSelection, PermuteAndFlip
from privypurse.purse._purse import Purse
from privypurse_lab.audits.exact import enumerate_exact_selection, exact_law, exact_law_of_flips

CANDIDATES = 20
CONFIDENCE = 0.95
# Charged epsilon in `selection_lines`.
EPSILON = 0.5
# Scores whose frequencies are tested: exponents of 0 to 4 at that epsilon, range 1.
LADDER = (0.0, -2.0, -4.0, -8.0)
# Significance level of the test of frequencies.
LEAST_P_VALUE = 1e-4
# Range at which two scores can be rounded by two units in opposite directions.
HOSTILE_RANGE = 1.0 + 2.0**-50


def attack_selection(
    mechanism: Mechanism, epsilon: float, *, draws: int = 10_000, seed: int = 0, secure: bool = False
) -> Line:
    """Bound a selection's epsilon from below by selection frequencies of one candidate.

    Two cases, each with and without a record: twenty equal candidates of which the record makes one
    worse, and two. The frequency of that candidate is used, fixed in advance. A selection charged
    for the size of privacy losses is tested on that; one charged for their range on the difference
    between the losses of the candidate and of all others.

    Parameters
    ----------
    mechanism : Mechanism
        The selection, on scores of range 1.
    epsilon : float
        Charged epsilon.
    draws : int
        Selections on each table with twenty candidates; twice as many with two.
    seed : int
        Seed of the noise.
    secure : bool
        Whether to draw exact noise.
    """
    positive_integer(draws=draws)
    noise = _noise(seed, secure)
    by_range = isinstance(mechanism.charge(_box((0.0, 0.0)), Neighbouring.ADD_REMOVE), BoundedRangeCharge)
    shown = 0.0
    significance = (1 - CONFIDENCE) / 8  # two cases, two frequencies, two interval ends
    for candidates, each in ((CANDIDATES, draws), (2, 2 * draws)):
        alike = np.zeros(candidates)
        worse = np.where(np.arange(candidates) == 0, -1.0, 0.0)
        intervals = []
        for scores in (alike, worse):
            hits = int((_selected(mechanism, scores, each, noise) == 0).sum())
            intervals.append(
                (1 - largest_rate(each - hits, each, significance), largest_rate(hits, each, significance))
            )
        for (least, _), (_, most) in (intervals, intervals[::-1]):
            # Of the candidate, and of all others together.
            losses = (_log_ratio(least, most), _log_ratio(1 - most, 1 - least))
            shown = max(shown, sum(losses) if by_range else max(losses))
    return Line(
        _name(mechanism, secure),
        "selection",
        "frequencies",
        claimed_epsilon=epsilon,
        shown_epsilon=shown,
        delta=0.0,
        confidence=CONFIDENCE,
        trials=6 * draws,
        verdict=REFUTED if shown > epsilon else HOLDS,
    )


def compare_with_law(
    mechanism: ExponentialSelection | PermuteAndFlip, *, draws: int, seed: int = 0, secure: bool = False
) -> float:
    """Return the p-value of Pearson's test of selections against their exact distribution.

    With exact noise it is that of the sampler's integers, as in `enumerate_exact_selection`.

    Parameters
    ----------
    mechanism : ExponentialSelection or PermuteAndFlip
        Without a prior.
    draws, seed, secure
        As for `attack_selection`.
    """
    scores = np.array(LADDER)
    if secure:
        gaps = Gaps.of(scores, mechanism.epsilon, 1.0)
        law = exact_law(gaps) if isinstance(mechanism, ExponentialSelection) else exact_law_of_flips(gaps)
    else:
        law = np.exp(mechanism.log_probabilities(scores, 1.0))
    drawn = _selected(mechanism, scores, positive_integer(draws=draws), _noise(seed, secure))
    return float(stats.chisquare(np.bincount(drawn, minlength=scores.size), draws * law / law.sum()).pvalue)


def selection_lines(quick: bool = False, *, seed: int = 0) -> list[Line]:
    """Audit both selections with plain and exact noise, and enumerate the exact distribution.

    A full run refutes noise for 1.5 times the epsilon, a quick one noise for twice the epsilon.
    """
    lines = []
    for mechanism in (ExponentialSelection(EPSILON), PermuteAndFlip(EPSILON)):
        for secure in (False, True):
            line = attack_selection(mechanism, EPSILON, draws=800 if quick else 6_000, seed=seed, secure=secure)
            p_value = compare_with_law(mechanism, draws=1_000 if quick else 10_000, seed=seed, secure=secure)
            findings = (
                (f"the frequencies are not those of the law (p = {p_value:.1g})",) if p_value < LEAST_P_VALUE else ()
            )
            verdict = REFUTED if findings else line.verdict
            lines.append(replace(line, kind="mechanism", verdict=verdict, findings=findings))
    return [*lines, *(_enumerated(candidates) for candidates in ((2, 3) if quick else (2, 3, 4)))]


def _enumerated(candidates: int) -> Line:
    found = enumerate_exact_selection(EPSILON, score_range=HOSTILE_RANGE, candidates=candidates)
    return Line(
        f"exponential-mechanism, exact ({candidates})",
        "mechanism",
        "enumeration",
        claimed_epsilon=EPSILON,
        shown_epsilon=found.range,
        delta=0.0,
        confidence=1.0,
        trials=found.cases,
        # No tolerance: the range is rational and rounded up.
        verdict=REFUTED if found.range > EPSILON else HOLDS,
    )


def _name(mechanism: Mechanism, secure: bool) -> str:
    name = {"ExponentialSelection": "exponential-mechanism", "PermuteAndFlip": "permute-and-flip"}
    known = type(mechanism).__name__
    return f"{name.get(known, known)}, {'exact' if secure else 'plain'}"


def _noise(seed: int, secure: bool) -> NoiseSource:
    return NoiseSource(seed=seed, secure=True) if secure else NoiseSource(seed=seed)


def _log_ratio(high: float, low: float) -> float:
    """Return the log ratio of the lower end of one interval to the upper end of another."""
    return math.log(high / low) if high > 0 else 0.0


def _box(scores: tuple[float, ...] | FloatArray) -> Sensitive:
    return Sensitive(scores, norm=Norm.RANGE, add_remove=1.0, replace_one=2.0)


def _selected(mechanism: Mechanism, scores: FloatArray, draws: int, noise: NoiseSource) -> NDArray[np.intp]:
    purse = Purse.not_private(noise=noise)  # synthetic scores
    box = _box(scores)
    with purse.reserve(draws):
        answers = [purse.release(box, mechanism).value for _ in range(draws)]
    return np.array([int(answer) for answer in answers], dtype=np.intp)
