"""Plans of runs, made before data is seen, and the recipes behind them."""

import json
from dataclasses import asdict, dataclass
from typing import Protocol

from privypurse.accounting._totals import Filter
from privypurse.training._facts import Facts
from privypurse.training.optimizers._base import Optimizer
from privypurse.training.schedules._base import Schedule


@dataclass(frozen=True)
class Bound:
    """A theoretical bound on a quantity, such as the "expected excess loss of the average"."""

    quantity: str
    value: float


@dataclass(frozen=True, repr=False)
class Plan:
    """The steps of a run that goes as expected.

    Parameters
    ----------
    method : str
        Name of the method.
    steps : int
        Number of updates of the model.
    clip_norm, sample_prob : float
        Largest norm of one record's gradient, and Poisson sampling rate.
    step_sizes : tuple of float
        Step size of each update; for a line search, the middle of its range.
    noise_std, mu : tuple of float
        Standard deviation of the noise on each clipped sum of gradients, and the Gaussian-DP
        parameter of each such release on its own, before amplification by sampling.
    selection_epsilon : tuple of float
        Epsilon of each selection, for methods that select.
    bound, notes : Bound or None, tuple of str
        Theoretical bound, and remarks such as which constants are guesses.
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
    """The arguments of `training.train`.

    Parameters
    ----------
    optimizer, schedule
        Optimizer and noise schedule.
    steps, sample_prob : int, float
        Most releases, and Poisson sampling rate.
    step_sizes, bound, notes
        For the plan; one step size stands for all steps.
    """

    optimizer: Optimizer
    schedule: Schedule
    steps: int
    sample_prob: float = 1.0
    step_sizes: tuple[float, ...] = ()
    bound: Bound | None = None
    notes: tuple[str, ...] = ()


class Method(Protocol):
    """Interface of a method: what a user passes as ``method=``."""

    @property
    def name(self) -> str:
        """Name in reports and on the command line."""

    def recipe(self, facts: Facts) -> Recipe:
        """Choose optimizer, schedule and number of steps from public facts."""

    def plan(self, facts: Facts) -> Plan:
        """Return what a run that goes as expected will do. Needs no data."""

    def filter(self, facts: Facts) -> Filter:
        """Return the filter that suits the method; for ``Purse(..., filter=...)``."""
