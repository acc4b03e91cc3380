"""What is watched while the library reads a file: code that is run, files that are written, time
and memory.
"""

import contextlib
import os
import pathlib
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from privypurse.core._errors import PrivypurseError

MEMORY_BYTES = 4 << 30
WAITING = 8.0

# Reading a file has no business with any of these. (Code that is only parsed, as numpy does with
# headers, is not run.)
_RUNNING = (
    "exec",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "pickle.find_class",
    "socket.connect",
    "socket.bind",
    "socket.getaddrinfo",
    "webbrowser.open",
    "code.__new__",
    "ctypes.dlopen",
)
# scipy makes code for its distributions, and numba keeps compiled functions of this library's own.
_OWN_CODE = ("scipy/stats/_distn_infrastructure.py", "numba/core/caching.py")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Finding(Exception):
    """Something that must not happen."""


class TookTooLong(BaseException):
    """The limit of time for one input has passed; not an Exception, so that nothing on the way
    swallows it.
    """


class _Watch:
    """What the audit hook has seen; there is one for the process, since a hook cannot be taken
    away.
    """

    def __init__(self) -> None:
        self.armed = False
        self.installed = False
        self.scratch = pathlib.Path()
        self.seen: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        # A library that asks for the symbols of the process itself loads nothing: numba does when
        # it first compiles.
        loads_nothing = event == "ctypes.dlopen" and arguments == (None,)
        if event in _RUNNING and not loads_nothing and not _is_import():
            self.seen.append(f"{event}{_short(arguments)}")
        elif event == "open" and self._writes_elsewhere(arguments):
            self.seen.append(f"open for writing{_short(arguments)}")

    def _writes_elsewhere(self, arguments: tuple[Any, ...]) -> bool:
        path, mode, flags = arguments
        writes = bool(flags & _WRITING) if isinstance(flags, int) else any(sign in str(mode) for sign in "wax+")
        if not writes or isinstance(path, int) or path is None:
            return False
        absolute = pathlib.Path(os.path.abspath(os.fsdecode(path)))
        allowed = (self.scratch, pathlib.Path("/dev/null"), pathlib.Path("/dev/full"))
        return not any(absolute.is_relative_to(place) for place in allowed) and "__pycache__" not in absolute.parts


_watch = _Watch()


def _is_import() -> bool:
    """Whether code is run because a module is imported, when it is first needed, or by a library
    for its own ends.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib") or name.endswith(_OWN_CODE):
            return True
        frame = frame.f_back
    return False


def _short(arguments: tuple[Any, ...]) -> str:
    return repr(tuple(arguments))[:160]


@contextlib.contextmanager
def limited_memory(extra: int = MEMORY_BYTES) -> Iterator[None]:
    """Let the process have so much more memory than it has now, and no more."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def watched(scratch: pathlib.Path, seconds: float) -> Iterator[None]:
    """Run something under the eyes of the audit hook and the clock; raises `Finding` or
    `TookTooLong`.
    """
    if not _watch.installed:
        sys.addaudithook(_watch)
        _watch.installed = True
    _watch.scratch, _watch.seen = scratch.absolute(), []
    # Time of the processor, since others may need it; and a limit on waiting, since a lock may
    # never be opened.
    before = [signal.signal(kind, _too_long) for kind in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, WAITING * seconds)
    _watch.armed = True
    try:
        yield
    finally:
        _watch.armed = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for kind, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(kind, handler)
    if _watch.seen:
        raise Finding(f"something was run or written that should not have been: {_watch.seen[0]}")


def _too_long(_: int, __: FrameType | None) -> None:
    raise TookTooLong


def own(error: BaseException) -> bool:
    """Whether an error is one that the library raises on purpose."""
    return isinstance(error, PrivypurseError)


def where(error: BaseException) -> str:
    """Name the innermost line of the library that an error came through, which tells findings
    apart.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/privypurse/" in frame.filename]
    if not frames:
        return "outside"
    return f"{frames[-1].filename.rpartition('/privypurse/')[2]}:{frames[-1].lineno} {frames[-1].name}"
