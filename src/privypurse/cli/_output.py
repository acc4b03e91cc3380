"""Output of commands: results on stdout, as text or JSON; everything else on stderr."""

import contextlib
import functools
import json
import os
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import progress
from rich.console import Console
from rich.table import Table

from privypurse.core._errors import FileUnusable, InvalidArgument
from privypurse.core._formats import rounded_up, short
from privypurse.core._reading import finite_or_none
from privypurse.runs._progress import Progress

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)

# Shown at the end of the help of every command.
EXIT_CODES = """\
Exit codes: 0 done; 1 other error; 2 wrong arguments or input; 3 budget refused; 4 ledger error;
5 a file cannot be read or written; 6 failed after spending; 7 an audit did not have the expected
result; 8 the ledger is intact, but a part of the certificate does not hold or could not be checked;
130 interrupted.
"""

_BARS = " ▁▂▃▄▅▆▇█"


def emit(result: dict[str, Any]) -> None:
    """Print a result as JSON, with null for infinities and NaN."""
    sys.stdout.write(json.dumps(finite_or_none(result), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def say(text: str) -> None:
    """Print a line of a result."""
    stdout.print(text, markup=False)


def answer(as_json: bool, result: dict[str, Any], text: str) -> None:
    """Print a result as JSON or as a line."""
    if as_json:
        emit(result)
    else:
        say(text)


def note(text: str) -> None:
    """Print a remark that is not part of the result."""
    stderr.print(text, markup=False, style="dim")


def warn(text: str) -> None:
    """Print a warning."""
    stderr.print(text, markup=False, style="yellow")


def warn_if_weak(**budgets: float | None) -> None:
    """Warn of budgets, by the name of their option, that protect little or nothing."""
    from privypurse.core._formats import weakness
    from privypurse.report._words import factor

    for name, epsilon in budgets.items():
        if epsilon is not None and (weak := weakness(epsilon)):
            odds = f"the output may change the odds that a record was used by a factor of {factor(epsilon)}"
            warn(f"--{name}: {weak}; {odds}. 1 is a usual choice.")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table. Columns after the first are aligned to the right."""
    shown = Table(title=title or None, title_justify="left", header_style="bold", show_edge=False)
    for index, name in enumerate(columns):
        shown.add_column(name, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        shown.add_row(*(cell.replace("[", "\\[") for cell in row))
    stdout.print(shown)


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Draw numbers as a line of bars from zero to the largest."""
    if not values:
        return ""
    width = min(width, len(values))
    thinned = [values[int(index * len(values) / width)] for index in range(width)]
    top = max(thinned) or 1.0
    return "".join(_BARS[max(1, round(value / top * (len(_BARS) - 1)))] for value in thinned)


def span(values: Sequence[float]) -> str:
    """Format the first and the last number, or one if they look the same."""
    first, last = short(values[0]), short(values[-1])
    return first if first == last else f"{first} to {last}"


def note_account(purse: Any, is_new: bool, budget: float | None) -> None:
    """Say which account is charged, and if its budget is fixed now; called before anything is spent."""
    where, named, total = Path(purse.ledger.location).name, f"data set {purse.dataset!r}", f"{purse.epsilon:g}"
    if is_new and budget is None:
        warn(f"no --budget: the epsilon {total} of this run is all that may ever be spent on {named} ({where}).")
    if is_new:
        note(f"account opened on {where}: {named}, epsilon {total} in all, delta {purse.delta:g}")
    else:
        note(f"{named} on {where}: {rounded_up(purse.spent.epsilon)} of epsilon {total} spent before")


def budget_of(purse: Any) -> dict[str, Any] | None:
    """Return the account of a purse for JSON output."""
    if purse is None:
        return None
    return {"dataset": purse.dataset, "epsilon": purse.epsilon, "spent_epsilon": purse.spent.epsilon}


class Bars(Progress):
    """A bar for each stage."""

    def __init__(self, bars: progress.Progress) -> None:
        self._bars = bars
        self._task: progress.TaskID | None = None

    def stage(self, what: str, total: float | None = None) -> None:
        """Finish the last bar and begin another."""
        self.finish()
        self._task = self._bars.add_task(what, total=total, note="")

    def update(self, done: float, note: str = "") -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=done, note=note)

    def finish(self) -> None:
        """Fill the last bar."""
        if self._task is not None:
            total = self._bars.tasks[self._task].total
            self._bars.update(self._task, total=total or 1, completed=total or 1)


class Lines(Progress):
    """A line for each stage."""

    def stage(self, what: str, total: float | None = None) -> None:
        """Print it."""
        note(f"{what} ...")


@contextlib.contextmanager
def shown_progress(quiet: bool) -> Iterator[Progress]:
    """Show the progress of a job."""
    if quiet:
        yield Progress()
    elif not sys.stderr.isatty():
        yield Lines()
    else:
        columns = (
            progress.SpinnerColumn(finished_text="✓"),
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[note]}", style="dim"),
        )
        with progress.Progress(*columns, console=stderr, refresh_per_second=8) as bars:
            shown = Bars(bars)
            yield shown
            shown.finish()


# Application id in the SQLite header of a ledger, and the files beside a ledger.
_LEDGER, _BESIDE, _RUNS = b"PPRS", ("-journal", "-wal", "-shm"), ".runs"
PAGE = "FILE.html"  # what an option for a page shows as its value
# Files of a model folder. Not imported from `runs.folder`, which takes a second.
_OF_A_MODEL = ("manifest.json", "model.json", "certificate.json")


