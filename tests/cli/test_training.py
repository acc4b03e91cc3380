"""`privypurse train` from a file to a model folder, and what it leaves on the ledger."""

import csv
import json

import pandas as pd
import pytest

from privypurse.runs.folder import load_model
from tests.cli.commands import (
    DRAFTED,
    LEDGER,
    TARGET,
    TIMEOUT_S,
    leftovers,
    lines,
    payments,
    reopened,
    result,
    run,
    start,
    training,
)

FILES = {
    "certificate.json",
    "certificate.txt",
    "manifest.json",
    "measurements.json",
    "model.json",
    "report.html",
    "run.json",
    "schema.toml",
    "trace.json",
}


def test_the_folder_holds_model_certificate_trace_and_report(trained_once):
    assert {path.name for path in (trained_once / "model").iterdir()} == FILES
    assert not leftovers(trained_once)
    certificate = json.loads((trained_once / "model" / "certificate.json").read_text())
    assert certificate["private"] is True
    assert not any(DRAFTED in what for what in certificate["uncovered"])
    report = (trained_once / "model" / "report.html").read_text()
    assert "privypurse train census.csv" in report


def test_what_is_said_of_a_training(trained_once):
    said = (trained_once / "stdout.txt").read_text()
    assert "private: (1, 1e-06)-differentially private, add-remove" in said
    assert "spent:   epsilon 1 of 3 on data set 'census.csv'" in said
    assert "model:   model\n" in said
    asides = (trained_once / "stderr.txt").read_text()
    assert "account opened on privypurse-ledger.db" in asides
    for stage in ("reading census.csv", "preparing", "training", "measuring", "writing"):
        assert f"\n{stage}" in f"\n{asides}"


def test_the_model_loads_from_python_and_answers_as_the_command_does(trained):
    model = load_model(trained / "model")
    table = pd.read_csv(trained / "new.csv", keep_default_na=False)
    answers = model.predict(table)
    assert run(trained, "predict", "model", "new.csv", "--out", "answers.csv").returncode == 0
    with (trained / "answers.csv").open() as file:
        assert [row["prediction"] for row in csv.DictReader(file)] == answers.tolist()
    assert (answers == table[TARGET]).mean() > 0.6


def test_without_a_schema_the_certificate_names_the_draft(census):
    done = run(census, *training("census.csv", "--json", schema=None))
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert any(DRAFTED in what for what in made["uncovered"])
    certificate = (census / "model" / "certificate.txt").read_text()
    assert DRAFTED in certificate
    assert DRAFTED in (census / "model" / "report.html").read_text()
    assert "no guarantee covers" in done.stderr
    assert any(DRAFTED in what for what in reopened(census).certificate().uncovered)


@pytest.mark.slow
def test_bought_ranges_are_paid_for_and_leave_no_note_on_them(census):
    made = result(census, *training("census.csv", "--buy-ranges", "--no-intervals", schema=None))
    assert made["spent_epsilon"] <= 1
    described = (census / "model" / "schema.toml").read_text()
    assert described.count('source = "bought"') == described.count("range = [")
    assert not any(what.startswith("ranges") and "age" in what and DRAFTED in what for what in made["uncovered"])


def test_a_second_run_to_the_same_place_needs_a_word_and_replaces_all_of_it(trained):
    before = payments(trained)
    old = (trained / "model" / "model.json").read_text()
    assert run(trained, *training("census.csv", epsilon=0.5)).returncode == 2
    assert payments(trained) == before
    assert (trained / "model" / "model.json").read_text() == old
    made = result(trained, *training("census.csv", "--overwrite", "--no-intervals", epsilon=0.5))
    assert payments(trained) > before
    assert (trained / "model" / "model.json").read_text() != old
    assert made["budget"]["spent_epsilon"] > 1.0
    assert {path.name for path in (trained / "model").iterdir()} == FILES
    assert not leftovers(trained)


def test_a_folder_that_is_no_model_is_never_replaced(census):
    (census / "thesis").mkdir()
    (census / "thesis" / "chapter.txt").write_text("years of work")
    assert run(census, *training("census.csv", "--out", "thesis", "--overwrite")).returncode == 2
    assert (census / "thesis" / "chapter.txt").read_text() == "years of work"
    assert payments(census) == 0


def test_two_runs_at_once_keep_within_one_budget(census):
    assert run(census, *training("census.csv", "--budget", 1.5, "--out", "first", "--no-intervals")).returncode == 0
    runs = [
        start(census, *training("census.csv", "--out", name, "--no-intervals", epsilon=0.9))
        for name in ("second", "third")
    ]
    codes = sorted(process.wait(timeout=TIMEOUT_S) for process in runs)
    for process in runs:
        process.communicate()
    assert 1 < reopened(census).spent.epsilon <= 1.5
    # What one needs is held for it, and the other is refused: nothing is spent in vain.
    assert codes == [0, 3]
    for name, process in zip(("second", "third"), runs, strict=True):
        assert (census / name).exists() == (process.returncode == 0)
    assert not leftovers(census)


def test_a_simulation_is_marked_everywhere_and_leaves_the_real_account_alone(trained):
    before = [line for line in lines(trained / LEDGER) if line[0] == "census.csv"]
    done = run(trained, *training("census.csv", "--simulate", 7, "--out", "toy", epsilon=2.9))
    assert done.returncode == 0, done.stderr
    assert "NOT PRIVATE" in done.stdout
    assert "paid for" not in done.stdout
    assert "differentially private" not in done.stdout
    assert "NOT PRIVATE" in (trained / "toy" / "certificate.txt").read_text().upper()
    certificate = json.loads((trained / "toy" / "certificate.json").read_text())
    assert certificate["private"] is False
    assert certificate["simulation"] is True
    assert "NOT PRIVATE" in (trained / "toy" / "report.html").read_text().upper()
    assert [line for line in lines(trained / LEDGER) if line[0] == "census.csv"] == before


@pytest.mark.slow
def test_a_simulation_can_be_repeated(census):
    made = []
    for name in ("one", "two"):
        found = result(
            census, *training("census.csv", "--simulate", 7, "--out", name, "--no-intervals", "--ledger", f"{name}.db")
        )
        assert (found["private"], found["simulation"]) == (False, True)
        made.append(json.loads((census / name / "model.json").read_text()))
    assert made[0] == made[1]


@pytest.mark.slow
def test_names_of_all_kinds(census):
    name = "out with spaces, ünïcode"
    made = result(census, *training("census.csv", "--out", name, "--dataset", f"[bold]{name}", "--no-intervals"))
    assert made["budget"]["dataset"] == f"[bold]{name}"
    assert f"[bold]{name}" in run(census, "ledger", "show").stdout
    assert (census / name / "manifest.json").exists()
