"""From a file and a budget to a model folder with its certificate, trace and report."""

import contextlib
import json
import math
import pathlib
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from privypurse.core.checks import positive, probability, shown
from privypurse.core.errors import InvalidArgument
from privypurse.core.randomness import NoiseSource
from privypurse.estimators import PrivateHuberRegressor, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from privypurse.jobs.account import Account
from privypurse.jobs.budget import describe_budget
from privypurse.jobs.describe import describe_run, report_of
from privypurse.jobs.interrupts import Interrupts, held_back
from privypurse.jobs.measure import epsilon_beside_measuring, measure
from privypurse.jobs.noise_intervals import noise_intervals
from privypurse.jobs.on_record import counted, on_record
from privypurse.jobs.plan import ridge_for
from privypurse.jobs.progress import Progress, Silent, TrainingStage
from privypurse.jobs.rows import CHECKED, Rows, check_readable, check_some, read_columns, read_rows
from privypurse.methods.by_name import method_by_name
from privypurse.preprocessing.private_statistics import private_quantiles
from privypurse.purse.certificate_check import fingerprint
from privypurse.purse.opening import check_delta, check_noise_name, part_of
from privypurse.purse.purse import Purse
from privypurse.report.content import Measurement
from privypurse.store.folder import ModelFolder, model_files
from privypurse.tables.draft import draft_schema
from privypurse.tables.encoder import TableEncoder
from privypurse.tables.files import TableFile
from privypurse.tables.schema import ClassTarget, Schema, Source
from privypurse.tables.schema_file import read_schema
from privypurse.training.trace import Trace

