"""Saving a run so that it can go on: one file, JSON and arrays, no pickle, replaced as a whole."""

import io
import json
import os
import pathlib
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from privypurse.accounting.fixed_schedule import FixedSchedule
from privypurse.accounting.totals import Totals
from privypurse.core.charges import RepeatedCharge, SingleCharge, from_json
from privypurse.core.checks import FloatArray, positive_integer
from privypurse.core.errors import InvalidArgument, LedgerCorrupt
from privypurse.core.released import Released
from privypurse.optimizers.base import State
from privypurse.purse.ledger import MemoryLedger
from privypurse.purse.purse import Purse
from privypurse.schedules.base import Budget
from privypurse.training.trace import Step, Trace

FORMAT = 2
# How many of the newest releases keep their vectors, for schedules to look at.
VECTORS_KEPT = 10


@dataclass(frozen=True, eq=False)
class Progress:
    """Everything a run needs to go on."""

    state: State
    trace: Trace
    past: tuple[Released, ...]
    budget: Budget

    def after(self, state: State, step: Step, released: Released) -> "Progress":
        """Return the progress one step on; a new object, so that an interrupt leaves either this one or that one."""
        trace = Trace([*self.trace.steps, step], self.trace.stop_reason)
        return Progress(state, trace, remembered(self.past, released), self.budget.after(released.charge))


def remembered(past: Sequence[Released], newest: Released) -> tuple[Released, ...]:
    """Return the releases with one more. Of vectors only the newest keep their values, or a large model would fill memory.

    What was selected is a number, and stays.
    """
    if len(past) < VECTORS_KEPT or past[-VECTORS_KEPT].value.ndim == 0:
        return (*past, newest)
    old = replace(past[-VECTORS_KEPT], value=np.empty(0))
    return (*past[:-VECTORS_KEPT], old, *past[len(past) - VECTORS_KEPT + 1 :], newest)


