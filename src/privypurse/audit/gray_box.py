"""Gray-box audit: runs on neighbouring tables with the same answers differ in boxes only.

It needs no statistics. One pair of runs shows a broken bound, a query or noise level that depends
on a record, a release without a charge, or a model that depends on more than the releases.
"""

import math
from dataclasses import dataclass

import numpy as np

from privypurse.audit._listening import Heard, Transcript, record, replay
from privypurse.audit._lower_bounds import mu_of
from privypurse.audit.subjects import Subject
from privypurse.core._checks import positive, positive_integer
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._sensitive import Norm
from privypurse.mechanisms._selection import ExponentialSelection, PermuteAndFlip

__all__ = ["gray_box"]

# Tolerance for rounding of differences.
SLACK = 1e-9


@dataclass(frozen=True)
class GrayBox:
    """Result of comparing runs on neighbouring tables."""

    findings: tuple[str, ...]  # violations, in words
    pairs: int
    releases: int  # number of pairs of boxes
    tightest: float  # largest distance between two boxes relative to the bound; 1 means that the bound is tight


def compare(absent: Transcript, present: Transcript) -> tuple[list[str], list[float]]:
    """Return the violations in a run and its replay, and the share of each bound that was used."""
    findings = []
    if len(absent.releases) != len(present.releases):
        numbers = f"{len(absent.releases)} and {len(present.releases)}"
        findings.append(f"the number of releases depends on one record: {numbers}")
    for run in (absent, present):
        made, late = len(run.releases), sum(not heard.paid_first for heard in run.releases)
        if late:
            findings.append(f"made before, or without, payment: {late} of {counted(made, 'release')}")
        if run.charged < made:
            findings.append(f"{counted(made, 'release')} made, and {run.charged} on the ledger")
    shares = []
    for number, (one, other) in enumerate(zip(absent.releases, present.releases, strict=False), start=1):
        if one.terms != other.terms:
            findings.append(f"release {number} ({one.what}) depends on one record: {_difference(one, other)}")
        share, bound = _share_of_bound(one, other), _declared_bound(one)
        shares.append(share)
        if share > 1 + SLACK:
            declared = f"its declared bound of {bound:g} ({one.box.norm.value})"
            findings.append(f"release {number} ({one.what}) moves by {share:.3g} times {declared}")
        findings += _selection_findings(number, one, other)
        if one.trial is not None and other.trial is not None:
            found, used = compare(one.trial, other.trial)
            findings += [f"in the best trial of release {number}, {finding}" for finding in found]
            shares += used
            moved = _moved_mu(one.trial, other.trial)
            if moved > bound * (1 + SLACK):
                what = f"the best trial of release {number} moves by mu {moved:.3g}"
                findings.append(f"{what}, and each may by {bound:.3g}")
    same = absent.result.shape == present.result.shape and np.array_equal(absent.result, present.result, equal_nan=True)
    if not same and not (absent.failure or present.failure):
        findings.append("the model depends on the table by another way than what was released")
    findings += [f"a run failed on one of the tables: {_failure(run)}" for run in (absent, present) if run.failure]
    return findings, shares


def _failure(run: Transcript) -> str:
    """Describe a failure, with a remedy where the result of the run is not numeric."""
    no_numbers = run.failure.startswith(("TypeError: float()", "ValueError: could not convert"))
    hint = ". What a run returns must be a number, an array, or a list of these: return the model's coefficients"
    return run.failure + (hint if no_numbers else "")


def gray_box(subject: Subject, *, mu: float = 2.0, pairs: int = 4, seed: int = 0, secure: bool = False) -> GrayBox:
    """Compare runs of a subject on neighbouring tables.

    Parameters
    ----------
    subject : Subject
        Subject of the audit.
    mu : float
        Budget of each run.
    pairs : int
        Number of pairs of runs; half are recorded without the canary, half with it.
    seed : int
        Seed of the first pair.
    secure : bool
        Whether to draw exact noise.
    """
    mu, pairs = checked(subject, mu), positive_integer(pairs=pairs)
    findings: dict[str, None] = {}
    shares: list[float] = []
    for number in range(pairs):
        present = number % 2 == 1
        heard, again = heard_and_replayed(subject, present, mu, seed + number, secure=secure)
        found, used = compare(heard, again)
        findings.update(dict.fromkeys(found))
        shares += used
    return GrayBox(tuple(findings), pairs, len(shares), max(shares, default=0.0))


