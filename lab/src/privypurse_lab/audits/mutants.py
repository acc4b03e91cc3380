"""Tests of the audits: planted bugs, each with the audit that must find it."""

import contextlib
import importlib.util
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from privypurse.audit._listening import Transcript, record
from privypurse.audit._residuals import residuals, too_many_repeats
from privypurse.audit._verdicts import HOLDS, REFUTED, Line, gray_box_line, white_box_line
from privypurse.audit.subjects import DELTA, Subject, gaussian_purse
from privypurse.audit.white_box import attack
from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import NoiseSource
from privypurse.losses._linear import Softmax
from privypurse.mechanisms._selection import ExponentialSelection
from privypurse.methods._dp_sgd import DPSGD
from privypurse.methods._nesterov import Nesterov
from privypurse.oracles._softmax import SoftmaxOracle
from privypurse.purse._purse import Purse
from privypurse.training._loop import fit
from privypurse_lab.audits import planted
from privypurse_lab.audits.canaries import with_canary
from privypurse_lab.audits.estimator_subjects import ESTIMATORS
from privypurse_lab.audits.method_subjects import METHODS, method_subject, oracle_of
from privypurse_lab.audits.selections import attack_selection

# Audit that must find a bug; `quick` with fewer runs.
Hunt = Callable[[bool], Line]


@dataclass(frozen=True)
class Mutant:
    """A planted bug."""

    name: str
    bug: str
    plant: Callable[[], contextlib.AbstractContextManager[None]]
    hunt: Hunt
    needs_torch: bool = False


def catch(name: str, *, quick: bool = False) -> Line:
    """Return the result of the audit with a planted bug: "REFUTED" if it was found."""
    mutant = _mutant(name)
    with mutant.plant():
        line = mutant.hunt(quick)
    return replace(line, subject=name, kind="mutant")


def without_the_bug(name: str, *, quick: bool = False) -> Line:
    """Return the result of the same audit without the bug, which must hold."""
    return replace(_mutant(name).hunt(quick), subject=name, kind="without the bug")


def _mutant(name: str) -> Mutant:
    if name not in MUTANTS:
        raise InvalidArgument(f"name must be one of {', '.join(MUTANTS)}; got {name!r}. Pass one of these.")
    return MUTANTS[name]


def _white_box(subject: str, mu: float, runs: int, quick_runs: int, *, secure: bool = False) -> Hunt:
    def hunt(quick: bool) -> Line:
        chosen = METHODS[subject]()
        return white_box_line(chosen, attack(chosen, mu, quick_runs if quick else runs, seed=0, secure=secure), mu)

    return hunt


def _gray_box(make: Callable[[], Subject], mu: float = 1.0) -> Hunt:
    return lambda quick: gray_box_line(make(), mu, pairs=2 if quick else 8, seed=0)


def _selection(quick: bool, *, secure: bool = False) -> Line:
    return attack_selection(ExponentialSelection(0.5), 0.5, draws=1_000 if quick else 10_000, secure=secure)


def _exact_selection(quick: bool) -> Line:
    return _selection(quick, secure=True)


def _keeping(quick: bool) -> Line:
    from privypurse_lab.audits.torch_subjects import keeping

    return _gray_box(keeping)(quick)


def _long_canary() -> Subject:
    """Return a subject with a canary a hundred times as long as rows may be."""
    subject = method_subject("nesterov", Nesterov)

    def table(present: bool) -> Any:
        rows, labels = with_canary(present)
        if present:
            rows[-1] *= 100.0
        return rows, labels

    return replace(subject, table=table)


def _with_constant() -> Subject:
    """Return a model with a constant column, and a canary of the largest length without it."""

    def run(data: Any, purse: Purse) -> FloatArray:
        return fit(oracle_of(data, constant=True), Nesterov(), purse, records=64).point

    return Subject("nesterov", "method", run, with_canary, gaussian_purse)


def _almost_empty() -> Subject:
    """Return one record or none, and small samples, most of which are empty."""
    rare = method_subject("dp-sgd", lambda: DPSGD(sample_prob=0.05, steps=20), in_place=True)
    rows, labels = with_canary(True)

    def table(present: bool) -> Any:
        return (rows[-1:] if present else np.full_like(rows[-1:], np.nan)), labels[-1:]

    return replace(rare, table=table)


def _let_through(name: str) -> Hunt:
    """Return the gray box on a PyTorch loop that must be refused."""

    def subject() -> Subject:
        return cast(Subject, importlib.import_module("privypurse_lab.audits.torch_subjects").REFUSED[name]())

    return _gray_box(subject)


def _three_classes(noise: NoiseSource) -> Transcript:
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((60, 4)), np.arange(60) % 3

    def run(data: Any, purse: Purse) -> FloatArray:
        oracle = SoftmaxOracle(*data, loss=Softmax(classes=3), classes=(0, 1, 2))
        return fit(oracle, Nesterov(), purse, records=60).point

    return record(run, (rows, labels), gaussian_purse(2.0, noise))


def _noise_of_classes(quick: bool) -> Line:
    heard = [_three_classes(NoiseSource(secure=False)) for _ in range(2 if quick else 6)]
    return _noise_line("nesterov, 3 classes", heard)


def _noise_of_processes(quick: bool) -> Line:
    """Run in forked processes, where a copied generator would repeat its noise."""
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        noises = [pool.apply_async(_noise_of_a_process) for _ in range(2 if quick else 6)]
        heard = [transcript.get(timeout=120) for transcript in noises]
    numbers = np.concatenate(heard)
    repeated = numbers.size - np.unique(np.round(np.abs(numbers), 10)).size
    several = too_many_repeats(repeated, numbers.size)
    findings = (f"{repeated} of {numbers.size} noise numbers of several processes are the same",) if several else ()
    verdict = REFUTED if findings else HOLDS
    return Line("noise", "method", "noise", trials=numbers.size, verdict=verdict, findings=findings)


