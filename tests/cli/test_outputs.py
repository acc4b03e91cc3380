"""No command writes over what it reads, a file of a model, a ledger, or, unasked, anything else."""

import inspect
import os
import pathlib
import shutil
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from privypurse.cli._app import app, run
from privypurse.cli._output import paths_of
from tests.cli.commands import LEDGER, TARGET, payments
from tests.cli.commands import run as run_apart

WRONG = 2
# A call of each command that writes, without its output. A command that is missing here fails the
# first test.
CALLS: dict[str, list[object]] = {
    "train": ["census.csv", "--target", TARGET, "--epsilon", 0.1, "--schema", "census.toml"],
    "predict": ["model", "new.csv"],
    "plan": ["--records", 1_000, "--epsilon", 1, "--schema", "census.toml", "--no-rehearse"],
    "compare": ["census.csv", "--target", TARGET, "--schema", "census.toml", "--epsilons", 1, "--repeats", 1],
    "schema": ["census.csv", "--target", TARGET],
    "report": ["model"],
    "ledger certificate": ["--ledger", LEDGER, "--dataset", "census.csv"],
    "ledger export": ["--ledger", LEDGER],
    "data write": ["census", "--rows", 9],
    "data convert": ["census.csv"],
    "demo": ["--rows", 100],
    "reproduce": ["lecture", "--figure", 1, "--quick"],
    "audit": ["private-divisor", "--quick"],
}


