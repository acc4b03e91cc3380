"""[RAW DATA] Compare methods and budgets on one table, NOT PRIVATE or charged to its purse."""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge

from privypurse.accounting import convert
from privypurse.core._checks import positive, shown
from privypurse.core._errors import BudgetExhausted, InvalidArgument, spending_noted
from privypurse.core._randomness import NoiseSource
from privypurse.methods._by_name import method_by_name
from privypurse.purse._holds import held
from privypurse.purse._opening import part_of
from privypurse.purse._purse import Purse
from privypurse.report._content import Comparison, Entry
from privypurse.runs._measure import epsilon_beside_measuring, measure
from privypurse.runs._on_record import counted, on_record
from privypurse.runs._progress import Progress
from privypurse.runs._rows import CHECKED, SHARE, EncodedRows, count_left_out, exactly_left_out, read_rows, target_of
from privypurse.runs._train import unfitted_model
from privypurse.tables._files import TableFile
from privypurse.tables._schema import ClassTarget, Schema, Target

HOLD_OUT = 0.2
NOT_PRIVATE = (
    "NOT PRIVATE: every fit was a simulation with repeatable noise, and was measured exactly. Do not publish it, and do not "
    "choose by it: a choice made on private records costs privacy too. Pay for the comparison (--pay), or compare public data."
)
PAID = "Paid for: every figure is a noisy release from the data set's purse, so choosing by them is free."


def check_choices(methods: Sequence[str], epsilons: Sequence[float], repetitions: int) -> None:
    """Raise InvalidArgument for unknown methods, wrong epsilons or nothing to compare."""
    for name in methods:
        method_by_name(name)
        if name == "dp-sgd":
            raise InvalidArgument("methods cannot include dp-sgd, which has no price in Gaussian DP. Leave it out.")
    for epsilon in epsilons:
        positive(epsilon=epsilon)
    if not methods or not epsilons or repetitions < 1:
        got = f"{shown(list(methods))}, {shown(list(epsilons))} and {repetitions}"
        raise InvalidArgument(f"expected at least one of methods, epsilons and repeats, got {got}. Pass one of each.")


def compare_not_private(
    file: TableFile, schema: Schema, methods: Sequence[str], epsilons: Sequence[float], repeats: int, progress: Progress
) -> Comparison:
    """Compare by simulation, measured exactly, each repetition with its own split and seed."""
    target = _target(schema)
    rows, _ = read_rows(file, schema, progress)
    found: dict[tuple[str, float | None], list[float]] = {}
    progress.stage("comparing", repeats * (len(methods) * len(epsilons) + 2))
    done = 0
    for repetition in range(repeats):
        out = np.random.default_rng(repetition).random(len(rows.y)) < HOLD_OUT
        train, test = EncodedRows(rows.X[~out], rows.y[~out]), EncodedRows(rows.X[out], rows.y[out])
        for name, epsilon, model in _candidates(target, methods, epsilons, repetition):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(train.X, train.y)
            result = measure(model, test, target, on="records set aside")
            found.setdefault((name, epsilon), []).append(result.value)
            done += 1
            progress.update(done, name)
    entries = tuple(
        Entry(name, epsilon, float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0)
        for (name, epsilon), values in found.items()
    )
    lost = [f"{file.path.name}: {remark}" for remark in exactly_left_out(file, rows.left_out)]
    return Comparison(_metric(target), False, " ".join([NOT_PRIVATE, *lost]), repeats, entries)


@spending_noted(call=None)
def compare_paid(
    file: TableFile,
    schema: Schema,
    methods: Sequence[str],
    epsilons: Sequence[float],
    purse_to_charge: Callable[[], Purse],
    progress: Progress,
) -> Comparison:
    """Compare with noisy releases: each fit costs its epsilon, of which 3 % measure it.

    `purse_to_charge` is called when the file has been read. If its purse does not hold enough for
    all fits, nothing is spent.
    """
    check_choices(methods, epsilons, 1)
    target = _target(schema)
    train, test = read_rows(file, schema, progress, hold_out=HOLD_OUT)
    purse = purse_to_charge()
    run = part_of(purse, price(methods, epsilons, purse.delta))
    entries: list[Entry] = []
    note, what = PAID, f"compare {', '.join(methods)} on {file.path.name}"
    with held(run), counted(run, "the figures are lost"), on_record(purse, run, what, schema.statement):
        for uncovered in (*schema.uncovered, *file.uncovered, CHECKED):
            run.declare_uncovered(uncovered)
        left_out = count_left_out(file, train.left_out, run)
        for one in left_out:
            one.check(file, schema.unreadable)
        note = " ".join([PAID, *(f"In {file.path.name}: {one.remark}" for one in left_out)])
        progress.stage("comparing", len(methods) * len(epsilons))
        for epsilon, name in itertools.product(epsilons, methods):
            try:
                # A share counted lines. Rounding of the sum may leave the last fit slightly less.
                mu = convert.gdp_mu(epsilon, purse.delta) * math.sqrt(1 - SHARE)
                own = part_of(run, min(convert.gdp_epsilon(mu, purse.delta), run.remaining.epsilon))
                spend = epsilon_beside_measuring(own, HOLD_OUT * left_out[0].lines)
                model = unfitted_model(target, name).set_params(epsilon=spend, purse=own)
                model.fit(train.X, train.y)
                result = measure(model, test, target, on="records set aside", purse=own, schema=schema)
            except BudgetExhausted:
                if not entries:
                    raise
                note = f"{note} Another process spent the rest of the budget: the comparison is not complete."
                break
            half = max((result.high or 0.0) - result.value, result.value - (result.low or 0.0))
            entries.append(Entry(name, epsilon, result.value, half))
            progress.update(len(entries), name)
    return Comparison(_metric(target), True, note, 1, tuple(entries))


def price(methods: Sequence[str], epsilons: Sequence[float], delta: float) -> float:
    """Return the total epsilon of a paid comparison. Squares of mu add up, epsilons do not."""
    total = math.fsum(convert.gdp_mu(epsilon, delta) ** 2 for epsilon in epsilons) * len(methods)
    return convert.gdp_epsilon(math.sqrt(total), delta)


def _candidates(
    target: Target, methods: Sequence[str], epsilons: Sequence[float], seed: int
) -> Iterator[tuple[str, float | None, Any]]:
    for epsilon, name in itertools.product(epsilons, methods):
        purse = Purse(epsilon, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=seed))
        yield name, epsilon, unfitted_model(target, name).set_params(epsilon=None, purse=purse)
    classifies = isinstance(target, ClassTarget)
    yield "scikit-learn, not private", None, LogisticRegression(max_iter=1000) if classifies else Ridge()
    yield "always the same answer", None, DummyClassifier() if classifies else DummyRegressor()


def _metric(target: Target) -> str:
    return "accuracy" if isinstance(target, ClassTarget) else "mean absolute error"


def _target(schema: Schema) -> Target:
    target = target_of(schema)
    if schema.to_buy:
        raise InvalidArgument(f"range of column {schema.to_buy[0].name!r} is to be bought. Declare it to compare.")
    return target
