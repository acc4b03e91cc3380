"""Results of audits: one line for each, used in tables, pages and JSON."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from privypurse.accounting.convert import gdp_epsilon
from privypurse.audit._listening import record
from privypurse.audit._lower_bounds import LowerBound
from privypurse.audit._residuals import residuals
from privypurse.audit.gray_box import checked, gray_box
from privypurse.audit.subjects import DELTA, Subject
from privypurse.audit.white_box import FEWEST_MODELS, Scores, attack, bound_from_models, judge

HOLDS, REFUTED, WEAK, TOO_SMALL, NOT_RUN = "holds", "REFUTED", "weak", "too small", "not run"


@dataclass(frozen=True)
class Line:
    """One audit of one subject.

    Parameters
    ----------
    subject, kind : str
        Name of the subject, and "method", "baseline", "estimator", "preprocessing", "pytorch",
        "mutant" or "as published".
    audit : str
        "white box", "one run", "black box", "gray box", "noise", "frequencies", "enumeration",
        "integration" or "rounding".
    claimed_mu, claimed_epsilon : float
        Claimed budget; NaN for other claims.
    shown_mu, shown_epsilon : float
        Lower bounds; NaN where the audit gives none.
    ceiling_mu : float
        Lower bound of an attack without errors: the most that so many trials can show. NaN where
        there is no such limit.
    delta, confidence : float
        Of the bounds.
    trials : int
        Number of runs, guesses or cases.
    verdict : str
        "holds"; "REFUTED"; "weak" for an attack that should have shown more; "too small" for one
        that could not have refuted the claim with so few trials; "not run".
    findings : tuple of str
        Violations, in words.
    """

    subject: str
    kind: str
    audit: str
    claimed_mu: float = math.nan
    claimed_epsilon: float = math.nan
    shown_mu: float = math.nan
    shown_epsilon: float = math.nan
    ceiling_mu: float = math.nan
    delta: float = math.nan
    confidence: float = math.nan
    trials: int = 0
    verdict: str = HOLDS
    findings: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return the line as JSON types. NaN fields are omitted."""
        fields = asdict(self)
        kept = {name: value for name, value in fields.items() if not (isinstance(value, float) and math.isnan(value))}
        return {**kept, "findings": list(self.findings)}

    @classmethod
    def from_json(cls, described: dict[str, Any]) -> "Line":
        """Return the line of a description made by `to_json`."""
        return cls(**{**described, "findings": tuple(described.get("findings", ()))})


def white_box_line(subject: Subject, scores: Scores, mu: float) -> Line:
    """Return the line of a white-box attack."""
    judged = judge(scores, mu)
    # Equal scores for all runs: nothing was observed, and more runs would not help.
    blind = bool(np.ptp(np.concatenate([scores.absent, scores.present])) == 0)
    if blind and not judged.findings and not subject.shows_half:
        # Expected, but a bound of zero would look like a failed attack.
        why = ("nothing that is released has a likelihood that is known here",)
        return Line(subject.name, subject.kind, "white box", claimed_mu=mu, verdict=NOT_RUN, findings=why)
    weak = subject.shows_half and judged.share < 0.5
    verdict = verdict_of(judged.refuted, mu, judged.bound.ceiling_mu, weak=weak)
    if verdict == TOO_SMALL and blind and weak:
        verdict = WEAK  # more runs would not help
    return _bounded(subject, "white box", mu, judged.bound, verdict, judged.findings)


def black_box_line(subject: Subject, scores: Scores, mu: float) -> Line:
    """Return the line of an attack on final models."""
    bound = bound_from_models(scores.models_absent, scores.models_present)
    refuted = bound.mu > mu or bound.epsilon > gdp_epsilon(mu, DELTA)
    return _bounded(subject, "black box", mu, bound, verdict_of(refuted, mu, bound.ceiling_mu), ())


def gray_box_line(subject: Subject, mu: float, *, pairs: int, seed: int, secure: bool = False) -> Line:
    """Return the line of a gray-box audit."""
    found = gray_box(subject, mu=mu, pairs=pairs, seed=seed, secure=secure)
    verdict = REFUTED if found.findings else HOLDS
    return Line(subject.name, subject.kind, "gray box", trials=found.releases, verdict=verdict, findings=found.findings)


def noise_line(subject: Subject, mu: float, *, runs: int, secure: bool = False) -> Line:
    """Return the line of an audit of noise from the operating system's entropy."""
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


def verdict_of(refuted: bool, claimed_mu: float, ceiling_mu: float, *, weak: bool = False) -> str:
    """Return the verdict of an attack.

    An attack cannot refute a claim of at least its ceiling: that is "too small", not "holds".
    """
    if refuted:
        return REFUTED
    if ceiling_mu <= claimed_mu:
        return TOO_SMALL
    return WEAK if weak else HOLDS


def _bounded(subject: Subject, audit: str, mu: float, bound: LowerBound, verdict: str, found: tuple[str, ...]) -> Line:
    numbers: dict[str, Any] = {"claimed_mu": mu, "claimed_epsilon": gdp_epsilon(mu, DELTA)}
    numbers |= {"shown_mu": bound.mu, "shown_epsilon": bound.epsilon, "ceiling_mu": bound.ceiling_mu}
    numbers |= {"delta": bound.delta, "confidence": bound.confidence, "trials": bound.trials}
    return Line(subject.name, subject.kind, audit, **numbers, verdict=verdict, findings=found)


def audit_subject(
    subject: Subject, *, mu: float = 3.0, runs: int = 400, seed: int = 0, secure: bool = True
) -> tuple[Line, ...]:
    """Audit a subject: gray box, noise, white box and, where it has a score for models, black box.

    Parameters
    ----------
    subject : Subject
        Subject of the audit.
    mu : float, default 3.0
        Budget of each run.
    runs : int, default 400
        Runs of the attack, half of them without the canary. Each is compared with its replay.
    seed : int, default 0
        Seed of the first run.
    secure : bool, default True
        Whether to draw exact noise.

    Returns
    -------
    tuple of Line
        One line per audit. Only "holds" is good: "weak" means that the attack shows less than half
        of `mu`, as it does where tables are equal or nothing is released; "too small" that so few
        runs could not have refuted the claim.
    """
    mu = checked(subject, mu)
    scores = attack(subject, mu, runs, seed, secure=secure)
    lines = [
        gray_box_line(subject, mu, pairs=4, seed=seed, secure=secure),
        noise_line(subject, mu, runs=4, secure=secure),
        white_box_line(subject, scores, mu),
    ]
    if min(scores.models_absent.size, scores.models_present.size) >= FEWEST_MODELS:
        lines.append(black_box_line(subject, scores, mu))
    return tuple(lines)
