"""`privypurse predict`, `evaluate` and `report`: the commands that use a trained model."""

import functools
import pathlib
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from privypurse.cli import _options as options
from privypurse.cli._output import PAGE, answer, budget_of, emit, note_account, say, shown_progress, warn, warn_if_weak
from privypurse.cli._train import describe, described_in_full
from privypurse.core._formats import counted, rounded_up


def predict(
    model: options.ModelDir,
    data: options.DataFile,
    out: Annotated[pathlib.Path | None, options.output("--out", "-o", help="CSV file. Default: stdout.")] = None,
    overwrite: options.Overwrite = False,
    keep: Annotated[list[str] | None, options.option("--keep", help="Column to copy, such as an id.")] = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = "utf-8",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict new records with a trained model.

    Examples:

        privypurse predict model new.csv --out predictions.csv

        privypurse predict model new.csv --keep id | head

    Predictions depend on the new records, which the guarantee of the model does not cover.
    Categories that the schema does not list count as unknown, missing numbers as the middle of
    their range.
    """
    from privypurse.runs._evaluate import predict_blocks, write_predictions
    from privypurse.runs._rows import Odd
    from privypurse.runs.folder import load_model, replacing
    from privypurse.tables._files import TableFile

    pipeline = load_model(model)
    file = TableFile(data, delimiter=options.tab(delimiter), encoding=encoding)
    answers: list[object] = []
    with shown_progress(quiet or (out is None and not json)) as progress:
        if out is not None:
            with replacing(out) as partial, partial.open("w", encoding="utf-8", newline="") as target:
                odd = write_predictions(pipeline, file, target, progress, keep or [])
        elif json:
            odd = Odd()
            for block, _, _ in predict_blocks(pipeline, file, odd, progress):
                answers += block.tolist()
        else:
            odd = write_predictions(pipeline, file, sys.stdout, progress, keep or [])
    for name, times in odd.unknown.items():
        warn(f"column {name!r}: {times:,} of {counted(odd.rows, 'value')} not as in the schema, taken as unknown")
    if file.tally.blank:
        blank = counted(file.tally.blank, "blank line")
        warn(f"{data.name} has {blank}, without a prediction: rows are those of the other lines")
    if json:
        where = {"out": str(out)} if out is not None else {"predictions": answers}
        counts = {"rows": odd.rows, "blank_lines": file.tally.blank}
        emit(counts | {"unknown": odd.unknown, "missing": odd.missing} | where)
    elif out is not None:
        say(f"{counted(odd.rows, 'prediction')}: {out}")


def evaluate(
    model: options.ModelDir,
    data: options.DataFile,
    epsilon: Annotated[float | None, options.option("--epsilon", "-e", help="Budget of a noisy measurement.")] = None,
    public: Annotated[bool, typer.Option("--public", help="Declare that these records are public.")] = False,
    ledger: options.Ledger = None,
    dataset: options.Dataset = None,
    budget: options.Budget = None,
    delta: options.Delta = None,
    neighbouring: options.Neighbouring = None,
    who: options.Who = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = "utf-8",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure a trained model on unseen records and add the result to its report.

    Examples:

        privypurse evaluate model test.csv --public

        privypurse evaluate model test.csv --epsilon 0.2

    Without --epsilon the result is exact: if the records are private, do not publish it. With
    --epsilon the result is noisy, covered, and charged to the data set on the ledger; the first such
    run fixes the budget of the data set, at --budget or at its own epsilon.
    """
    from privypurse.runs._evaluate import evaluate_file
    from privypurse.tables._files import TableFile

    warn_if_weak(epsilon=epsilon, budget=budget)
    file = TableFile(data, delimiter=options.tab(delimiter), encoding=encoding)
    terms: Any = {"budget": budget, "delta": delta, "neighbouring": neighbouring, "who": who}
    account = options.account_for(data, dataset, charged=epsilon is not None, ledger=ledger, **terms)
    with shown_progress(quiet) as progress:
        told = functools.partial(note_account, budget=budget)
        result = evaluate_file(model, file, progress, epsilon=epsilon, account=account, public=public, opened=told)
    measured, purse = result.measured, result.purse
    for remark in result.remarks:
        warn(remark)
    if json:
        emit(asdict(measured) | {"budget": budget_of(purse), "remarks": result.remarks})
        return
    say(describe(measured))
    for line in described_in_full(measured):
        say(f"  {line}")
    if purse is not None:
        say(f"spent: epsilon {rounded_up(purse.spent.epsilon)} of {purse.epsilon:g} on data set {purse.dataset!r}")
    elif not public:
        warn("exact, not covered by any guarantee. Pass --epsilon, or --public if the records are public.")


def report(
    model: options.ModelDir,
    out: Annotated[
        pathlib.Path | None,
        options.output(
            "--out", "-o", help="Page to write. Default: report.html in the folder of the model.", metavar=PAGE
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    show: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    json: options.Json = False,
) -> None:
    """Write the report of a trained model again: one HTML file that works offline.

    Examples:

        privypurse report model --open

        privypurse report model --out for_the_privacy_officer.html --overwrite
    """
    from privypurse.runs._describe import load_run, report_of
    from privypurse.runs.folder import replace_file

    pipeline, about, measurements = load_run(model)
    path = out or model / "report.html"
    replace_file(path, report_of(pipeline, about, measurements))
    answer(json, {"report": str(path)}, f"report: {path}")
    if show:
        typer.launch(str(path))
