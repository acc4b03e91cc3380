"""Killing a child in the middle of its work, on a machine of any speed."""

import os
import pathlib
import signal
import time


def kill_after(child: int, log: pathlib.Path, steps: int, pause: float) -> int:
    """Kill a child that writes one byte for each step, so long after so many steps; return its
    status.

    A child that ends by itself before that is not killed.
    """
    begun = _size(log)
    while _size(log) - begun < steps:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.001)
    time.sleep(pause)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _size(log: pathlib.Path) -> int:
    return log.stat().st_size if log.exists() else 0