def checked(subject: Subject, mu: float) -> float:
    """Return mu; raise InvalidArgument unless subject and mu are valid."""
    if not isinstance(subject, Subject):
        got = f"got {type(subject).__name__}: {str(subject)[:60]!r}. Make one from your run, tables and purse"
        others = "privypurse_lab.audits.method_subjects.METHODS has those of the library's methods"
        raise InvalidArgument(f"subject must be a privypurse.audit.Subject; {got}; {others}.")
    return positive(mu=mu)


def heard_and_replayed(
    subject: Subject, present: bool, mu: float, seed: int, *, secure: bool = False
) -> tuple[Transcript, Transcript]:
    """Record a run with or without the canary, and replay it on the other table."""
    heard = record(subject.run, subject.table(present), subject.purse(mu, subject.noise(seed, secure=secure)))
    purse = subject.purse(mu, subject.noise(seed, secure=secure))
    return heard, replay(subject.run, subject.table(not present), purse, heard)


def _share_of_bound(one: Heard, other: Heard) -> float:
    if one.inside is None or other.inside is None or one.inside.shape != other.inside.shape:
        return 0.0
    moved = np.ravel(other.inside - one.inside)
    distance = float(np.ptp(moved)) if one.box.norm is Norm.RANGE else float(np.linalg.norm(moved))
    bound = _declared_bound(one)
    if one.box.norm is Norm.GRADIENT:  # a minimiser: bounded by its mechanism
        bound = one.mechanism.sensitivity(one.box, one.neighbouring)  # type: ignore[attr-defined]
    return distance / bound


def _declared_bound(one: Heard) -> float:
    """Return the bound in the box, which for a sample may be smaller than the one that is priced."""
    declared = one.box.replace_one if one.neighbouring is Neighbouring.REPLACE_ONE else None
    return one.box.bound(one.neighbouring, one.box.norm) if declared is None else declared


def _moved_mu(one: Transcript, other: Transcript) -> float:
    """Return the distance of two runs in mu, at most what they were charged; samples count as 0."""
    squares = [0.0]
    for mine, its in zip(one.releases, other.releases, strict=False):
        if isinstance(mine.mechanism, ExponentialSelection | PermuteAndFlip):
            squares.append(_moved_mu_of_selection(mine, its) ** 2)
        elif mine.inside is not None and its.inside is not None and hasattr(mine.mechanism, "noise_std"):
            distance = float(np.linalg.norm(mine.inside - its.inside)) if mine.box.sample_prob == 1 else 0.0
            squares.append((distance / mine.mechanism.noise_std(mine.box, mine.neighbouring)) ** 2)
    return math.sqrt(math.fsum(squares))


def _moved_mu_of_selection(one: Heard, other: Heard) -> float:
    """Return the least mu that allows the selection probabilities of two runs."""
    if one.inside is None or other.inside is None or one.inside.shape != other.inside.shape:
        return 0.0
    bound = one.box.bound(one.neighbouring, Norm.RANGE)
    logs = [np.asarray(one.mechanism.log_probabilities(each.inside, bound)) for each in (one, other)]  # type: ignore[attr-defined]
    likeliest = np.argsort(logs[0] - logs[1])
    rates = (np.cumsum(np.exp(log[likeliest]))[:-1] for log in logs)
    return max(
        (mu_of(alarms, 1 - found) for alarms, found in zip(*rates, strict=True) if 0 < alarms < found < 1), default=0.0
    )


def _selection_findings(number: int, one: Heard, other: Heard) -> list[str]:
    """Check that the exact privacy losses of a selection are within the charged epsilon."""
    mechanism = one.mechanism
    if not isinstance(mechanism, ExponentialSelection | PermuteAndFlip) or one.inside is None or other.inside is None:
        return []
    bound = one.box.bound(one.neighbouring, Norm.RANGE)
    losses = mechanism.log_probabilities(one.inside, bound) - mechanism.log_probabilities(other.inside, bound)
    # The exponential mechanism bounds the range of the losses, permute-and-flip their size.
    worst = float(np.ptp(losses)) if isinstance(mechanism, ExponentialSelection) else float(np.abs(losses).max())
    paid = mechanism.epsilon
    what = f"selection {number} has privacy losses up to {worst:.3g}, and was charged for epsilon {paid:.3g}"
    return [what] if worst > paid * (1 + SLACK) + SLACK else []


def _difference(one: Heard, other: Heard) -> str:
    names = ("purpose", "mechanism", "noise", "norm", "bound", "shape", "sampling rate")
    for name, mine, its in zip(names, one.terms, other.terms, strict=True):
        if mine != its:
            return f"{name} {str(mine)[:80]} and {str(its)[:80]}"
    return "nothing"