def checked(command: Callable[..., None]) -> Callable[..., None]:
    """Check the outputs of a command (path options with ``writable=True``) before it runs."""

    @functools.wraps(command)
    def checks_first(**given: Any) -> None:
        paths = {name: info for name, info in paths_of(command).items() if given.get(name) is not None}
        inputs = [given[name] for name, info in paths.items() if not info.writable]
        if "ledger" in given:
            from privypurse.runs._account import Account

            beside = _whole(given["data"]).parent if given.get("data") is not None else None
            inputs.append(Account(ledger=given["ledger"], beside=beside, dataset="any").path)  # may not exist yet
        written = {name: info for name, info in paths.items() if info.writable}
        files = {f"--{name}": given[name] for name, info in written.items() if info.file_okay}
        check_outputs(files, inputs, overwrite=given.get("overwrite", False))
        for name, info in written.items():
            if info.metavar == PAGE and given[name].suffix.lower() not in (".html", ".htm"):
                expected = f"expected a name that ends in .html for --{name}, got {str(given[name])!r}"
                raise InvalidArgument(f"{expected}. Pass for example {given[name].stem + '.html'!r}.")
        for name in written:
            if not written[name].file_okay:
                # A command with --overwrite replaces a whole model.
                check_folder(f"--{name}", given[name], inputs, may_be_model="overwrite" in given)
        command(**given)

    return checks_first


def paths_of(command: Callable[..., None]) -> dict[str, Any]:
    """Return the typer options of the parameters of a command that are paths."""
    hints = typing.get_type_hints(command, include_extras=True)
    return {
        name: hint.__metadata__[0]
        for name, hint in hints.items()
        if hasattr(hint, "__metadata__") and Path in (hint.__origin__, *typing.get_args(hint.__origin__))
    }


def check_outputs(files: Mapping[str, Path], inputs: Sequence[Path] = (), *, overwrite: bool = False) -> None:
    """Raise InvalidArgument or FileUnusable for files, by option, that a command may not or cannot write."""
    read = list(inputs)
    for folder in inputs:
        with contextlib.suppress(OSError, ValueError):
            read += folder.iterdir() if folder.is_dir() else ()
    for option, path in files.items():
        said = f"{option} {str(path)!r}"
        if not path.name or "\x00" in str(path):
            raise InvalidArgument(f"expected a file name for {option}, got {str(path)!r}. Pass for example result.csv.")
        _check_may_be_written(said, path, read)
        if any(_is_same(path, one) for one in read):
            raise InvalidArgument(f"{said} is an input of this command and is not overwritten. Pass another file.")
        if any(_is_same(path, one) for name, one in files.items() if name != option):
            raise InvalidArgument(f"{said} is passed for two outputs. Pass another file for one of them.")
        if path.exists() and not path.is_file():
            continue  # a device; typer refuses folders
        if path.exists() and not overwrite:
            raise InvalidArgument(f"{said} exists already. Pass another file or --overwrite.")
        if not path.absolute().parent.is_dir():
            raise InvalidArgument(f"{said} is in a folder that does not exist. Create {str(path.parent)!r} first.")
        if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
            raise FileUnusable(f"{said} is in a folder without write permission. Pass another file.")


def check_folder(option: str, path: Path, inputs: Iterable[Path] = (), *, may_be_model: bool = False) -> None:
    """Raise InvalidArgument for an output folder that is an input, a model or in a model."""
    said = f"{option} {str(path)!r}"
    if any(_is_same(path, one) for one in inputs):
        raise InvalidArgument(f"{said} is an input of this command and is not overwritten. Pass another folder.")
    _check_may_be_written(said, path if may_be_model else path / "any", inputs)


def _check_may_be_written(said: str, path: Path, inputs: Iterable[Path]) -> None:
    """Raise InvalidArgument for models, and for ledgers and their runs folders, existing or not."""
    whole, read = _whole(path), [*map(_whole, inputs)]
    stem = next((whole.with_name(whole.name.removesuffix(end)) for end in _BESIDE if whole.name.endswith(end)), whole)
    if _is_ledger(whole) or _is_ledger(stem):
        raise InvalidArgument(f"{said} is a ledger, with what was spent, and is not overwritten. Pass another file.")
    for folder in whole.parents:
        if all((folder / name).is_file() for name in _OF_A_MODEL):
            hint = "(`privypurse report` without --out writes the report there.)"
            raise InvalidArgument(f"{said} is in the folder of a model, {folder.name!r}. Pass another path. {hint}")
    for folder in (whole, *whole.parents):
        ledger = folder.parent / folder.name.removesuffix(_RUNS)
        if folder.suffix == _RUNS and (_is_ledger(ledger) or ledger in read):
            raise InvalidArgument(f"{said} is in the runs folder of a ledger, {folder.name!r}. Pass another path.")


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths are of one file, which need not exist. Follow links."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return _whole(one) == _whole(other)


def _whole(path: Path) -> Path:
    """Resolve links; return the absolute path if that fails."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return path.absolute()


def _is_ledger(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        if path.is_file():
            with path.open("rb") as file:
                start = file.read(72)
            return start.startswith(b"SQLite format 3\x00") and start.endswith(_LEDGER)
    return False
