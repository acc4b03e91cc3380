"""Train on a file within a budget and write a model folder with certificate, trace and report."""

import contextlib
import json
import math
import pathlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from privypurse.core._checks import positive, probability, shown
from privypurse.core._errors import InvalidArgument, spending_noted
from privypurse.core._formats import counted as counted_noun
from privypurse.core._formats import percent
from privypurse.core._randomness import NoiseSource
from privypurse.estimators import PrivateHuberRegressor, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from privypurse.estimators._base import CUT_SHORT
from privypurse.estimators._curves import (
    COUNT_SHARE,
    HISTOGRAM_SHARE,
    MOST_ENCODED,
    MOST_IN_REGRESSION,
    TURN_HATS_AT,
    buy_knots,
)
from privypurse.estimators._private_statistics import private_quantiles
from privypurse.methods._by_name import method_by_name, ridge_for
from privypurse.purse._certificate import fingerprint
from privypurse.purse._holds import held
from privypurse.purse._opening import check_delta, check_noise_name, part_of
from privypurse.purse._purse import Purse
from privypurse.report._content import Measurement
from privypurse.runs import _rows as reading
from privypurse.runs._account import Account, Forecast, forecast
from privypurse.runs._describe import describe_budget, describe_run, describe_weights, measurements_text, report_of
from privypurse.runs._measure import MEASURE_SHARES, epsilon_beside_measuring, measure, measured_exactly
from privypurse.runs._on_record import counted, held_back, on_record
from privypurse.runs._progress import Progress, Silent, TrainingStage
from privypurse.runs._rehearse import groups_of, noise_intervals
from privypurse.runs._rows import CHECKED, EncodedRows, LeftOut, count_left_out, exactly_left_out
from privypurse.runs.folder import ModelFolder, model_files
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._files import TableFile
from privypurse.tables._schema import ClassTarget, Schema, Source, Target
from privypurse.training._trace import Trace

