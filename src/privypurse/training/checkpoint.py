"""Saving a run so that it can go on: one file, JSON and arrays, no pickle, replaced as a whole."""

import io
import json
import os
import pathlib
import zipfile
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privypurse.core.charges import RepeatedCharge, from_json
from privypurse.core.checks import FloatArray
from privypurse.core.errors import InvalidArgument
from privypurse.optimizers.base import State
from privypurse.purse.purse import Purse
from privypurse.schedules.base import Budget, Past
from privypurse.training.trace import Trace

FORMAT = 1


@dataclass
class Progress:
    """Everything a run needs to go on."""

    state: State
    trace: Trace
    past: list[Past]
    budget: Budget
    releases: int = 0  # on the ledger when it was saved


class Checkpoint:
    """Where a run is saved.

    Parameters
    ----------
    path : str or path
        The file. It appears whole or not at all.
    every : int, default 1
        Save after this many steps.

    Guarantees
    ----------
    * Going on never lowers the recorded spend: where the ledger knows fewer releases than the checkpoint (one in memory, which
      died with its process), the missing ones are charged again before anything else happens.
    * A run with seeded noise goes on bit for bit as if it had not been interrupted, as long as the purse can also pay for what
      was released and lost between the last checkpoint and the interruption.
    * The file is data: reading it runs no code.
    """

    def __init__(self, path: str | os.PathLike[str], *, every: int = 1) -> None:
        self._path, self.every = pathlib.Path(path), every

    def save(self, progress: Progress, purse: Purse, settings: dict[str, str]) -> None:
        """Write the file beside its place and move it there."""
        facts = {
            "format": FORMAT,
            "settings": settings,
            "terms": purse.filter.terms(),
            "dataset": purse.dataset,
            "trace": progress.trace.to_json(),
            "charges": [past.charge for past in progress.past],
            "budget": asdict(progress.budget),
            "releases": purse.spent_releases,
            "noise": purse.noise.state(),
        }
        arrays: dict[str, Any] = {f"state_{name}": np.asarray(array) for name, array in progress.state.items()}
        arrays |= {f"answer_{k}": np.asarray(past.answer) for k, past in enumerate(progress.past)}
        content = io.BytesIO()
        np.savez(content, facts=np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8), **arrays)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with open(temporary, "wb") as file:
            file.write(content.getvalue())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)

    def load(self, purse: Purse, settings: dict[str, str]) -> Progress | None:
        """Read the file, if it is there, and bring purse and noise to where they were or further."""
        if not self._path.exists():
            return None
        facts, arrays = self._read()
        for name, saved, asked in (
            ("settings", facts["settings"], settings),
            ("terms", facts["terms"], purse.filter.terms()),
            ("dataset", facts["dataset"], purse.dataset),
        ):
            if saved != asked:
                raise InvalidArgument(
                    f"checkpoint {self._path.name!r} was made with other {name}: {saved!r}; got {asked!r}. "
                    "Go on with the same, or pass another file to start anew."
                )
        missing = facts["releases"] - purse.spent_releases
        for charge in facts["charges"][-missing:] if missing > 0 else []:
            purse.pay_again(_single(charge), what="releases before the checkpoint")
        purse.noise.restore(facts["noise"])
        state = {name.removeprefix("state_"): array for name, array in arrays.items() if name.startswith("state_")}
        past = [Past(charge, arrays[f"answer_{k}"]) for k, charge in enumerate(facts["charges"])]
        return Progress(state, Trace.from_json(facts["trace"]), past, Budget(**facts["budget"]), facts["releases"])

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


def _single(described: dict[str, Any]) -> Any:
    charge = from_json(described)
    if isinstance(charge, RepeatedCharge):
        raise InvalidArgument(f"a checkpoint holds single charges; got {described!r}. The file is damaged.")
    return charge
