"""Two runs at once on one budget: what the first one needs is held for it, and is free again when
its process is gone.
"""

import json
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from privypurse import Gaussian
from privypurse.oracles.statistics import clipped_sum
from tests.cli.commands import (
    LEDGER,
    TIMEOUT_S,
    environment,
    payments,
    refusal,
    reopened,
    result,
    run,
    training,
)

# The real command, which says when a step is made and then waits for a line.
WAITING = """
import contextlib, sys
from privypurse.cli import _train as train
from privypurse.cli._app import run
from privypurse.runs._progress import Silent

class Waiting(Silent):
    def update(self, done, note=""):
        if "of the budget spent" in note and done == 1:
            print("step", file=sys.stderr, flush=True)
            sys.stdin.readline()

train.shown_progress = lambda quiet: contextlib.nullcontext(Waiting())
sys.exit(run(sys.argv[1:]))
"""
HOLDS = f"{LEDGER}.runs"


@pytest.fixture
def first(census: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """A run with 0.8 of a budget of 1 that has made a step and waits."""
    arguments = training("census.csv", "--budget", 1, "--out", "first", "--json", epsilon=0.8)
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, *map(str, arguments)],
        cwd=census,
        text=True,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert any(line == "step\n" for line in process.stderr)
    yield process
    process.kill()
    process.communicate()


def _go_on(process: subprocess.Popen[str]) -> tuple[dict, str]:
    said, remarks = process.communicate("go on\n", timeout=TIMEOUT_S)
    assert process.returncode == 0, remarks
    return json.loads(said), remarks


def test_second_run_is_refused_at_once_and_the_first_gets_its_whole_part(census, first):
    before = payments(census)
    said = refusal(census, 3, *training("census.csv", "--out", "second", epsilon=0.8))
    assert "left" in said
    assert f"process {first.pid}" in said
    assert "wait" in said.lower()
    assert payments(census) == before
    assert not (census / "second").exists()
    made, _ = _go_on(first)
    assert made["stop_reason"] == "steps"
    assert made["spent_epsilon"] == pytest.approx(0.8, rel=1e-6)
    assert made["remarks"] == []
    assert not (census / HOLDS).exists()


def test_a_second_run_that_fits_beside_the_first_is_admitted(census, first):
    second = result(census, *training("census.csv", "--out", "second", "--no-intervals", epsilon=0.5))
    assert second["stop_reason"] == "steps"
    made, _ = _go_on(first)
    assert (made["stop_reason"], made["remarks"]) == ("steps", [])
    assert made["spent_epsilon"] == pytest.approx(0.8, rel=1e-6)


def test_what_a_killed_run_held_is_free_again(census, first):
    asked = training(
        "census.csv", "--out", "second", "--no-intervals", epsilon=0.95 * reopened(census).remaining.epsilon
    )
    assert run(census, *asked).returncode == 3
    first.send_signal(signal.SIGKILL)
    first.wait(TIMEOUT_S)
    assert result(census, *asked)["stop_reason"] == "steps"
    assert not (census / HOLDS).exists()


def test_a_run_that_was_cut_short_by_others_says_so(census, first):
    purse = reopened(census)
    purse.release(clipped_sum(np.ones((5, 1)), clip_norm=1.0), Gaussian.spending(purse.remaining))
    made, screen = _go_on(first)
    assert made["stop_reason"] == "others"
    assert any("CUT SHORT" in remark for remark in made["remarks"])
    assert screen.count("CUT SHORT") == 1
    assert "CUT SHORT" in (census / "first" / "report.html").read_text()
