"""White-box audit: runs with and without the canary, scored by their likelihood ratio.

No attack is more powerful than this ratio. Under a sound mechanism with a Gaussian-DP filter, and a
record that reaches every bound, the logarithm of the ratio is N(-mu^2/2, mu^2) without the record
and N(mu^2/2, mu^2) with it, also where noise levels depend on earlier answers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privypurse.audit._listening import Heard, Transcript
from privypurse.audit._lower_bounds import LowerBound, bound_from_scores
from privypurse.audit.gray_box import checked, compare, heard_and_replayed
from privypurse.audit.subjects import DELTA, Subject
from privypurse.core._checks import FloatArray, positive_integer
from privypurse.core._errors import InvalidArgument
from privypurse.core._sensitive import Norm
from privypurse.mechanisms._selection import ExponentialSelection, PermuteAndFlip

__all__ = ["attack", "judge"]


def log_likelihood_ratio(absent: Transcript, present: Transcript, direction: FloatArray | None = None) -> float:
    """Return the log likelihood ratio of the answers of a run and its replay: with the record over without.

    `direction` is the unit vector of the record's contribution to a sum, for sampled releases,
    where the attack does not know whether the record was in the sample.
    """
    pairs = zip(absent.releases, present.releases, strict=False)
    return math.fsum(of_release(without, with_it, direction) for without, with_it in pairs)


def of_release(absent: Heard, present: Heard, direction: FloatArray | None) -> float:
    """Return the contribution of one release to `log_likelihood_ratio`."""
    box, mechanism, relation = absent.box, absent.mechanism, absent.neighbouring
    if absent.trial is not None and present.trial is not None:
        # That this trial was the best is not used as evidence.
        return log_likelihood_ratio(absent.trial, present.trial, direction)
    if absent.inside is None or present.inside is None:
        return 0.0  # the likelihood of an objective or experiment is not known
    if isinstance(mechanism, ExponentialSelection | PermuteAndFlip):
        bound, chosen = box.bound(relation, Norm.RANGE), int(absent.answer)
        logs = [mechanism.log_probabilities(heard.inside, bound)[chosen] for heard in (absent, present)]  # type: ignore[arg-type]
        return float(logs[1] - logs[0])
    noise_std = float(mechanism.noise_std(box, relation)) if hasattr(mechanism, "noise_std") else 0.0
    if not noise_std > 0:
        return 0.0
    noise = np.ravel(absent.answer - absent.inside) / noise_std
    if box.sample_prob == 1 or direction is None:
        moved = np.ravel(present.inside - absent.inside) / noise_std
        return float(noise @ moved - moved @ moved / 2)
    if direction.size != noise.size:
        return 0.0
    # `noise` excludes the record's contribution on both tables.
    moved = direction * (box.bound(relation, Norm.L2) / noise_std)
    likelier = float(noise @ moved - moved @ moved / 2)
    return float(np.logaddexp(math.log1p(-box.sample_prob), math.log(box.sample_prob) + likelier))


# Per table; half of them choose a threshold.
FEWEST_MODELS = 8


def bound_from_models(absent: FloatArray, present: FloatArray, *, confidence: float = 0.95) -> LowerBound:
    """Bound mu and epsilon from scores of final models, whose scale is not known in advance.

    Half of the runs choose a threshold and its direction; the other half is counted.
    """
    if min(absent.size, present.size) < FEWEST_MODELS:
        what = f"absent and present must have at least {FEWEST_MODELS} runs each; got {absent.size} and {present.size}"
        raise InvalidArgument(f"{what}. Run more.")
    first, second = (absent[::2], present[::2]), (absent[1::2], present[1::2])
    if np.median(first[0]) > np.median(first[1]):
        first, second = (-first[0], -first[1]), (-second[0], -second[1])
    candidates = np.quantile(np.concatenate(first), np.linspace(0.05, 0.95, 19))
    shown = [bound_from_scores(*first, thresholds=[threshold], delta=DELTA).mu for threshold in candidates]
    # Ties go to the middle threshold.
    best = np.flatnonzero(np.array(shown) == max(shown))
    threshold = candidates[best[np.abs(best - len(candidates) // 2).argmin()]]
    return bound_from_scores(*second, thresholds=[float(threshold)], delta=DELTA, confidence=confidence)


Tell = Callable[[int], None]  # called with the number of runs done


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of the attack, scaled to N(0, 1) without the canary and N(mu, 1) with it."""

    absent: FloatArray
    present: FloatArray
    models_absent: FloatArray  # of the final models, where the subject defines scores for them
    models_present: FloatArray
    findings: tuple[str, ...] = ()  # violations found in comparisons of runs with their replays

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
    """Result of the white-box audit."""

    claimed_mu: float
    claimed_epsilon: float
    bound: LowerBound
    findings: tuple[str, ...] = ()  # violations found in comparisons of runs with their replays

    @property
    def refuted(self) -> bool:
        """Whether the bound exceeds the claim, or there are `findings`."""
        shown = self.bound.mu > self.claimed_mu or self.bound.epsilon > self.claimed_epsilon
        return shown or bool(self.findings)

    @property
    def share(self) -> float:
        """Share of the claimed mu that was shown."""
        return self.bound.mu / self.claimed_mu


def attack(
    subject: Subject, mu: float, runs: int, seed: int, *, secure: bool = True, tell: Tell = lambda done: None
) -> Scores:
    """Run a subject `runs` times, alternating without and with the canary, and score each run.

    Parameters
    ----------
    subject : Subject
        Subject of the audit.
    mu : float
        Budget of each run.
    runs, seed : int
        Number of runs, which must be even, and seed of the first.
    secure : bool, default True
        Whether to draw exact noise.
    tell : callable
        Called after each run with the number of runs done.
    """
    mu, runs = checked(subject, mu), positive_integer(runs=runs)
    if runs % 2:
        raise InvalidArgument(f"runs must be even; got {runs}. Half of them lack the canary: pass 400.")
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
    """Return the bound at the threshold where the likelihood ratio is one."""
    from privypurse.accounting.convert import gdp_epsilon

    bound = bound_from_scores(scores.absent, scores.present, thresholds=[mu / 2], delta=DELTA, confidence=confidence)
    return WhiteBox(mu, gdp_epsilon(mu, DELTA), bound, scores.findings)
