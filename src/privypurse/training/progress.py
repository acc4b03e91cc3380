"""Callbacks, and a progress bar that shows what is left of the budget."""

import sys
from typing import Any, Protocol

from privypurse.training.trace import Step, Trace


class Callback(Protocol):
    """Told of public things only: the budget at the start, each step, and why the run stopped."""

    def on_start(self, steps: int, done: int) -> None:
        """Begin a run of at most `steps` steps, of which `done` were made before it was interrupted."""
        ...

    def on_step(self, step: Step) -> None:
        """Take note of a step."""
        ...

    def on_end(self, trace: Trace) -> None:
        """Take note of the end."""
        ...


class ProgressBar:
    """Steps made, share of the budget left and time, with rich if it is installed; silent where no terminal is.

    Parameters
    ----------
    show : bool, optional
        Show it or not; by default only on a terminal.
    """

    def __init__(self, *, show: bool | None = None) -> None:
        self._show = sys.stderr.isatty() if show is None else show
        self._bar: Any = None
        self._task: Any = None

    def on_start(self, steps: int, done: int) -> None:
        """Draw the empty bar."""
        if not self._show:
            return
        try:
            from rich import console, progress
        except ImportError:
            print(f"privypurse: {steps - done} steps", file=sys.stderr)
            return
        columns = (*progress.Progress.get_default_columns(), progress.TextColumn("budget left {task.fields[left]}"))
        self._bar = progress.Progress(*columns, console=console.Console(stderr=True))
        self._bar.start()
        self._task = self._bar.add_task("training", total=steps, completed=done, left="100%")

    def on_step(self, step: Step) -> None:
        """Move on."""
        if self._bar is not None:
            self._bar.update(self._task, completed=step.number, left=f"{step.fraction_left:.1%}")

    def on_end(self, trace: Trace) -> None:
        """Leave the finished bar on the screen."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
