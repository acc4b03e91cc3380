"""Independent pieces of work: run on all cores, kept as they finish, and not run again."""

import copy
import datetime
import hashlib
import importlib
import json
import os
import pathlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from privypurse.core.errors import FileUnusable, InvalidArgument
from privypurse.core.version import __version__
from privypurse.jobs.progress import Progress
from privypurse.papers.fingerprints import fingerprint

Result = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Cell:
    """One call of a function at the top level of a module, with its seed among its arguments.

    Parameters
    ----------
    function : callable
        Returns a dict that JSON can hold.
    arguments : mapping
        Its arguments: what JSON can hold, or objects that can be sent to another process.
    alone : bool
        Run it while no other cell runs, because it measures time.
    """

    function: Callable[..., Result]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = False

    @cached_property
    def key(self) -> str:
        """What the result is kept under: a digest of the function's name, its arguments and the library's version."""
        said = json.dumps(dict(self.arguments), sort_keys=True, default=fingerprint)
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        return hashlib.sha256(f"{__version__} {name} {said}".encode()).hexdigest()[:24]

    def __call__(self) -> Result:
        """Do the work."""
        return self.function(**self.arguments)


def pickler() -> Any:
    """Return what joblib sends functions to other processes with: a copy of its own up to version 1.5, then cloudpickle."""
    try:
        return importlib.import_module("joblib.externals.cloudpickle")
    except ImportError:
        return importlib.import_module("cloudpickle")


class Results:
    """What cells have returned, in a file of JSON lines that is added to as they finish.

    Parameters
    ----------
    path : path
        The file; made when there is something to keep. A last line that a killed run left unfinished is not read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = pathlib.Path(path)
        self._known: dict[str, Result] = {}
        self._dates: dict[str, str] = {}
        self._made: set[str] = set()
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
                self._read(line)

    def _read(self, line: str) -> None:
        try:
            kept = json.loads(line)
            self._known[kept["key"]], self._dates[kept["key"]] = kept["result"], kept["date"]
        except (ValueError, KeyError, TypeError):
            return

    def __contains__(self, cell: Cell) -> bool:
        return cell.key in self._known

    def __getitem__(self, cell: Cell) -> Result:
        return self._known[cell.key]

    def date_of(self, cells: Sequence[Cell]) -> str:
        """Return the day the last of these cells was run."""
        return max((self._dates[cell.key] for cell in cells), default=_today())

    def forget(self, cells: Sequence[Cell]) -> None:
        """Have these cells run again, but those that were run since the file was opened."""
        for cell in cells:
            if cell.key not in self._made:  # two figures may be made of the same cells: those are not run twice
                self._known.pop(cell.key, None)

    def keep(self, cell: Cell, result: Result) -> None:
        """Write a result down at once."""
        if not isinstance(result, dict):
            raise InvalidArgument(f"a cell must return a dict; {cell.function.__qualname__} returned {type(result)}.")
        line = json.dumps({"key": cell.key, "date": _today(), "result": result})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab+") as file:
                # A line that a killed run left unfinished is ended first.
                if file.tell() > 0:
                    file.seek(-1, os.SEEK_END)
                    line = line if file.read(1) == b"\n" else f"\n{line}"
                file.write(f"{line}\n".encode())
        except OSError as error:
            raise FileUnusable(
                f"output {str(self._path)!r} cannot be written ({error.strerror}). What was finished before is kept. "
                "Make room, or pass another folder as output."
            ) from error
        # What was read back and what was just made must look the same.
        self._known[cell.key], self._dates[cell.key] = json.loads(line)["result"], _today()
        self._made.add(cell.key)


def run_cells(cells: Sequence[Cell], results: Results, *, workers: int, progress: Progress, what: str) -> None:
    """Run the cells that have no result yet, on several cores.

    Parameters
    ----------
    cells : sequence of Cell
        The work.
    results : Results
        Where results are kept; what is there already is not run again.
    workers : int
        Processes; 1 for this one.
    progress : Progress
        Told after each cell.
    what : str
        What to call the work.
    """
    different = {cell.key: cell for cell in cells}
    waiting = [cell for cell in different.values() if cell not in results]
    total = len(different) or 1
    done = total - len(waiting)
    progress.stage(what, total)
    progress.update(done)
    for together in (True, False):
        some = [cell for cell in waiting if cell.alone is not together]
        for number, result in _run(some, min(workers, len(some)) if together else 1):
            results.keep(some[number], result)
            done += 1
            progress.update(done)


def _run(cells: Sequence[Cell], workers: int) -> Any:
    if workers <= 1:
        # On a copy, as in other processes: an object of the user's that remembers things must keep its key.
        return ((number, Cell(cell.function, copy.deepcopy(cell.arguments))()) for number, cell in enumerate(cells))
    import joblib

    # Workers that have loaded a large table are replaced by fresh ones, which is no trouble.
    warnings.filterwarnings("ignore", message="A worker stopped", category=UserWarning)
    pool = joblib.Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)
    return pool(joblib.delayed(_numbered)(number, cell) for number, cell in enumerate(cells))


def _numbered(number: int, cell: Cell) -> tuple[int, Result]:
    return number, cell()


def _today() -> str:
    return datetime.date.today().isoformat()
