"""Callbacks, and a progress bar that shows the remaining budget."""

import sys
import time
from typing import Any, Protocol

from privypurse.core._formats import counted
from privypurse.purse._purse import Purse
from privypurse.training._trace import Step, Trace


class Callback(Protocol):
    """Notified of public values only: the start, each step, and why the run stopped."""

    def on_start(self, steps: int, done: int) -> None:
        """Begin a run of at most `steps` steps, of which `done` were made before."""

    def on_step(self, step: Step) -> None:
        """Handle a step."""

    def on_end(self, trace: Trace) -> None:
        """Handle the end of a run, also after an interrupt."""


class ProgressBar:
    """Progress bar of steps and budget, with rich if installed; only on a terminal by default.

    Parameters
    ----------
    purse : Purse, optional
        Purse whose epsilon is shown; without it, the share of the budget that is left.
    show : bool, optional
        Show it or not; by default only on a terminal.
    """

    def __init__(self, purse: Purse | None = None, *, show: bool | None = None) -> None:
        self._purse, self._show = purse, sys.stderr.isatty() if show is None else show
        self._bar: Any = None
        self._task: Any = None
        self._shown, self._total = 0.0, 0

    def on_start(self, steps: int, done: int) -> None:
        """Draw the empty bar."""
        self._total = steps
        if not self._show:
            return
        try:
            from rich import console, progress
        except ImportError:
            print(f"privypurse: {counted(steps - done, 'step')}", file=sys.stderr)
            return
        columns = (*progress.Progress.get_default_columns(), progress.TextColumn("{task.fields[budget]}"))
        self._bar = progress.Progress(*columns, console=console.Console(stderr=True))
        self._bar.start()
        self._task = self._bar.add_task("training", total=steps, completed=done, budget="")

    def on_step(self, step: Step) -> None:
        """Advance the bar."""
        # Computing epsilon takes a millisecond, so not at every step.
        if self._bar is not None and time.monotonic() - self._shown > 0.1:
            self._show_step(step)

    def _show_step(self, step: Step) -> None:
        budget = f"budget left {step.fraction_left:.1%}"
        if self._purse is not None:
            budget = f"epsilon {self._purse.spent.epsilon:.3g} of {self._purse.epsilon:g}, {budget}"
        # A run may end with its budget before its steps.
        completed = max(step.number, (1 - step.fraction_left) * self._total)
        self._bar.update(self._task, completed=completed, budget=budget)
        self._shown = time.monotonic()

    def on_end(self, trace: Trace) -> None:
        """Leave the finished bar on the screen."""
        if self._bar is not None:
            if trace.steps:
                self._show_step(trace.steps[-1])
            self._bar.update(self._task, description=f"stopped by {trace.stop_reason}")
            self._bar.stop()
            self._bar = None
