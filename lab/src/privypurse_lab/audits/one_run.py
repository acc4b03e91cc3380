"""One-run audit: guess from one run which of many canaries, each in the table by a coin, are in it.

The number of correct guesses is compared with what Gaussian DP allows, by the analysis of
Mahloujifar, Melis and Chaudhuri (2025, "Auditing f-differential privacy in one run"), which is much
tighter for such claims than one by (epsilon, delta).
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from privypurse.accounting.convert import gdp_epsilon
from privypurse.audit._listening import Transcript, record
from privypurse.audit._verdicts import Line, verdict_of
from privypurse.audit.subjects import DELTA
from privypurse.core._checks import FloatArray, positive, positive_integer, small_probability
from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.purse._purse import Purse
from privypurse.training._loop import fit, purse_for
from privypurse.training._plan import Method
from privypurse_lab.audits.method_subjects import oracle_of

# 1,000 canaries of which a fifth are guessed cannot refute any mu above 1.54. These can show up to
# 2.15, and show about half of the claim at mu 1 and 2.
CANARIES, GUESSED = 3_000, 0.4


@dataclass(frozen=True)
class OneRun:
    """Result of a one-run audit.

    Parameters
    ----------
    claimed_mu, claimed_epsilon : float
        Claimed budget.
    mu : float
        With this confidence the run is not Gaussian-DP with any smaller mu.
    epsilon : float
        Epsilon of that mu at delta, a lower bound if the run is Gaussian-DP.
    confidence : float
        Of the bound.
    canaries, guesses, correct : int
        Number of canaries, of guesses, and of correct guesses.
    ceiling_mu : float
        `mu` if all guesses were correct: no larger claim can be refuted.
    """

    claimed_mu: float
    claimed_epsilon: float
    mu: float
    epsilon: float
    confidence: float
    canaries: int
    guesses: int
    correct: int
    ceiling_mu: float

    @property
    def refuted(self) -> bool:
        """Whether the bound exceeds the claim."""
        return self.mu > self.claimed_mu


def is_refuted(mu: float, canaries: int, guesses: int, correct: int, significance: float) -> bool:
    """Return whether a number of correct guesses refutes Gaussian DP with this mu.

    Parameters
    ----------
    mu : float
        The claim.
    canaries, guesses, correct : int
        Number of canaries with a fair coin each, of coins guessed, and of correct guesses.
    significance : float
        Probability of refuting a true claim.

    Notes
    -----
    Suppose the claim is true and `correct` or more guesses are correct with probability at least
    `significance`. A recursion over numbers of correct guesses, with the trade-off curve at each
    step, then gives probabilities whose sum must not exceed the share of canaries that are guessed.
    """
    right, wrong = significance * correct / canaries, significance * (guesses - correct) / canaries
    for number in range(correct - 1, -1, -1):
        previous = wrong
        # Least probability of a wrong guess for this probability of a correct one.
        wrong = max(previous, float(special.ndtr(special.ndtri(min(right, 1.0)) - mu)))
        right += number / (guesses - number) * (wrong - previous)
        if right + wrong > guesses / canaries:
            return True
    return right + wrong > guesses / canaries


def mu_from_guesses(canaries: int, guesses: int, correct: int, *, confidence: float = 0.95) -> float:
    """Return the largest mu that a number of correct guesses refutes, 0 if none.

    Examples
    --------
    >>> mu_from_guesses(1_000, 100, 50)
    0.0
    >>> round(mu_from_guesses(1_000, 100, 98), 2)
    0.97
    """
    if not 0 <= correct <= guesses <= canaries or canaries < 1:
        raise InvalidArgument(
            f"expected correct <= guesses <= canaries, got {correct!r}, {guesses!r}, {canaries!r}. Check the counts."
        )
    significance = 1 - small_probability(confidence=confidence)
    low, high = 0.0, 1.0
    if not correct or not is_refuted(low, canaries, guesses, correct, significance):
        return 0.0
    while is_refuted(high, canaries, guesses, correct, significance):
        low, high = high, 2 * high
        if high > 64:
            return low
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle, canaries, guesses, correct, significance) else (low, middle)
    return low


def one_run(
    make: Callable[[], Method],
    mu: float,
    *,
    canaries: int = CANARIES,
    guessed: float = GUESSED,
    seed: int = 0,
    confidence: float = 0.95,
    secure: bool = True,
) -> OneRun:
    """Audit a method with one run.

    Parameters
    ----------
    make : callable
        Makes the method.
    mu : float
        Budget of the run.
    canaries : int
        Number of canaries; each has a column of its own.
    guessed : float
        Share of canaries whose coins are guessed, the most certain ones. Fixed in advance.
    seed : int
        Seed of coins and noise.
    confidence : float
        Of the bound.
    secure : bool
        Whether to draw exact noise.
    """
    canaries = positive_integer(canaries=canaries)
    mu, guesses = positive(mu=mu), _guesses(canaries, guessed)
    coins = np.random.default_rng([seed, 1]).random(canaries) < 0.5
    rows = np.eye(canaries)[coins]
    labels = np.ones(len(rows))
    records = canaries // 2
    noise = NoiseSource(seed=seed, secure=True) if secure else NoiseSource(seed=seed)
    epsilon = gdp_epsilon(mu, DELTA)
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "neighbouring": "add-remove"}
    purse = purse_for(oracle_of((rows, labels)), make(), records=records, noise=noise, **budget)

    def run(data: tuple[FloatArray, FloatArray], payer: Purse) -> FloatArray:
        return fit(oracle_of(data), make(), payer, records=records).point

    heard = record(run, (rows, labels), purse)
    if heard.failure:
        raise InvalidArgument(f"the audited run failed: {heard.failure}. Check the method.")
    scores = canary_scores(heard, canaries)
    order = np.argsort(scores, kind="stable")
    correct = int(coins[order[-guesses // 2 :]].sum() + (~coins[order[: guesses // 2]]).sum())
    shown = mu_from_guesses(canaries, guesses, correct, confidence=confidence)
    at_delta = gdp_epsilon(shown, DELTA) if shown > 0 else 0.0
    ceiling = mu_from_guesses(canaries, guesses, guesses, confidence=confidence)
    return OneRun(mu, epsilon, shown, at_delta, confidence, canaries, guesses, correct, ceiling)


@functools.cache
def ceiling_mu(canaries: int = CANARIES, guessed: float = GUESSED) -> float:
    """Return the largest mu that one run can show, with all guesses correct.

    Examples
    --------
    >>> 2.1 < ceiling_mu() < 2.2
    True
    """
    guesses = _guesses(canaries, guessed)
    return mu_from_guesses(canaries, guesses, guesses)


def _guesses(canaries: int, guessed: float) -> int:
    """Return the number of guesses: as many heads as tails."""
    return 2 * max(1, round(small_probability(guessed=guessed) * canaries / 2))


def canary_scores(heard: Transcript, columns: int) -> FloatArray:
    """Return the evidence of each column of all noisy gradients for a record that lowers it."""
    scores = np.zeros(columns)
    for release in heard.releases:
        if isinstance(release.mechanism, Gaussian) and release.answer.shape == (columns,):
            noise_std = release.mechanism.noise_std(release.box, release.neighbouring)
            scores -= release.answer * (release.box.bound(release.neighbouring, Norm.L2) / noise_std**2)
    return scores / max(1.0, math.sqrt(len(heard.releases)))


def one_run_line(name: str, kind: str, found: OneRun) -> Line:
    """Return the line of a one-run audit."""
    return Line(
        name,
        kind,
        "one run",
        claimed_mu=found.claimed_mu,
        claimed_epsilon=found.claimed_epsilon,
        shown_mu=found.mu,
        shown_epsilon=found.epsilon,
        ceiling_mu=found.ceiling_mu,
        delta=DELTA,
        confidence=found.confidence,
        trials=found.guesses,
        # The attack shows about half of the claim; zero means that it did not work.
        verdict=verdict_of(found.refuted, found.claimed_mu, found.ceiling_mu, weak=found.mu <= 0),
    )