# Shares of the budget of a run.
RANGE_SHARE, MOST_FOR_RANGES = 0.02, 0.15
# Less extreme ones are bought more exactly; the range is then made wider by this part of its width on either side.
RANGE_QUANTILES, WIDER = (0.05, 0.95), 0.2
# A class with a smaller share of the records than this is worth a remark.
RARE = 0.01
MODELS: dict[str, tuple[type[Any], bool]] = {  # and whether they classify
    "logistic": (PrivateLogisticRegression, True),
    "svm": (PrivateLinearSVC, True),
    "ridge": (PrivateRidge, False),
    "huber": (PrivateHuberRegressor, False),
}


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What to train, on what, and what it may cost.

    Parameters
    ----------
    data : path
        A CSV or Parquet file.
    target : str
        Name of the column to predict.
    epsilon : float
        What this run may spend.
    out : path
        The model's folder.
    account : Account
        Who pays.
    schema : path or None
        The description of the columns; None drafts one from the data, which no guarantee covers.
    buy_ranges : bool
        Buy the ranges of number columns that a draft would read from the data.
    model : str or None
        One of ``MODELS``; by default logistic regression for classes, ridge for numbers.
    method : str
        How to descend.
    hold_out : float
        Share of the records that is set aside to measure the model, for a share of 3 % of the run's budget. 0 for none.
    test : path or None
        Other records to measure on, instead.
    test_public : bool
        Whether those are declared public.
    intervals : bool
        Whether to rehearse how far noise moves the coefficients.
    overwrite : bool
        Replace the model that is there.
    delimiter, encoding
        Of CSV files.
    seed : int or None
        For simulations: NOT PRIVATE.
    noise : {"auto", "secure", "plain"}
        How noise is drawn: exactly wherever that costs little; exactly or not at all; in floating point.
    command : str
        What a person typed, for the report.
    """

    data: pathlib.Path
    target: str
    epsilon: float
    out: pathlib.Path
    account: Account
    schema: pathlib.Path | None = None
    buy_ranges: bool = False
    model: str | None = None
    method: str = "auto"
    hold_out: float = 0.1
    test: pathlib.Path | None = None
    test_public: bool = False
    intervals: bool = True
    overwrite: bool = False
    delimiter: str | None = None
    encoding: str = "utf-8"
    seed: int | None = None
    noise: str = "auto"
    command: str = ""

    def check(self) -> None:
        """Refuse wrong settings before anything is read."""
        positive(epsilon=self.epsilon)
        if self.hold_out:
            probability(hold_out=self.hold_out)
        if not 0 <= self.hold_out <= 0.5:
            raise InvalidArgument(f"hold_out must be from 0 to 0.5; got {self.hold_out:g}. Leave it out for a tenth.")
        if self.model is not None and self.model not in MODELS:
            raise InvalidArgument(f"model must be one of {', '.join(MODELS)}; got {shown(self.model)}. Leave it out.")
        check_noise_name(self.noise)
        if self.seed is not None:
            NoiseSource(seed=self.seed)
        method_by_name(self.method)
        if self.method == "dp-sgd":
            raise InvalidArgument(
                "method dp-sgd samples records, and is priced as a list fixed in advance, next to which nothing else can be "
                "paid. Use it from Python with training.open_purse, or leave --method out. Nothing was spent."
            )


@dataclass
class TrainResult:
    """What came out, and where it lies."""

    folder: pathlib.Path
    pipeline: Pipeline
    purse: Purse
    new_account: bool
    measurements: list[Measurement] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def train_file(
    settings: TrainSettings, progress: Progress | None = None, opened: Callable[[Purse, bool], None] | None = None
) -> TrainResult:
    """Train a private model on a file.

    Parameters
    ----------
    settings : TrainSettings
        What to do.
    progress : Progress, optional
        Told of public things only.
    opened : callable, optional
        Told of the purse, and whether its account is new, before anything is spent.

    Guarantees
    ----------
    All that depends on a record and leaves this function was released through the purse, or is named on the certificate as not
    covered. Settings, schema, file and the place for the model are checked before anything is spent.
    """
    progress = progress or Silent()
    settings.check()
    with ModelFolder(settings.out, overwrite=settings.overwrite) as place:
        inputs = _read_all(settings, progress)
        purse, is_new = settings.account.open(settings.epsilon, seed=settings.seed, noise=settings.noise)
        if opened is not None:
            opened(purse, is_new)
        check_delta(purse.delta, None)
        if not math.isfinite(purse.epsilon):
            raise InvalidArgument(
                f"data set {purse.dataset!r} is declared not private on its ledger: it has no budget to train with. Name another "
                "--dataset. Nothing was spent."
            )
        run = part_of(purse, settings.epsilon, strict=True)
        for what in (*inputs.schema.uncovered, CHECKED, *_exact(settings, purse)):
            run.declare_uncovered(what)
        what = f"train {settings.data.name}, target {settings.target}, model {place.folder.name}"
        describe_budget(purse)  # so that what cannot be described is noticed now
        with on_record(purse, run, what) as record, counted(run, "no model was made"):
            model, schema, aside = _fitted(settings, inputs, run, progress)
            # From here on there is something that was paid for, which is brought to safety first.
            with held_back() as interrupts:
                measurements = _measurements(settings, schema, model, aside, inputs.test, run, progress)
                intervals = _intervals(model, schema, progress, interrupts) if settings.intervals else None
                progress.stage("writing the model and its report")
                model.certificate_, model.privacy_spent_ = run.certificate(), run.spent
                record["certificate"] = fingerprint(model.certificate_)
                _name_classes(model, schema)
                pipeline = Pipeline([("columns", TableEncoder(schema)), ("model", model)])
                about = describe_run(settings, schema, pipeline, purse, intervals)
                place.write(_files(pipeline, about, measurements))
        remarks = _remarks(settings, schema, model, measurements, interrupts)
    return TrainResult(place.folder, pipeline, purse, is_new, measurements, remarks)


@dataclass
class _Inputs:
    """What a run needs of its files, read to their ends and checked."""

    file: TableFile
    test: TableFile | None
    schema: Schema
    model: Any
    to_buy: Any = None  # columns whose range is to be bought
    rows: tuple[Rows, Rows] | None = None  # those to train on and those set aside, where nothing is to be bought


def _read_all(settings: TrainSettings, progress: Progress) -> _Inputs:
    """Read and check everything before an account is opened."""
    file = TableFile(settings.data, delimiter=settings.delimiter, encoding=settings.encoding)
    test = None if settings.test is None else _same_kind(settings, settings.test)
    if test is not None and test.path.samefile(file.path):
        raise InvalidArgument(
            f"test must be other records than those of the training; got {test.path.name!r} twice. Leave --test out: a part of "
            "the records is then set aside. Nothing was spent."
        )
    schema = _schema(settings, file, progress)
    file.require(schema.names)
    inputs = _Inputs(file, test, schema, _model(settings, schema))
    if test is not None:
        test.require(schema.names)
        check_readable(test, schema, progress)
    if schema.to_buy:
        inputs.to_buy = read_columns(file, schema, progress)
    else:
        inputs.rows = _read(settings, file, schema, progress)
        check_some(len(inputs.rows[0].y), file.path.name)
    return inputs


def _fitted(settings: TrainSettings, inputs: _Inputs, run: Purse, progress: Progress) -> tuple[Any, Schema, Rows]:
    """Buy ranges if any are to be bought, and train; returns the model, the schema as it is now and the records set aside."""
    schema, model = inputs.schema, inputs.model
    if inputs.to_buy is not None:
        schema = _buy_ranges(schema, inputs.to_buy, run, progress, seeded=settings.seed is not None)
        inputs.to_buy = None
    train, aside = inputs.rows or _read(settings, inputs.file, schema, progress)
    inputs.rows = None  # its memory is wanted later on
    progress.stage("preparing: counts, lengths, centre and spread")
    before = 1 - run.fraction_left
    model.set_params(purse=run, epsilon=epsilon_beside_measuring(run) if _hold_out(settings) > 0 else None)
    model.set_params(callbacks=[TrainingStage(progress)], copy_X=False).fit(train.X, train.y)
    model.set_params(callbacks=(), purse=None, copy_X=True)
    model.trace_ = _within_run(model.trace_, before, 1 - run.fraction_left)
    return model, schema, aside


def _files(pipeline: Pipeline, about: dict[str, Any], measurements: list[Measurement]) -> dict[str, str]:
    files = model_files(pipeline) | {
        "run.json": json.dumps(about, indent=1, allow_nan=False),
        "measurements.json": json.dumps([asdict(one) for one in measurements], indent=1, allow_nan=False),
    }
    try:
        return files | {"report.html": report_of(pipeline, about, measurements)}
    except Exception as error:  # a model that was paid for is not lost to a page about it
        warnings.warn(
            f"the report could not be made ({type(error).__name__}): privypurse report makes it again.", stacklevel=2
        )
        return files


def _read(settings: TrainSettings, file: TableFile, schema: Schema, progress: Progress) -> tuple[Rows, Rows]:
    return read_rows(file, schema, progress, hold_out=_hold_out(settings), seed=settings.seed)


def _hold_out(settings: TrainSettings) -> float:
    return 0.0 if settings.test is not None else settings.hold_out


def _same_kind(settings: TrainSettings, path: pathlib.Path) -> TableFile:
    return TableFile(path, delimiter=settings.delimiter, encoding=settings.encoding)


def _schema(settings: TrainSettings, file: TableFile, progress: Progress) -> Schema:
    if settings.schema is not None:
        schema = read_schema(settings.schema).with_target(settings.target)
    else:
        file.require([settings.target])
        progress.stage(f"drafting a schema from {file.path.name}", file.size)
        schema, _ = draft_schema(file, settings.target, progress=progress.update)
    return schema.buying_ranges() if settings.buy_ranges else schema


def _model(settings: TrainSettings, schema: Schema) -> Any:
    classifies = isinstance(schema.target, ClassTarget)
    name = settings.model or ("logistic" if classifies else "ridge")
    kind, wants_classes = MODELS[name]
    if wants_classes != classifies:
        fitting = ", ".join(other for other, (_, wants) in MODELS.items() if wants == classifies)
        raise InvalidArgument(
            f"model {name} does not suit the target {settings.target!r}, which has {'classes' if classifies else 'a range'}. "
            f"Pass --model {fitting.split(', ')[0]}, or describe the target differently in the schema. Nothing was spent."
        )
    if classifies:
        own: dict[str, Any] = {"classes": list(range(len(schema.target.classes)))}  # type: ignore[union-attr]
    else:
        own = {"target_bounds": schema.target.range}  # type: ignore[union-attr]
    return kind(method=settings.method, l2=ridge_for(settings.method), **own)


def _buy_ranges(schema: Schema, raw: Any, run: Purse, progress: Progress, *, seeded: bool) -> Schema:
    progress.stage("buying ranges of columns")
    share = min(RANGE_SHARE * raw.shape[1], MOST_FOR_RANGES)
    low, high = private_quantiles(raw, RANGE_QUANTILES, purse=run, share=share)
    bought = {}
    for index, column in enumerate(schema.to_buy):
        width = float(high[index] - low[index])
        pair = float(low[index]) - WIDER * width, float(high[index]) + WIDER * width
        # Where both ends are one number there is no telling the numbers apart: room is left on either side.
        bought[column.name] = pair if pair[0] < pair[1] else (pair[0] - 1.0, pair[1] + 1.0)
    # What a seed drew protects nobody, and is not to be taken for bought later on.
    return schema.with_ranges(bought, Source.DATA if seeded else Source.BOUGHT)


def _within_run(trace: Trace, before: float, after: float) -> Trace:
    """Return the trace of a fit with what was left of the run's budget after each step, instead of the fit's part of it.

    Parameters
    ----------
    trace : Trace
        Of the fit.
    before, after : float
        Which share of the run's budget was spent before and after the fit.
    """
    if not trace.steps or trace.steps[-1].fraction_left >= 1:
        return trace
    share = (after - before) / (1 - trace.steps[-1].fraction_left)
    steps = [replace(step, fraction_left=1 - before - share * (1 - step.fraction_left)) for step in trace.steps]
    return replace(trace, steps=steps)


def _measurements(
    settings: TrainSettings,
    schema: Schema,
    model: Any,
    aside: Rows,
    test: TableFile | None,
    run: Purse,
    progress: Progress,
) -> list[Measurement]:
    if schema.target is None or (test is None and not settings.hold_out):
        return []
    # Others may have spent the rest in the meantime, or a file may be gone: a model that was paid for is not lost to that.
    with contextlib.suppress(Exception):
        if test is None:
            progress.stage("measuring on the records set aside")
            share = run.fraction_left
            measured = measure(model, aside, schema.target, on="records set aside", purse=run)
            return [replace(measured, share=share)]
        rows, _ = read_rows(test, schema, progress)
        return [measure(model, rows, schema.target, on=test.path.name, public=settings.test_public)]
    return []


def _remarks(
    settings: TrainSettings, schema: Schema, model: Any, measurements: list[Measurement], interrupts: Interrupts
) -> list[str]:
    """Say what a person should know and did not ask; from what was paid for."""
    remarks = []
    if isinstance(schema.target, ClassTarget) and model.preparation_.log_odds is not None:
        for name, share in zip(sorted(schema.target.classes), np.exp(model.preparation_.log_odds), strict=True):
            if share < RARE:
                remarks.append(
                    f"class {name!r} has hardly any records, if it has any: is it spelt as in {settings.data.name}? Rows whose "
                    "target is on no list were left out."
                )
    if (settings.hold_out or settings.test is not None) and not measurements:
        remarks.append(
            "what the model is worth could not be measured: others may have spent the rest, or the file is gone."
        )
    if settings.buy_ranges and all(column.source is not Source.BOUGHT for column in schema.columns):
        remarks.append("--buy-ranges had nothing to buy: the schema declares all ranges.")
    if interrupts.pending:
        remarks.append(
            "interrupted when the model was trained and paid for: it was written, what was left to do was left out."
        )
    return remarks


def _exact(settings: TrainSettings, purse: Purse) -> list[str]:
    """Name what is measured without paying."""
    if settings.test is None:
        return []
    public = f", which {purse.who} declared public" if settings.test_public else ""
    return [f"what the model is worth on the records of {settings.test.name}{public}, measured exactly"]


def _intervals(model: Any, schema: Schema, progress: Progress, interrupts: Interrupts) -> Any:
    try:
        return noise_intervals(model, schema, progress, interrupts=interrupts)
    except Exception:  # a budget too small to rehearse, for one; the model is worth more than its intervals
        return None


def _name_classes(model: Any, schema: Schema) -> None:
    """Let the model answer with the names of classes; it was trained with their places in the sorted list."""
    if isinstance(schema.target, ClassTarget):
        model.classes = sorted(schema.target.classes)
        model.classes_ = np.array(model.classes)