def _noise_of_a_process() -> FloatArray:
    from privypurse.audit._residuals import noise_of

    return noise_of(_three_classes(NoiseSource()))


def _claim_for_one_more_record(quick: bool) -> Line:
    """Use the number of records, and compare tables of n and n + 1 if add/remove is claimed."""

    def run(data: Any, purse: Purse) -> FloatArray:
        return fit(oracle_of(data), Nesterov(), purse, records=len(data[0])).point

    def purse(mu: float, noise: NoiseSource) -> Purse:
        return gaussian_purse(mu, noise, "replace-one")

    subject = Subject("nesterov", "method", run, with_canary, purse)
    run(subject.table(True), paid := purse(1.0, NoiseSource(0)))
    line, claimed = gray_box_line(subject, 1.0, pairs=2, seed=0), paid.certificate().relations["add-remove"].epsilon
    return replace(line, verdict=HOLDS, findings=()) if claimed is None else replace(line, claimed_epsilon=claimed)


def _noise_line(name: str, heard: list[Transcript]) -> Line:
    found = residuals(heard)
    verdict = REFUTED if found.findings else HOLDS
    return Line(name, "method", "noise", delta=DELTA, trials=found.count, verdict=verdict, findings=found.findings)


MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "noise-halved",
            "half of the standard deviation that was paid for",
            planted.noise_halved,
            _white_box("pur-adaptive", 2.0, 800, 200),
        ),
        Mutant(
            "exact-noise-halved",
            "the same for exact noise",
            planted.exact_noise_halved,
            _white_box("pur-adaptive", 2.0, 800, 200, secure=True),
        ),
        Mutant(
            "clip-after-the-sum",
            "gradients are added up before they are clipped",
            planted.clip_after_the_sum,
            _gray_box(_long_canary),
        ),
        Mutant(
            "redraw-not-charged",
            "a second look at a gradient is free",
            planted.redraw_not_charged,
            _gray_box(METHODS["dp-agd"]),
        ),
        Mutant(
            "selection-sign-flipped",
            "Gumbel noise is subtracted from the scores",
            planted.sign_of_selection_flipped,
            _selection,
        ),
        Mutant(
            "conversions-mixed-up",
            "prices in rho of zCDP, the limit in mu squared",
            planted.conversions_mixed_up,
            _white_box("pur-adaptive", 3.0, 1_600, 400),
        ),
        Mutant(
            "bias-after-normalisation",
            "the constant column is added after rows were scaled",
            planted.bias_after_normalisation,
            _gray_box(_with_constant),
        ),
        Mutant(
            "filter-after-release",
            "the noise is drawn before the charge is admitted",
            planted.filter_after_release,
            _gray_box(METHODS["nesterov"]),
        ),
        Mutant(
            "noise-reused-across-classes",
            "all classes get the noise of one",
            planted.noise_reused_across_classes,
            _noise_of_classes,
        ),
        Mutant(
            "noise-reused-across-processes",
            "forked processes share the state of a generator",
            planted.noise_reused_across_processes,
            _noise_of_processes,
        ),
        Mutant(
            "private-divisor",
            "the true number of records decides the step",
            planted.private_divisor,
            _gray_box(METHODS["nesterov"]),
        ),
        Mutant(
            "add-remove-from-replace-one",
            "a certificate under replace-one, where the number of records is public, also claims add/remove",
            planted.add_remove_from_replace_one,
            _claim_for_one_more_record,
        ),
        Mutant(
            "empty-batch-skipped",
            "an empty sample is neither noised nor charged",
            planted.empty_batch_skipped,
            _gray_box(_almost_empty),
        ),
        Mutant(
            "scored-on-training-records",
            "a search scores its trials on the records they learnt from, and pays for one use of them",
            planted.scored_on_training_records,
            _gray_box(ESTIMATORS["search"]),
        ),
        Mutant(
            "seed-left-fixed", "every noise source starts at the same seed", planted.seed_left_fixed, _noise_of_classes
        ),
        Mutant("free-argmin", "ADP-SGD's selection: the least of exact losses", planted.free_argmin, _selection),
        Mutant(
            "noisy-minimum",
            "DP-AGD's selection: exponential noise on losses that are minimised",
            planted.noisy_minimum,
            _selection,
        ),
        Mutant(
            "exact-selection-too-sharp",
            "the exponents of an exact selection are twice as large",
            planted.exact_selection_too_sharp,
            _exact_selection,
        ),
        Mutant(
            "exact-free-argmin",
            "the best score where an exact selection was paid for",
            planted.exact_free_argmin,
            _exact_selection,
        ),
        Mutant(
            "state-not-watched",
            "a module keeps the mean of the records in a parameter that is not trained",
            planted.state_not_watched,
            _keeping,
            needs_torch=True,
        ),
        Mutant(
            "small-integers-tried",
            "a module is tried out on the integers 0 and 1, and divides by the largest of a batch",
            planted.small_integers_tried,
            _let_through("small-integers-tried"),
            needs_torch=True,
        ),
        Mutant(
            "other-calls-untried",
            "a module is tried out in another way than the loop calls it, and there centres by the batch",
            planted.other_calls_untried,
            _let_through("other-calls-untried"),
            needs_torch=True,
        ),
        Mutant(
            "reduction-unread",
            "a loss that adds up is taken for a mean",
            planted.reduction_unread,
            _let_through("reduction-unread"),
            needs_torch=True,
        ),
    )
    if not mutant.needs_torch or importlib.util.find_spec("torch") is not None
}
