"""Use a saved model on other records: predict them, or measure it and add the result to its report.

No guarantee covers records to predict.
"""

import contextlib
import csv
import pathlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

from sklearn.pipeline import Pipeline

from privypurse.core._errors import InvalidArgument, spending_noted
from privypurse.purse._holds import held
from privypurse.purse._ledger import current_user
from privypurse.purse._opening import part_of
from privypurse.purse._purse import Purse
from privypurse.report._content import Measurement
from privypurse.runs._account import Account, put_on_record
from privypurse.runs._describe import load_run, measurements_text, report_of
from privypurse.runs._measure import measure, measured_exactly
from privypurse.runs._on_record import counted, on_record
from privypurse.runs._progress import Progress
from privypurse.runs._rows import CHECKED, Odd, count_left_out, exactly_left_out, read_rows
from privypurse.runs.folder import replace_file
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._files import Records, TableFile
from privypurse.tables._schema import Schema


@dataclass(frozen=True)
class Evaluation:
    """The measurement, the purse that was charged if any, and remarks for the user."""

    measured: Measurement
    purse: Purse | None
    remarks: list[str]


@spending_noted(call=None)
def evaluate_file(
    folder: pathlib.Path,
    file: TableFile,
    progress: Progress,
    *,
    epsilon: float | None = None,
    account: Account | None = None,
    public: bool = False,
    opened: Callable[[Purse, bool], None] | None = None,
) -> Evaluation:
    """Measure a model on records that it was not trained on, and add the result to its report.

    With an epsilon the measurement is noisy and charged to the account. Without one it is exact and
    not covered, unless the records are declared `public`. `opened` is called with the purse, and
    whether its account is new, before anything is spent.
    """
    if epsilon is not None and public:
        raise InvalidArgument("expected epsilon or public, got both. Leave out --epsilon or --public.")
    if epsilon is not None and account is None:
        raise InvalidArgument("expected an account to charge epsilon to, got None. Pass account=Account(dataset=...).")
    pipeline, about, measurements = load_run(folder)
    schema, model = pipeline[0].schema, pipeline[-1]
    rows, _ = read_rows(file, schema, progress)
    purse, run = None, None
    if epsilon is not None and account is not None:
        purse, is_new = account.open(epsilon)
        if opened is not None:
            opened(purse, is_new)
        run = part_of(purse, epsilon)
    name = file.path.name
    if run is None:
        said = f", which {account.who or current_user()} declared public" if public and account else ""
        exact = measured_exactly("a model", f"{name}{said}", schema.target)
        accounts = [account]
        if name == about["data"]:  # the account of the training may be in these places
            places = [path.resolve().parent for path in (file.path, folder)]
            ledgers = [place / pathlib.PurePath(model.certificate_.ledger).name for place in places]
            ledgers += [account.path] if account else []
            accounts += [Account(dataset=about["dataset"], ledger=ledger) for ledger in ledgers]
        put_on_record(accounts, exact)
    remarks = []
    with contextlib.ExitStack() as stack:
        if purse is not None and run is not None:
            stack.enter_context(held(run))
            for what in (*file.uncovered, CHECKED):
                run.declare_uncovered(what)
            stack.enter_context(on_record(purse, run, f"evaluate {folder.name} on {name}"))
            stack.enter_context(counted(run, "the figure is lost"))
            remarks += [one.remark for one in count_left_out(file, rows.left_out, run)]
        measured = measure(model, rows, schema.target, on=name, purse=run, public=public, schema=schema)
    if purse is not None:
        measured = replace(measured, payer=purse.dataset)
    try:
        write_measurements(folder, pipeline, about, [*measurements, measured])
    except OSError as error:  # the measurement may have been paid for
        remarks.append(f"the measurement could not be added to the report: {error.strerror}.")
    if run is None:
        remarks += exactly_left_out(file, rows.left_out)
    if name == about["data"]:
        remarks.append(f"the model was trained on a file named {name}: measure on other records.")
    return Evaluation(measured, purse, remarks)


def write_measurements(
    folder: pathlib.Path, pipeline: Pipeline, about: dict[str, Any], measurements: list[Measurement]
) -> None:
    """Replace the measurements of a saved model, and its report."""
    replace_file(folder / "measurements.json", measurements_text(measurements))
    replace_file(folder / "report.html", report_of(pipeline, about, measurements))


def predict_blocks(
    pipeline: Pipeline, file: TableFile, odd: Odd, progress: Progress, keep: Sequence[str] = ()
) -> Iterator[tuple[Any, Any, list[Any]]]:
    """Yield predictions, class probabilities or None, and kept columns of blocks. Count odd values.

    Raise InvalidArgument before the first if no value of some column is as the schema describes it.
    """
    if not isinstance(pipeline[0], TableEncoder):
        raise InvalidArgument("expected a model with a schema, got one of other steps. Use load_model from Python.")
    schema: Schema = pipeline[0].schema
    names = list(dict.fromkeys([*(column.name for column in schema.columns), *keep]))
    progress.stage(f"predicting {file.path.name}", file.size)
    for block in file.blocks(names, strict=True, progress=progress.update):  # a prediction for every line
        odd.take(block, schema)
        if odd.rows == block.num_rows:  # the first block
            _check_matches(odd, schema, file.path.name)
        has_chances = hasattr(pipeline[-1], "predict_proba")
        kept = [block[name] if isinstance(block, Records) else block[name].to_pylist() for name in keep]
        yield pipeline.predict(block), pipeline.predict_proba(block) if has_chances else None, kept


def _check_matches(odd: Odd, schema: Schema, name: str) -> None:
    """Raise InvalidArgument for columns of which no value is as the schema describes it."""
    if wrong := [column.name for column in schema.columns if odd.none_known(column)]:
        listed = ", ".join(map(repr, wrong[:5])) + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
        which = f"column {listed}" if len(wrong) == 1 else f"columns {listed} ({len(wrong)} of {len(schema.columns)})"
        why = "no value at the start of the file is as the schema of the model describes it"
        remedy = "Check the file, the delimiter and schema.toml in the folder of the model."
        raise InvalidArgument(f"{which} of {name!r} cannot be read: {why}. {remedy}")


def write_predictions(pipeline: Pipeline, file: TableFile, target: TextIO, progress: Progress, keep: list[str]) -> Odd:
    """Write a CSV line for each record: kept columns, prediction and probabilities of classes."""
    odd, writer = Odd(), csv.writer(target, lineterminator="\n")
    classes = [f"probability of {name}" for name in getattr(pipeline[-1], "classes_", [])]
    for index, (answers, chances, kept) in enumerate(predict_blocks(pipeline, file, odd, progress, keep)):
        if index == 0:
            writer.writerow([*keep, "prediction", *(classes if chances is not None else [])])
        columns = [*kept, [round(one, 6) if isinstance(one, float) else one for one in answers.tolist()]]
        columns += [] if chances is None else chances.round(6).T.tolist()
        writer.writerows(zip(*columns, strict=True))
    return odd
