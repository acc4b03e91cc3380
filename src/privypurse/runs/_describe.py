"""The description of a run that is saved beside its model, and the report made from it."""

import json
import pathlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import sklearn
from sklearn.pipeline import Pipeline

from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import about, counted
from privypurse.core._reading import check_fields, read_json, refusing
from privypurse.core._version import __version__
from privypurse.estimators._base import joined
from privypurse.estimators._curves import Groups, line_shares, positions, shares_of, unfolded
from privypurse.estimators._noise_intervals import NOTE as ABOUT_INTERVALS
from privypurse.purse._entries import CHARGE, NOTE, SETTLE, Entry
from privypurse.purse._purse import Purse
from privypurse.report._content import Coefficient, Estimate, Measurement, ReportContent, Term
from privypurse.report._page import render
from privypurse.runs._rehearse import groups_of
from privypurse.runs._rows import LeftOut
from privypurse.runs.folder import load_model
from privypurse.tables._schema import ClassTarget, Date, Schema, Source, write_schema


def describe_budget(purse: Purse) -> dict[str, Any]:
    """Describe the account of a data set: limit, spending and runs."""
    entries = list(purse.ledger.entries(purse.dataset))
    where = {"dataset": purse.dataset, "ledger": pathlib.Path(purse.ledger.location).name}
    terms = {"epsilon": purse.epsilon, "delta": purse.delta, "neighbouring": purse.neighbouring.value}
    spent = {"spent_epsilon": purse.spent.epsilon, "fraction_left": purse.fraction_left}
    simulation = any(entry.is_simulation for entry in entries)
    state = {"frozen": purse.ledger.is_frozen(purse.dataset), "simulation": simulation}
    return {**where, **terms, **spent, **state, "runs": _runs(entries, purse)}


def _runs(entries: Sequence[Entry], purse: Purse) -> list[dict[str, Any]]:
    """List the recorded jobs with their cost, and other releases by day and person.

    An unfinished job includes the releases of the same person until their next job.
    """
    runs: dict[Any, dict[str, Any]] = {}
    under_way: dict[str, str] = {}  # last job by person
    for entry in entries:
        job = entry.details.get("job") if entry.kind == NOTE else None
        begins = job is not None and entry.details.get("event") == "begin"
        releases = int(entry.kind == CHARGE)
        if entry.kind == SETTLE:
            releases = sum(count for *_, count in entry.details["used"])
        if begins:
            under_way[entry.who] = str(job)
        key = under_way.get(entry.who, (entry.when[:10], entry.who))
        if begins or releases:
            what = entry.what if begins else "from Python"
            fresh = {"when": entry.when, "who": entry.who, "what": what, "releases": 0, "epsilon": None}
            run = runs.setdefault(key, fresh | {"finished": not begins})
            run["releases"] += releases
            run["spent_epsilon"] = purse.filter.epsilon_of(entry.totals, purse.delta)
        elif job in runs and {"releases", "epsilon"} <= set(entry.details):
            runs[job] |= {"releases": entry.details["releases"], "epsilon": entry.details["epsilon"], "finished": True}
            under_way.pop(entry.who, None)
    return list(runs.values())


_WORDS = {
    Source.DECLARED: "declared",
    Source.DATA: "read from the data, not covered",
    Source.BOUGHT: "released with noise",
    Source.EARLIER: "released with noise in an earlier run",
}


def describe_run(
    settings: Any, schema: Schema, pipeline: Pipeline, purse: Purse, intervals: Any, left_out: Sequence[LeftOut]
) -> dict[str, Any]:
    """Collect the public facts for a report other than model, certificate and trace."""
    model, task = pipeline[-1], f"estimates the number {settings.target}"
    if isinstance(schema.target, ClassTarget):
        classes = schema.target.classes
        listed = f"{classes[0]!r} or {classes[1]!r}" if len(classes) == 2 else f"one of {len(classes)} classes"
        task = f"says whether {settings.target} is {listed}"
    return {
        "title": f"{settings.target}, from {settings.data.name}",
        "task": f"A linear model that {task}, from {counted(len(schema.columns), 'column')}.",
        **{"data": settings.data.name, "folder": str(settings.out)},
        **{"dataset": purse.dataset, "target": settings.target},
        "method": model.method if isinstance(model.method, str) else model.method.name,
        "settings": _settings(settings, purse),
        "prepared": [*(["lines of the file", f"{one} (noisy release)"] for one in left_out), *_prepared(schema, model)],
        "half_widths": None if intervals is None else [part.tolist() for part in intervals],
        "note": "" if intervals is None else ABOUT_INTERVALS,
        "budget": describe_budget(purse),
        "schema_declared": schema.is_declared,
    }


def _settings(settings: Any, purse: Purse) -> list[list[str]]:
    seed = "secret" if settings.seed is None else f"seed {settings.seed} (SIMULATION)"
    return [
        ["command", settings.command],
        ["epsilon of this run", f"{settings.epsilon:g}"],
        ["delta", f"{purse.delta:g}"],
        ["relation", purse.neighbouring.value],
        ["set aside to measure", "nothing" if settings.test or not settings.hold_out else f"{settings.hold_out:.0%}"],
        ["noise", f"{settings.noise}, {seed}"],
        ["privypurse", __version__],
        ["scikit-learn, numpy, Python", f"{sklearn.__version__}, {np.__version__}, {platform.python_version()}"],
    ]


def prepared(model: Any) -> list[list[str]]:
    """List what a fit released or took as declared before training."""
    preparation, how = model.preparation_, "noisy release" if model.n_public is None else "declared"
    lines = [["number of records", f"about {about(preparation.records)} ({how})"]]
    return lines + [["centre and spread of columns", "noisy release"]] * (preparation.stretch is not None)


