"""Checkpoints of a run: one file of JSON and arrays, without pickle, replaced atomically."""

import dataclasses
import enum
import hashlib
import io
import json
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Totals
from privypurse.core._checks import FloatArray, at_home, positive_integer, probability
from privypurse.core._errors import InvalidArgument, LedgerCorrupt
from privypurse.core._randomness import NoiseSource
from privypurse.core._reading import MISSHAPEN, read_json, refusing
from privypurse.core.charges import RepeatedCharge, SingleCharge, from_json
from privypurse.core.queries import Released
from privypurse.purse._ledger import MemoryLedger
from privypurse.purse._purse import Purse
from privypurse.training._trace import Trace
from privypurse.training.optimizers._base import State
from privypurse.training.schedules._base import Budget

FORMAT = 3  # since 3, a run is identified by its declared settings
_NOT_NUMPY: tuple[type[Exception], ...] = (OSError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, eq=False)
class RunState:
    """Everything needed to resume a run; made anew at each step, so that interrupts leave a whole one."""

    state: State
    trace: Trace
    past: Sequence[Released]
    budget: Budget


class Checkpoint:
    """Where a run is saved: every few steps, and at its end, whatever ended it.

    Parameters
    ----------
    path : str or path
        The file, which is replaced atomically.
    every : int, default 10
        Save after this many steps. A killed run loses the steps since, and what they cost.

    Guarantees
    ----------
    * Resuming never lowers the recorded spend. The purse needs a ledger file, and it must be the
      one the run was saved with, continued: whatever was released after the checkpoint is still on
      it. (A simulation may use a ledger in memory; the run's releases are then charged again.)
    * A run with seeded noise resumes bit for bit, as long as the budget also covers what was
      released and lost between the last checkpoint and the interruption.
    * The file holds public values: charges, noisy answers, the optimizer's state. Reading it runs
      no code.
    """

    def __init__(self, path: str | os.PathLike[str], *, every: int = 10) -> None:
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise InvalidArgument(f"checkpoint must be a file name; got {path!r}. Pass for example 'run.npz'.")
        self._path, self.every = at_home(path).absolute(), positive_integer(every=every)
        name = self._path.name
        self._damaged = f"checkpoint {name!r} is damaged or was edited. Pass another file, or start anew without it."
        if self._path.is_dir() or not os.access(self._path.parent, os.W_OK):
            raise InvalidArgument(f"checkpoint must be a file in a writable folder; got {str(path)!r}. Make it.")

    def save(self, progress: RunState, purse: Purse, settings: dict[str, Any]) -> None:
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

    def load(self, purse: Purse, settings: dict[str, Any]) -> RunState | None:
        """Read the file, if it exists. Check the ledger and restore the noise."""
        check_durable(purse)
        if not self._path.exists():
            return None
        facts, arrays = self._read()
        with refusing(self._damaged):
            self._compare(facts, facts["settings"], purse, settings)
            trace = Trace.from_json(facts["trace"])
            state = {name.removeprefix("state_"): array for name, array in arrays.items() if name.startswith("state_")}
            past = tuple(
                Released(arrays.get(f"answer_{k}", np.empty(0)), single_charge(step.charge), step.noise_std)
                for k, step in enumerate(trace.steps)
            )
            start = totals_from(facts["start"])
            steps, sample_prob = positive_integer(steps=facts["steps"]), probability(sample_prob=facts["sample_prob"])
            budget = Budget(purse.filter, start, start, steps, sample_prob)
            for released in past:
                budget = budget.after(released.charge)
            check_ledger(purse, head_from(facts["head"]), trace)
            restore_noise(purse.noise, facts["noise"])
        if isinstance(purse.filter, FixedSchedule):
            # Releases that were lost after the checkpoint have used their place in the schedule.
            budget = replace(budget, now=purse.totals)
        return RunState(state, trace, past, budget)

    def began_at(self, purse: Purse) -> Totals | None:
        """Return what was spent when the saved run began, for planning; None without a file."""
        if not self._path.exists():
            return None
        facts, _ = self._read()
        with refusing(self._damaged):
            self._compare(facts, {}, purse, {})
            start = totals_from(facts["start"])
            if not purse.filter.start().fits_within(start):
                raise ValueError("other kinds of totals")
        return start

    def _compare(self, facts: Any, saved: dict[str, Any], purse: Purse, settings: dict[str, Any]) -> None:
        """Raise InvalidArgument for a file made with other settings, terms or data set."""
        saved = {**saved, "terms": facts["terms"], "dataset": facts["dataset"]}
        asked = {**settings, "terms": purse.filter.terms(), "dataset": purse.dataset}
        for name in sorted(saved.keys() | asked.keys()):
            if saved.get(name) != asked.get(name):
                what = f"another {name}: {saved.get(name)!r}; got {asked.get(name)!r}"
                remedy = "Use the same, or pass another file to start anew"
                raise InvalidArgument(f"checkpoint {self._path.name!r} was made with {what}. {remedy}.")

    def _read(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        try:
            with np.load(io.BytesIO(self._path.read_bytes()), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            facts = read_json(arrays.pop("facts").tobytes(), strict=False)
            found = facts["format"]
        except MISSHAPEN + _NOT_NUMPY as error:
            raise InvalidArgument(f"{str(self._path)!r} is not a checkpoint ({error}). Pass another.") from error
        if found != FORMAT:
            reads = f"this version reads {FORMAT}, which identifies a run by its declared settings"
            remedy = "Finish the run with the version that wrote it, or pass another file to start anew"
            raise InvalidArgument(f"checkpoint {self._path.name!r} has format {found!r}; {reads}. {remedy}.")
        return facts, arrays


def declared_settings(**parts: Any) -> dict[str, Any]:
    """Return the class and the declared settings of each part of a run, by name, in JSON types."""
    return dict(item for name, part in parts.items() for item in _declared(name, part))


def _declared(name: str, part: Any) -> Iterator[tuple[str, Any]]:
    """List a setting, and those of an object: the fields of a dataclass, or its `settings`."""
    inner = part if isinstance(part, Mapping) else getattr(part, "settings", None)
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        inner = {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.compare}
    if isinstance(inner, Mapping):
        yield name, type(part).__name__
        for key, value in inner.items():
            yield from _declared(f"{name}.{key}", value)
    elif isinstance(part, np.ndarray):  # a deep model is too long to write out
        yield name, f"{part.dtype}{part.shape} {hashlib.sha256(part.tobytes()).hexdigest()[:16]}"
    elif isinstance(part, list | tuple):
        yield name, len(part)
        for place, value in enumerate(part):
            yield from _declared(f"{name}[{place}]", value)
    elif part is None or isinstance(part, bool | int | float | str):
        yield name, part
    elif isinstance(part, np.generic | enum.Enum):
        yield name, part.item() if isinstance(part, np.generic) else part.name
    else:
        what = f"{name} must declare its settings, so that a checkpoint can tell whether it is the same"
        raise InvalidArgument(f"{what}; got an object of type {type(part).__name__}. Make it a dataclass.")


def check_durable(purse: Purse) -> None:
    """Raise InvalidArgument unless the ledger outlives the run."""
    if isinstance(purse.ledger, MemoryLedger) and not purse.noise.simulation:
        what = "checkpoint needs a purse with a ledger file, which outlives the process"
        raise InvalidArgument(f"{what}. Pass Purse(..., ledger='budget.db').")


def check_ledger(purse: Purse, head: tuple[int, str], trace: Trace) -> None:
    """Raise LedgerCorrupt if the ledger does not contain the run; charge a simulation again."""
    try:
        purse.ledger.verify(head)
    except LedgerCorrupt:
        if not isinstance(purse.ledger, MemoryLedger):
            raise
        for step in trace.steps:
            purse.pay_again(single_charge(step.charge), what="releases before the checkpoint")


def write_whole(path: pathlib.Path, content: bytes) -> None:
    """Write a file beside its place and move it there, so that it appears whole or not at all."""
    if path.exists() and not path.is_file():
        raise InvalidArgument(f"checkpoint: expected a regular file, got {str(path)!r}. Pass another path.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def totals_from(described: dict[str, Any]) -> Totals:
    """Read totals written by `asdict`."""
    quanta, releases, non_private = tuple(described["quanta"]), described["releases"], described["non_private"]
    if not all(type(count) is int and count >= 0 for count in (*quanta, releases, non_private)):
        raise ValueError("totals must be whole numbers of 0 or more")
    return Totals(quanta, releases, non_private)


def restore_noise(noise: NoiseSource, state: Any) -> None:
    """Return a seeded source to a saved position, after checks that numpy does not make."""
    if isinstance(state, dict):
        sizes = [len(state["buffer"]), len(state["state"]["counter"]), len(state["state"]["key"])]
        most = {"buffer_pos": 4, "has_uint32": 1, "uinteger": 2**32 - 1}
        small = all(type(state[name]) is int and 0 <= state[name] <= limit for name, limit in most.items())
        if sizes != [4, 4, 2] or not small or len(state["state"]) != 2:
            raise ValueError("invalid position of the noise")
    noise.restore(state)


def check_state(state: State, fresh: State) -> None:
    """Raise InvalidArgument for a saved optimizer state with other names, shapes or types."""

    def alike(array: Any, fresh: Any) -> bool:
        """Return whether an array may have grown from a fresh one."""
        if array.dtype != fresh.dtype or array.ndim != fresh.ndim or not np.isfinite(array).all():
            return False
        grown = fresh.size == 0 or (fresh.ndim > 1 and array.shape[1:] == fresh.shape[1:])
        return bool(grown or array.shape == fresh.shape)

    if state.keys() != fresh.keys() or not all(alike(state[name], fresh[name]) for name in fresh):
        what = "the checkpoint does not hold the state of this optimizer: it is damaged or was edited"
        raise InvalidArgument(f"{what}. Pass another file.")


def head_from(described: Any) -> tuple[int, str]:
    """Read the ledger line that a run was saved with; raise ValueError for anything else."""
    if not (isinstance(described, list) and [type(part) for part in described] == [int, str]):
        raise ValueError("expected the number of a ledger line and its hash")
    return described[0], described[1]


def single_charge(described: dict[str, Any]) -> SingleCharge:
    """Read the charge of a step; raise ValueError for several."""
    charge = from_json(described)
    if isinstance(charge, RepeatedCharge):
        raise ValueError("expected a single charge")
    return charge
