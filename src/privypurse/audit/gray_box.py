"""The gray-box audit: same randomness, same answers, neighbouring tables; then everything but the boxes must be the same.

It needs no statistics: one pair of runs shows a broken bound, a question or a noise level that depends on a record, a release
that was not paid for, or a model that depends on more than what was released.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from privypurse.audit.listening import Heard, Transcript, record, replay
from privypurse.audit.lower_bounds import mu_of
from privypurse.audit.subjects import Subject
from privypurse.core.checks import positive, positive_integer
from privypurse.core.errors import InvalidArgument
from privypurse.core.sensitive import Norm
from privypurse.mechanisms.selection import ExponentialSelection, PermuteAndFlip

# Bounds hold for numbers as computed; their difference is rounded once more here.
SLACK = 1e-9


@dataclass(frozen=True)
class GrayBox:
    """What the comparison of neighbouring runs found.

    Parameters
    ----------
    findings : tuple of str
        What is wrong, in words; empty if nothing is.
    pairs : int
        How many pairs of runs were compared.
    releases : int
        How many pairs of boxes.
    tightest : float
        The largest distance between two boxes, as a share of the bound: 1 means that the record uses the bound up.
    """

    findings: tuple[str, ...]
    pairs: int
    releases: int
    tightest: float


def compare(absent: Transcript, present: Transcript) -> tuple[list[str], list[float]]:
    """Return what is wrong with a pair of runs, and how much of each bound the record used up.

    Parameters
    ----------
    absent, present : Transcript
        A run that was heard and its replay on a neighbouring table, in either order.
    """
    findings = []
    if len(absent.releases) != len(present.releases):
        findings.append(
            f"the number of releases depends on one record: {len(absent.releases)} and {len(present.releases)}"
        )
    for run in (absent, present):
        made, late = len(run.releases), sum(not heard.paid_first for heard in run.releases)
        if late:
            findings.append(f"{late} of {made} releases were made before, or without, payment")
        if run.charged < made:
            findings.append(f"{made} releases were made and {run.charged} are on the ledger")
    shares = []
    for number, (one, other) in enumerate(zip(absent.releases, present.releases, strict=False), start=1):
        if one.terms != other.terms:
            findings.append(f"release {number} ({one.what}) depends on one record: {_difference(one, other)}")
        share, bound = _share_of_bound(one, other), one.box.bound(one.neighbouring, one.box.norm)
        shares.append(share)
        if share > 1 + SLACK:
            findings.append(
                f"release {number} ({one.what}) moves by {share:.3g} times its declared bound of {bound:g} ({one.box.norm.value})"
            )
        findings += _selection_findings(number, one, other)
        if one.trial is not None and other.trial is not None:
            found, used = compare(one.trial, other.trial)
            findings += [f"in the best trial of release {number}, {finding}" for finding in found]
            shares += used
            moved = _moved_mu(one.trial, other.trial)
            if moved > bound * (1 + SLACK):
                findings.append(
                    f"the best trial of release {number} moves by mu {moved:.3g}, and each may by {bound:.3g}"
                )
    same = absent.result.shape == present.result.shape and np.array_equal(absent.result, present.result, equal_nan=True)
    if not same and not (absent.failure or present.failure):
        findings.append("the model depends on the table by another way than what was released")
    findings += [f"a run failed on one of the tables: {_failure(run)}" for run in (absent, present) if run.failure]
    return findings, shares


def _failure(run: Transcript) -> str:
    """Say why a run failed, and what to do where it returned something that is no model."""
    no_numbers = run.failure.startswith(("TypeError: float()", "ValueError: could not convert"))
    hint = ". What a run returns must be a number, an array, or a list of these: return the model's coefficients"
    return run.failure + (hint if no_numbers else "")


def gray_box(subject: Subject, *, mu: float = 2.0, pairs: int = 4, seed: int = 0, secure: bool = False) -> GrayBox:
    """Compare neighbouring runs of a subject.

    Parameters
    ----------
    subject : Subject
        What to audit.
    mu : float
        The budget to run it at.
    pairs : int
        How many pairs of runs; half of them are heard without the canary, half with it.
    seed : int
        Of the first pair.
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
    """Refuse what is no subject, and a budget that is none; return the budget."""
    if not isinstance(subject, Subject):
        raise InvalidArgument(
            f"subject must be a privypurse.audit.Subject; got {type(subject).__name__}: {str(subject)[:60]!r}. Make one of your "
            "run, your tables and a purse; privypurse.audit.method_subjects.METHODS has those of the library's methods."
        )
    return positive(mu=mu)