def _prepared(schema: Schema, model: Any) -> list[list[str]]:
    lines = prepared(model)
    if getattr(model, "class_weight", None) is not None:
        what = "move the intercept; probabilities are of weighted records"
        lines.append([describe_weights(model.class_weight), what])
    for source in sorted({column.source for column in schema.columns}, key=lambda source: source.value):
        names = [column.name for column in schema.columns if column.source is source]
        lines.append([f"columns {_WORDS[source]}", ", ".join(names)])
    if schema.target is not None:
        lines.append(["target", f"{schema.target.name}, {_WORDS[schema.target.source]}"])
    return lines


def describe_weights(weights: Any) -> str:
    """Return the weights of classes in words."""
    listed = [f"{name}={weight:g}" for name, weight in weights.items()] if isinstance(weights, Mapping) else []
    return f"class weights ({', '.join(listed) or 'balanced, by the released class counts'})"


def measurements_text(measurements: list[Measurement]) -> str:
    """Return the file measurements.json of a model."""
    return json.dumps([asdict(one) for one in measurements], indent=1, allow_nan=False)


def report_of(pipeline: Pipeline, about: dict[str, Any], measurements: list[Measurement]) -> str:
    """Return the report as an HTML page. Raise InvalidArgument if `about` is damaged."""
    encoder, model = pipeline[0], pipeline[-1]
    with refusing("the description of this run is damaged. Restore run.json from a copy."):
        return render(
            ReportContent(
                **{name: about[name] for name in ("title", "task", "method", "budget", "schema_declared")},
                certificate=model.certificate_,
                trace=model.trace_,
                folder=str(about.get("folder", "MODEL")),  # earlier versions did not write it
                step_sizes=model.trace_.step_sizes,
                prepared=_pairs(about["prepared"]),
                measurements=tuple(measurements),
                coefficients=coefficients_of(pipeline, about["half_widths"]),
                coefficients_note=about["note"],
                settings=_pairs(about["settings"]),
                schema=write_schema(encoder.schema),
                terms=terms_of(pipeline),
            )
        )


def coefficients_of(pipeline: Pipeline, half_widths: Any = None) -> tuple[Coefficient, ...]:
    """Return the named coefficients of a model, the intercept first. Those of a curve are its values."""
    schema, model = pipeline[0].schema, pipeline[-1]
    return named_coefficients(model, groups_of(schema), ["intercept", *schema.features], half_widths)


def named_coefficients(model: Any, groups: Groups, names: Sequence[str], half_widths: Any) -> tuple[Coefficient, ...]:
    """Return the coefficients of a linear model of encoded columns, with the class that they speak for."""
    values = joined(unfolded(model.coef_, groups, model.preparation_), model.intercept_)
    hidden = np.append(False, positions(groups, model.n_features_in_))
    ends: Any = None
    if half_widths is not None:
        halves = joined(*map(np.asarray, half_widths))
        ends = np.stack([values - halves, values + halves], axis=-1).tolist()
    outputs = [str(name) for name in getattr(model, "classes_", [""])][-len(values) :]
    found = []
    for row, column in np.ndindex(values.shape):
        if hidden[column]:
            continue
        low, high = (None, None) if ends is None else ends[row][column]
        value = float(values[row, column])
        found.append(Coefficient(name=names[column], output=outputs[row], value=value, low=low, high=high))
    return tuple(found)


def terms_of(pipeline: Pipeline) -> tuple[Term, ...]:
    """Return which coefficients make up the curve or the categories of each column."""
    schema, preparation = pipeline[0].schema, pipeline[-1].preparation_
    found, start, number = list[Term](), 0, 1  # the intercept is the first coefficient
    for column in schema.columns:
        for width, kind in groups_of(replace(schema, columns=(column,), target=None)):
            place = slice(start + (kind == "curve"), start + width)
            shares, at = shares_of(preparation, place).tolist(), ()
            if kind == "curve":
                at = column.knots
            elif kind == "number":
                at, shares = column.range, line_shares(preparation, start).tolist()
            count = place.stop - place.start
            if kind != "indicator":
                found.append(
                    Term(
                        name=column.name,
                        first=number,
                        count=count,
                        at=at,
                        dates=isinstance(column, Date),
                        shares=tuple(shares),
                    )
                )
            start, number = start + width, number + count
    return tuple(found)


def load_run(folder: pathlib.Path) -> tuple[Pipeline, dict[str, Any], list[Measurement]]:
    """Load the model, the description and the measurements written by `privypurse train`."""
    pipeline = load_model(folder)
    path = folder / "run.json"
    if not path.exists():
        got = f"got {str(folder)!r}, which has no run.json"
        raise InvalidArgument(f"expected a model made by `privypurse train`, {got}. Other models have no report.")
    with refusing(f"run.json or measurements.json of the model {str(folder)!r} is damaged. Restore it from a copy."):
        about = read_json(path.read_text(encoding="utf-8"))
        path = folder / "measurements.json"
        listed = read_json(path.read_text(encoding="utf-8")) if path.exists() else []
        measurements = []
        for fields in listed:
            more: dict[str, Any] = {name: _pairs(fields[name]) for name in ("compared_with", "details")}
            # Earlier versions did not write these.
            own = fields.get("estimates", ())
            more["estimates"] = tuple(Estimate(**one | {"cell": one["cell"] and tuple(one["cell"])}) for one in own)
            more["classes"] = tuple(fields.get("classes", ()))
            more["confusion"] = tuple(map(tuple, fields.get("confusion", ())))
            measurements.append(Measurement(**fields | more))
            check_fields(measurements[-1])
        return pipeline, about, measurements


def _pairs(listed: Any) -> tuple[tuple[Any, Any], ...]:
    return tuple((first, second) for first, second in listed)
