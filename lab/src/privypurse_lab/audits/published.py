"""Two published algorithms, refuted at their claimed epsilon as printed. NOT PRIVATE.

They run on non-private purses through the usual training loop. The attack is the likelihood ratio
of all releases, which an attacker who knows the code can compute.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from privypurse.audit._listening import Heard, Transcript
from privypurse.audit._lower_bounds import bound_from_scores
from privypurse.audit._verdicts import HOLDS, REFUTED, Line
from privypurse.audit.gray_box import heard_and_replayed
from privypurse.audit.subjects import RECORDS, Subject
from privypurse.audit.white_box import of_release
from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import NoiseSource
from privypurse.losses._linear import Logistic
from privypurse.mechanisms._non_private import NonPrivateAnswer
from privypurse.purse._purse import Purse
from privypurse.training._loop import fit
from privypurse_lab.audits.canaries import with_canary
from privypurse_lab.audits.exact import published_noisy_minimum
from privypurse_lab.audits.method_subjects import oracle_of
from privypurse_lab.papers.published_adp_sgd import PublishedADPSGD
from privypurse_lab.papers.published_dp_agd import NoisyMinimum, PublishedDPAGD

# Claims. DP-AGD's delta leaves room for two selections of a size that an attack can detect.
ADP_SGD_EPSILON, ADP_SGD_DELTA = 1.0, 1e-6
DP_AGD_EPSILON, DP_AGD_DELTA = 1.0, 1e-3
# Log likelihood ratios from which on the attack says "present". Fixed in advance.
THRESHOLDS = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
# Log likelihood ratio of a noiseless selection that only one table can lead to.
CERTAIN = 50.0


def log_likelihood_ratio(absent: Transcript, present: Transcript) -> float:
    """Return the log likelihood ratio, including the published selections."""
    pairs = zip(absent.releases, present.releases, strict=False)
    return math.fsum(
        _of_selection(*pair) if isinstance(pair[0].mechanism, NonPrivateAnswer) else of_release(*pair, None)
        for pair in pairs
    )


def _of_selection(absent: Heard, present: Heard) -> float:
    make: Any = absent.mechanism.make  # type: ignore[attr-defined]
    chosen, scores = int(absent.answer), (absent.inside, present.inside)
    if isinstance(make, NoisyMinimum):
        # Noise of this scale is claimed to cost its inverse, for scores of range one.
        probabilities = published_noisy_minimum(1 / make.scale, 1.0)
        without, with_it = (probabilities(np.asarray(one))[chosen] for one in scores)
        return float(np.clip(with_it - without, -CERTAIN, CERTAIN))
    without, with_it = (int(np.argmax(np.asarray(one))) == chosen for one in scores)
    return CERTAIN * (float(with_it) - float(without))


def _adp_sgd() -> Subject:
    def run(data: Any, purse: Purse) -> FloatArray:
        method = PublishedADPSGD(ADP_SGD_EPSILON, rounds=10, clip_norm=1.0)
        return fit(oracle_of(data, loss=Logistic()), method, purse, records=RECORDS).point

    def purse(mu: float, noise: NoiseSource) -> Purse:
        return Purse.not_private(delta=ADP_SGD_DELTA, noise=noise)

    return Subject("ADP-SGD, as published", "as published", run, with_canary, purse)


def _dp_agd() -> Subject:
    """Return one parameter, records of no effect, and a canary whose loss jumps at zero."""

    def run(data: Any, purse: Purse) -> FloatArray:
        method = PublishedDPAGD(DP_AGD_EPSILON, DP_AGD_DELTA, splits=3)
        return fit(oracle_of(data, loss=Logistic(), row_limit=None), method, purse, records=4.0, clip_norm=3.0).point

    def table(present: bool) -> Any:
        last = [1_000.0] if present else []
        return np.array([0.0, 0.0, 0.0, 0.0, *last])[:, None], np.array([0.0, 1.0, 0.0, 1.0, *(1.0 for _ in last)])

    def purse(mu: float, noise: NoiseSource) -> Purse:
        return Purse.not_private(delta=DP_AGD_DELTA, noise=noise)

    return Subject("DP-AGD, as published", "as published", run, table, purse)


def _refute(make: Callable[[], Subject], epsilon: float, delta: float, runs: int) -> Line:
    subject = make()
    scores: tuple[list[float], list[float]] = ([], [])
    for number in range(runs):
        present = number % 2 == 1
        heard, again = heard_and_replayed(subject, present, 1.0, number)
        if heard.failure:
            raise InvalidArgument(f"the attacked run failed: {heard.failure}. Check the subject.")
        scores[present].append(log_likelihood_ratio(*((again, heard) if present else (heard, again))))
    bound = bound_from_scores(*scores, thresholds=THRESHOLDS, delta=delta)
    return Line(
        subject.name,
        subject.kind,
        "white box",
        claimed_epsilon=epsilon,
        shown_epsilon=bound.epsilon,
        delta=delta,
        confidence=bound.confidence,
        trials=bound.trials,
        verdict=REFUTED if bound.epsilon > epsilon else HOLDS,
    )


def refute_adp_sgd(*, quick: bool = False) -> Line:
    """Attack ADP-SGD as printed: the learning rate is the argmin of exact losses."""
    line = _refute(_adp_sgd, ADP_SGD_EPSILON, ADP_SGD_DELTA, 100 if quick else 1_000)
    return replace(line, findings=("the step is the argmin of exact losses, which one record moves",))


def refute_dp_agd(*, quick: bool = False) -> Line:
    """Attack DP-AGD as in its authors' code: the noise of selections has the wrong sign."""
    line = _refute(_dp_agd, DP_AGD_EPSILON, DP_AGD_DELTA, 3_000 if quick else 10_000)
    return replace(line, findings=("exponential noise is added to losses that are minimised",))


AS_PUBLISHED: dict[str, Callable[..., Line]] = {"adp-sgd": refute_adp_sgd, "dp-agd": refute_dp_agd}
