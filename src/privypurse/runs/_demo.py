"""Train on a synthetic census, from CSV to report, and compare with training without privacy."""

import pathlib
import shutil
import warnings
from dataclasses import replace

from sklearn.linear_model import LogisticRegression

from privypurse.core._errors import InvalidArgument, spending_noted
from privypurse.core._formats import counted
from privypurse.datasets import make_census
from privypurse.datasets._census import Census
from privypurse.report._content import Estimate, Measurement
from privypurse.runs._account import LEDGER, Account
from privypurse.runs._describe import load_run
from privypurse.runs._estimates import MOST_FREQUENT
from privypurse.runs._evaluate import evaluate_file, write_measurements
from privypurse.runs._measure import measure
from privypurse.runs._progress import Progress
from privypurse.runs._rows import read_rows, target_of
from privypurse.runs._train import TrainResult, TrainSettings, train_file
from privypurse.tables._files import TableFile
from privypurse.tables._schema import Category, ClassTarget, Column, Number, Schema, read_schema, write_schema

MARK = "made-by-privypurse-demo.txt"
CENSUS, SCHEMA, NEW_PEOPLE, MODEL = "census.csv", "census.toml", "new_people.csv", "model"
STATEMENT = {
    "unit": "one person of a made-up census, who has one line",
    "data_domain": "tables with the columns of the schema, of any number of made-up people",
    "product": "Machine learning model",
    "intended_use": "to show what a private model, its report and its certificate look like",
    "region": "none: the people are made up",
    "holder": "whoever ran the demo",
    "holder_type": "Nonprofit",
    "actors": "whoever ran the demo sees the records; readers of the model and its report see released values only",
    "access": "the permissions of the folder of the demo",
    "data": "static",
    "releases": "one",
    "refresh": "never: a new demo makes up new people",
    "post_processing": "the model and its report are computed from released values, and rounded",
    "justification": "epsilon 1 by default, which is usually called strong; nobody is protected by it here",
    "code": "privypurse demo",
}
NOT_PRIVATE = "the same model, trained without privacy"
FEWEST_PEOPLE = 100  # fewer may all be of one class


@spending_noted(call=None)
def run_demo(
    folder: pathlib.Path, *, rows: int, epsilon: float, progress: Progress
) -> tuple[dict[str, float], TrainResult]:
    """Train on a synthetic census. Return accuracies on new people. Replace an earlier demo."""
    if rows < FEWEST_PEOPLE:
        raise InvalidArgument(f"expected rows to be {FEWEST_PEOPLE} or more, got {rows}. Leave it out for 30,000.")
    _make_room(folder)
    progress.stage(f"making up a census of {counted(rows, 'record')}")
    census, others = make_census(rows, seed=1), make_census(20_000, seed=2)
    census.to_csv(folder / CENSUS)
    others.to_csv(folder / NEW_PEOPLE)
    described = replace(census_schema(census), statement=tuple(STATEMENT.items()))
    (folder / SCHEMA).write_text(write_schema(described), encoding="utf-8")
    settings = TrainSettings(
        data=folder / CENSUS,
        target=census.target,
        epsilon=epsilon,
        schema=folder / SCHEMA,
        out=folder / MODEL,
        account=Account(ledger=folder / LEDGER, dataset=CENSUS),
        command=f"privypurse train {CENSUS} --target {census.target} --epsilon {epsilon:g} --schema {SCHEMA} --out {MODEL}",
    )
    trained = train_file(settings, progress)
    new_people = TableFile(folder / NEW_PEOPLE)
    private = evaluate_file(folder / MODEL, new_people, progress, public=True).measured
    progress.stage("training without privacy, to compare")
    schema = read_schema(folder / SCHEMA)
    rows_read, _ = read_rows(TableFile(folder / CENSUS), schema, progress)
    test, _ = read_rows(new_people, schema, progress)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence
        plain = LogisticRegression(max_iter=300).fit(rows_read.X, rows_read.y)
    not_private = measure(plain, test, target_of(schema), on="new people", public=True)
    pipeline, about, measurements = load_run(folder / MODEL)
    write_measurements(folder / MODEL, pipeline, about, [*measurements[:-1], _beside(private, not_private)])
    majority = dict(private.compared_with)[MOST_FREQUENT]
    accuracy = {"private": private.value, "not_private": not_private.value, "majority": majority}
    return accuracy | {"best": others.best_accuracy}, trained


def _beside(private: Measurement, plain: Measurement) -> Measurement:
    """Compare a measurement with that of a model trained without privacy."""
    assert plain.low is not None
    assert plain.high is not None
    estimate = Estimate(kind=NOT_PRIVATE, value=plain.value, low=plain.low, high=plain.high)
    note = (
        f"Chance moves an accuracy on one test set of this size by up to {50 * (plain.high - plain.low):.1f} points. A smaller "
        "difference between two models says nothing: the private one may look better on these people, and worse on others."
    )
    compared = (*private.compared_with, (NOT_PRIVATE, plain.value))
    return replace(private, compared_with=compared, estimates=(*private.estimates, estimate), note=note)


def _make_room(folder: pathlib.Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        own = (MARK, CENSUS, SCHEMA, NEW_PEOPLE, MODEL)
        names = [path.name for path in folder.iterdir()]
        if MARK not in names or not all(name in own or name.startswith(LEDGER) for name in names):
            raise InvalidArgument(f"out {str(folder)!r} holds other files. Pass an empty or a new folder.")
        # The people are synthetic, so their ledger may go.
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    about = "Everything in this folder is synthetic, and is replaced by the next demo.\n"
    (folder / MARK).write_text(about, encoding="utf-8")


def census_schema(census: Census) -> Schema:
    """Return the schema of a synthetic census without reading its rows."""
    columns: list[Column] = []
    for name, facts in census.schema_facts.items():
        missing = facts.may_be_missing
        if facts.lower is not None and facts.upper is not None:
            columns.append(Number(name=name, range=(facts.lower, facts.upper), missing=missing))
        elif name != census.target:
            columns.append(Category(name=name, categories=tuple(facts.categories), missing=missing))
    return Schema(tuple(columns), ClassTarget(name=census.target, classes=tuple(census.classes)))
