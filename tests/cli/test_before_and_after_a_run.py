"""What a run would cost and leave; words for budgets that protect little; one name for an option."""

import csv
import pathlib

import pytest

from privypurse import Purse
from privypurse.cli._options import METHODS
from privypurse.methods._by_name import BY_NAME
from tests.cli.commands import LEDGER, environment, lines, payments, refusal, result, run, training

PLAN = ("plan", "-n", 3_000, "--features", 51, "--no-rehearse")


def _files(folder: pathlib.Path) -> dict[pathlib.Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dry_run_writes_nothing_and_foretells_what_the_run_leaves(trained):
    before = _files(trained)
    again = training("census.csv", "--out", "second", "--no-intervals")
    told = run(trained, *again, "--dry-run")
    assert told.returncode == 0, told.stderr
    first, cost, leaves, model = told.stdout.splitlines()
    assert first == "dry run: every check before payment passed; nothing was spent, and nothing is left on the disk"
    uses = "0.5 % counts the lines left out, 6 % releases 5 curves, 3 % to 10 % measures the model"
    assert cost == f"cost:    epsilon 1 at delta 1e-06, add-remove: {uses}, the rest prepares and trains it"
    assert leaves.startswith(
        "leaves:  epsilon 1.455 of 3 spent on data set 'census.csv' (1 before, privypurse-ledger.db);"
    )
    assert model == "model:   second (not written)"
    assert _files(trained) == before
    assert not (trained / "second").exists()
    done = run(trained, *again)
    assert (
        done.stdout.splitlines()[2] == "spent:   epsilon 1.455 of 3 on data set 'census.csv'; " + leaves.split("; ")[1]
    )


def test_a_dry_run_of_a_new_account_says_that_its_budget_would_be_fixed(census):
    before = sorted(census.iterdir())
    told = run(census, *training("census.csv", "--dry-run"))
    assert "would be all that may ever be spent on data set 'census.csv'" in told.stderr
    assert "a new account" in told.stdout
    assert "left for one more run: nothing" in told.stdout
    assert sorted(census.iterdir()) == before
    found = result(census, *training("census.csv", "--dry-run", "--budget", 2))
    assert (found["dry_run"], found["ledger"]["new_account"], found["ledger"]["budget"]) == (True, True, 2)
    assert sorted(census.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (training("census.csv", "--out", "second", epsilon=2.9), 3, "2.7"),
        (training("census.csv"), 2, "--overwrite"),
        (training("census.csv", "--out", "second", "--budget", 4), 4, "--budget"),
        (training("census.csv", "--out", "second", "--ledger", "nowhere/l.db"), 4, "nowhere"),
    ],
    ids=["budget", "model", "terms", "ledger"],
)
def test_a_dry_run_is_refused_as_the_run_would_be(trained, arguments, code, hint):
    before = _files(trained)
    assert hint in refusal(trained, code, *arguments, "--dry-run")
    assert _files(trained) == before


def test_a_plan_says_what_it_would_leave_on_a_ledger(trained):
    before = _files(trained)
    told = run(trained, *PLAN, "-e", 1, "--ledger", LEDGER, "--dataset", "census.csv")
    assert "leaves: epsilon 1.455 of 3 spent on data set 'census.csv' (1 before, privypurse-ledger.db);" in told.stdout
    found = result(trained, *PLAN, "-e", 1, "--dataset", "census.csv")["ledger"]
    assert (found["epsilon"], found["budget"]) == (pytest.approx(1), 3)
    assert "is left of the 3" in refusal(trained, 3, *PLAN, "-e", 2.9, "--dataset", "census.csv")
    assert "is not on the ledger" in refusal(trained, 2, *PLAN, "-e", 1, "--dataset", "nobody")
    assert "--dataset" in refusal(trained, 2, *PLAN, "-e", 1, "--ledger", LEDGER)
    assert "Leave --delta out" in refusal(trained, 4, *PLAN, "-e", 1, "--dataset", "census.csv", "--delta", 1e-8)
    assert _files(trained) == before


def test_a_budget_that_protects_nothing_is_called_so_everywhere(census):
    done = run(census, *training("census.csv", "--no-intervals", epsilon=1e6))
    assert "--epsilon: epsilon 1,000,000 protects nothing; the output may change the odds" in done.stderr
    assert done.stdout.startswith("NOT PRIVATE: epsilon 1,000,000 protects nothing; formally (1e+06, 1e-06)-diff")
    assert ">NOT PRIVATE: epsilon 1,000,000 protects nothing</span>" in (census / "model/report.html").read_text()
    weak = run(census, *training("census.csv", "--no-intervals", "--dataset", "b", "--out", "weak", epsilon=9))
    assert "--epsilon: epsilon 9 protects little" in weak.stderr
    assert weak.stdout.startswith("weak:    (9, 1e-06)-differentially private, add-remove; epsilon 9 protects little\n")
    assert ">WEAK: epsilon 9 protects little</span>" in (census / "weak/report.html").read_text()


