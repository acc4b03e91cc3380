"""Runs the executable in a pseudo-terminal, and watches its output and its memory."""

import itertools
import os
import pathlib
import pty
import subprocess
from dataclasses import dataclass

from tests.cli.commands import EXECUTABLE, environment


@dataclass(frozen=True)
class Watched:
    """What was seen of a command.

    Times are of the processor, in all its threads: they do not pass while other programs run.
    `first_s` is when the first output came, `longest_gap_s` the longest time without any from then
    to the last, and `after_gap` what it printed next; `peak_bytes` is the most memory that it had.
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
    moments: list[float] = []
    try:
        while chunk := os.read(ours, 65_536):
            chunks.append(chunk)
            moments.append(_processor_s(process.pid))
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(ours)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    return Watched(
        code=process.returncode,
        seconds=used.ru_utime + used.ru_stime,
        first_s=moments[0],
        longest_gap_s=max(gaps),
        after_gap=b"".join(chunks[gaps.index(max(gaps)) + 1 :][:1]).decode("utf-8", "replace"),
        peak_bytes=used.ru_maxrss * 1024,
        output=b"".join(chunks).decode("utf-8", "replace"),
    )


def _processor_s(process: int) -> float:
    """Return the time that a process has had of the processor; it may have ended, but was not
    waited for.
    """
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
