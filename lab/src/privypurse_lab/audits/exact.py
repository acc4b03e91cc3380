"""Audits without sampling: selections are enumerated, objective perturbation is integrated."""

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import integrate, special

from privypurse.accounting import _objective_perturbation as objective_perturbation
from privypurse.core._checks import FloatArray, positive, positive_integer
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import ObjectivePerturbationCharge
from privypurse.mechanisms._exact_selection import Gaps
from privypurse.mechanisms._perturbed_minimiser import OUTPUT_NOISE_MULTIPLIER

# From scores (higher is better) to log probabilities of selection.
LogProbabilities = Callable[[FloatArray], FloatArray]

# Score levels before a record moves them, in units of the range.
HEIGHTS = (0.0, 1.0, 6.0, 20.0)


@dataclass(frozen=True)
class Enumerated:
    """Worst case over all shifts of scores.

    Parameters
    ----------
    epsilon : float
        Largest privacy loss of any outcome.
    range : float
        Largest difference between the privacy losses of two outcomes.
    cases : int
        Number of pairs of score vectors.
    """

    epsilon: float
    range: float
    cases: int


def enumerate_selection(
    log_probabilities: LogProbabilities, *, score_range: float, candidates: int = 4, levels: int = 3
) -> Enumerated:
    """Compute exact privacy losses of a selection over adversarial scores and all shifts.

    Parameters
    ----------
    log_probabilities : callable
        The selection: ``log_probabilities(scores)``.
    score_range : float
        How much more one record can move one score than another.
    candidates : int
        Number of candidates. All 2^k patterns of scores that move are tried.
    levels : int
        Number of values of each score before the shift, from zero to many times the range.
    """
    positive(score_range=score_range)
    heights = score_range * np.array(HEIGHTS)[: positive_integer(levels=levels)]
    worst, spread, cases = 0.0, 0.0, 0
    for scores in itertools.product(heights, repeat=positive_integer(candidates=candidates)):
        before = log_probabilities(np.array(scores))
        for pattern in itertools.product((0.0, 1.0), repeat=candidates):
            after = log_probabilities(np.array(scores) + score_range * np.array(pattern))
            losses = before - after
            worst, spread = max(worst, float(np.abs(losses).max())), max(spread, float(np.ptp(losses)))
            cases += 1
    return Enumerated(worst, spread, cases)


def enumerate_exact_selection(
    epsilon: float, *, score_range: float, candidates: int = 4, levels: int = 3
) -> Enumerated:
    """Compute the privacy losses of the exponential mechanism with exact noise, in integers.

    The exponents come from `Gaps`, which is all that the sampler uses of the scores. Scores lie
    just below and above the middle between two lattice points, and the record also shifts all of
    them by less than a point, so that two scores are rounded in opposite directions on the two
    tables.

    Parameters
    ----------
    epsilon : float
        Charged epsilon.
    score_range, candidates, levels
        As for `enumerate_selection`.

    Guarantees
    ----------
    ``range`` is computed in rational numbers and rounded up: it is at most epsilon if and only if
    the selection keeps to epsilon in every case. Moved scores are rounded towards each other, so no
    case moves one more than `score_range` beyond another.
    """
    epsilon, score_range = positive(epsilon=epsilon), positive(score_range=score_range)
    heights = HEIGHTS[: positive_integer(levels=levels)]
    # Doubles near the range are 2^-12 units apart; another unit would only weaken the cases.
    step = Fraction(math.ldexp(1.0, math.frexp(score_range)[1] - 41)) / 2**12
    offsets = (Fraction(0), (2**11 - 1) * step, (2**11 + 1) * step)
    moves = (Fraction(0), -2 * step, 2 * step)
    worst, spread, cases = 0.0, Fraction(0), 0
    for levels_of, turn in itertools.product(
        itertools.product(heights, repeat=positive_integer(candidates=candidates)), range(3)
    ):
        scores = [float(Fraction(score_range * level) + offsets[(turn + j) % 3]) for j, level in enumerate(levels_of)]
        before = Gaps.of(np.array(scores), epsilon, score_range)
        for pattern, shared in itertools.product(itertools.product((False, True), repeat=candidates), moves):
            moved = [
                _rounded(Fraction(score) + shared + (Fraction(score_range) if up else 0), up=not up)
                for score, up in zip(scores, pattern, strict=True)
            ]
            after = Gaps.of(np.array(moved), epsilon, score_range)
            # Terms that all exponents share cancel in differences of losses, as do normalisers.
            losses = [
                after.rate * there - before.rate * here
                for here, there in zip(before.units.tolist(), after.units.tolist(), strict=True)
            ]
            spread = max(spread, max(losses) - min(losses))
            worst = max(worst, float(np.abs(_log_law(before) - _log_law(after)).max()))
            cases += 1
    return Enumerated(worst, _rounded(spread, up=True), cases)


def exact_law(gaps: Gaps) -> FloatArray:
    """Return the probabilities of `exact_selection.select` without a prior."""
    return np.exp(_log_law(gaps))


def exact_law_of_flips(gaps: Gaps) -> FloatArray:
    """Return the probabilities of `exact_selection.permute_and_flip`.

    Enumerates all orders of the candidates, so these must be few.
    """
    chances = np.exp(-gaps.units * float(gaps.rate))
    law = np.zeros(chances.size)
    for order in itertools.permutations(range(chances.size)):
        law[list(order)] += chances[list(order)] * np.concatenate([[1.0], np.cumprod(1 - chances[list(order)])[:-1]])
    return law / math.factorial(chances.size)