def test_a_schema_read_from_the_data_is_no_better_than_weak(census):
    done = run(census, *training("census.csv", "--no-intervals", schema=None))
    assert done.stdout.startswith("weak:    (1, 1e-06)-differentially private, add-remove; schema read from the data\n")
    assert ">WEAK: schema read from the data</span>" in (census / "model/report.html").read_text()


def test_evaluate_says_that_it_fixes_a_budget_and_which_figures_are_exact(trained):
    paid = run(trained, "evaluate", "model", "new.csv", "--epsilon", 0.5)
    assert "no --budget: the epsilon 0.5 of this run is all that may ever be spent on data set 'new.csv'" in paid.stderr
    assert "account opened on privypurse-ledger.db: data set 'new.csv', epsilon 0.5 in all" in paid.stderr
    exact = run(trained, "evaluate", "model", "new.csv")
    assert ", exact, NOT private unless these records are public; " in exact.stdout.splitlines()[0]


def test_predict_refuses_a_file_that_does_not_match_by_name(trained):
    with (trained / "new.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for name in ("age", "job"):
        for row in rows:
            row[name] = "secret"
    _write(trained / "odd.csv", rows)
    said = refusal(trained, 2, "predict", "model", "odd.csv", "--out", "answers.csv")
    assert "columns 'age', 'job' (2 of 12) of 'odd.csv' cannot be read: no value at the start" in said
    assert "secret" not in said
    assert not (trained / "answers.csv").exists()
    _write(trained / "few.csv", rows[:1])  # one odd record is answered
    done = run(trained, "predict", "model", "few.csv", "--out", "answers.csv")
    assert done.stdout == "1 prediction: answers.csv\n"
    assert "column 'age': 1 of 1 value not as in the schema, taken as unknown" in done.stderr
    assert "'age' is not in" in refusal(
        trained, 2, "predict", "model", _write(trained / "less.csv", [{"job": row["job"]} for row in rows])
    )


def _write(path: pathlib.Path, rows: list[dict[str, str]]) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path.name


def test_long_names_are_shown_whole(tmp_path):
    name = "survey_of_every_household_in_the_district_in_the_years_2019_to_2026_second_edition"
    Purse(1.0, 1e-6, neighbouring="add_remove", dataset=name, ledger=tmp_path / LEDGER)
    shown = run(tmp_path, "ledger", "show", "--ledger", LEDGER).stdout.splitlines()
    assert name in "".join(line.split()[0] for line in shown)


def test_a_ledger_is_named_by_one_option_and_still_as_before(trained):
    shown = run(trained, "ledger", "show", "--ledger", LEDGER).stdout
    assert "census.csv" in shown
    assert run(trained, "ledger", "show", LEDGER).stdout == shown
    assert "Pass --ledger only" in refusal(trained, 2, "ledger", "show", "other.db", "--ledger", LEDGER)


@pytest.mark.parametrize(
    ("typed", "answers"),
    [
        ("train census.csv --method pur-n", ["pur-nonconvex"]),
        ("compare census.csv --methods auto,dp-a", ["auto,dp-agd"]),
        ("train census.csv --schema cen", ["census.toml"]),
        ("train census.csv --dataset c", ["census.csv"]),
        (f"plan --ledger {LEDGER} --dataset c", ["census.csv"]),
        ("ledger show --dataset c", ["census.csv"]),
        ("ledger show --ledger nowhere.db --dataset c", []),
    ],
)
def test_values_of_options_are_completed(trained, typed, answers):
    words = f"privypurse {typed}"
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = run(trained, env=environment(_PRIVYPURSE_COMPLETE="complete_bash", **asked))
    assert done.stdout.split() == answers
    assert not done.stderr


def test_completed_methods_are_all_methods():
    assert set(METHODS) == set(BY_NAME)


def test_one_is_singular(tmp_path):
    assert run(tmp_path, "data", "census", "--rows", 1, "--out", "a.csv").stdout.startswith("1 row: a.csv")
    assert run(tmp_path, "data", "convert", "a.csv", "a.parquet").stdout.startswith("1 record, 0 with line breaks")
    assert "1 record, 1 column, epsilon 1" in run(tmp_path, "plan", "-n", 1, "-d", 1, "-e", 1, "--no-rehearse").stdout
    assert payments(tmp_path) == 0
    assert not lines(tmp_path / LEDGER)


def test_a_plan_by_a_schema_says_what_training_does_besides(trained):
    told = run(trained, "plan", "-n", 3_000, "--schema", "model/schema.toml", "--epsilon", 1, "--no-rehearse")
    assert told.returncode == 0, told.stderr
    assert "knots of curves" not in told.stderr  # it has its knots
    (trained / "ages.toml").write_text(
        '[target]\ncolumn = "age"\nrange = [0, 90]\n\n[columns.hours]\nrange = [0, 99]\n', encoding="utf-8"
    )
    told = run(trained, "plan", "-n", 3_000, "--schema", "ages.toml", "--epsilon", 1, "--no-rehearse")
    assert "knots of curves for 1 column of numbers first" in told.stderr
    assert "the target is a number" in told.stderr