RANGE_SHARE, MOST_FOR_RANGES = 0.02, 0.15  # of the budget of a run
# Less extreme quantiles are less noisy. A range is widened by this share of its width on either side.
RANGE_QUANTILES, WIDER = (0.05, 0.95), 0.2
RARE = 0.01  # a smaller share of a class gives a remark
MODELS: dict[str, tuple[type[Any], bool]] = {  # with whether they classify
    "logistic": (PrivateLogisticRegression, True),
    "svm": (PrivateLinearSVC, True),
    "ridge": (PrivateRidge, False),
    "huber": (PrivateHuberRegressor, False),
}


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of a training run."""

    data: pathlib.Path  # a file that `TableFile` reads
    target: str  # the column to predict
    epsilon: float  # of this run
    out: pathlib.Path  # folder for the model
    account: Account
    schema: pathlib.Path | None = None  # None drafts one from the data, which no guarantee covers
    buy_ranges: bool = False  # release the ranges that a draft would read from the data
    model: str | None = None  # one of ``MODELS``; by default the first for such a target
    method: str = "auto"
    class_weight: Mapping[str, float] | str | None = None  # by name, or "balanced" by the released class counts
    hold_out: float = 0.1  # share of records to measure the model on
    test: pathlib.Path | None = None  # other records to measure on instead, exactly
    test_public: bool = False  # whether these are declared public
    intervals: bool = True  # estimate how far noise moves the coefficients
    overwrite: bool = False
    delimiter: str | None = None
    encoding: str = "utf-8"
    seed: int | None = None  # for simulations: NOT PRIVATE
    noise: str = "auto"  # "secure": exact or refused; "plain": in floating point
    command: str = ""  # the command line, for the report

    @property
    def share_held_out(self) -> float:
        """Share of records to hold out: none with other records to measure on."""
        return 0.0 if self.test is not None else self.hold_out

    def check(self) -> None:
        """Raise InvalidArgument for wrong settings, without reading a file."""
        positive(epsilon=self.epsilon)
        if self.hold_out:
            probability(hold_out=self.hold_out)
        if not 0 <= self.hold_out <= 0.5:
            raise InvalidArgument(f"expected hold_out from 0 to 0.5, got {self.hold_out:g}. Leave it out for 0.1.")
        if self.model is not None and self.model not in MODELS:
            raise InvalidArgument(f"expected model to be one of {', '.join(MODELS)}, got {shown(self.model)}.")
        check_noise_name(self.noise)
        if self.seed is not None:
            NoiseSource(seed=self.seed)
        method_by_name(self.method)
        for weight in self.class_weight.values() if isinstance(self.class_weight, Mapping) else ():
            positive(class_weight=weight)
        if self.method == "dp-sgd":
            why = "is accounted as a list of releases fixed in advance, which allows no other release"
            raise InvalidArgument(f"method dp-sgd {why}. Use it from Python with training.purse_for, or leave it out.")


@dataclass
class TrainResult:
    """Result of a training run."""

    folder: pathlib.Path
    pipeline: Pipeline
    purse: Purse
    measurements: list[Measurement] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    left_out: tuple[LeftOut, ...] = ()


@spending_noted(call=None)
def train_file(
    settings: TrainSettings,
    progress: Progress | None = None,
    opened: Callable[[Purse, bool], None] | None = None,
    counted_lines: Callable[[LeftOut], None] | None = None,
) -> TrainResult:
    """Train a private model on a file.

    `opened` is called with the purse, and whether its account is new, before anything is spent;
    `counted_lines` before training with the noisy number of lines left out for each cause.

    Guarantees
    ----------
    All that depends on a record and leaves this function was released through the purse, or is
    named on the certificate as not covered. Settings, schema, file and the folder for the model are
    checked before anything is spent.
    """
    progress = progress or Silent()
    settings.check()
    with ModelFolder(settings.out, overwrite=settings.overwrite) as place, contextlib.ExitStack() as stack:
        inputs, purse, is_new = _open(settings, progress)
        if opened is not None:
            opened(purse, is_new)
        run = part_of(purse, settings.epsilon)
        stack.enter_context(held(run))
        for what in (*inputs.schema.uncovered, *inputs.file.uncovered, CHECKED):
            run.declare_uncovered(what)
        if settings.test is not None:
            where = settings.test.name + (f", which {purse.who} declared public" if settings.test_public else "")
            run.declare_uncovered(measured_exactly("the model", where, inputs.schema.target))
        if isinstance(settings.class_weight, Mapping):
            weights = describe_weights(settings.class_weight)
            run.declare_uncovered(f"how the {weights}, which move the intercept, were chosen: they were declared")
        what = f"train {settings.data.name}, target {settings.target}, model {place.folder.name}"
        describe_budget(purse)  # raise now if it cannot be described
        with on_record(purse, run, what, inputs.schema.statement) as record, counted(run, "no model was made"):
            left_out = count_left_out(inputs.file, inputs.left_out, run)
            for one in left_out:
                one.check(inputs.file, inputs.schema.unreadable)
                if counted_lines is not None:
                    counted_lines(one)
            model, schema = _fit(settings, inputs, run, progress, left_out[0].lines)
            # The model is paid for: do not stop before it is written.
            with held_back() as interrupts:
                measurements = _measurements(settings, schema, model, inputs, run, progress)
                intervals = None
                # Keep the paid model if noise cannot be rehearsed, as with a very small budget.
                with contextlib.suppress(Exception):
                    if settings.intervals:
                        intervals = noise_intervals(model, schema, progress, interrupts=interrupts)
                progress.stage("writing the model and its report")
                model.certificate_, model.privacy_spent_ = run.certificate(), run.spent
                model._reported = schema.features, groups_of(schema), intervals
                record["certificate"] = fingerprint(model.certificate_)
                if isinstance(schema.target, ClassTarget):  # predict names of classes, not their indices
                    model.classes, model.class_weight = sorted(schema.target.classes), settings.class_weight
                    model.classes_ = np.array(model.classes)
                pipeline = Pipeline([("columns", TableEncoder(schema)), ("model", model)])
                about = describe_run(settings, schema, pipeline, purse, intervals, left_out)
                place.write(_files(pipeline, about, measurements))
        remarks = _remarks(settings, schema, model, measurements, interrupts)
        if (test := inputs.test) is not None:
            remarks += [f"{test.path.name}: {remark}" for remark in exactly_left_out(test, inputs.test_left_out)]
    return TrainResult(place.folder, pipeline, purse, measurements, remarks, left_out)


@spending_noted(call=None)
def check_training(settings: TrainSettings, progress: Progress | None = None) -> tuple[Forecast, tuple[str, ...]]:
    """Make the checks of `train_file` that need no payment. Write and spend nothing.

    Return what the run would cost and leave, and in words what its budget would be used for.

    Guarantees
    ----------
    Nothing that is returned depends on a record. Whether an error is raised may; certificates of
    later runs name these checks as not covered.
    """
    settings.check()
    with ModelFolder(settings.out, overwrite=settings.overwrite):
        inputs, purse, is_new = _open(settings, progress or Silent(), dry=True)
        found = forecast(settings.account, purse, settings.epsilon, is_new=is_new)
    uses = [f"{percent(reading.SHARE)} counts the lines left out"]
    if settings.schema is not None and (columns := len(inputs.schema.to_buy)):
        uses.append(f"{percent(_share_for_ranges(columns), 0)} releases {counted_noun(columns, 'range')}")
    if settings.schema is not None and (curves := len(inputs.schema.to_bend)):
        uses.append(f"{percent(COUNT_SHARE + HISTOGRAM_SHARE, 0)} releases {counted_noun(curves, 'curve')}")
    if settings.share_held_out:
        least, most = (percent(share, 0) for share in MEASURE_SHARES)
        uses.append(f"{least} to {most} measures the model")
    weights = f"; {describe_weights(settings.class_weight)} move its intercept, for nothing"
    return found, (*uses, f"the rest prepares and trains it{weights if settings.class_weight else ''}")


def _open(settings: TrainSettings, progress: Progress, *, dry: bool = False) -> tuple["_Inputs", Purse, bool]:
    """Read and check all files, then open the account or, if `dry`, only check that it can be opened."""
    if (found := settings.account.find()) is not None:
        part_of(found, settings.epsilon)  # raise before reading a file
    inputs = _read_all(settings, progress)
    purse, is_new = settings.account.open(settings.epsilon, seed=settings.seed, noise=settings.noise, dry=dry)
    check_delta(purse.delta, None)
    if not math.isfinite(purse.epsilon):
        got = f"got {purse.dataset!r}, which is declared not private on its ledger"
        raise InvalidArgument(f"expected a data set with a budget, {got}. Train it from Python.")
    return inputs, purse, is_new


@dataclass
class _Inputs:
    """Contents of the files of a run, read to their ends and checked."""

    file: TableFile
    test: TableFile | None
    schema: Schema
    model: Any
    to_buy: Any = None  # columns whose range is to be released
    rows: tuple[EncodedRows, EncodedRows] | None = None  # to train on and held out; None if ranges are to be released
    aside: Any = None  # rows held out, after the training
    left_out: int = 0  # exact number of records without a target: private
    test_left_out: int = 0


def _read_all(settings: TrainSettings, progress: Progress) -> _Inputs:
    """Read and check all files before an account is opened."""
    paths = [settings.data] if settings.test is None else [settings.data, settings.test]
    file, *others = (TableFile(path, delimiter=settings.delimiter, encoding=settings.encoding) for path in paths)
    test = others[0] if others else None
    if test is not None and test.path.samefile(file.path):
        twice = f"expected other records in test than in data, got {test.path.name!r} twice"
        raise InvalidArgument(f"{twice}. Leave --test out to hold out a part of the records.")
    schema = reading.describe_columns(file, settings.target, settings.schema, progress)
    schema = schema.buying_ranges() if settings.buy_ranges else schema
    file.require(schema.names)
    model = unfitted_model(reading.target_of(schema), settings.method, settings.model)
    inputs = _Inputs(file, test, schema, _weighted(model, reading.target_of(schema), settings.class_weight))
    if test is not None:
        test.require(schema.names)
        inputs.test_left_out = reading.check_readable(test, schema, progress)
    if schema.to_buy:
        inputs.to_buy, inputs.left_out = reading.read_columns(file, schema, progress)
    else:
        inputs.rows = reading.read_rows(file, schema, progress, hold_out=settings.share_held_out, seed=settings.seed)
        inputs.left_out = inputs.rows[0].left_out
        reading.check_some(len(inputs.rows[0].y), file.path.name)
    return inputs


def _fit(settings: TrainSettings, inputs: _Inputs, run: Purse, progress: Progress, lines: float) -> tuple[Any, Schema]:
    """Release ranges if needed, and train. Return model and final schema. `lines` is their noisy number."""
    schema, model = inputs.schema, inputs.model
    if inputs.to_buy is not None:
        schema = _buy_ranges(schema, inputs.to_buy, run, progress, seeded=settings.seed is not None)
        inputs.to_buy = None
    hold_out = settings.share_held_out
    how: Any = {"hold_out": hold_out, "seed": settings.seed}
    train, inputs.aside = inputs.rows or reading.read_rows(inputs.file, schema, progress, **how)
    inputs.rows = None  # free the memory
    if schema.to_bend:
        plain, seeded = schema, settings.seed is not None
        schema = _buy_curves(plain, train.X, run, progress, seeded=seeded)
        train, inputs.aside = reading.bend(train, plain, schema), reading.bend(inputs.aside, plain, schema)
        model._turn_at = TURN_HATS_AT
    model._parts = groups_of(schema)
    progress.stage("preparing: counts, lengths, centre and spread")
    before = 1 - run.fraction_left
    model.set_params(purse=run, epsilon=epsilon_beside_measuring(run, hold_out * lines) if hold_out > 0 else None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", CUT_SHORT)  # reported as a remark
        model.set_params(callbacks=[TrainingStage(progress)], copy_X=False).fit(train.X, train.y)
    model.set_params(callbacks=(), purse=None, copy_X=True)
    model.trace_ = _within_run(model.trace_, before, 1 - run.fraction_left)
    return model, schema


def _files(pipeline: Pipeline, about: dict[str, Any], measurements: list[Measurement]) -> dict[str, str]:
    files = model_files(pipeline) | {"run.json": json.dumps(about, indent=1, allow_nan=False)}
    files["measurements.json"] = measurements_text(measurements)
    try:
        return files | {"report.html": report_of(pipeline, about, measurements)}
    except Exception as error:  # keep the paid model
        warnings.warn(f"the report could not be made ({type(error).__name__}). Run `privypurse report`.", stacklevel=2)
        return files


def unfitted_model(target: Target, method: str, name: str | None = None) -> Any:
    """Return a model for encoded rows: one of ``MODELS``, by default the first for such a target."""
    classifies = isinstance(target, ClassTarget)
    what, fitting = ("classes", "logistic") if classifies else ("numbers", "ridge")
    kind, for_classes = MODELS[name or fitting]
    if for_classes != classifies:
        expected = f"expected a model for {what}, as the schema describes the target {target.name!r}, got {name}"
        raise InvalidArgument(f"{expected}. Pass --model {fitting}, or change the target in the schema.")
    model = kind(method=method, l2=ridge_for(method))
    if isinstance(target, ClassTarget):
        model.set_params(classes=list(range(len(target.classes))))
    else:
        model.set_params(target_bounds=target.range)
    model._declared_scales = True
    return model


def _weighted(model: Any, target: Target, weights: Mapping[str, float] | str | None) -> Any:
    """Set the weights of classes, which are given by name; the model is trained on their places."""
    if weights is None:
        return model
    if not isinstance(target, ClassTarget):
        numbers = f"the target {target.name!r} has a range"
        raise InvalidArgument(f"expected class_weight with a target of classes only; {numbers}. Leave it out.")
    if isinstance(weights, Mapping):
        listed = sorted(target.classes)
        if unknown := [name for name in weights if name not in listed]:
            # Classes that were read from the data are not quoted.
            what = "classes of the target" if target.source is Source.DATA else ", ".join(map(repr, listed[:5]))
            raise InvalidArgument(
                f"expected class_weight for {what}, got {shown(unknown[0])}. Write a class as in the schema."
            )
        weights = {listed.index(name): weight for name, weight in weights.items()}  # type: ignore[misc]
    return model.set_params(class_weight=weights)


def _share_for_ranges(columns: int) -> float:
    return min(RANGE_SHARE * columns, MOST_FOR_RANGES)


def _buy_ranges(schema: Schema, raw: Any, run: Purse, progress: Progress, *, seeded: bool) -> Schema:
    """Release the ranges of columns, widened."""
    progress.stage("buying ranges of columns")
    low, high = private_quantiles(raw, RANGE_QUANTILES, purse=run, share=_share_for_ranges(raw.shape[1]))
    bought = {}
    for index, column in enumerate(schema.to_buy):
        width = float(high[index] - low[index])
        pair = float(low[index]) - WIDER * width, float(high[index]) + WIDER * width
        bought[column.name] = pair if pair[0] < pair[1] else (pair[0] - 1.0, pair[1] + 1.0)  # not empty
    # Seeded noise is not private, so such a range does not count as released.
    return schema.with_ranges(bought, Source.DATA if seeded else Source.BOUGHT)


def _buy_curves(schema: Schema, X: Any, run: Purse, progress: Progress, *, seeded: bool) -> Schema:
    """Release knots of the curves of columns, from their encoded numbers."""
    progress.stage("releasing knots of curves")
    starts = np.cumsum([0, *(len(column.features) for column in schema.columns)])
    place = {column.name: int(start) for column, start in zip(schema.columns, starts, strict=False)}
    numbers = [reading.scaled_back(X[:, [place[column.name]]], column) for column in schema.to_bend]
    ranges = [column.range for column in schema.to_bend if column.range is not None]
    most = MOST_ENCODED if isinstance(schema.target, ClassTarget) else MOST_IN_REGRESSION
    most -= len(schema.features) - len(ranges)  # of other columns
    knots = buy_knots(np.column_stack(numbers), ranges, run, most=most)
    bought = {column.name: own.tolist() for column, own in zip(schema.to_bend, knots, strict=True)}
    return schema.with_knots(bought, Source.DATA if seeded else Source.BOUGHT)


def _within_run(trace: Trace, before: float, after: float) -> Trace:
    """Return a trace with `fraction_left` of the run's budget, spent to these shares by the fit."""
    if not trace.steps or trace.steps[-1].fraction_left >= 1:
        return trace
    share = (after - before) / (1 - trace.steps[-1].fraction_left)
    steps = [replace(step, fraction_left=1 - before - share * (1 - step.fraction_left)) for step in trace.steps]
    return replace(trace, steps=steps)


