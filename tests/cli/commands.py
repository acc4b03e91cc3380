"""Runs the real executable, as a person or a script would."""

import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import privypurse
from privypurse import Purse, SqliteLedger

EXECUTABLE = pathlib.Path(sys.executable).parent / "privypurse"
SOURCE = pathlib.Path(privypurse.__file__).parents[1]
TARGET = "high_income"
LEDGER = "privypurse-ledger.db"
# Against a command that never ends; none needs so long, on the slowest machine.
TIMEOUT_S = 900

# What the certificate of a run without a schema says.
DRAFTED = "read from the data"


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a command: the source that is tested, no colours, a width, and no
    ledger of elsewhere.
    """
    others = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    own = {"PYTHONPATH": os.pathsep.join([str(SOURCE), *others]), "NO_COLOR": "1", "COLUMNS": "120", "TERM": "xterm"}
    left_out = {"PRIVYPURSE_LEDGER", "FORCE_COLOR", "PYTHONWARNINGS"}
    return {name: value for name, value in os.environ.items() if name not in left_out} | own | more


def run(folder: pathlib.Path, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `privypurse` with some arguments in a folder."""
    command = [str(EXECUTABLE), *map(str, arguments)]
    options = {"timeout": TIMEOUT_S, "env": environment(), "stdin": subprocess.DEVNULL} | options
    if "input" in options:
        del options["stdin"]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, **options)


def result(folder: pathlib.Path, *arguments: object, **options: Any) -> dict[str, Any]:
    """Run a command with --json that must succeed; return what it printed, which must be JSON and
    nothing else.
    """
    done = run(folder, *arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refusal(folder: pathlib.Path, code: int, *arguments: object, **options: Any) -> str:
    """Run a command with --json that must fail with a code; return the message, which stands on
    both outputs.
    """
    done = run(folder, *arguments, "--json", **options)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    said = json.loads(done.stdout)
    assert said["exit_code"] == code
    message: str = said["error"]["message"]
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    return message


def training(data: str, *more: object, epsilon: object = 1, schema: str | None = "census.toml") -> list[object]:
    """Return the arguments of a training."""
    described = [] if schema is None else ["--schema", schema]
    return ["train", data, "--target", TARGET, "--epsilon", epsilon, *described, *more]


def start(folder: pathlib.Path, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    """Begin a command, to be interrupted."""
    return subprocess.Popen(
        [str(EXECUTABLE), *map(str, arguments)],
        cwd=folder,
        text=True,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def until_line(process: subprocess.Popen[str], words: str) -> None:
    """Read what a command says until a line has some words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"no line had {words!r}")


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until something is so while a command runs."""
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert process.poll() is None, f"over before it came to that:\n{process.communicate()}"
        assert time.monotonic() < end
        time.sleep(0.003)


def end(process: subprocess.Popen[str], kind: signal.Signals) -> tuple[int, str, str]:
    """Send a signal; return code, stdout and the rest of stderr."""
    process.send_signal(kind)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def lines(ledger: pathlib.Path, *kinds: str) -> list[tuple[str, str]]:
    """Return data set and kind of each line of a ledger, read behind its back; of all kinds, or of
    some.
    """
    if not ledger.exists():
        return []
    try:
        with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=10)) as base:
            found = base.execute("SELECT dataset, kind FROM entries ORDER BY seq").fetchall()
    except sqlite3.OperationalError:  # being made just now
        return []
    return [(dataset, kind) for dataset, kind in found if not kinds or kind in kinds]


def payments(folder: pathlib.Path, ledger: str = LEDGER) -> int:
    """Return how many lines of a ledger spend something."""
    return len(lines(folder / ledger, "charge", "reserve"))


def reopened(folder: pathlib.Path, dataset: str = "census.csv", ledger: str = LEDGER) -> Purse:
    """Return a purse from its ledger, every line of which is checked; a command of its own would
    take seconds to start.
    """
    book = SqliteLedger(folder / ledger, must_exist=True)
    book.verify()
    return Purse.reopen(book, dataset)


def leftovers(folder: pathlib.Path) -> list[str]:
    """Return what a command left lying about."""
    return [path.name for path in folder.iterdir() if path.name.startswith(".") or "partial" in path.name]
