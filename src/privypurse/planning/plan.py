"""What a method will do, written down before it sees data; and what it is made of."""

import json
from dataclasses import asdict, dataclass, field
from typing import Protocol

from privypurse.accounting.totals import Filter
from privypurse.optimizers.base import Optimizer
from privypurse.planning.facts import Facts
from privypurse.schedules.base import Schedule


@dataclass(frozen=True)
class Bound:
    """What a theorem promises about a run.

    Parameters
    ----------
    quantity : str
        What is bounded, such as "expected excess loss of the average".
    value : float
        The bound.
    """

    quantity: str
    value: float


@dataclass(frozen=True, repr=False)
class Plan:
    """The steps of a run that goes as expected.

    Parameters
    ----------
    method : str
        Who planned.
    steps : int
        Updates of the model.
    clip_norm : float
        Largest norm of one record's gradient.
    step_sizes : tuple of float
        Step size of each update. A line search chooses them; the plan then names the middle of its range.
    noise_std : tuple of float
        Standard deviation of the noise on each clipped sum of gradients.
    mu : tuple of float
        Gaussian-DP parameter of each gradient release on its own: sensitivity over noise. (With sampling, before amplification.)
    selection_epsilon : tuple of float
        Epsilon of each selection, for methods that select.
    sample_prob : float
        Poisson sampling rate.
    bound : Bound or None
        What theory promises.
    notes : tuple of str
        What a reader should know, such as which constants are guesses.
    """

    method: str
    steps: int
    clip_norm: float
    step_sizes: tuple[float, ...]
    noise_std: tuple[float, ...]
    mu: tuple[float, ...]
    selection_epsilon: tuple[float, ...] = ()
    sample_prob: float = 1.0
    bound: Bound | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        noise = f"{self.noise_std[0]:.4g} to {self.noise_std[-1]:.4g}" if self.noise_std else "none"
        bound = "" if self.bound is None else f", {self.bound.quantity} at most {self.bound.value:.4g}"
        return f"<Plan {self.method}: {self.steps} steps, noise {noise} on sums clipped at {self.clip_norm:g}{bound}>"

    def to_json(self) -> str:
        """Write the plan as JSON."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Recipe:
    """What a run is made of: the arguments of `training.train`.

    Parameters
    ----------
    optimizer, schedule
        What moves, and how much noise it gets.
    steps : int
        Releases at most.
    sample_prob : float
        Poisson sampling rate.
    step_sizes : tuple of float
        For the plan; one number stands for all steps.
    bound, notes
        For the plan.
    """

    optimizer: Optimizer
    schedule: Schedule
    steps: int
    sample_prob: float = 1.0
    step_sizes: tuple[float, ...] = ()
    bound: Bound | None = None
    notes: tuple[str, ...] = field(default=())


class Method(Protocol):
    """A named recipe: what a user passes as ``method=``."""

    @property
    def name(self) -> str:
        """What reports and the command line call it."""
        ...

    def recipe(self, facts: Facts) -> Recipe:
        """Choose optimizer, schedule and number of steps from public facts."""
        ...

    def plan(self, facts: Facts) -> Plan:
        """Say what a run that goes as expected will do. Needs no data."""
        ...

    def filter(self, facts: Facts) -> Filter:
        """Return the stopping rule the method is best run under; what ``Purse(..., filter=...)`` takes."""
        ...
