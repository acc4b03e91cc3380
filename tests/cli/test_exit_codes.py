"""Exit codes that scripts can trust; and nothing is paid for when something is refused."""

import os
import pathlib
import re
import resource
import sqlite3
import subprocess
from contextlib import closing

import pytest

from privypurse.cli._ledger import NOT_CHECKED
from privypurse.cli._output import EXIT_CODES
from privypurse.runs.folder import load_model
from tests.cli.commands import (
    EXECUTABLE,
    LEDGER,
    TARGET,
    TIMEOUT_S,
    environment,
    leftovers,
    lines,
    payments,
    refusal,
    run,
    training,
)

WRONG_INPUT, BUDGET_REFUSED, LEDGER_TROUBLE, FILE_TROUBLE = 2, 3, 4, 5
AGAIN = ("--out", "second")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["trian"], "train"),
        (["train", "census.csv", "--target", TARGET, "--epsilon", "1", "--colour"], "--colour"),
        (training("census.csv", *AGAIN, epsilon="much"), "epsilon"),
        (training("census.csv", *AGAIN, epsilon=-1), "epsilon must be a finite number above 0; got -1"),
        pytest.param(
            *(training("census.csv", *AGAIN, epsilon=0), "above 0; got 0"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(training("census.csv", *AGAIN, epsilon="nan"), "above 0; got nan"),
            marks=pytest.mark.slow,
        ),
        (training("census.csv", *AGAIN, "--method", "nestrov"), "nestrov"),
        pytest.param(*(training("census.csv", *AGAIN, "--model", "ridge"), "ridge"), marks=pytest.mark.slow),
        (training("nowhere.csv", *AGAIN), "nowhere.csv"),
        (training("census.csv", *AGAIN, schema="nowhere.toml"), "nowhere.toml"),
        (["train", "census.csv", "--target", "high_incom", "--epsilon", "1", *AGAIN], f"Did you mean '{TARGET}'?"),
        (training("census.csv"), "--overwrite"),
        (["predict", "nowhere", "new.csv"], "not a privypurse model"),
        pytest.param(*(["plan", "-n", 100, "-d", 5, "-e", "inf"], "epsilon"), marks=pytest.mark.slow),
    ],
    ids=lambda value: value.replace(" ", "-")[:20] if isinstance(value, str) else "",
)
def test_wrong_input_is_2_and_costs_nothing(arguments, hint, trained):
    before = payments(trained)
    assert hint in refusal(trained, WRONG_INPUT, *arguments)
    assert payments(trained) == before
    assert not (trained / "second").exists()
    assert not leftovers(trained)


def test_a_refused_budget_is_3_and_costs_nothing(trained):
    before = lines(trained / LEDGER)
    message = refusal(trained, BUDGET_REFUSED, *training("census.csv", *AGAIN, epsilon=2.9))
    assert "Nothing was spent" in message
    assert "2.7" in message, "what is left is said"
    assert lines(trained / LEDGER) == before
    assert not leftovers(trained)


def test_a_frozen_account_is_3_and_costs_nothing(trained):
    assert run(trained, "ledger", "freeze", "--dataset", "census.csv", "--why", "study ended", "--yes").returncode == 0
    before = lines(trained / LEDGER)
    message = refusal(trained, BUDGET_REFUSED, *training("census.csv", *AGAIN, epsilon=0.1))
    assert "frozen" in message
    assert lines(trained / LEDGER) == before


@pytest.mark.parametrize(
    "term",
    [
        ("--budget", 4),
        pytest.param(("--delta", 1e-7), marks=pytest.mark.slow),
        pytest.param(("--neighbouring", "replace-one"), marks=pytest.mark.slow),
    ],
)
def test_other_terms_are_4_and_cost_nothing(term, trained):
    before = lines(trained / LEDGER)
    message = refusal(trained, LEDGER_TROUBLE, *training("census.csv", *AGAIN, *term, epsilon=0.1))
    assert term[0] in message
    assert lines(trained / LEDGER) == before


def edit(ledger: pathlib.Path, statement: str) -> None:
    """Change a ledger as somebody would who does not want it to be noticed."""
    with closing(sqlite3.connect(ledger)) as base, base:
        for verb in ("update", "delete"):
            base.execute(f"DROP TRIGGER entries_{verb}")
        assert base.execute(statement).rowcount > 0


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET who = 'somebody else' WHERE seq = 5",
        pytest.param("DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)", marks=pytest.mark.slow),
    ],
    ids=["edited", "cut"],
)
def test_a_ledger_that_was_edited_is_4_everywhere(statement, trained):
    edit(trained / LEDGER, statement)
    refusal(trained, LEDGER_TROUBLE, "ledger", "verify")
    before = lines(trained / LEDGER)
    refusal(trained, LEDGER_TROUBLE, *training("census.csv", *AGAIN, epsilon=0.1))
    assert lines(trained / LEDGER) == before
    assert not (trained / "second").exists()


@pytest.mark.slow
def test_another_ledger_than_the_certificates_is_4(trained):
    assert run(trained, *training("new.csv", "--ledger", "other.db", *AGAIN, epsilon=0.5)).returncode == 0
    refusal(
        trained, LEDGER_TROUBLE, "ledger", "verify", "--ledger", "other.db", "--certificate", "model/certificate.json"
    )
    refusal(trained, LEDGER_TROUBLE, "ledger", "show", "--ledger", "nowhere.db")
    assert not (trained / "nowhere.db").exists()


def test_a_model_that_does_not_fit_is_5_and_is_kept_elsewhere(trained):
    before = payments(trained)

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    message = refusal(trained, FILE_TROUBLE, *training("census.csv", *AGAIN), preexec_fn=full)
    assert load_model(message.split("It is in '")[1].split("'")[0])[-1].coef_.size
    assert payments(trained) > before
    assert not (trained / "second").exists()
    assert not leftovers(trained)


def test_predictions_that_do_not_fit_leave_the_old_file(trained):
    (trained / "answers.csv").write_text("old\n")

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))

    refusal(
        trained, FILE_TROUBLE, "predict", "model", "census.csv", "--out", "answers.csv", "--overwrite", preexec_fn=full
    )
    assert (trained / "answers.csv").read_text() == "old\n"
    assert not leftovers(trained)


def test_a_full_disk_behind_stdout_is_5(trained):
    with pathlib.Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [EXECUTABLE, "predict", "model", "census.csv"],
            cwd=trained,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == FILE_TROUBLE
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights_is_5(trained):
    (trained / "closed").mkdir(mode=0o500)
    before = payments(trained)
    refusal(trained, FILE_TROUBLE, *training("census.csv", "--out", "closed/model", epsilon=0.1))
    assert payments(trained) == before


def test_the_help_names_every_exit_code():
    documented = pathlib.Path(__file__).parents[2] / "docs" / "command_line.md"
    _, _, table = documented.read_text(encoding="utf-8").partition("## Exit codes")
    codes = {int(found) for found in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert codes >= {0, 1, 2, 3, 4, 5, 6, 7, NOT_CHECKED, 130}
    for code in codes:
        assert re.search(rf"[:;\s]{code} [a-z]", EXIT_CODES), code