def _measurements(
    settings: TrainSettings, schema: Schema, model: Any, inputs: _Inputs, run: Purse, progress: Progress
) -> list[Measurement]:
    test = inputs.test
    if schema.target is None or (test is None and not settings.hold_out):
        return []
    # Keep the paid model if the budget was spent by others meanwhile or the file is gone.
    with contextlib.suppress(Exception):
        if test is None:
            progress.stage("measuring on the records set aside")
            share = run.fraction_left
            measured = measure(model, inputs.aside, schema.target, on="records set aside", purse=run, schema=schema)
            return [replace(measured, share=share)]
        rows, _ = reading.read_rows(test, schema, progress)
        return [measure(model, rows, schema.target, on=test.path.name, public=settings.test_public)]
    return []


def _remarks(
    settings: TrainSettings, schema: Schema, model: Any, measurements: list[Measurement], interrupts: list[int]
) -> list[str]:
    """Return remarks for the user, from released values only."""
    remarks = []
    if isinstance(schema.target, ClassTarget) and model.preparation_.log_odds is not None:
        for name, share in zip(sorted(schema.target.classes), np.exp(model.preparation_.log_odds), strict=True):
            if share < RARE:
                spelt = f"class {name!r} has few or no records. Is it spelt as in {settings.data.name}?"
                remarks.append(f"{spelt} Rows whose target is not listed were left out.")
    if model.stop_reason_ == "others":
        others = "others spent from the same budget meanwhile, which does not allow all planned steps"
        remarks.append(f"{CUT_SHORT} after {counted_noun(model.n_iter_, 'step')}: {others}.")
    if (settings.hold_out or settings.test is not None) and not measurements:
        why = "others may have spent the rest of the budget, or the file is gone"
        remarks.append(f"the model could not be measured: {why}.")
    if settings.buy_ranges and all(column.source is not Source.BOUGHT for column in schema.columns):
        remarks.append("--buy-ranges had nothing to buy: the schema declares all ranges.")
    if interrupts:
        remarks.append("interrupted after the training: the model was written, the remaining work was skipped.")
    return remarks
