"""Compiled sums over row segments in threads; the result does not depend on their number."""

import itertools
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core._randomness import this_process

# Segments depend only on the number of rows, and fix the order in which partial sums are added.
# There are enough of them to share evenly among threads.
_LEAST_ROWS = 256
_MOST_SEGMENTS = 64
# Below this many numbers, waking a thread takes longer than the work.
_WORTH_A_THREAD = 400_000

AddSegments = Callable[[tuple[int, int, int], NDArray[Any]], None]


def default_threads() -> int:
    """Return the number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sum_over_segments(
    rows: int, width: int, size: int, add_segments: AddSegments, threads: int, dtype: type[np.generic] = np.float64
) -> NDArray[Any]:
    """Add up partial sums, of `size` numbers each, over segments of rows of `width` numbers.

    ``add_segments((length, first, last), partial)`` fills ``partial[k]`` with the sum over the k-th
    `length` rows, for k from first to last - 1.
    """
    length = max(_LEAST_ROWS, -(-rows // _MOST_SEGMENTS))
    segments = -(-rows // length)
    partial = np.zeros((segments, size), dtype)
    workers = min(threads, segments) if rows * (width + 8) > _WORTH_A_THREAD else 1
    cuts = [segments * k // workers for k in range(workers + 1)] if segments else [0]
    shares = [(length, first, last) for first, last in itertools.pairwise(cuts)]
    # Kernels release the interpreter lock, so threads suffice; this thread takes a share too.
    others = [_Task(add_segments, share, partial) for share in shares[1:]]
    for task in others:
        _crew(threads).put(task)
    if shares:
        add_segments(shares[0], partial)
    for task in others:
        task.wait()
    return np.asarray(partial.sum(axis=0))


class _Task:
    """A share of the work for another thread; lighter than a future, for small sums."""

    def __init__(self, add_segments: AddSegments, share: tuple[int, int, int], partial: NDArray[Any]) -> None:
        self._work, self._error = (add_segments, share, partial), None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        add_segments, share, partial = self._work
        try:
            add_segments(share, partial)
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    def wait(self) -> None:
        self._done.acquire()
        if self._error is not None:
            raise self._error

    _error: BaseException | None


_crews: dict[tuple[tuple[int, bytes], int], "queue.SimpleQueue[_Task]"] = {}
_lock = threading.Lock()


def _crew(threads: int) -> "queue.SimpleQueue[_Task]":
    """Return the queue of this process's worker threads; a forked child makes its own."""
    key = (this_process(), threads)
    crew = _crews.get(key)
    if crew is None:
        with _lock:
            crew = _crews.get(key)
            if crew is None:
                crew = _crews[key] = queue.SimpleQueue()
                for _ in range(threads - 1):
                    threading.Thread(target=_help, args=(crew,), name="privypurse", daemon=True).start()
    return crew


def _help(crew: "queue.SimpleQueue[_Task]") -> None:
    while True:
        crew.get().run()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
