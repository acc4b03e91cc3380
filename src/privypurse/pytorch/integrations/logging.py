"""[PUBLIC] Logs of the public values of a run: TensorBoard, MLflow, CSV."""

import csv
import os
import pathlib
from typing import Any

from privypurse.core.checks import shown
from privypurse.core.errors import InvalidArgument
from privypurse.purse.purse import Purse
from privypurse.pytorch.integrations.public_log import PublicLog
from privypurse.training.trace import Step

__all__ = ["CsvLog", "MLflowLog", "PublicLog", "TensorBoardLog"]


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

    COLUMNS = (
        "step",
        "asked",
        "noise_multiplier",
        "noise_std",
        "clip_norm",
        "budget_left",
        "epsilon_spent",
        "stop_reason",
    )

    def __init__(
        self, path: str | os.PathLike[str], purse: Purse | None = None, *, every: int = 1, epsilon_every: int = 100
    ) -> None:
        super().__init__(purse, every=every, epsilon_every=epsilon_every)
        self._path = _path(path)

    def _open(self, steps: int, done: int) -> None:
        if not (done > 0 and self._path.exists()):
            self._path.write_text(",".join(self.COLUMNS) + "\n", encoding="utf-8")

    def _write(self, step: Step, values: dict[str, float], stop_reason: str = "") -> None:
        with self._path.open("a", newline="", encoding="utf-8") as file:
            row = {"step": step.number, "asked": step.query, **values, "stop_reason": stop_reason}
            csv.DictWriter(file, self.COLUMNS, lineterminator="\n").writerow(row)


def _path(path: Any) -> pathlib.Path:
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise InvalidArgument(f"path must name a file or a folder; got {shown(path)}. Pass for example 'run.csv'.")
    return pathlib.Path(path).expanduser()
