"""Ctrl-C, a polite request and a rude one, at several moments: no half model, no lost spending."""

import json
import pathlib
import shutil
import signal

import pytest

from tests.cli.commands import LEDGER, end, leftovers, lines, reopened, result, run, start, training, until, until_line

INTERRUPTED = 130


@pytest.fixture
def place(large: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of its own with the large census."""
    for name in ("census.csv", "census.toml", "small.csv"):
        (tmp_path / name).hardlink_to(large / name)
    return tmp_path


def begin(place: pathlib.Path, moment: str):
    """Start a training, and come back at a moment of it."""
    process = start(place, *training("census.csv", "--budget", 3, "--json"))
    if moment == "preparing":
        until(lambda: bool(lines(place / LEDGER, "charge")), process)
    elif moment == "training":  # the first block for gradients is paid, and far from used up
        until(lambda: bool(lines(place / LEDGER, "reserve")), process)
    else:
        until_line(process, moment)
    return process


def check_aftermath(place: pathlib.Path, at_most: float) -> None:
    """No model, a ledger that is whole, and the rest of the budget can still be spent."""
    assert not (place / "model").exists()
    purse = reopened(place)
    assert 0 < purse.spent.epsilon <= at_most
    rest = purse.remaining.epsilon * (1 - 1e-9)
    assert rest > 2.7
    made = result(place, *training("small.csv", "--dataset", "census.csv", "--no-intervals", epsilon=rest))
    assert made["budget"]["spent_epsilon"] <= 3
    assert made["budget"]["fraction_left"] < 1e-6


@pytest.mark.parametrize(
    ("kind", "moment"),
    [
        (signal.SIGINT, "training"),
        (signal.SIGTERM, "preparing"),
        pytest.param(signal.SIGTERM, "training", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, "preparing", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, "reading", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, "reading", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_training_keeps_its_spending_and_leaves_no_model(kind, moment, place):
    process = begin(place, moment)
    code, out, err = end(process, kind)
    assert code == INTERRUPTED
    said = json.loads(out)
    assert said["exit_code"] == INTERRUPTED
    assert said["error"]["kind"] == "interrupted"
    if moment == "training":
        assert "By then this run had spent epsilon 0." in err
        assert "on data set 'census.csv'; no model was made" in err
    else:  # what came first may have been paid for, or not yet
        assert "on the ledger" in err
    assert "Traceback" not in err
    assert not leftovers(place)
    if moment == "reading":
        assert not (place / LEDGER).exists()
        assert not (place / "model").exists()
    else:
        check_aftermath(place, at_most=0.99)


@pytest.mark.parametrize("moment", ["training", pytest.param("preparing", marks=pytest.mark.slow)])
def test_a_killed_training_keeps_its_spending_and_leaves_no_model(moment, place):
    process = begin(place, moment)
    code, out, _ = end(process, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert out == ""
    for partial in leftovers(place):  # nobody could clear up; it is not taken for a model
        assert run(place, "predict", partial, "census.csv").returncode == 2
    check_aftermath(place, at_most=1)


@pytest.mark.parametrize("kind", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_what_is_paid_for_is_brought_home_first(kind, place):
    process = begin(place, "rehearsing")
    code, out, err = end(process, kind)
    assert code == 0, err
    assert json.loads(out)["spent_epsilon"] == pytest.approx(1)
    assert (place / "model" / "manifest.json").exists()
    assert not leftovers(place)


@pytest.mark.parametrize("kind", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_the_old_model_stays_when_its_successor_is_interrupted(kind, place, trained_once):
    shutil.copytree(trained_once / "model", place / "model")
    old = {path.name: path.read_bytes() for path in (place / "model").iterdir()}
    process = start(place, *training("census.csv", "--overwrite"))
    until(lambda: len(lines(place / LEDGER, "reserve")) >= 2, process)
    code, _, _ = end(process, kind)
    assert code in (INTERRUPTED, -signal.SIGKILL)
    assert {path.name: path.read_bytes() for path in (place / "model").iterdir()} == old
    assert run(place, "report", "model", "--out", "again.html").returncode == 0


def test_interrupted_predictions_leave_the_old_file(place, trained_once):
    shutil.copytree(trained_once / "model", place / "model")
    (place / "answers.csv").write_text("old\n")
    process = start(place, "predict", "model", "census.csv", "--out", "answers.csv", "--overwrite")
    until(lambda: any(path.stat().st_size for path in place.glob(".answers*")), process)
    code, _, err = end(process, signal.SIGINT)
    assert code == INTERRUPTED
    assert "Traceback" not in err
    assert (place / "answers.csv").read_text() == "old\n"
    assert not leftovers(place)


def test_ctrl_c_while_the_program_is_still_being_loaded_spends_nothing(place):
    process = start(place, *training("census.csv"), PYTHONPROFILEIMPORTTIME="1")
    until_line(process, "privypurse")  # its first module has just been imported
    code, _, _ = end(process, signal.SIGINT)
    assert code in (INTERRUPTED, -signal.SIGINT)
    assert not (place / "model").exists()
    assert not (place / LEDGER).exists()
    assert not leftovers(place)