def _commands(group: Any = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command.callback


def _outputs(*, folders: bool) -> list[tuple[str, str]]:
    return [
        (name, f"--{option}")
        for name, command in _commands()
        for option, info in paths_of(command).items()
        if info.writable and info.dir_okay == folders
    ]


OF_FILES = pytest.mark.parametrize(("name", "option"), _outputs(folders=False))
OF_FOLDERS = pytest.mark.parametrize(("name", "option"), _outputs(folders=True))
INPUTS = {"data", "source", "model", "schema", "test", "ledger", "path", "check", "certificate"}


@pytest.fixture
def work(trained: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """The folder with a trained model, which is the current one."""
    monkeypatch.chdir(trained)
    monkeypatch.delenv("PRIVYPURSE_LEDGER", raising=False)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    handler = signal.getsignal(signal.SIGTERM)
    yield trained
    signal.signal(signal.SIGTERM, handler)


def _contents(folder: pathlib.Path) -> dict[pathlib.Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _call(name: str, *more: object) -> int:
    if name == "data convert":  # whose output is not an option
        more = tuple(part for part in more if part != "--out")
    return run([*name.split(), *map(str, CALLS[name]), *map(str, more)])


def _check_refused(work: pathlib.Path, name: str, option: str, path: object, *, always: bool = True) -> None:
    before = _contents(work)
    with_overwrite = always and "overwrite" in inspect.signature(dict(_commands())[name]).parameters
    for more in [[], *([["--overwrite"]] if with_overwrite else [])]:
        assert _call(name, option, path, *more) == WRONG, (name, option, path, more)
        assert _contents(work) == before


def test_every_path_of_every_command_is_an_input_or_is_checked_as_an_output():
    for name, command in _commands():
        layer = command
        while layer.__code__.co_name != "checks_first":
            assert hasattr(layer, "__wrapped__"), f"{name} is not checked"
            layer = layer.__wrapped__
        for option, info in paths_of(command).items():
            assert info.writable or option in INPUTS, f"{name}: is {option} read or written?"
            assert not info.writable or info.dir_okay != info.file_okay, f"{name}: is {option} a file or a folder?"
            assert not info.writable or name in CALLS, f"{name} writes, and has no call here"
        writes_files = name in {other for other, _ in _outputs(folders=False)}
        assert not writes_files or "overwrite" in inspect.signature(command).parameters, f"{name} needs --overwrite"


@OF_FILES
def test_no_command_writes_over_what_it_reads(work, name, option):
    arguments = CALLS[name][:2] if name.startswith("ledger") else CALLS[name]
    for given in [part for part in map(str, arguments) if pathlib.Path(part).is_file()]:
        os.symlink(given, "link")
        os.link(given, "hard")
        for path in (given, f"./{given}", work / given, f"model/../{given}", "link", "hard"):
            _check_refused(work, name, option, path)
        for made in ("link", "hard"):
            pathlib.Path(made).unlink()


@OF_FILES
def test_no_command_writes_into_the_folder_of_a_model(work, name, option):
    os.symlink("model", "linked", target_is_directory=True)
    os.symlink("model/model.json", "of_a_model")
    paths = [work / "model" / part for part in ("model.json", "report.html", "new.html", ".hidden", "trace.json")]
    for path in [*paths, "linked/certificate.json", "of_a_model", "model/schema.toml"]:
        _check_refused(work, name, option, path)
    if "model" in CALLS[name]:  # the model is an input: its files are known by any name
        os.link("model/certificate.json", "hard")
        _check_refused(work, name, option, "hard")


@OF_FILES
def test_no_command_writes_over_a_ledger(work, name, option):
    shutil.copy(LEDGER, "other.db")
    os.symlink("other.db", "link.db")
    os.link("other.db", "hard.db")
    for path in ("other.db", "link.db", "hard.db", "other.db-journal", LEDGER):
        _check_refused(work, name, option, path)


@OF_FILES
def test_an_existing_file_is_replaced_only_if_that_is_asked_for(work, name, option):
    pathlib.Path("mine.html").write_text("work of weeks")
    _check_refused(work, name, option, "mine.html", always=False)
    _check_refused(work, name, option, "nowhere/file.html")
    before = _contents(work)
    assert _call(name, option, "mine.html", "--overwrite") == 0
    after = _contents(work)
    assert after[work / "mine.html"] != before[work / "mine.html"]
    allowed = {work / "mine.html", work / LEDGER, work / "census.csv" if name == "data write" else work / "mine.html"}
    assert {path for path in before | after if before.get(path) != after.get(path)} <= allowed


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to_is_noticed_first(work):
    pathlib.Path("locked").mkdir(mode=0o500)
    for name, option in _outputs(folders=False):
        assert _call(name, option, "locked/file.html") == 5


@OF_FOLDERS
def test_no_folder_is_made_in_the_folder_of_a_model(work, name, option):
    for path in ("model/inner", work / "model" / "a" / "b", "model/model.json"):
        _check_refused(work, name, option, path)
    if name != "train":  # which replaces a model as a whole
        _check_refused(work, name, option, "model")


def test_an_output_that_would_be_the_ledger_is_refused_before_there_is_one(work):
    pathlib.Path(LEDGER).unlink()
    paying = ("--pay", "--budget", 9, "--methods", "auto")
    for more in (("--plot", LEDGER), ("--ledger", "new.db", "--plot", "new.db")):
        assert _call("compare", *paying, *more) == WRONG
    assert _call("train", "--ledger", "fresh", "--out", "fresh", "--budget", 9) == WRONG
    assert not any(pathlib.Path(path).exists() for path in (LEDGER, "new.db", "fresh"))


@pytest.mark.parametrize("named", ["option", "variable"])
def test_a_ledger_in_the_folder_of_the_user_is_no_output(work, monkeypatch, named):
    home = work / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    if named == "variable":
        monkeypatch.setenv("PRIVYPURSE_LEDGER", "~/l.db")
    where = ("--ledger", "~/l.db") if named == "option" else ()
    paying = ("--pay", "--budget", 9, "--methods", "auto")
    assert _call("compare", *paying, *where, "--plot", home / "l.db") == WRONG
    assert _call("train", *where, "--out", home / "l.db.runs", "--budget", 9) == WRONG
    assert list(home.iterdir()) == []


def test_no_output_is_the_folder_of_the_runs_of_a_ledger_or_in_it(work):
    pathlib.Path(f"{LEDGER}.runs").mkdir()
    _check_refused(work, "compare", "--plot", f"{LEDGER}.runs/plot.png")
    _check_refused(work, "train", "--out", f"{LEDGER}.runs")
    pathlib.Path(f"{LEDGER}.runs").rmdir()
    pathlib.Path(LEDGER).unlink()
    assert _call("train", "--ledger", "fresh", "--out", "fresh.runs", "--budget", 9) == WRONG
    assert _call("train", "--ledger", "fresh", "--out", "fresh.runs/model", "--budget", 9) == WRONG
    paying = ("--pay", "--budget", 9, "--methods", "auto")
    assert _call("compare", *paying, "--ledger", "fresh", "--plot", "fresh.runs") == WRONG
    assert not any(pathlib.Path(path).exists() for path in (LEDGER, "fresh", "fresh.runs"))


def test_two_outputs_of_one_command_are_not_one_file(work):
    assert _call("data write", "--out", "both", "--schema", "./both") == WRONG
    assert not pathlib.Path("both").exists()


@pytest.mark.parametrize("foreign", ["notes.txt", "data.csv", "budget.db"])
def test_a_model_is_not_replaced_together_with_what_is_not_part_of_it(work, foreign):
    kept = work / "model" / foreign
    kept.write_text("not of the model")
    before, paid = _contents(work), payments(work)
    assert _call("train", "--overwrite") == WRONG
    assert (_contents(work), payments(work)) == (before, paid)


def test_a_demo_is_not_replaced_together_with_what_is_not_part_of_it(work):
    assert _call("demo") == 0
    assert _call("demo") == 0
    mine = work / "demo" / "predictions.csv"
    mine.write_text("mine")
    _check_refused(work, "demo", "--out", "demo")


def test_predict_does_not_write_over_the_records_it_reads(trained):
    records = (trained / "new.csv").read_bytes()
    done = run_apart(trained, "predict", "model", "new.csv", "--out", "new.csv")
    assert done.returncode == WRONG
    assert "is an input of this command" in done.stderr
    assert (trained / "new.csv").read_bytes() == records
