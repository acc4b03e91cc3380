"""Progress on stderr: a bar for each stage on a terminal, else a line for each stage."""

import contextlib
import sys
from collections.abc import Iterator

from rich import progress

from privypurse.cli._output import note, stderr
from privypurse.runs._progress import Progress


class Bars(Progress):
    """One bar for each stage."""

    def __init__(self, bars: progress.Progress) -> None:
        self._bars = bars
        self._task: progress.TaskID | None = None

    def stage(self, what: str, total: float | None = None) -> None:
        """Finish the last bar and begin another."""
        self.finish()
        self._task = self._bars.add_task(what, total=total, note="")

    def update(self, done: float, note: str = "") -> None:
        """Move the bar."""
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
