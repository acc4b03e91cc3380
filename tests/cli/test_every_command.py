"""Every command, as words and as JSON, with the real executable."""

import csv
import io
import json
import pathlib
import subprocess
import sys

import pytest
import typer

from privypurse import __version__
from privypurse.cli._app import app
from tests.cli.commands import LEDGER, TARGET, TIMEOUT_S, environment, lines, result, run

COMMANDS = ("train", "predict", "evaluate", "plan", "compare", "schema", "report", "data")
LEDGER_COMMANDS = ("show", "verify", "export", "freeze")
PLAN = ("plan", "--records", 40_000, "--features", 124, "--epsilon", 0.1, "--delta", 1e-8)


@pytest.mark.parametrize(
    "command",
    [
        (),
        *((name,) for name in COMMANDS),
        ("data", "convert"),
        ("ledger",),
        *(("ledger", name) for name in LEDGER_COMMANDS),
    ],
    ids=lambda command: " ".join(command) or "privypurse",
)
def test_help_of_each_command_has_examples(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    # In this process: to start the program for each of them would take half a minute.
    typer.main.get_command(app).main([*command, "--help"], prog_name="privypurse", standalone_mode=False)
    said = capsys.readouterr().out
    assert "Examples" in said
    assert " ".join(("privypurse", *command)) in said[said.index("Examples") :]
    assert "3 budget refused; 4 ledger error" in " ".join(said.split())


def test_the_first_page_of_help_names_all_commands_and_exit_codes(tmp_path):
    said = run(tmp_path, "--help").stdout
    for name in (*COMMANDS, "ledger"):
        assert f" {name} " in said
    for code in ("2 wrong", "3 budget refused", "4 ledger error", "5 a file", "130 interrupted"):
        assert code in " ".join(said.split())


def test_version_is_printed_by_the_executable_and_by_the_module(tmp_path):
    assert run(tmp_path, "--version").stdout == f"privypurse {__version__}\n"
    done = subprocess.run(
        [sys.executable, "-m", "privypurse", "--version"],
        cwd=tmp_path,
        env=environment(),
        text=True,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert done.stdout == f"privypurse {__version__}\n"


def test_shell_completion_is_made_and_answers(tmp_path):
    script = run(tmp_path, env=environment(_PRIVYPURSE_COMPLETE="source_bash"))
    assert "_PRIVYPURSE_COMPLETE=complete_bash" in script.stdout
    asked = environment(_PRIVYPURSE_COMPLETE="complete_bash", COMP_WORDS="privypurse ledger ", COMP_CWORD="2")
    answer = run(tmp_path, env=asked)
    assert set(LEDGER_COMMANDS) <= set(answer.stdout.split())


def test_plan_as_json_has_the_documented_keys(tmp_path):
    plan = result(tmp_path, *PLAN, "--no-rehearse")
    assert {"steps", "clip_norm", "step_sizes", "noise_std", "mu"} <= set(plan)
    assert plan["steps"] >= 1
    assert plan["clip_norm"] > 0
    assert len(plan["noise_std"]) == len(plan["mu"])
    assert all(size > 0 for size in plan["noise_std"])
    assert plan["rehearsal"] is None
    assert not any(tmp_path.iterdir()), "a plan spends nothing and writes nothing"


def test_plan_in_words_says_steps_and_noise_and_what_it_may_cost(tmp_path):
    done = run(tmp_path, "plan", "-n", 5_000, "-d", 20, "-e", 1, "--plot", "plan.html")
    assert done.returncode == 0, done.stderr
    for word in ("steps", "clip norm", "noise std", "rehearsal", "without privacy", "plot: plan.html"):
        assert word in done.stdout
    assert (tmp_path / "plan.html").read_text().lower().startswith("<!doctype html>")
    wrong = run(tmp_path, "plan", "-n", 5_000, "-d", 20, "-e", 1, "--plot", "plan.png")
    assert wrong.returncode == 2
    assert "a name that ends in .html for --plot, got 'plan.png'. Pass for example 'plan.html'" in wrong.stderr
    assert not (tmp_path / "plan.png").exists()


def test_plan_compares_every_method(tmp_path):
    plans = result(tmp_path, *PLAN, "--compare", "--no-rehearse")["plans"]
    assert {"auto", "nesterov", "dp-agd", "adp-sgd"} <= set(plans)
    assert all(plan["steps"] >= 1 for plan in plans.values())


def test_data_lists_what_there_is(tmp_path):
    assert "census" in run(tmp_path, "data").stdout
    assert "census" in result(tmp_path, "data")["data"]


def test_data_writes_a_census_with_its_description(tmp_path):
    made = result(tmp_path, "data", "census", "--rows", 200, "--out", "a.csv", "--schema", "a.toml")
    assert made["rows"] == 200
    assert made["target"] == TARGET
    assert 0.5 < made["majority_accuracy"] < made["best_accuracy"] < 1
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 201
    again = run(tmp_path, "data", "census", "--rows", 10, "--out", "a.csv")
    assert again.returncode == 2
    assert "--overwrite" in again.stderr
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 201


def test_schema_drafts_on_stdout_and_warns_that_it_is_not_covered(trained):
    done = run(trained, "schema", "census.csv", "--target", TARGET)
    assert done.returncode == 0
    assert "[columns.age]" in done.stdout
    assert 'source = "data"' in done.stdout
    assert "not covered" in done.stderr
    drafted = result(trained, "schema", "census.csv", "--target", TARGET, "--out", "draft.toml")
    assert drafted["covered"] is False
    assert (trained / "draft.toml").read_text() == drafted["schema"] == done.stdout


def test_schema_checks_a_file_against_a_description(trained):
    found = result(trained, "schema", "census.csv", "--check", "census.toml")
    assert found["covered"] is False
    assert {line["column"] for line in found["columns"]} >= {"age", "region"}
    assert all(line["unknown"] == 0 for line in found["columns"])
    shown = run(trained, "schema", "census.csv", "--check", "census.toml").stdout
    assert "on no list" in shown
    beyond = {line["column"]: line["beyond"] for line in found["columns"]}
    assert (beyond["age"], beyond["region"]) == (0, None), "a column without a range has nothing beyond it"
    assert [line.count("%") for line in shown.splitlines() if line.lstrip().startswith(("age", "region"))] == [3, 2]


def test_predict_prints_a_line_for_each_record(trained):
    done = run(trained, "predict", "model", "new.csv")
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 500
    assert {row["prediction"] for row in rows} <= {"no", "yes"}
    assert all(
        abs(float(row["probability of no"]) + float(row["probability of yes"]) - 1) < 1e-5
        and (row["prediction"] == "yes") == (float(row["probability of yes"]) > 0.5)
        for row in rows
        if row["probability of yes"] != "0.5"
    )
    as_json = result(trained, "predict", "model", "new.csv")
    assert as_json["predictions"] == [row["prediction"] for row in rows]
    assert as_json["rows"] == 500


def test_predict_writes_a_file(trained):
    made = result(trained, "predict", "model", "new.csv", "--out", "answers.csv")
    assert made["out"] == "answers.csv"
    assert len((trained / "answers.csv").read_text().splitlines()) == 501


def test_evaluate_is_exact_and_says_so(trained):
    done = run(trained, "evaluate", "model", "new.csv")
    assert done.returncode == 0
    assert "exact, NOT private unless these records are public" in done.stdout
    assert "not covered by any guarantee" in done.stderr
    public = result(trained, "evaluate", "model", "new.csv", "--public")
    assert public["metric"] == "accuracy"
    assert (public["paid"], public["public"], public["budget"]) == (False, True, None)
    assert 0 <= public["low"] <= public["value"] <= public["high"] <= 1
    report = (trained / "model" / "report.html").read_text()
    assert "new.csv" in report


def test_evaluate_pays_from_the_purse_of_the_new_records(trained):
    paid = result(trained, "evaluate", "model", "new.csv", "--epsilon", 0.5)
    assert paid["paid"] is True
    assert paid["budget"]["dataset"] == "new.csv"
    assert paid["budget"]["spent_epsilon"] == pytest.approx(0.5)
    names = {account["dataset"] for account in result(trained, "ledger", "show")["datasets"]}
    assert names == {"census.csv", "new.csv"}


def test_report_is_made_again(trained):
    (trained / "model" / "report.html").unlink()
    assert run(trained, "report", "model").returncode == 0
    assert "census.csv" in (trained / "model" / "report.html").read_text()
    assert result(trained, "report", "model", "--out", "elsewhere.html") == {"report": "elsewhere.html"}
    assert (trained / "elsewhere.html").stat().st_size > 10_000


def test_ledger_show_tells_limit_spent_left_and_who(trained):
    shown = result(trained, "ledger", "show")
    (account,) = shown["datasets"]
    assert account["dataset"] == "census.csv"
    assert account["epsilon"] == 3
    assert account["spent_epsilon"] == pytest.approx(1)
    assert 2 < account["remaining_epsilon"] < 3
    assert account["people"]
    words = run(trained, "ledger", "show", "--ledger", LEDGER, "--dataset", "census.csv").stdout
    assert "terms: epsilon 3, delta 1e-06, add-remove" in words


def test_ledger_verify_checks_a_certificate_too(trained):
    found = result(trained, "ledger", "verify")
    assert found["intact"] is True
    assert found["lines"] > 10
    words = run(trained, "ledger", "verify", "--ledger", LEDGER, "--certificate", "model/certificate.json")
    assert words.returncode == 0
    assert "continues the one the certificate was made from" in words.stdout


def test_ledger_export_as_csv_and_json(trained):
    rows = list(csv.DictReader(io.StringIO(run(trained, "ledger", "export").stdout)))
    assert rows[0]["kind"] == "open"
    assert result(trained, "ledger", "export", "--out", "lines.json")["lines"] == len(rows)
    entries = json.loads((trained / "lines.json").read_text())["entries"]
    assert [entry["sha256"] for entry in entries] == [row["sha256"] for row in rows]


def test_ledger_freeze_asks_first_and_closes_for_good(trained):
    freeze = ("ledger", "freeze", "--dataset", "census.csv", "--why", "study ended")
    declined = run(trained, *freeze, input="n\n")
    assert declined.returncode == 1
    assert "not frozen" in declined.stderr
    assert not lines(trained / LEDGER, "freeze")
    assert result(trained, *freeze, input="y\n")["already"] is False
    assert result(trained, *freeze)["already"] is True, "and does not ask again"
    (account,) = result(trained, "ledger", "show")["datasets"]
    assert account["frozen"] is True
    assert account["remaining_epsilon"] == 0
    assert "study ended" in account["frozen_because"]


def test_output_that_nobody_reads_to_its_end_ends_quietly(trained: pathlib.Path):
    for more in ("", " --json"):
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {sys.executable} -m privypurse predict model census.csv{more} | head -1"],
            cwd=trained,
            env=environment(),
            text=True,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0
        assert len(done.stdout.splitlines()) == 1
        assert "Error" not in done.stderr
        assert "Traceback" not in done.stderr
