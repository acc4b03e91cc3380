"""The public facts that a plan is made from, plans of runs, and the recipes behind them."""

import itertools
import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

from privypurse.accounting._filters import BY_NAME, DeclaredNonPrivate, GdpFilter
from privypurse.accounting._totals import Filter, Totals
from privypurse.core._checks import non_negative, positive, positive_integer, probability
from privypurse.core._errors import BudgetExhausted, InvalidArgument
from privypurse.core._formats import counted
from privypurse.core._neighbouring import Neighbouring
from privypurse.losses._bounds import Bounds
from privypurse.training.optimizers._base import Optimizer
from privypurse.training.schedules._base import Schedule


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What may be known before any data is seen, or was released.

    Parameters
    ----------
    records : float
        Number of records. Under add/remove the true number is private: use a nominal or noisy one.
    dimension : int
        Number of parameters of the model.
    rule : Filter
        The stopping rule, such as ``GdpFilter(0.5, 1e-6, "add-remove")`` or a purse's ``filter``.
    bounds : Bounds
        Public constants of the loss: ``oracle.bounds``.
    spent : Totals, optional
        Totals already spent; nothing by default.
    clip_norm : float or None
        Clip each record's gradient to this norm; None where the loss bounds it.
    l2, radius : float, default 0.0 and 10.0
        Ridge penalty on the mean loss, and public guess of the length of the best model.
    constant : bool, default True
        Whether the model has a constant column.

    Examples
    --------
    >>> from privypurse.losses import Logistic
    >>> facts = Facts.of(Logistic(clip_derivative=0.5), records=40_000, dimension=124, epsilon=0.1, delta=1e-8,
    ...                  neighbouring="add-remove")
    >>> round(facts.mu, 5), facts.sensitivity, facts.bounds.smoothness
    (0.02177, 0.5, 0.25)
    """

    records: float
    dimension: int
    rule: Filter
    bounds: Bounds
    spent: Totals | None = None
    clip_norm: float | None = None
    l2: float = 0.0
    radius: float = 10.0
    constant: bool = True

    def __post_init__(self) -> None:
        positive(records=self.records)
        positive_integer(dimension=self.dimension)
        non_negative(l2=self.l2)
        positive(radius=self.radius)
        if self.clip_norm is not None:
            positive(clip_norm=self.clip_norm)
        if not math.isfinite(self.gradient_bound):
            raise InvalidArgument("clip_norm is needed: the loss does not bound gradients. Pass clip_norm=1.0.")

    @classmethod
    def of(
        cls,
        loss: Any,
        *,
        records: float,
        dimension: int,
        epsilon: float,
        delta: float,
        neighbouring: Neighbouring | str,
        row_limit: float = 1.0,
        target_bound: float = 1.0,
        filter: str = "gdp",
        **others: Any,
    ) -> "Facts":
        """Collect the facts about a loss and a budget, without data and without a purse.

        Parameters
        ----------
        loss : LinearLoss or Softmax
            The loss of one record.
        records, dimension, **others
            As for the class; others are ``l2``, ``clip_norm``, ``radius``, ``constant``.
        epsilon, delta, neighbouring, filter
            The budget, as for a purse.
        row_limit, target_bound : float, default 1.0
            The length rows are scaled down to, and for regression the largest target.
        """
        if filter not in BY_NAME:
            raise InvalidArgument(f"filter must be one of {sorted(BY_NAME)}; got {filter!r}. Omit it for 'gdp'.")
        rule = BY_NAME[filter](epsilon, delta, neighbouring)
        bounds = loss.bounds(row_limit, target_bound)
        return cls(records=records, dimension=dimension, rule=rule, bounds=bounds, **others)

    @property
    def neighbouring(self) -> Neighbouring:
        """The neighbouring relation."""
        return self.rule.neighbouring

    @property
    def epsilon(self) -> float:
        """Epsilon of what is left."""
        if self.spent is None or self.spent == self.rule.start():
            return self.rule.epsilon
        return self.rule.epsilon_left(self.spent)

    @property
    def delta(self) -> float:
        """The delta."""
        return self.rule.delta

    @property
    def gradient_bound(self) -> float:
        """Largest norm of one record's gradient, after clipping."""
        return min(self.bounds.gradient, math.inf if self.clip_norm is None else self.clip_norm)

    @property
    def clips(self) -> bool:
        """Whether gradients are clipped below the bound of the loss; no theory holds then."""
        return self.gradient_bound < self.bounds.gradient

    @property
    def sensitivity(self) -> float:
        """How far the sum of gradients moves with one record."""
        return self.gradient_bound * (1 if self.neighbouring is Neighbouring.ADD_REMOVE else 2)

    @cached_property
    def mu(self) -> float:
        """The budget as the mu of one Gaussian release of all records."""
        self.require_budget()
        rule, spent = self.rule, self.spent
        if rule.name not in BY_NAME:  # a fixed schedule prices lists only; use a GDP filter instead
            rule, spent = GdpFilter(rule.epsilon, rule.delta, rule.neighbouring), None
        multiplier = rule.smallest_noise_multiplier(rule.start() if spent is None else spent)
        if multiplier == math.inf:
            raise BudgetExhausted("nothing is left of the budget to plan with.")
        return 1 / multiplier

    def require_budget(self) -> None:
        """Raise InvalidArgument for a purse without a limit."""
        if not math.isfinite(self.rule.epsilon):
            raise InvalidArgument("a purse declared not private has no budget to plan with. Use one with an epsilon.")

    def require_declared(self, method: str) -> None:
        """Raise InvalidArgument unless the purse is declared not private."""
        if not isinstance(self.rule, DeclaredNonPrivate):
            raise InvalidArgument(f"{method} is NOT PRIVATE and needs Purse.not_private(); got one with {self.rule!r}.")

    @property
    def smoothness(self) -> float:
        """Largest curvature of the objective, ridge included; finite."""
        if not math.isfinite(self.bounds.smoothness):
            raise InvalidArgument("the loss has a kink, so no step size follows. Use HuberHinge, not Hinge.")
        return self.bounds.smoothness + self.l2

    @property
    def noise_floor(self) -> float:
        """Relative length of the noise of one release of the whole budget."""
        return math.sqrt(self.dimension) * self.sensitivity / (self.records * self.mu * self.gradient_bound)

    def sampled(self, sample_prob: float) -> float:
        """Return the expected number of records in a Poisson sample."""
        return self.records * probability(sample_prob=sample_prob)


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
        return f"<Plan {self.method}: {counted(self.steps, 'step')}, noise {noise} on sums clipped at {self.clip_norm:g}{bound}>"

    def to_json(self) -> str:
        """Write the plan as JSON."""
        return json.dumps(asdict(self))

    def plot(self) -> Any:
        """Draw noise, spending and step sizes over the steps. Return a matplotlib figure.

        Needs matplotlib, which this library does not install.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise InvalidArgument("a plot of a plan needs matplotlib. Install it: pip install matplotlib.") from error
        squares = [one**2 for one in self.mu]
        shares = [100 * so_far / sum(squares) for so_far in itertools.accumulate(squares)]
        panels = (
            ("noise on each sum of gradients", "standard deviation", self.noise_std),
            ("share of the spending so far", "percent", shares),
            ("step sizes", "step size", self.step_sizes),
        )
        shown = [panel for panel in panels if panel[2]]
        # Not pyplot, which would keep the figure and choose a screen.
        figure = Figure(figsize=(4 * max(len(shown), 1), 3), layout="constrained")
        figure.suptitle(f"{self.method}: {counted(self.steps, 'step')}, planned without data")
        for place, (title, unit, values) in enumerate(shown):
            axes = figure.add_subplot(1, len(shown), place + 1)
            axes.plot(range(1, len(values) + 1), values, marker="o" if len(values) == 1 else "")
            axes.set(title=title, xlabel="step", ylabel=unit, ylim=(0, 1.12 * max(values)))
        return figure


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
