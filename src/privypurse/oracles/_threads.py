"""Running compiled sums over row segments in threads, with a result that does not depend on how many there are."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from privypurse.core.checks import FloatArray

# Segments depend on the number of rows and on nothing else: they fix the order in which partial sums are added.
_SEGMENT_ROWS = 8192
_MOST_SEGMENTS = 64

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_lock = threading.Lock()


def default_threads() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sum_over_segments(
    rows: int, size: int, add_segment: Callable[[int, int, FloatArray], None], threads: int
) -> FloatArray:
    """Let `add_segment(start, stop, out)` fill a partial sum for each segment of rows, and add these up in order."""
    length = max(_SEGMENT_ROWS, -(-rows // _MOST_SEGMENTS))
    bounds = [(start, min(start + length, rows)) for start in range(0, rows, length)]
    partial = np.zeros((len(bounds), size))

    def run(index: int) -> None:
        add_segment(*bounds[index], partial[index])

    if threads == 1 or len(bounds) < 2:
        for index in range(len(bounds)):
            run(index)
    else:
        # The kernels release the interpreter lock, so threads are enough; list() raises what a thread raised.
        list(_pool(threads).map(run, range(len(bounds))))
    return np.asarray(partial.sum(axis=0))


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return this process's pool of that size; a forked child makes its own."""
    key = (os.getpid(), threads)
    with _lock:
        if key not in _pools:
            _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix="privypurse")
        return _pools[key]


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