class Checkpoint:
    """Where a run is saved: after every few steps, and at its end, whatever ended it.

    Parameters
    ----------
    path : str or path
        The file. It appears whole or not at all.
    every : int, default 10
        Save after this many steps. A run that is killed, rather than interrupted, loses the steps since, and what they cost.

    Guarantees
    ----------
    * Going on never lowers the recorded spend. The purse needs a ledger file, and it must be the one the run was saved with,
      continued: whatever was released after the checkpoint is still on it. (A simulation may do with a ledger in memory; the
      run's releases are then charged again.)
    * A run with seeded noise goes on bit for bit as if it had not been interrupted, as long as the purse can also pay for what
      was released and lost between the last checkpoint and the interruption.
    * The file holds public values: charges, noisy answers, the optimizer's state. Reading it runs no code.
    """

    def __init__(self, path: str | os.PathLike[str], *, every: int = 10) -> None:
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise InvalidArgument(f"checkpoint must be a file name; got {path!r}. Pass for example 'run.npz'.")
        self._path, self.every = pathlib.Path(path).expanduser().absolute(), positive_integer(every=every)
        if self._path.is_dir() or not os.access(self._path.parent, os.W_OK):
            raise InvalidArgument(
                f"checkpoint must be a file in a folder that can be written to; got {str(path)!r}. Make it first."
            )

    def check(self, purse: Purse, settings: dict[str, str]) -> None:
        """Refuse, before anything is spent, a run that could not be gone on with."""
        check_durable(purse)
        for name, value in settings.items():
            if " object at 0x" in value:
                raise InvalidArgument(
                    f"{name} must have a repr that says what it is, so that a checkpoint can tell whether it is the same; "
                    f"got {value}. Make it a dataclass."
                )

    def save(self, progress: Progress, purse: Purse, settings: dict[str, str]) -> None:
        """Write the file beside its place and move it there."""
        facts = {
            "format": FORMAT,
            "settings": settings,
            "terms": purse.filter.terms(),
            "dataset": purse.dataset,
            "trace": progress.trace.to_json(),
            "start": asdict(progress.budget.start),
            "steps": progress.budget.steps,
            "sample_prob": progress.budget.sample_prob,
            "head": purse.ledger.head(),
            "noise": purse.noise.state(),
        }
        arrays: dict[str, Any] = {f"state_{name}": np.asarray(array) for name, array in progress.state.items()}
        arrays |= {f"answer_{k}": np.asarray(past.value) for k, past in enumerate(progress.past) if past.value.size}
        content = io.BytesIO()
        np.savez(content, facts=np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8), **arrays)
        write_whole(self._path, content.getvalue())

    def load(self, purse: Purse, settings: dict[str, str]) -> Progress | None:
        """Read the file, if it is there; make sure that purse and noise are where they were, or further."""
        if not self._path.exists():
            return None
        facts, arrays = self._read()
        saved = {**facts["settings"], "terms": facts["terms"], "dataset": facts["dataset"]}
        self._compare(saved, purse, settings)
        trace = Trace.from_json(facts["trace"])
        check_ledger(purse, tuple(facts["head"]), trace)
        purse.noise.restore(facts["noise"])
        state = {name.removeprefix("state_"): array for name, array in arrays.items() if name.startswith("state_")}
        past = tuple(
            Released(arrays.get(f"answer_{k}", np.empty(0)), single_charge(step.charge), step.noise_std)
            for k, step in enumerate(trace.steps)
        )
        start = totals_from(facts["start"])
        budget = Budget(purse.filter, start, start, facts["steps"], facts["sample_prob"])
        for released in past:
            budget = budget.after(released.charge)
        if isinstance(purse.filter, FixedSchedule):
            # What was released after the checkpoint and lost has used up its place in the schedule.
            budget = replace(budget, now=purse.totals)
        return Progress(state, trace, past, budget)

    def began_at(self, purse: Purse) -> Totals | None:
        """Return what was spent when the saved run began, so that it can be planned as it was then; None if there is no file."""
        if not self._path.exists():
            return None
        facts, _ = self._read()
        self._compare({"terms": facts["terms"], "dataset": facts["dataset"]}, purse, {})
        return totals_from(facts["start"])

    def _compare(self, saved: dict[str, Any], purse: Purse, settings: dict[str, str]) -> None:
        """Refuse a file that was made with something else."""
        asked = {**settings, "terms": purse.filter.terms(), "dataset": purse.dataset}
        for name in sorted(saved.keys() | asked.keys()):
            if saved.get(name) != asked.get(name):
                raise InvalidArgument(
                    f"checkpoint {self._path.name!r} was made with another {name}: {saved.get(name)!r}; got {asked.get(name)!r}. "
                    "Go on with the same, or pass another file to start anew."
                )

    def _read(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        try:
            with np.load(io.BytesIO(self._path.read_bytes()), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            facts = json.loads(arrays.pop("facts").tobytes())
            if facts["format"] != FORMAT:
                raise InvalidArgument(
                    f"checkpoint {self._path.name!r} has format {facts['format']!r}; this version reads {FORMAT}. "
                    "Install the version of privypurse that wrote it."
                )
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            if isinstance(error, InvalidArgument):
                raise
            raise InvalidArgument(
                f"{str(self._path)!r} is not a checkpoint of privypurse ({error}). Pass another file."
            ) from error
        return facts, arrays


def check_durable(purse: Purse) -> None:
    """Refuse to save a run whose ledger would not outlive it."""
    if isinstance(purse.ledger, MemoryLedger) and not purse.noise.simulation:
        raise InvalidArgument(
            "checkpoint needs a purse with a ledger file; a ledger in memory forgets what was spent when the process ends. "
            "Pass Purse(..., ledger='budget.db')."
        )


def check_ledger(purse: Purse, head: tuple[int, str], trace: Trace) -> None:
    """Refuse a ledger that does not remember the run; charge a simulation again that has none."""
    try:
        purse.ledger.verify(head)
    except LedgerCorrupt:
        if not isinstance(purse.ledger, MemoryLedger):
            raise
        for step in trace.steps:
            purse.pay_again(single_charge(step.charge), what="releases before the checkpoint")


def write_whole(path: pathlib.Path, content: bytes) -> None:
    """Write a file beside its place and move it there: it appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def totals_from(described: dict[str, Any]) -> Totals:
    """Read back what `asdict` wrote of totals."""
    return Totals(tuple(described["quanta"]), described["releases"], described["non_private"])


def single_charge(described: dict[str, Any]) -> SingleCharge:
    """Read the charge of a step."""
    charge = from_json(described)
    if isinstance(charge, RepeatedCharge):
        raise InvalidArgument(f"a checkpoint holds single charges; got {described!r}. The file is damaged.")
    return charge
