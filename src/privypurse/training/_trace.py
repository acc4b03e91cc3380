"""The public record of a run: noise, charges and what is left; no loss or norm not charged."""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from privypurse.accounting import _gdp as gdp
from privypurse.core._formats import counted
from privypurse.core._reading import check_fields, read_json, refusing
from privypurse.core.charges import from_json, to_json
from privypurse.core.queries import LossesAlong, Query, Released

Item = TypeVar("Item")
# Newest releases that keep their vectors, for schedules.
VECTORS_KEPT = 10


@dataclass(frozen=True)
class Step:
    """One step of a run."""

    number: int  # from 1 on
    query: str  # name of the query
    charge: dict[str, Any]  # as `core.charges.to_json` writes it
    noise_std: float | None  # for Gaussian releases
    chosen: float | None  # selected index, for selections
    fraction_left: float  # share of the purse left after the step
    step_size: float | None = None  # chosen by a line search

    @classmethod
    def of(cls, number: int, query: Query, released: Released, fraction_left: float) -> "Step":
        """Record what is public about a release."""
        chosen = float(released.value) if released.is_selection else None
        size = float(query.steps[int(chosen)]) if isinstance(query, LossesAlong) and chosen is not None else None
        charge = to_json(released.charge)
        return cls(number, type(query).__name__, charge, released.noise_std, chosen, fraction_left, size)


@dataclass(repr=False)
class Trace:
    """All steps of a run, and why it stopped."""

    steps: list[Step] = field(default_factory=list)
    stop_reason: str = ""  # "steps", "budget", "others" (which spent this run's budget) or "interrupt"
    planned_step_sizes: tuple[float, ...] = ()  # of each update; one for all, none for a line search

    def __repr__(self) -> str:
        return f"<Trace: {counted(len(self.steps), 'release')}, stopped by {self.stop_reason or 'nothing yet'}>"

    @property
    def mu_spent(self) -> list[float]:
        """Gaussian-DP parameter of everything up to each step; for releases that have one."""
        squares = (gdp.mu_squared(from_json(step.charge)) for step in self.steps)  # type: ignore[arg-type]
        return [total**0.5 for total in itertools.accumulate(squares)]

    @property
    def step_sizes(self) -> tuple[float, ...]:
        """Step size of each update, as a line search chose or as planned."""
        chosen = tuple(step.step_size for step in self.steps if step.step_size is not None)
        if chosen:
            return chosen
        updates = sum(step.noise_std is not None for step in self.steps)
        planned = self.planned_step_sizes
        return planned * updates if len(planned) == 1 else planned[:updates]

    def to_json(self) -> str:
        """Write the trace as JSON."""
        fields = {"steps": [asdict(step) for step in self.steps], "stop_reason": self.stop_reason}
        return json.dumps(fields | {"planned_step_sizes": list(self.planned_step_sizes)})

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        """Read a trace written by `to_json`; raise InvalidArgument for anything else."""
        with refusing("expected the trace of a run, as to_json writes it."):
            fields = read_json(text, strict=False)
            planned = tuple(fields.get("planned_step_sizes", ()))
            trace = cls([Step(**step) for step in fields["steps"]], fields["stop_reason"], planned)
            check_fields(trace)
            for step in trace.steps:
                if step.charge:  # empty in processes that are not charged
                    from_json(step.charge)
            return trace


class Grown(Sequence[Item]):
    """A sequence to which an item is appended in constant time. Shorter ones that it grew from stay as they are."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: Any) -> Any:
        return (
            self._items[: self._length][place] if isinstance(place, slice) else self._items[range(self._length)[place]]
        )

    def and_one(self, item: Item) -> "Grown[Item]":
        """Return this sequence and one item more."""
        other: Grown[Item] = Grown(())
        other._items = self._items if len(self._items) == self._length else self._items[: self._length]
        other._items.append(item)
        other._length = self._length + 1
        return other


def remembered(past: Sequence[Released], newest: Released) -> Grown[Released]:
    """Append a release."""
    return (past if isinstance(past, Grown) else Grown(past)).and_one(newest)


def forget(past: Sequence[Released]) -> None:
    """Drop the values of the vectors that are no longer among the newest. Nothing needs the sequence before it."""
    place = len(past) - VECTORS_KEPT - 1
    if isinstance(past, Grown) and place >= 0 and past[place].value.ndim:
        past._items[place] = replace(past[place], value=np.empty(0))
