"""Holding back Ctrl-C while something that was paid for is being brought to safety."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interrupts:
    """What was asked for in the meantime."""

    pending: bool = False


@contextlib.contextmanager
def held_back() -> Iterator[Interrupts]:
    """Take note of Ctrl-C and of a request to terminate, instead of stopping; for work that takes seconds."""
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread
        yield interrupts
        return

    def note(_: int, __: FrameType | None) -> None:
        interrupts.pending = True

    before = {kind: signal.signal(kind, note) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
