"""What a long job tells about itself while it runs; public things only."""

from typing import Protocol

from privypurse.training.trace import Step, Trace


class Progress(Protocol):
    """Shown to a person."""

    def stage(self, what: str, total: float | None = None) -> None:
        """Begin a stage, of a known length or not."""
        ...

    def update(self, done: float, note: str = "") -> None:
        """Say how far the stage is."""
        ...


class Silent:
    """Shows nothing."""

    def stage(self, what: str, total: float | None = None) -> None:
        """Do nothing."""

    def update(self, done: float, note: str = "") -> None:
        """Do nothing."""


class TrainingStage:
    """A callback of the training loop that moves a stage of a job."""

    def __init__(self, progress: Progress, what: str = "training") -> None:
        self._progress, self._what = progress, what

    def on_start(self, steps: int, done: int) -> None:
        """Begin the stage."""
        self._progress.stage(self._what, steps)
        self._progress.update(done)

    def on_step(self, step: Step) -> None:
        """Move on."""
        self._progress.update(step.number, f"{1 - step.fraction_left:.0%} of the budget spent")

    def on_end(self, trace: Trace) -> None:
        """Nothing more to show."""