def heard_and_replayed(
    subject: Subject, present: bool, mu: float, seed: int, *, secure: bool = False
) -> tuple[Transcript, Transcript]:
    """Run a subject with or without the canary, and again the other way with the same answers."""
    heard = record(subject.run, subject.table(present), subject.purse(mu, subject.noise(seed, secure=secure)))
    purse = subject.purse(mu, subject.noise(seed, secure=secure))
    return heard, replay(subject.run, subject.table(not present), purse, heard)


def _share_of_bound(one: Heard, other: Heard) -> float:
    if one.inside is None or other.inside is None or one.inside.shape != other.inside.shape:
        return 0.0
    moved = np.ravel(other.inside - one.inside)
    distance = float(np.ptp(moved)) if one.box.norm is Norm.RANGE else float(np.linalg.norm(moved))
    bound = one.box.bound(one.neighbouring, one.box.norm)
    if one.box.norm is Norm.GRADIENT:  # a minimiser: as far as its mechanism says that it can move
        bound = one.mechanism.sensitivity(one.box, one.neighbouring)  # type: ignore[attr-defined]
    return distance / bound


def _moved_mu(one: Transcript, other: Transcript) -> float:
    """Return the mu that the releases of two runs lie apart: no more than they were charged for; samples are not counted."""
    squares = [0.0]
    for mine, its in zip(one.releases, other.releases, strict=False):
        if isinstance(mine.mechanism, ExponentialSelection | PermuteAndFlip):
            squares.append(_moved_mu_of_selection(mine, its) ** 2)
        elif mine.inside is not None and its.inside is not None and hasattr(mine.mechanism, "noise_std"):
            distance = float(np.linalg.norm(mine.inside - its.inside)) if mine.box.sample_prob == 1 else 0.0
            squares.append((distance / mine.mechanism.noise_std(mine.box, mine.neighbouring)) ** 2)
    return math.sqrt(math.fsum(squares))


def _moved_mu_of_selection(one: Heard, other: Heard) -> float:
    """Return the least mu that allows two runs to choose as they do."""
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
    """Enumerate a selection on both tables: the privacy losses of any two outcomes must lie within the charged epsilon."""
    mechanism = one.mechanism
    if not isinstance(mechanism, ExponentialSelection | PermuteAndFlip) or one.inside is None or other.inside is None:
        return []
    bound = one.box.bound(one.neighbouring, Norm.RANGE)
    losses = mechanism.log_probabilities(one.inside, bound) - mechanism.log_probabilities(other.inside, bound)
    # The exponential mechanism bounds the range of the losses, permute-and-flip their size.
    worst = float(np.ptp(losses)) if isinstance(mechanism, ExponentialSelection) else float(np.abs(losses).max())
    if worst > mechanism.epsilon * (1 + SLACK) + SLACK:
        return [
            f"selection {number} has privacy losses up to {worst:.3g}, and was charged for epsilon {mechanism.epsilon:.3g}"
        ]
    return []


def _difference(one: Heard, other: Heard) -> str:
    names = ("purpose", "mechanism", "noise", "norm", "bound", "shape", "sampling rate")
    for name, mine, its in zip(names, one.terms, other.terms, strict=True):
        if mine != its:
            return f"{name} {str(mine)[:80]} and {str(its)[:80]}"
    return "nothing"


def charged_mu(transcript: Transcript) -> float:
    """Return the mu that the releases of a run add up to, from its mechanisms and boxes alone: a second count."""
    from privypurse.accounting.gdp import mu_squared

    charges = (heard.mechanism.charge(heard.box, heard.neighbouring) for heard in transcript.releases)
    return math.sqrt(math.fsum(itertools.chain([0.0], map(mu_squared, charges))))
