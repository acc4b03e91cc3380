"""From audits to lines: each function audits one subject in one way and says how it went."""

from privypurse.accounting.convert import gdp_epsilon
from privypurse.audit.black_box import bound_from_models
from privypurse.audit.gray_box import gray_box
from privypurse.audit.listening import record
from privypurse.audit.lower_bounds import LowerBound
from privypurse.audit.one_run import OneRun
from privypurse.audit.residuals import residuals
from privypurse.audit.results import HOLDS, REFUTED, WEAK, Line
from privypurse.audit.subjects import DELTA, Subject
from privypurse.audit.white_box import Scores, judge


def white_box_line(subject: Subject, scores: Scores, mu: float) -> Line:
    """Judge the scores of an attack that sees everything."""
    judged = judge(scores, mu)
    refuted = judged.refuted or bool(judged.findings)
    weak = subject.shows_half and judged.share < 0.5
    verdict = REFUTED if refuted else WEAK if weak else HOLDS
    return _bounded(subject, "white box", mu, judged.bound, verdict, judged.findings)


def black_box_line(subject: Subject, scores: Scores, mu: float) -> Line:
    """Judge the scores of final models."""
    bound = bound_from_models(scores.models_absent, scores.models_present)
    refuted = bound.mu > mu or bound.epsilon > gdp_epsilon(mu, DELTA)
    return _bounded(subject, "black box", mu, bound, REFUTED if refuted else HOLDS, ())


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
    verdict = REFUTED if noise.findings else HOLDS
    return Line(subject.name, subject.kind, "noise", trials=noise.count, verdict=verdict, findings=noise.findings)


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
        delta=DELTA,
        confidence=found.confidence,
        trials=found.guesses,
        verdict=REFUTED if found.refuted else HOLDS,
    )


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
        delta=bound.delta,
        confidence=bound.confidence,
        trials=bound.trials,
        verdict=verdict,
        findings=findings,
    )
