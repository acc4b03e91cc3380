"""From audits to lines: each function audits one subject in one way and says how it went."""

import numpy as np

from privypurse.accounting.convert import gdp_epsilon
from privypurse.audit.black_box import bound_from_models
from privypurse.audit.gray_box import gray_box
from privypurse.audit.listening import record
from privypurse.audit.lower_bounds import LowerBound
from privypurse.audit.one_run import OneRun
from privypurse.audit.residuals import residuals
from privypurse.audit.results import HOLDS, NOT_RUN, REFUTED, TOO_SMALL, WEAK, Line
from privypurse.audit.subjects import DELTA, Subject
from privypurse.audit.white_box import Scores, judge


def white_box_line(subject: Subject, scores: Scores, mu: float) -> Line:
    """Judge the scores of an attack that sees everything."""
    judged = judge(scores, mu)
    # The same score for every run: nothing was seen, and with any number of runs the bound could only be zero.
    blind = bool(np.ptp(np.concatenate([scores.absent, scores.present])) == 0)
    if blind and not judged.findings and not subject.shows_half:
        # As expected of it, but a bound of zero would look as if an attack had failed.
        why = ("nothing that is released has a likelihood that is known here",)
        return Line(subject.name, subject.kind, "white box", claimed_mu=mu, verdict=NOT_RUN, findings=why)
    weak = subject.shows_half and judged.share < 0.5
    verdict = _verdict(judged.refuted, mu, judged.bound.ceiling_mu, weak=weak)
    if verdict == TOO_SMALL and blind and weak:
        verdict = WEAK  # more runs would not help
    return _bounded(subject, "white box", mu, judged.bound, verdict, judged.findings)


def black_box_line(subject: Subject, scores: Scores, mu: float) -> Line:
    """Judge the scores of final models."""
    bound = bound_from_models(scores.models_absent, scores.models_present)
    refuted = bound.mu > mu or bound.epsilon > gdp_epsilon(mu, DELTA)
    return _bounded(subject, "black box", mu, bound, _verdict(refuted, mu, bound.ceiling_mu), ())


def gray_box_line(subject: Subject, mu: float, *, pairs: int, seed: int, secure: bool = False) -> Line:
    """Compare neighbouring runs."""
    found = gray_box(subject, mu=mu, pairs=pairs, seed=seed, secure=secure)
    verdict = REFUTED if found.findings else HOLDS
    return Line(subject.name, subject.kind, "gray box", trials=found.releases, verdict=verdict, findings=found.findings)


def noise_line(subject: Subject, mu: float, *, runs: int, secure: bool = False) -> Line:
    """Look at the noise of runs as users make them, from the operating system's entropy."""
    sources = [subject.noise(None, secure=secure) for _ in range(runs)]
    heard = [record(subject.run, subject.table(True), subject.purse(mu, source)) for source in sources]
    noise = residuals(heard)
    failed = tuple(dict.fromkeys(f"a run failed: {one.failure}" for one in heard if one.failure))
    findings, verdict = (*failed, *noise.findings), HOLDS
    if findings:
        verdict = REFUTED
    elif not noise.count:
        findings, verdict = ("no Gaussian release, so that there is no noise to look at",), NOT_RUN
    return Line(subject.name, subject.kind, "noise", trials=noise.count, verdict=verdict, findings=findings)


def one_run_line(name: str, kind: str, found: OneRun) -> Line:
    """Report what one run showed."""
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
        # Such an attack shows about half of the claim: nothing at all means that it did not work.
        verdict=_verdict(found.refuted, found.claimed_mu, found.ceiling_mu, weak=found.mu <= 0),
    )


def _verdict(refuted: bool, claimed_mu: float, ceiling_mu: float, *, weak: bool = False) -> str:
    """Return the verdict of an attack; "holds" only where it could have been another one.

    A claim at the ceiling or above it could not have been refuted even by an attack that is always right.
    """
    if refuted:
        return REFUTED
    if ceiling_mu <= claimed_mu:
        return TOO_SMALL
    return WEAK if weak else HOLDS


def _bounded(
    subject: Subject, audit: str, mu: float, bound: LowerBound, verdict: str, findings: tuple[str, ...]
) -> Line:
    return Line(
        subject.name,
        subject.kind,
        audit,
        claimed_mu=mu,
        claimed_epsilon=gdp_epsilon(mu, DELTA),
        shown_mu=bound.mu,
        shown_epsilon=bound.epsilon,
        ceiling_mu=bound.ceiling_mu,
        delta=bound.delta,
        confidence=bound.confidence,
        trials=bound.trials,
        verdict=verdict,
        findings=findings,
    )
