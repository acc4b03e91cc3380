"""Measuring a saved model on other records, and putting it on its report."""

import contextlib
import json
import pathlib
from dataclasses import asdict, dataclass, replace
from typing import Any

from privypurse.core.errors import InvalidArgument
from privypurse.jobs.account import Account, put_on_record
from privypurse.jobs.describe import load_run, report_of
from privypurse.jobs.measure import measure
from privypurse.jobs.on_record import counted, on_record
from privypurse.jobs.progress import Progress
from privypurse.jobs.rows import CHECKED, read_rows
from privypurse.purse.ledger import current_user
from privypurse.purse.opening import part_of
from privypurse.purse.purse import Purse
from privypurse.report.content import Measurement
from privypurse.store.folder import replace_file
from privypurse.tables.files import TableFile


@dataclass(frozen=True)
class Evaluation:
    """What came out, who paid if somebody did, and what a person should know besides."""

    measured: Measurement
    purse: Purse | None
    remarks: list[str]


def evaluate_file(
    folder: pathlib.Path,
    file: TableFile,
    progress: Progress,
    *,
    epsilon: float | None = None,
    account: Account | None = None,
    public: bool = False,
) -> "Evaluation":
    """Measure a model and add the result to its report.

    Parameters
    ----------
    folder : path
        The model.
    file : TableFile
        Records it was not trained on.
    progress : Progress
        Told of bytes.
    epsilon, account
        Pay this much for a noisy measurement; without, it is exact and not covered.
    public : bool, default False
        Whether the records are declared public.
    """
    if epsilon is not None and public:
        raise InvalidArgument("epsilon is not needed for records that are public. Leave out --epsilon or --public.")
    if epsilon is not None and account is None:
        raise InvalidArgument("account is needed to pay epsilon from; got None. Pass account=Account(dataset=...).")
    pipeline, about, measurements = load_run(folder)
    schema, model = pipeline[0].schema, pipeline[-1]
    rows, _ = read_rows(file, schema, progress)
    purse = None
    run = None
    if epsilon is not None and account is not None:
        purse, _ = account.open(epsilon)
        run = part_of(purse, epsilon, strict=True)
        run.declare_uncovered(CHECKED)
    name = file.path.name
    if run is None:
        said = f", which {account.who or current_user()} declared public" if public and account else ""
        exact = f"what a model is worth on the records of {name}{said}, measured exactly"
        trained = _training_accounts(about, model, account, file, folder) if name == about["data"] else []
        put_on_record([account, *trained], exact)
    with contextlib.ExitStack() as stack:
        if purse is not None and run is not None:
            stack.enter_context(on_record(purse, run, f"evaluate {folder.name} on {name}"))
            stack.enter_context(counted(run, "the figure is lost"))
        measured = measure(model, rows, schema.target, on=name, purse=run, public=public)
    if purse is not None:
        measured = replace(measured, payer=purse.dataset)
    remarks = []
    try:
        measurements = [*measurements, measured]
        replace_file(folder / "measurements.json", json.dumps([asdict(one) for one in measurements], indent=1))
        replace_file(folder / "report.html", report_of(pipeline, about, measurements))
    except OSError as error:  # the figure may have been paid for
        remarks.append(f"the figure could not be added to the report: {error.strerror}.")
    if run is None and rows.left_out:
        remarks.append(f"{rows.left_out:,} rows left out: their target is missing, or on no list of the schema.")
    if name == about["data"]:
        remarks.append(f"{name} is the name of the file that the model was trained on: measure on other records.")
    return Evaluation(measured, purse, remarks)


def _training_accounts(
    about: dict[str, Any], model: Any, account: Account | None, file: TableFile, folder: pathlib.Path
) -> list[Account]:
    """Return where the account that paid for the training may be: its ledger is known by name only."""
    named = pathlib.PurePath(model.certificate_.ledger).name
    places = [file.path.resolve().parent / named, folder.resolve().parent / named, *([account.path] if account else [])]
    return [Account(dataset=about["dataset"], ledger=place) for place in places]
