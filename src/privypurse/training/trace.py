"""The public record of a run: noise, charges and what is left, never a loss or a norm that was not paid for."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from privypurse.accounting import gdp
from privypurse.core.charges import from_json, to_json
from privypurse.core.queries import Query
from privypurse.core.released import Released


@dataclass(frozen=True)
class Step:
    """One step of a run.

    Parameters
    ----------
    number : int
        From 1 on.
    query : str
        What was asked.
    charge : dict
        What was paid, as in ``core.charges``.
    noise_std : float or None
        Standard deviation of the noise, for Gaussian releases.
    chosen : float or None
        What was selected, for selections.
    fraction_left : float
        Share of the purse that was left after the step.
    """

    number: int
    query: str
    charge: dict[str, Any]
    noise_std: float | None
    chosen: float | None
    fraction_left: float

    @classmethod
    def of(cls, number: int, query: Query, released: Released, fraction_left: float) -> "Step":
        """Write down what is public about a release."""
        chosen = float(released.value) if released.is_selection else None
        return cls(number, type(query).__name__, to_json(released.charge), released.noise_std, chosen, fraction_left)


@dataclass(repr=False)
class Trace:
    """All steps of a run, and why it stopped."""

    steps: list[Step] = field(default_factory=list)
    stop_reason: str = ""

    def __repr__(self) -> str:
        return f"<Trace: {len(self.steps)} releases, stopped by {self.stop_reason or 'nothing yet'}>"

    @property
    def mu_spent(self) -> list[float]:
        """Gaussian-DP parameter of everything up to each step; for runs whose releases have one."""
        total, spent = 0.0, []
        for step in self.steps:
            total += gdp.mu_squared(from_json(step.charge))  # type: ignore[arg-type]
            spent.append(total**0.5)
        return spent

    def to_json(self) -> str:
        """Write the trace as JSON."""
        return json.dumps({"steps": [asdict(step) for step in self.steps], "stop_reason": self.stop_reason})

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        """Read a trace back."""
        fields = json.loads(text)
        return cls([Step(**step) for step in fields["steps"]], fields["stop_reason"])
