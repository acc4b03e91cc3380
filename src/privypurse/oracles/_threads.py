"""Running compiled sums over row segments in threads, with a result that does not depend on how many there are."""

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from privypurse.core.checks import FloatArray

# Segments depend on the shape of the table and on nothing else: they fix the order in which partial sums are added. Small enough
# to keep all threads busy, large enough that starting one costs little.
_SEGMENT_NUMBERS = 200_000
_MOST_SEGMENTS = 64

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_lock = threading.Lock()


def default_threads() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sum_over_segments(
    rows: int, width: int, size: int, add_segments: Callable[[tuple[int, int, int], FloatArray], None], threads: int
) -> FloatArray:
    """Add up partial sums of segments of rows, in order.

    Parameters
    ----------
    rows, width, size : int
        Number of rows; numbers read in each, about; length of the answer.
    add_segments : callable
        ``add_segments((length, first, last), partial)`` fills ``partial[k]`` with the sum over the k-th `length` rows, for k
        from first to last - 1.
    threads : int
        How many threads share the segments.
    """
    length = max(256, _SEGMENT_NUMBERS // (width + 8), -(-rows // _MOST_SEGMENTS))
    segments = -(-rows // length)
    partial = np.zeros((segments, size))
    # Below some hundred thousand numbers, waking a thread takes longer than the work.
    workers = min(threads, segments) if rows * (width + 8) > 2 * _SEGMENT_NUMBERS else 1
    cuts = [segments * k // workers for k in range(workers + 1)] if segments else [0]
    shares = list(itertools.pairwise(cuts))
    # The kernels release the interpreter lock, so threads are enough; this one takes a share too.
    others = [_pool(threads).submit(add_segments, (length, first, last), partial) for first, last in shares[1:]]
    if shares:
        add_segments((length, *shares[0]), partial)
    for other in others:
        other.result()
    return np.asarray(partial.sum(axis=0))


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return this process's pool of that size; a forked child makes its own."""
    key = (os.getpid(), threads)
    with _lock:
        if key not in _pools:
            _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix="privypurse")
        return _pools[key]


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
