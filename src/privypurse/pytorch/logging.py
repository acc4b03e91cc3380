"""[PUBLIC] Logs of a run: TensorBoard, MLflow, CSV. They are told of public values only, and write nothing else."""

import csv
import os
import pathlib
from typing import IO, Any

from privypurse.core.checks import positive_integer, shown
from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.queries import ModuleGradient
from privypurse.purse.purse import Purse
from privypurse.training.trace import Step, Trace


class PublicLog:
    """What the logs have in common: which values there are, and when epsilon is worked out.

    Parameters
    ----------
    purse : Purse, optional
        Who pays: for epsilon and the clip norm. May be given later, as ``log.purse = private.purse``.
    every : int, default 1
        Write every so many steps, and the last one.
    epsilon_every : int, default 100
        Work out the epsilon that is spent every so many steps, and at the end. It may take a second each time.

    Guarantees
    ----------
    What is written comes from the trace of the run: no loss, no accuracy, and no gradient before its noise.
    """

    def __init__(self, purse: Purse | None = None, *, every: int = 1, epsilon_every: int = 100) -> None:
        if purse is not None and not isinstance(purse, Purse):
            raise InvalidArgument(f"purse must be a Purse or None; got {shown(purse)}. Leave it out.")
        self.purse = purse
        self._every = positive_integer(every=every)
        self._epsilon_every = positive_integer(epsilon_every=epsilon_every)

    def on_start(self, steps: int, done: int) -> None:
        """Open the log."""
        self._open(steps, done)

    def on_step(self, step: Step) -> None:
        """Write what is public about a step."""
        due = step.number % self._epsilon_every == 0
        if due or step.number % self._every == 0:
            values = self._values(step)
            if due and self.purse is not None:
                values["epsilon_spent"] = self.purse.spent.epsilon
            self._write(step, values)

    def on_end(self, trace: Trace) -> None:
        """Write what was spent in all, and why the run stopped."""
        if trace.steps:
            last = trace.steps[-1]
            values = self._values(last)
            if self.purse is not None:
                values["epsilon_spent"] = self.purse.spent.epsilon
            self._write(last, values)
        self._close(trace)

    def _values(self, step: Step) -> dict[str, float]:
        values = {
            "noise_multiplier": step.charge.get("noise_multiplier"),
            "noise_std": step.noise_std,
            "clip_norm": self._clip_norm(step),
            "budget_left": step.fraction_left,
        }
        return {name: float(value) for name, value in values.items() if value is not None}

    def _clip_norm(self, step: Step) -> float | None:
        """Return how far one record can move the sum: noise and noise multiplier give it away."""
        multiplier = step.charge.get("noise_multiplier")
        if self.purse is None or not multiplier or step.noise_std is None or step.query != ModuleGradient.__name__:
            return None
        return step.noise_std / multiplier / (1 if self.purse.neighbouring is Neighbouring.ADD_REMOVE else 2)

    def _open(self, steps: int, done: int) -> None: ...

    def _write(self, step: Step, values: dict[str, float]) -> None:
        raise NotImplementedError

    def _close(self, trace: Trace) -> None: ...


class TensorBoardLog(PublicLog):
    """Writes a run for TensorBoard, under ``privacy/``.

    Parameters
    ----------
    target : str, path or SummaryWriter
        The folder, or a writer that is open already (and stays open).
    purse, every, epsilon_every
        As for `PublicLog`.
    """

    def __init__(self, target: Any, purse: Purse | None = None, *, every: int = 1, epsilon_every: int = 100) -> None:
        super().__init__(purse, every=every, epsilon_every=epsilon_every)
        self._target = _path(target) if isinstance(target, str | os.PathLike) else target
        self._writer: Any = None
        if not isinstance(self._target, pathlib.Path) and not hasattr(target, "add_scalar"):
            raise InvalidArgument(
                f"target must be a folder or a SummaryWriter; got {shown(target)}. Pass 'runs/first'."
            )

    def _open(self, steps: int, done: int) -> None:
        self._writer = self._target
        if isinstance(self._target, pathlib.Path):
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise ImportError("TensorBoardLog needs tensorboard: pip install 'privypurse[torch-tools]'.") from error
            self._writer = SummaryWriter(str(self._target))  # type: ignore[no-untyped-call]
        self._writer.add_text("privacy/steps", f"{steps} planned, {done} made before", done)
        self._asked = ""

    def _write(self, step: Step, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"privacy/{name}", value, step.number)
        if step.query != self._asked:
            self._asked = step.query
            self._writer.add_text("privacy/asked", step.query, step.number)

    def _close(self, trace: Trace) -> None:
        if self._writer is None:
            return
        self._writer.add_text("privacy/stop_reason", trace.stop_reason, len(trace.steps))
        self._writer.flush()
        if isinstance(self._target, pathlib.Path):
            self._writer.close()


class MLflowLog(PublicLog):
    """Writes a run to MLflow's active run: metrics and tags that begin with ``privacy.``.

    Parameters
    ----------
    purse, every, epsilon_every
        As for `PublicLog`. Each write is a call to the tracking server: `every` makes them fewer.
    """

    def _open(self, steps: int, done: int) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise ImportError("MLflowLog needs mlflow: pip install 'privypurse[torch-tools]'.") from error
        self._mlflow: Any = mlflow
        if mlflow.active_run() is None:
            raise InvalidArgument("MLflowLog needs an active run: train inside `with mlflow.start_run():`.")
        mlflow.set_tag("privacy.steps_planned", steps)
        self._asked: set[str] = set()

    def _write(self, step: Step, values: dict[str, float]) -> None:
        self._mlflow.log_metrics({f"privacy.{name}": value for name, value in values.items()}, step=step.number)
        if step.query not in self._asked:
            self._asked.add(step.query)
            self._mlflow.set_tag("privacy.asked", ", ".join(sorted(self._asked)))

    def _close(self, trace: Trace) -> None:
        if trace.steps:
            self._mlflow.set_tag("privacy.stop_reason", trace.stop_reason)


class CsvLog(PublicLog):
    """Writes a run as a table, one row for each step. A run that goes on, goes on in the same file.

    Parameters
    ----------
    path : str or path
        The file.
    purse, every, epsilon_every
        As for `PublicLog`.
    """

    COLUMNS = (
        "step asked noise_multiplier noise_std clip_norm budget_left epsilon_spent stop_reason".split()  # noqa: SIM905
    )

    def __init__(
        self, path: str | os.PathLike[str], purse: Purse | None = None, *, every: int = 1, epsilon_every: int = 100
    ) -> None:
        super().__init__(purse, every=every, epsilon_every=epsilon_every)
        self._path = _path(path)
        self._file: IO[str] | None = None

    def _open(self, steps: int, done: int) -> None:
        begun = done > 0 and self._path.exists()
        self._file = self._path.open("a" if begun else "w", newline="", encoding="utf-8")
        self._rows = csv.DictWriter(self._file, self.COLUMNS)
        if not begun:
            self._rows.writeheader()

    def _write(self, step: Step, values: dict[str, float], **more: str) -> None:
        assert self._file is not None
        self._rows.writerow({"step": step.number, "asked": step.query, **values, **more})
        self._file.flush()
