"""The public record of a run: noise, charges and what is left; no loss or norm not charged."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from privypurse.accounting import _gdp as gdp
from privypurse.core._formats import counted
from privypurse.core._reading import check_fields, read_json, refusing
from privypurse.core.charges import from_json, to_json
from privypurse.core.queries import LossesAlong, Query, Released

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


def remembered(past: Sequence[Released], newest: Released) -> tuple[Released, ...]:
    """Append a release. Of vectors, only the newest keep their values."""
    if len(past) < VECTORS_KEPT or past[-VECTORS_KEPT].value.ndim == 0:
        return (*past, newest)
    old = replace(past[-VECTORS_KEPT], value=np.empty(0))
    return (*past[:-VECTORS_KEPT], old, *past[len(past) - VECTORS_KEPT + 1 :], newest)
