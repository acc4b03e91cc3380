"""The one-run audit: many canaries in one table, each in or out by a coin; guess the coins from one run.

The number of right guesses is compared with what a Gaussian-DP run allows, by the analysis of Mahloujifar, Melis and Chaudhuri
(2025, "Auditing f-differential privacy in one run"), which is much tighter for such claims than one by (epsilon, delta).
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from privypurse.accounting.convert import gdp_epsilon
from privypurse.audit.listening import Transcript, record
from privypurse.audit.method_subjects import oracle_of
from privypurse.audit.subjects import DELTA
from privypurse.core.checks import FloatArray, positive, positive_integer, small_probability
from privypurse.core.errors import InvalidArgument
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Norm
from privypurse.mechanisms.gaussian import Gaussian
from privypurse.planning.plan import Method
from privypurse.purse.purse import Purse
from privypurse.training.fit import fit, open_purse

# With 1,000 canaries and a fifth of them guessed, no mu above 1.54 can be refuted. With these the most that can be shown is 2.15,
# and about half of the claim is shown at mu 1 and 2.
CANARIES, GUESSED = 3_000, 0.4


@dataclass(frozen=True)
class OneRun:
    """What one run showed.

    Parameters
    ----------
    claimed_mu, claimed_epsilon : float
        What the run claims.
    mu : float
        With this confidence the run is not Gaussian-DP with any smaller mu.
    epsilon : float
        What that mu is at delta: a run that is Gaussian-DP at all has at least this epsilon.
    confidence : float
        Of the bound.
    canaries, guesses, correct : int
        How many canaries there were, how many were guessed, and how many of these rightly.
    ceiling_mu : float
        What `mu` would be if all guesses were right: no claim above it can be refuted.
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
        """Whether more was shown than is claimed."""
        return self.mu > self.claimed_mu


def is_refuted(mu: float, canaries: int, guesses: int, correct: int, significance: float) -> bool:
    """Say whether so many right guesses refute Gaussian DP with this mu.

    Parameters
    ----------
    mu : float
        The claim.
    canaries, guesses, correct : int
        Canaries with a fair coin each; how many coins were guessed; how many rightly.
    significance : float
        How often a true claim may be refuted.

    Notes
    -----
    Suppose the claim is true and `correct` or more guesses are right with probability `significance` or more. Then a recursion
    over numbers of right guesses, with the trade-off curve at each step, gives probabilities that must not add up to more than
    the share of canaries that are guessed. Where they do, it cannot be true.
    """
    right, wrong = significance * correct / canaries, significance * (guesses - correct) / canaries
    for number in range(correct - 1, -1, -1):
        previous = wrong
        # The least probability of a wrong guess that goes with such a probability of a right one.
        wrong = max(previous, float(special.ndtr(special.ndtri(min(right, 1.0)) - mu)))
        right += number / (guesses - number) * (wrong - previous)
        if right + wrong > guesses / canaries:
            return True
    return right + wrong > guesses / canaries


def mu_from_guesses(canaries: int, guesses: int, correct: int, *, confidence: float = 0.95) -> float:
    """Return the largest mu that so many right guesses refute; 0 if they refute none.

    Examples
    --------
    >>> mu_from_guesses(1_000, 100, 50)
    0.0
    >>> round(mu_from_guesses(1_000, 100, 98), 2)
    0.97
    """
    if not 0 <= correct <= guesses <= canaries or canaries < 1:
        raise InvalidArgument(
            f"correct, guesses and canaries must rise; got {correct!r}, {guesses!r}, {canaries!r}. Count them again."
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
        The budget to run it at.
    canaries : int
        How many; each has a column of its own, so that none hides another.
    guessed : float
        The share of canaries whose coins are guessed: the surest ones. Fixed in advance.
    seed : int
        Of the coins and the noise.
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
    purse = open_purse(oracle_of((rows, labels)), make(), records=records, noise=noise, **budget)

    def run(data: tuple[FloatArray, FloatArray], payer: Purse) -> FloatArray:
        return fit(oracle_of(data), make(), payer, records=records).point

    heard = record(run, (rows, labels), purse)
    if heard.failure:
        raise InvalidArgument(f"the run that was to be audited failed: {heard.failure}")
    scores = canary_scores(heard, canaries)
    order = np.argsort(scores, kind="stable")
    correct = int(coins[order[-guesses // 2 :]].sum() + (~coins[order[: guesses // 2]]).sum())
    shown = mu_from_guesses(canaries, guesses, correct, confidence=confidence)
    at_delta = gdp_epsilon(shown, DELTA) if shown > 0 else 0.0
    ceiling = mu_from_guesses(canaries, guesses, guesses, confidence=confidence)
    return OneRun(mu, epsilon, shown, at_delta, confidence, canaries, guesses, correct, ceiling)


@functools.cache
def ceiling_mu(canaries: int = CANARIES, guessed: float = GUESSED) -> float:
    """Return the most that one run can show, with all guesses right.

    Examples
    --------
    >>> 2.1 < ceiling_mu() < 2.2
    True
    """
    guesses = _guesses(canaries, guessed)
    return mu_from_guesses(canaries, guesses, guesses)


def _guesses(canaries: int, guessed: float) -> int:
    """Return how many coins are guessed: as many heads as tails."""
    return 2 * max(1, round(small_probability(guessed=guessed) * canaries / 2))


def canary_scores(heard: Transcript, columns: int) -> FloatArray:
    """Return how much each column of all noisy gradients speaks for a record that pulls it down."""
    scores = np.zeros(columns)
    for release in heard.releases:
        if isinstance(release.mechanism, Gaussian) and release.answer.shape == (columns,):
            noise_std = release.mechanism.noise_std(release.box, release.neighbouring)
            scores -= release.answer * (release.box.bound(release.neighbouring, Norm.L2) / noise_std**2)
    return scores / max(1.0, math.sqrt(len(heard.releases)))
