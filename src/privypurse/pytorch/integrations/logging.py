"""[PUBLIC] Logs of the public values of a run: TensorBoard, MLflow, CSV."""

import csv
import os
import pathlib
from typing import Any

from privypurse.core._checks import positive_integer, shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.queries import ModuleGradient
from privypurse.purse._purse import Purse
from privypurse.training._trace import Step, Trace

__all__ = ["CsvLog", "MLflowLog", "TensorBoardLog"]


class PublicLog:
    """Base class of logs of public values: no loss, no accuracy, no gradient without noise.

    Parameters
    ----------
    purse : Purse, optional
        Purse of the run, for epsilon and the clip norm. May be set later: ``log.purse = private.purse``.
    every : int, default 1
        Write every so many steps, and the last one.
    epsilon_every : int, default 100
        Compute the spent epsilon every so many steps, and at the end. It may take a second.
    """

    def __init__(self, purse: Purse | None = None, *, every: int = 1, epsilon_every: int = 100) -> None:
        if purse is not None and not isinstance(purse, Purse):
            raise InvalidArgument(f"purse must be a Purse or None; got {shown(purse)}. Leave it out.")
        self.purse = purse
        self._every = positive_integer(every=every)
        self._epsilon_every = positive_integer(epsilon_every=epsilon_every)
        self._opened, self._written = False, 0

    def on_start(self, steps: int, done: int) -> None:
        """Open the log."""
        self._open(steps, done)
        self._opened, self._written = True, 0

    def on_step(self, step: Step) -> None:
        """Write the public values of a step."""
        due = step.number % self._epsilon_every == 0
        if due or step.number % self._every == 0:
            self._write(step, self._values(step) | self._epsilon(due))
            self._written = step.number

    def on_end(self, trace: Trace) -> None:
        """Write the budget spent and the stop reason."""
        if self._opened and trace.steps:
            last = trace.steps[-1]
            values = {} if last.number == self._written else self._values(last)
            self._write(last, values | self._epsilon(True), trace.stop_reason)
        if self._opened:
            self._close()
        self._opened = False

    def _values(self, step: Step) -> dict[str, float]:
        multiplier: float | None = step.charge.get("noise_multiplier")
        values = {"noise_multiplier": multiplier, "noise_std": step.noise_std, "budget_left": step.fraction_left}
        if self.purse is not None and multiplier and step.noise_std and step.query == ModuleGradient.__name__:
            sensitivity = step.noise_std / multiplier
            values["clip_norm"] = sensitivity / (1 if self.purse.neighbouring is Neighbouring.ADD_REMOVE else 2)
        return {name: float(value) for name, value in values.items() if value is not None}

    def _epsilon(self, due: bool) -> dict[str, float]:
        return {"epsilon_spent": self.purse.spent.epsilon} if due and self.purse is not None else {}

    def _open(self, steps: int, done: int) -> None:
        raise NotImplementedError

    def _write(self, step: Step, values: dict[str, float], stop_reason: str = "") -> None:
        raise NotImplementedError

    def _close(self) -> None:
        """Close files, where there are any."""


class TensorBoardLog(PublicLog):
    """Log a run to TensorBoard, under ``privacy/``.

    Parameters
    ----------
    target : str, path or SummaryWriter
        The folder, or an open writer, which stays open.
    purse, every, epsilon_every
        As for `PublicLog`.
    """

    def __init__(self, target: Any, purse: Purse | None = None, *, every: int = 1, epsilon_every: int = 100) -> None:
        super().__init__(purse, every=every, epsilon_every=epsilon_every)
        self._target = _path(target) if isinstance(target, str | os.PathLike) else target
        self._writer: Any = None
        if not isinstance(self._target, pathlib.Path) and not hasattr(target, "add_scalar"):
            raise InvalidArgument(f"target must be a folder or a SummaryWriter; got {shown(target)}.")

    def _open(self, steps: int, done: int) -> None:
        self._writer = self._target
        if isinstance(self._target, pathlib.Path):
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise ImportError("TensorBoardLog needs tensorboard: pip install 'privypurse[torch-tools]'.") from error
            self._writer = SummaryWriter(str(self._target))
        self._writer.add_text("privacy/steps", f"{steps} planned, {done} made before", done)
        self._asked = ""

    def _write(self, step: Step, values: dict[str, float], stop_reason: str = "") -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"privacy/{name}", value, step.number)
        if step.query != self._asked:
            self._asked = step.query
            self._writer.add_text("privacy/asked", step.query, step.number)
        if stop_reason:
            self._writer.add_text("privacy/stop_reason", stop_reason, step.number)

    def _close(self) -> None:
        self._writer.flush()
        if isinstance(self._target, pathlib.Path):
            self._writer.close()


class MLflowLog(PublicLog):
    """Log a run to MLflow's active run: metrics and tags that begin with ``privacy.``.

    Parameters
    ----------
    purse, every, epsilon_every
        As for `PublicLog`. Each write calls the tracking server: raise `every` to reduce them.
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

    def _write(self, step: Step, values: dict[str, float], stop_reason: str = "") -> None:
        if values:
            self._mlflow.log_metrics({f"privacy.{name}": value for name, value in values.items()}, step=step.number)
        if step.query not in self._asked:
            self._asked.add(step.query)
            self._mlflow.set_tag("privacy.asked", ", ".join(sorted(self._asked)))
        if stop_reason:
            self._mlflow.set_tag("privacy.stop_reason", stop_reason)


class CsvLog(PublicLog):
    """Log a run as a table, one row for each step. A resumed run appends to the file.

    Parameters
    ----------
    path : str or path
        The file.
    purse, every, epsilon_every
        As for `PublicLog`.
    """

    HEADER = "step,asked,noise_multiplier,noise_std,clip_norm,budget_left,epsilon_spent,stop_reason"

    def __init__(
        self, path: str | os.PathLike[str], purse: Purse | None = None, *, every: int = 1, epsilon_every: int = 100
    ) -> None:
        super().__init__(purse, every=every, epsilon_every=epsilon_every)
        self._path = _path(path)

    def _open(self, steps: int, done: int) -> None:
        if not (done > 0 and self._path.exists()):
            self._path.write_text(self.HEADER + "\n", encoding="utf-8")

    def _write(self, step: Step, values: dict[str, float], stop_reason: str = "") -> None:
        with self._path.open("a", newline="", encoding="utf-8") as file:
            row = {"step": step.number, "asked": step.query, **values, "stop_reason": stop_reason}
            csv.DictWriter(file, self.HEADER.split(","), lineterminator="\n").writerow(row)


def _path(path: Any) -> pathlib.Path:
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise InvalidArgument(f"path must name a file or a folder; got {shown(path)}. Pass for example 'run.csv'.")
    return pathlib.Path(path).expanduser()
