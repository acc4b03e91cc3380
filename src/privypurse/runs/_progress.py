"""Progress of a long job, in public terms only."""

from privypurse.training._trace import Step, Trace


class Progress:
    """Receives the progress of a job. This base class ignores it."""

    def stage(self, what: str, total: float | None = None) -> None:
        """Begin a stage. `total` is its length, if known."""

    def update(self, done: float, note: str = "") -> None:
        """Report how much of the stage is done."""


Silent = Progress


class TrainingStage:
    """A callback of the training loop that reports its steps as a stage."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on_start(self, steps: int, done: int) -> None:
        """Begin the stage."""
        self._progress.stage("training", steps)
        self._progress.update(done)

    def on_step(self, step: Step) -> None:
        """Report a step."""
        self._progress.update(step.number, f"{1 - step.fraction_left:.0%} of the budget spent")

    def on_end(self, trace: Trace) -> None:
        """Do nothing."""
