"""The main job on a made-up census, from a CSV file to a report, with what privacy costs there."""

import pathlib
import shutil
import warnings
from dataclasses import dataclass

from sklearn.linear_model import LogisticRegression

from privypurse.core.errors import InvalidArgument
from privypurse.datasets import make_census
from privypurse.jobs.account import LEDGER, Account
from privypurse.jobs.census_schema import census_schema
from privypurse.jobs.evaluate import evaluate_file
from privypurse.jobs.measure import measure
from privypurse.jobs.progress import Progress
from privypurse.jobs.rows import read_rows
from privypurse.jobs.train import TrainResult, TrainSettings, train_file
from privypurse.tables.files import TableFile
from privypurse.tables.schema_file import read_schema, write_schema

MARK = "made-by-privypurse-demo.txt"
CENSUS, SCHEMA, NEW_PEOPLE, MODEL = "census.csv", "census.toml", "new_people.csv", "model"


# Fewer may all be of one class, and there is nothing to compare.
FEWEST_PEOPLE = 100


@dataclass(frozen=True)
class DemoResult:
    """What came out: accuracies on new people, and the training."""

    private: float
    not_private: float
    majority: float
    best: float
    trained: TrainResult


def run_demo(folder: pathlib.Path, *, rows: int, epsilon: float, progress: Progress) -> DemoResult:
    """Make up a census, train on its CSV file, measure on other made-up people, and compare with scikit-learn.

    Parameters
    ----------
    folder : path
        For everything that is written. What an earlier demo left there is replaced.
    rows : int
        People in the census.
    epsilon : float
        The budget.
    progress : Progress
        Told of stages.
    """
    if rows < FEWEST_PEOPLE:
        raise InvalidArgument(f"rows must be {FEWEST_PEOPLE} or more for a demo; got {rows}. Leave it out for 30,000.")
    _make_room(folder)
    progress.stage(f"making up a census of {rows:,} people")
    census, others = make_census(rows, seed=1), make_census(20_000, seed=2)
    census.to_csv(folder / CENSUS)
    others.to_csv(folder / NEW_PEOPLE)
    (folder / SCHEMA).write_text(write_schema(census_schema(census)), encoding="utf-8")
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
        warnings.simplefilter("ignore")  # that it might have gone on a little
        plain = LogisticRegression(max_iter=300).fit(rows_read.X, rows_read.y)
    if schema.target is None:
        raise InvalidArgument("the demo's schema has lost its target. Run the demo again.")
    not_private = measure(plain, test, schema.target, on="new people", public=True)
    majority = dict(private.compared_with)["always the most frequent class"]
    return DemoResult(private.value, not_private.value, majority, others.best_accuracy, trained)


def _make_room(folder: pathlib.Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).exists():
            raise InvalidArgument(f"out {str(folder)!r} has other things in it. Pass an empty folder, or a new one.")
        # The people are made up, so nobody's budget is lost with their ledger.
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    (folder / MARK).write_text(
        "Everything in this folder is made up, and is replaced by the next demo.\n", encoding="utf-8"
    )
