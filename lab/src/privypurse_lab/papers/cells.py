"""Independent cells of work: run on all cores, cached as they finish."""

import copy
import datetime
import hashlib
import importlib
import json
import lzma
import os
import pathlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from privypurse.core._errors import FileUnusable, InvalidArgument
from privypurse.core._version import __version__
from privypurse.runs._progress import Progress
from privypurse_lab.papers.fingerprints import fingerprint

Result = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Cell:
    """One call of a top-level function, with its seed among its arguments.

    Parameters
    ----------
    function : callable
        Returns a dict of JSON types.
    arguments : mapping
        Its arguments: JSON types, or objects that can be pickled.
    alone : bool
        Run it while no other cell runs, because it measures time.
    """

    function: Callable[..., Result]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = False

    @cached_property
    def key(self) -> str:
        """Key of the result: a digest of function name, arguments and library version."""
        said = json.dumps(dict(self.arguments), sort_keys=True, default=fingerprint)
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        return hashlib.sha256(f"{__version__} {name} {said}".encode()).hexdigest()[:24]

    def __call__(self) -> Result:
        """Call the function."""
        return self.function(**self.arguments)


def pickler() -> Any:
    """Return joblib's pickler: its own copy up to version 1.5, then cloudpickle."""
    try:
        return importlib.import_module("joblib.externals.cloudpickle")
    except ImportError:
        return importlib.import_module("cloudpickle")


class Results:
    """Results of cells, in a file of JSON lines that is appended to as they finish.

    Parameters
    ----------
    path : path
        The file, created on demand. An incomplete last line of a killed run is ignored. Results that
        `pack` wrote beside it are read first.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = pathlib.Path(path)
        self._known: dict[str, Result] = {}
        self._dates: dict[str, str] = {}
        self._made: set[str] = set()
        self._packed = self._path.with_name(f"{self._path.name.lstrip('.')}.xz")
        if self._packed.exists():
            self._read_all(lzma.decompress(self._packed.read_bytes()))
        if self._path.exists():
            self._read_all(self._path.read_bytes())

    def _read_all(self, lines: bytes) -> None:
        for line in lines.decode("utf-8", errors="replace").splitlines():
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
        """Return the date of the last of these cells, or nothing without cells."""
        return max((self._dates[cell.key] for cell in cells), default="")

    def pack(self, cells: Sequence[Cell]) -> None:
        """Write the results of these cells into one compressed file, from which pages can be made again."""
        keys = sorted({cell.key for cell in cells})
        lines = [_line(key, self._dates[key], self._known[key]) for key in keys]
        self._packed.write_bytes(lzma.compress("".join(lines).encode(), preset=9))

    def forget(self, cells: Sequence[Cell]) -> None:
        """Drop the results of cells, except those made since the file was opened."""
        for cell in cells:
            if cell.key not in self._made:  # figures may share cells
                self._known.pop(cell.key, None)

    def keep(self, cell: Cell, result: Result) -> None:
        """Write a result at once."""
        if not isinstance(result, dict):
            raise InvalidArgument(
                f"a cell must return a dict; {cell.function.__qualname__} returned {type(result)}. Return a dict."
            )
        line = _line(cell.key, _today(), result)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab+") as file:
                # End an incomplete line of a killed run.
                if file.tell() > 0:
                    file.seek(-1, os.SEEK_END)
                    line = line if file.read(1) == b"\n" else f"\n{line}"
                file.write(line.encode())
        except OSError as error:
            raise FileUnusable(
                f"output {str(self._path)!r} cannot be written ({error.strerror}). Finished results are kept. "
                "Free space, or pass another folder as output."
            ) from error
        # Results made now and results read back must be equal.
        self._known[cell.key], self._dates[cell.key] = json.loads(line)["result"], _today()
        self._made.add(cell.key)


def run_cells(cells: Sequence[Cell], results: Results, *, workers: int, progress: Progress, what: str) -> None:
    """Run the cells that have no result yet, on several cores."""
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
        # On a copy, as in other processes: a user's object with state must keep its key.
        return ((number, Cell(cell.function, copy.deepcopy(cell.arguments))()) for number, cell in enumerate(cells))
    import joblib

    # Workers that have loaded a large table are replaced by fresh ones.
    warnings.filterwarnings("ignore", message="A worker stopped", category=UserWarning)
    pool = joblib.Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)
    return pool(joblib.delayed(_numbered)(number, cell) for number, cell in enumerate(cells))


def _numbered(number: int, cell: Cell) -> tuple[int, Result]:
    return number, cell()


def _line(key: str, date: str, result: Result) -> str:
    return json.dumps({"key": key, "date": date, "result": result}) + "\n"


def _today() -> str:
    return datetime.date.today().isoformat()
