"""What is written down about a run beside its model, and the report made from it."""

import pathlib
import platform
from typing import Any

import numpy as np
import sklearn
from sklearn.pipeline import Pipeline

from privypurse.core.errors import InvalidArgument
from privypurse.core.reading import check_fields, read_json, refusing
from privypurse.core.version import __version__
from privypurse.jobs.budget import describe_budget
from privypurse.jobs.measure import about
from privypurse.jobs.noise_intervals import NOTE as ABOUT_INTERVALS
from privypurse.purse.purse import Purse
from privypurse.report import Coefficient, Measurement, ReportContent, render
from privypurse.store.folder import check_is_model, load_model
from privypurse.tables.schema import ClassTarget, Schema, Source
from privypurse.tables.schema_file import write_schema

_WORDS = {
    Source.DECLARED: "declared",
    Source.DATA: "read from the data, not covered",
    Source.BOUGHT: "bought",
    Source.EARLIER: "bought in an earlier run",
}


def describe_run(settings: Any, schema: Schema, pipeline: Pipeline, purse: Purse, intervals: Any) -> dict[str, Any]:
    """Collect what a report says besides model, certificate and trace. All of it is public."""
    model = pipeline[-1]
    return {
        "title": f"{settings.target}, from {settings.data.name}",
        "task": _task(settings.target, schema),
        "data": settings.data.name,
        "dataset": purse.dataset,
        "target": settings.target,
        "method": model.method if isinstance(model.method, str) else model.method.name,
        "settings": _settings(settings, purse),
        "prepared": _prepared(schema, model),
        "half_widths": None if intervals is None else [part.tolist() for part in intervals],
        "note": "" if intervals is None else ABOUT_INTERVALS,
        "budget": describe_budget(purse),
        "schema_declared": schema.is_declared,
    }


def _task(target: str, schema: Schema) -> str:
    model = "A linear model"
    if isinstance(schema.target, ClassTarget):
        classes = schema.target.classes
        listed = f"{classes[0]!r} or {classes[1]!r}" if len(classes) == 2 else f"one of {len(classes)} classes"
        return f"{model} that says whether {target} is {listed}, from {len(schema.columns)} columns."
    return f"{model} that estimates the number {target}, from {len(schema.columns)} columns."


def _settings(settings: Any, purse: Purse) -> list[list[str]]:
    return [
        ["command", settings.command],
        ["epsilon of this run", f"{settings.epsilon:g}"],
        ["delta", f"{purse.delta:g}"],
        ["relation", purse.neighbouring.value],
        ["set aside to measure", "nothing" if settings.test or not settings.hold_out else f"{settings.hold_out:.0%}"],
        [
            "noise",
            f"{settings.noise}, " + ("secret" if settings.seed is None else f"seed {settings.seed} (SIMULATION)"),
        ],
        ["privypurse", __version__],
        ["scikit-learn, numpy, Python", f"{sklearn.__version__}, {np.__version__}, {platform.python_version()}"],
    ]


def _prepared(schema: Schema, model: Any) -> list[list[str]]:
    preparation = model.preparation_
    paid = model.n_public is None
    lines = [["number of records", f"about {about(preparation.records)} ({'bought, noisy' if paid else 'declared'})"]]
    if preparation.stretch is not None:
        lines.append(["centre and spread of columns", "bought"])
    sources = sorted({column.source for column in schema.columns}, key=lambda source: source.value)
    for source in sources:
        names = [column.name for column in schema.columns if column.source is source]
        lines.append([f"columns {_WORDS[source]}", ", ".join(names)])
    if schema.target is not None:
        lines.append(["target", f"{schema.target.name}, {_WORDS[schema.target.source]}"])
    return lines


def report_of(pipeline: Pipeline, about: dict[str, Any], measurements: list[Measurement]) -> str:
    """Return the report as one HTML page; refuses descriptions of a run that nobody wrote."""
    with refusing("what is written down about this run is not as it should be. Restore run.json from a copy."):
        return _report_of(pipeline, about, measurements)


def _report_of(pipeline: Pipeline, about: dict[str, Any], measurements: list[Measurement]) -> str:
    encoder, model = pipeline[0], pipeline[-1]
    return render(
        ReportContent(
            title=about["title"],
            task=about["task"],
            certificate=model.certificate_,
            trace=model.trace_,
            method=about["method"],
            step_sizes=model.trace_.step_sizes,
            budget=about["budget"],
            prepared=_pairs(about["prepared"]),
            measurements=tuple(measurements),
            coefficients=coefficients_of(pipeline, about["half_widths"]),
            coefficients_note=about["note"],
            settings=_pairs(about["settings"]),
            schema=write_schema(encoder.schema),
            schema_declared=about["schema_declared"],
        )
    )


def coefficients_of(pipeline: Pipeline, half_widths: Any = None) -> tuple[Coefficient, ...]:
    """Return the coefficients of a model by the names of its columns, the intercept first."""
    encoder, model = pipeline[0], pipeline[-1]
    names = ["intercept", *encoder.schema.features]
    values = np.column_stack([np.atleast_1d(model.intercept_), np.atleast_2d(model.coef_)])
    halves = None
    if half_widths is not None:
        coefficients, intercepts = (np.asarray(part) for part in half_widths)
        halves = np.column_stack([np.atleast_1d(intercepts), np.atleast_2d(coefficients)])
    outputs = [""] if len(values) == 1 else [str(name) for name in model.classes_]
    return tuple(
        Coefficient(
            name=name,
            output=output,
            value=float(values[row, column]),
            low=None if halves is None else float(values[row, column] - halves[row, column]),
            high=None if halves is None else float(values[row, column] + halves[row, column]),
        )
        for row, output in enumerate(outputs)
        for column, name in enumerate(names)
    )


def load_run(folder: pathlib.Path) -> tuple[Pipeline, dict[str, Any], list[Measurement]]:
    """Load what `privypurse train` wrote: the model, what is known about the run, and what was measured."""
    pipeline = load_model(folder)
    path = check_is_model(folder) / "run.json"
    if not path.exists():
        raise InvalidArgument(
            f"the model {str(folder)!r} has no run.json: it was saved from Python. Only `privypurse train` makes reports."
        )
    with refusing(
        f"the model {str(folder)!r} has a run.json or measurements.json that is damaged. Restore it from a copy."
    ):
        about = read_json(path.read_text(encoding="utf-8"))
        path = folder / "measurements.json"
        listed = read_json(path.read_text(encoding="utf-8")) if path.exists() else []
        return pipeline, about, [measurement_from(fields) for fields in listed]


def measurement_from(fields: dict[str, Any]) -> Measurement:
    """Read a measurement back from JSON."""
    pairs = {name: _pairs(fields[name]) for name in ("compared_with", "details")}
    measured = Measurement(**fields | pairs)
    check_fields(measured)
    return measured


def _pairs(listed: Any) -> tuple[tuple[Any, Any], ...]:
    return tuple((first, second) for first, second in listed)
