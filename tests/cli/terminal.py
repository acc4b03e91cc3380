"""Runs the executable in a pseudo-terminal, and watches its output and its memory."""

import itertools
import os
import pathlib
import pty
import subprocess
import time
from dataclasses import dataclass

from tests.cli.commands import EXECUTABLE, environment


@dataclass(frozen=True)
class Watched:
    """What was seen of a command.

    `first_s` is when the first output came, `longest_gap_s` the longest time without any from then to its end, and `peak_bytes`
    the most memory that it had; `after_gap` is what it printed next.
    """

    code: int
    seconds: float
    first_s: float
    longest_gap_s: float
    after_gap: str
    peak_bytes: int
    output: str


def watch(folder: pathlib.Path, *arguments: object) -> Watched:
    """Run a command with a terminal for its output."""
    ours, theirs = pty.openpty()
    begin = time.monotonic()
    process = subprocess.Popen(
        [str(EXECUTABLE), *map(str, arguments)],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    chunks: list[bytes] = []
    moments = [begin]
    try:
        while chunk := os.read(ours, 65_536):
            chunks.append(chunk)
            moments.append(time.monotonic())
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(ours)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    moments.append(time.monotonic())
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments[1:])]
    return Watched(
        code=process.returncode,
        seconds=moments[-1] - begin,
        first_s=moments[1] - begin,
        longest_gap_s=max(gaps),
        after_gap=b"".join(chunks[gaps.index(max(gaps)) + 1 :][:1]).decode("utf-8", "replace"),
        peak_bytes=used.ru_maxrss * 1024,
        output=b"".join(chunks).decode("utf-8", "replace"),
    )
