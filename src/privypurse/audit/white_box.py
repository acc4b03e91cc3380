"""The white-box audit: many runs with and without the canary, each judged by the likelihood ratio of all it released."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privypurse.audit.gray_box import checked, compare, heard_and_replayed
from privypurse.audit.likelihood import log_likelihood_ratio
from privypurse.audit.lower_bounds import LowerBound, bound_from_scores
from privypurse.audit.subjects import DELTA, Subject
from privypurse.core.checks import FloatArray, positive_integer
from privypurse.core.errors import InvalidArgument

# Told how many runs are done.
Tell = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Scores:
    """The attack's scores: the likelihood ratio, scaled so that it is N(0, 1) without the canary and N(mu, 1) with it.

    Parameters
    ----------
    absent, present : ndarray
        One number for each run.
    models_absent, models_present : ndarray
        What the final models alone say, where the subject has a score for them.
    findings : tuple of str
        What the comparison of each run with its replay found.
    """

    absent: FloatArray
    present: FloatArray
    models_absent: FloatArray
    models_present: FloatArray
    findings: tuple[str, ...] = ()

    def joined(self, other: "Scores") -> "Scores":
        """Return the scores of both."""
        return Scores(
            np.concatenate([self.absent, other.absent]),
            np.concatenate([self.present, other.present]),
            np.concatenate([self.models_absent, other.models_absent]),
            np.concatenate([self.models_present, other.models_present]),
            tuple(dict.fromkeys((*self.findings, *other.findings))),
        )


@dataclass(frozen=True)
class WhiteBox:
    """What the audit showed.

    Parameters
    ----------
    claimed_mu, claimed_epsilon : float
        What the run claims.
    bound : LowerBound
        What was shown.
    findings : tuple of str
        Of the comparison of runs with their replays.
    """

    claimed_mu: float
    claimed_epsilon: float
    bound: LowerBound
    findings: tuple[str, ...] = ()

    @property
    def refuted(self) -> bool:
        """Whether more was shown than is claimed, or something was found that breaks the claim: see `findings`."""
        shown = self.bound.mu > self.claimed_mu or self.bound.epsilon > self.claimed_epsilon
        return shown or bool(self.findings)

    @property
    def share(self) -> float:
        """How much of the claimed mu was shown."""
        return self.bound.mu / self.claimed_mu


def attack(
    subject: Subject, mu: float, runs: int, seed: int, *, secure: bool = True, tell: Tell = lambda done: None
) -> Scores:
    """Run a subject `runs` times, in turn without and with the canary, and score each run.

    Parameters
    ----------
    subject : Subject
        What to audit.
    mu : float
        The budget to run it at.
    runs, seed : int
        How many runs, from which seed on; an even number.
    secure : bool, default True
        Whether to draw exact noise.
    tell : callable
        Told after each run how many are done.
    """
    mu, runs = checked(subject, mu), positive_integer(runs=runs)
    if runs % 2:
        raise InvalidArgument(
            f"runs must be an even number; got {runs}. Half of them are made without the canary: pass for example 400."
        )
    scores: tuple[list[float], list[float]] = ([], [])
    models: tuple[list[float], list[float]] = ([], [])
    findings: dict[str, None] = {}
    for number in range(runs):
        present = number % 2 == 1
        heard, again = heard_and_replayed(subject, present, mu, seed + number, secure=secure)
        findings.update(dict.fromkeys(compare(heard, again)[0]))
        pair = (again, heard) if present else (heard, again)
        ratio = log_likelihood_ratio(*pair, subject.direction)
        scores[present].append(ratio / mu + mu / 2)
        if subject.score is not None and heard.result.size:
            models[present].append(subject.score(heard.result))
        tell(number + 1)
    absent, with_canary = map(np.array, scores)
    return Scores(absent, with_canary, np.array(models[0]), np.array(models[1]), tuple(findings))


def judge(scores: Scores, mu: float, *, confidence: float = 0.95) -> WhiteBox:
    """Turn scores into a bound, at the threshold at which the likelihood ratio is one."""
    from privypurse.accounting.convert import gdp_epsilon

    bound = bound_from_scores(scores.absent, scores.present, thresholds=[mu / 2], delta=DELTA, confidence=confidence)
    return WhiteBox(mu, gdp_epsilon(mu, DELTA), bound, scores.findings)
