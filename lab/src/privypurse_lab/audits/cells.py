"""Cells of audits: functions of plain arguments that run in other processes.

Each returns lines, or scores that are joined with those of other cells first.
"""

import contextlib
import functools
import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.audit._verdicts import HOLDS, REFUTED, Line, gray_box_line, noise_line
from privypurse.audit.subjects import Subject
from privypurse.audit.white_box import attack
from privypurse.core._randomness import NoiseSource
from privypurse.methods._auto import Auto
from privypurse.methods._nesterov import Nesterov
from privypurse.methods._noisy_pgd import NoisyPGD
from privypurse.methods._pur import PUR, AdaptivePUR
from privypurse.methods.dynamic import Dynamic
from privypurse.purse._purse import Purse
from privypurse.training._plan import Method
from privypurse_lab.papers.cells import Result

AS_PUBLISHED_SUFFIX = "-as-published"

# Group -> module of this package, and the dict in it that makes the subjects.
SUBJECTS = {
    "methods": ("method_subjects", "METHODS"),
    "estimators": ("estimator_subjects", "ESTIMATORS"),
    "pytorch": ("torch_subjects", "TORCH"),
}
INTEGRATED = "objective-perturbation-integrated"
DRAWN = "selections-as-drawn"
SELECTIONS = {"exponential-mechanism": "ExponentialSelection", "permute-and-flip": "PermuteAndFlip"}
# Methods that release only full-batch gradients.
ONE_RUN: dict[str, Callable[[], Method]] = {
    "auto": Auto,
    "nesterov": Nesterov,
    "noisy-pgd": NoisyPGD,
    "pur-nonconvex": lambda: PUR("non-convex"),
    "pur-convex": lambda: PUR("convex"),
    "pur-adaptive": AdaptivePUR,
    "dynamic": Dynamic,
}


@functools.cache
def subject_named(group: str, name: str) -> Subject:
    """Return a subject, cached so that expensive planning is done once."""
    subject: Subject = makers(group)[name]()
    planned: dict[float, FixedSchedule] = {}

    def purse(mu: float, noise: NoiseSource) -> Purse:
        # Filters have no state, so purses share them: calibrating a schedule takes a second.
        if mu in planned:
            return Purse.with_filter(planned[mu], noise=noise)
        opened = subject.purse(mu, noise)
        if group == "methods" and isinstance(opened.filter, FixedSchedule):
            planned[mu] = opened.filter
        return opened

    return replace(subject, purse=purse)


def gray_box_cell(group: str, name: str, mu: float, pairs: int, seed: int, secure: bool) -> Result:
    """Compare neighbouring runs."""
    with _quiet():
        line = gray_box_line(subject_named(group, name), mu, pairs=pairs, seed=seed, secure=secure)
    return {"lines": [line.to_json()]}


def noise_cell(group: str, name: str, mu: float, runs: int, seed: int, secure: bool) -> Result:
    """Audit the noise from the operating system's entropy; the seed only identifies the audit."""
    named = subject_named(group, name)
    with _quiet():
        return {"lines": [noise_line(named, mu, runs=runs, secure=secure).to_json()]}


def attack_cell(group: str, name: str, mu: float, runs: int, seed: int, secure: bool) -> Result:
    """Score some runs with and without the canary."""
    with _quiet():
        scores = attack(subject_named(group, name), mu, runs, seed, secure=secure)
    arrays = ("absent", "present", "models_absent", "models_present")
    return {**{each: getattr(scores, each).tolist() for each in arrays}, "findings": list(scores.findings)}


def one_run_cell(name: str, mu: float, seed: int, secure: bool) -> Result:
    """Guess the coins of many canaries from one run."""
    from privypurse_lab.audits.one_run import one_run, one_run_line

    shown = one_run(ONE_RUN[name], mu, seed=seed, secure=secure)
    return {"lines": [one_run_line(name, "method", shown).to_json()]}


def enumeration_cell(name: str, epsilon: float, candidates: int) -> Result:
    """Enumerate a selection over adversarial scores."""
    from privypurse import mechanisms
    from privypurse_lab.audits.exact import enumerate_selection

    selection = getattr(mechanisms, SELECTIONS[name])(epsilon)
    worst = enumerate_selection(
        lambda scores: selection.log_probabilities(scores, 1.0), score_range=1.0, candidates=candidates
    )
    # The exponential mechanism is charged for the range of losses, permute-and-flip for their size.
    shown = worst.range if SELECTIONS[name] == "ExponentialSelection" else worst.epsilon
    line = Line(
        f"{name} ({candidates})",
        "mechanism",
        "enumeration",
        claimed_epsilon=epsilon,
        shown_epsilon=shown,
        delta=0.0,
        confidence=1.0,
        trials=worst.cases,
        verdict=REFUTED if shown > epsilon * (1 + 1e-9) else HOLDS,
    )
    return {"lines": [line.to_json()]}


def drawn_cell(quick: bool, seed: int) -> Result:
    """Attack selections with plain and exact noise, and enumerate the exact distribution."""
    with _quiet():
        return {"lines": [line.to_json() for line in found("selections", "selection_lines")(quick, seed=seed)]}


def integration_cell(noise_multiplier: float, curvature_ratio: float, epsilon: float) -> Result:
    """Integrate objective perturbation: its epsilon at the delta claimed with `epsilon`."""
    from privypurse_lab.audits.exact import integrate_objective_perturbation as integrate

    exact = integrate(noise_multiplier, curvature_ratio, epsilon)
    low, high = (epsilon, 2 * epsilon) if exact.delta > exact.claimed_delta else (0.0, epsilon)
    for _ in range(10):  # from below: never more than the true value
        middle = (low + high) / 2
        above = integrate(noise_multiplier, curvature_ratio, middle).delta > exact.claimed_delta
        low, high = (middle, high) if above else (low, middle)
    line = Line(
        f"objective-perturbation ({noise_multiplier:g}, {curvature_ratio:g})",
        "mechanism",
        "integration",
        claimed_epsilon=epsilon,
        shown_epsilon=low,
        delta=exact.claimed_delta,
        confidence=1.0,
        trials=4,
        verdict=REFUTED if exact.delta > exact.claimed_delta * (1 + 1e-9) else HOLDS,
    )
    return {"lines": [line.to_json()]}


def mutant_cell(name: str, quick: bool) -> Result:
    """Audit the library with and without a planted bug."""
    with _quiet():
        lines = [found("mutants", function)(name, quick=quick) for function in ("catch", "without_the_bug")]
        return {"lines": [line.to_json() for line in lines]}


def published_cell(name: str, quick: bool) -> Result:
    """Attack a published algorithm."""
    with _quiet():
        return {
            "lines": [found("published", "AS_PUBLISHED")[name.removesuffix(AS_PUBLISHED_SUFFIX)](quick=quick).to_json()]
        }


def rounding_cell(name: str, quick: bool) -> Result:
    """Attack the last digits of noise, in floating point and exact."""
    with _quiet():
        return {"lines": [line.to_json() for line in found("rounding_attacks", "rounding_lines")(quick=quick)]}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warning that a run is a simulation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def makers(group: str) -> Mapping[str, Callable[[], Subject]]:
    """Return functions that make the subjects of a group, by name."""
    made: Mapping[str, Callable[[], Subject]] = found(*SUBJECTS[group])
    return made


def found(module: str, name: str) -> Any:
    """Return an attribute of a module of this package, imported on use."""
    return getattr(importlib.import_module(f"privypurse_lab.audits.{module}"), name)