def _log_law(gaps: Gaps) -> FloatArray:
    return np.asarray(special.log_softmax(-gaps.units * float(gaps.rate)))


def _rounded(value: Fraction, *, up: bool) -> float:
    """Return the nearest double not below a number, or not above it."""
    nearest = float(value)
    if up:
        return math.nextafter(nearest, math.inf) if nearest < value else nearest
    return math.nextafter(nearest, -math.inf) if nearest > value else nearest


def published_noisy_minimum(epsilon: float, score_range: float) -> LogProbabilities:
    """Return the selection probabilities of DP-AGD's published code: noise with the wrong sign.

    Exponential noise is added to losses that are minimised. NOT PRIVATE at the claimed epsilon: a
    selection that an audit must refute.
    """
    scale = positive(score_range=score_range) / positive(epsilon=epsilon)

    def log_probabilities(scores: FloatArray) -> FloatArray:
        gaps = (scores.max() - scores) / scale
        # In units of the scale, candidate j wins at noise x if all others lie beyond.
        total = []
        for j, gap in enumerate(gaps):
            others = np.delete(gaps, j)

            # Between two neighbouring gaps the integrand is exp(-c x), with a closed form.
            edges = np.concatenate([[gap], np.sort(others[others > gap]), [math.inf]])
            value = 0.0
            for low, high in itertools.pairwise(edges):
                behind = others[others <= low + 1e-12]
                rate = 1.0 + behind.size
                start = -(low - gap) - float((low - behind).sum())
                ends = 0.0 if math.isinf(high) else math.exp(-rate * (high - low))
                value += math.exp(start) * (1 - ends) / rate
            total.append(value)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.array(total)))

    return log_probabilities


@dataclass(frozen=True)
class Integrated:
    """Result of integrating objective perturbation with one parameter."""

    claimed_delta: float
    delta: float
    epsilon: float


def integrate_objective_perturbation(noise_multiplier: float, curvature_ratio: float, epsilon: float) -> Integrated:
    """Compare the accountant's delta of objective perturbation with the exact one.

    The model has one parameter, rows have length one: a record's gradient is at most 1, its
    curvature at most 1/4. Without the record the minimiser is normal; with it, the density follows
    by a change of variables. Several adversarial records are tried.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the perturbation, relative to a record's gradient.
    curvature_ratio : float
        A record's largest curvature relative to the ridge.
    epsilon : float
        Epsilon at which to compare.
    """
    ridge = 0.25 / curvature_ratio
    tops = []
    reach = 12 * (noise_multiplier + 2) / ridge + 10
    records: list[Record] = [_logistic, *(functools.partial(_straight, start=start) for start in (-3.0, 0.0, 3.0))]
    # These records take the minimiser to where the canary's gradient is largest.
    for record, down in itertools.product(records, (0.0, 2.0, 8.0)):
        pair = [_log_density(ridge, noise_multiplier, record, down * ridge, present) for present in (0.0, 1.0)]
        for top, bottom in (pair, pair[::-1]):

            def excess(
                w: float, top: Callable[[float], float] = top, bottom: Callable[[float], float] = bottom
            ) -> float:
                first = math.exp(top(w))
                return max(first - math.exp(min(epsilon + bottom(w), 700.0)), 0.0)

            tops.append(integrate.quad(excess, -reach, reach, points=np.linspace(-reach, reach, 80), limit=2_000)[0])
    charge = ObjectivePerturbationCharge(noise_multiplier, curvature_ratio, OUTPUT_NOISE_MULTIPLIER)
    claimed = _claimed_delta(charge, epsilon)
    return Integrated(claimed, max(tops), epsilon)


# First and second derivative of a record's loss at a parameter, at most 1 and 1/4.
Record = Callable[[float], tuple[float, float]]


def _logistic(w: float) -> tuple[float, float]:
    return float(-special.expit(-w)), float(special.expit(w) * special.expit(-w))


def _straight(w: float, start: float) -> tuple[float, float]:
    """Return the derivatives of a parabola with linear ends: full curvature at large gradients."""
    slope = (w - start) / 4
    return min(max(slope, -1.0), 1.0), 0.25 if abs(slope) < 1 else 0.0


def _log_density(
    ridge: float, noise_std: float, record: Record, down: float, present: float
) -> Callable[[float], float]:
    def log_density(w: float) -> float:
        slope, bend = record(w)
        pull, curvature = present * slope + ridge * w + down, ridge + present * bend
        return float(-((pull / noise_std) ** 2) / 2 + math.log(curvature / noise_std) - math.log(2 * math.pi) / 2)

    return log_density


def _claimed_delta(charge: ObjectivePerturbationCharge, epsilon: float) -> float:
    """Return the smallest delta for which the accountant claims this epsilon."""
    low, high = -60.0, 0.0
    for _ in range(60):
        middle = (low + high) / 2
        claimed = objective_perturbation.epsilon_of(charge, math.exp(middle), Neighbouring.ADD_REMOVE)
        low, high = (low, middle) if claimed <= epsilon else (middle, high)
    return math.exp(high)
