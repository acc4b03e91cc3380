"""Runs of the PUR paper: one long descent per schedule, measured along its cumulative epsilon.

The noise of a path does not depend on the budget: the purse of epsilon 20 only ends it. The
adaptive rule and a user's schedules divide a known budget, so they are run once for each epsilon.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from privypurse.accounting.convert import zcdp_epsilon, zcdp_rho
from privypurse.accounting.filters import DeclaredNonPrivate, ZcdpFilter
from privypurse.core.checks import FloatArray
from privypurse.core.errors import BudgetExhausted
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.queries import Query, Released
from privypurse.core.randomness import NoiseSource
from privypurse.mechanisms.gaussian import Gaussian
from privypurse.methods import pur
from privypurse.methods.pur import AdaptivePUR, UntilTheClaimIsSpent
from privypurse.purse.purse import Purse
from privypurse.training.fit import facts_for, fit
from privypurse.training.loop import Result, train
from privypurse.training.optimizers.base import Optimizer
from privypurse.training.optimizers.gradient_descent import GradientDescent
from privypurse.training.optimizers.warm import StartingAt
from privypurse.training.schedules.base import Budget, Schedule
from privypurse_lab.papers.entries import as_method, as_schedule, check_spent
from privypurse_lab.papers.exact_measurements import Followed
from privypurse_lab.papers.pur.problems import CONSTANT_SCHEDULES, INDEPENDENT, Problem, most_steps, problem

REPLACE_ONE = Neighbouring.REPLACE_ONE
LARGEST_EPSILON = 20.0
# Epsilons of the curves, and of the comparisons.
GRID = tuple(float(f"{epsilon:.6g}") for epsilon in np.geomspace(0.01, LARGEST_EPSILON, 40))
MARKS = (0.1, 1.0, LARGEST_EPSILON)
# The paper does not give R.
RADIUS = 10.0
ADAPTIVE = "adaptive, sound"


@dataclass(frozen=True)
class GivenNoise:
    """Given noise at each step, whatever the budget; the run stops when the budget is spent."""

    noise_multipliers: tuple[float, ...]

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Gaussian:
        """Return the mechanism of this step."""
        if len(past) >= len(self.noise_multipliers):
            raise BudgetExhausted("the schedule has no more steps.")
        return Gaussian(self.noise_multipliers[len(past)])


def schedules_for(l2: float) -> list[str]:
    """Return the names of the paper's schedules; without strong convexity a second R is tried."""
    return [*(INDEPENDENT[:1] if l2 > 0 else INDEPENDENT), "oracle", *CONSTANT_SCHEDULES]


RESERVED = (*schedules_for(0.0), "adaptive", "adaptive, sound")


def noise_of(schedule: str, here: Problem, l2: float, steps: int) -> FloatArray:
    """Return the standard deviation of the noise on the mean gradient at each step."""
    if schedule.startswith("constant "):
        return np.full(steps, float(schedule.removeprefix("constant ")))
    common = {"smoothness": here.smoothness(l2), "dimension": here.oracle.dimension}
    if l2 > 0:
        gap = here.oracle.bounds.initial_gap
        return pur.strongly_convex_noise(steps, convexity=l2, gap=gap, **common)  # type: ignore[arg-type]
    radius = 1.0 if schedule.endswith("R = 1") else RADIUS
    return pur.convex_noise(steps, radius=radius, **common)  # type: ignore[arg-type]


def classic_filter(here: Problem, epsilon: float) -> ZcdpFilter:
    """Return the paper's filter: ``epsilon = rho + 2 sqrt(rho ln N)``, delta = 1/N, replace-one."""
    return ZcdpFilter(epsilon, 1 / here.records, REPLACE_ONE, conversion="classic")


def path(data: str, quick: bool, l2: float, schedule: str, start: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Run one schedule once for each seed, and measure it along its cumulative epsilon.

    Parameters
    ----------
    data, quick, l2
        The problem.
    schedule : str
        One of `schedules_for`.
    start : {"zero", "random"}
        The origin, or a random unit vector drawn from the seed.
    seeds : sequence of int
        One run each.

    Returns
    -------
    dict
        For each run: "norms", the exact gradient norm at each epsilon of `GRID` and `MARKS`;
        "risks", the exact objective at `MARKS`; "published", the same with the paper's larger
        Lipschitz constant ``lambda R + Z``; "first" and "reached", the cumulative epsilon after one
        step and after all. For all: whether they were "private", and the "longest" row.
    """
    here = problem(data, quick)
    steps = most_steps(data, quick)
    found: dict[str, Any] = {name: [] for name in ("norms", "risks", "published", "first", "reached", "steps")}
    for seed in seeds:
        followed = Followed(_descent(here, l2, start, seed))
        result = _follow(here, followed, schedule, l2, steps, seed)
        measured = _Measured(here, l2, followed.points)
        spent = cumulative_epsilon(here, result, here.longest)
        published = cumulative_epsilon(here, result, l2 * RADIUS + here.longest)
        found["norms"].append([measured.norm(_made(spent, epsilon)) for epsilon in (*GRID, *MARKS)])
        found["risks"].append([measured.risk(_made(spent, epsilon)) for epsilon in MARKS])
        found["published"].append([measured.risk(_made(published, epsilon)) for epsilon in MARKS])
        found["first"].append(spent[0] if spent else float(LARGEST_EPSILON))
        found["reached"].append(min(spent[-1], LARGEST_EPSILON) if spent else 0.0)
        found["steps"].append(len(spent))
    return {**found, "private": schedule != "oracle", "longest": here.longest}


def planned(
    data: str, quick: bool, l2: float, entry: Any, epsilons: Sequence[float], seeds: Sequence[int]
) -> dict[str, Any]:
    """Run a method, or a user's schedule on the paper's descent, once for each epsilon.

    Parameters
    ----------
    data, quick, l2, seeds
        As for `path`.
    entry : object
        As in `privypurse_lab.papers.entries`; None for `AdaptivePUR`. A schedule gets as many steps
        as the data-independent schedule makes with the same budget.
    epsilons : sequence of float
        Budgets.

    Returns
    -------
    dict
        For each seed the exact "norms" and "risks" after the run with each budget.
    """
    here, exactly = problem(data, quick), problem(data, quick).exactly(l2)
    found: dict[str, Any] = {"norms": [], "risks": [], "private": True, "longest": here.longest}
    for seed in seeds:
        points = []
        for epsilon in epsilons:
            point, private = _planned_run(here, l2, entry, epsilon, most_steps(data, quick), seed)
            points.append(point)
            found["private"] &= private
        found["norms"].append([_short(float(np.linalg.norm(exactly.gradient(point)))) for point in points])
        found["risks"].append([_short(exactly.loss(point)) for point in points])
    return found


def minimum(data: str, quick: bool, l2: float) -> dict[str, Any]:
    """Minimise the objective exactly, for comparison. NOT PRIVATE."""
    here = problem(data, quick)
    value, length = least(here, l2)
    return {"minimum": value, "length": length, "longest": here.longest, "records": here.records}


def least(here: Problem, l2: float) -> tuple[float, float]:
    """Return the minimum of the objective, and the norm of the minimiser. NOT PRIVATE."""
    exactly = here.exactly(l2)
    best = optimize.minimize(
        lambda point: (exactly.loss(point), exactly.gradient(point)),
        np.zeros(here.oracle.dimension),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 200, "ftol": 1e-12, "gtol": 1e-8},
    )
    return float(best.fun), float(np.linalg.norm(best.x))


def cumulative_epsilon(here: Problem, result: Result, lipschitz: float) -> list[float]:
    """Return the cumulative epsilon of a run, by the paper's conversion and a Lipschitz constant.

    For the oracle this is what the paper counts: the noise, as if its scale were public.
    """
    noise = np.array([step.noise_std for step in result.trace.steps], dtype=float)
    rho = np.cumsum((2 * lipschitz / noise) ** 2 / 2)
    return [zcdp_epsilon(float(each), 1 / here.records, conversion="classic") for each in rho]


def random_start(dimension: int, seed: int) -> FloatArray:
    """Return a random unit vector, independent of the data."""
    direction = np.random.default_rng([seed, 7]).standard_normal(dimension)
    return np.asarray(direction / np.linalg.norm(direction))


def _descent(here: Problem, l2: float, start: str, seed: int) -> Optimizer:
    descent = GradientDescent(step_size=1 / (2 * here.smoothness(l2)), records=here.records, l2=l2)
    return descent if start == "zero" else StartingAt(descent, random_start(here.oracle.dimension, seed))


def _follow(here: Problem, optimizer: Optimizer, schedule: str, l2: float, steps: int, seed: int) -> Result:
    noise, chosen = NoiseSource(seed=seed), None
    if schedule == "oracle":
        limit = 2 * zcdp_rho(LARGEST_EPSILON, 1 / here.records, conversion="classic")
        chosen = UntilTheClaimIsSpent(limit, 2 * here.longest, l2 * here.records)
        purse = Purse.not_private(delta=1 / here.records, neighbouring=REPLACE_ONE, noise=noise)
        return train(here.oracle, optimizer, chosen, purse, steps=steps)
    # The purse charges what the oracle enforces: Z for each record. The ridge is public.
    on_sums = noise_of(schedule, here, l2, steps) * here.records
    purse = Purse.with_filter(classic_filter(here, LARGEST_EPSILON), noise=noise)
    return train(here.oracle, optimizer, GivenNoise(tuple((on_sums / (2 * here.longest)).tolist())), purse, steps=steps)


def _planned_run(here: Problem, l2: float, entry: Any, epsilon: float, most: int, seed: int) -> tuple[FloatArray, bool]:
    rule, noise = classic_filter(here, epsilon), NoiseSource(seed=seed)
    schedule: Schedule | None = None if entry is None else as_schedule(entry)
    if schedule is not None:
        cost = pur.cost_of(noise_of("independent", here, l2, most), 2 * here.longest / here.records)
        steps = max(1, pur.steps_within(rule.rho, lambda count: float(cost[count - 1]), most))
        purse = Purse.with_filter(rule, noise=noise)
        return train(here.oracle, _descent(here, l2, "zero", seed), schedule, purse, steps=steps).point, True
    method = AdaptivePUR() if entry is None else as_method(entry)
    probe = facts_for(here.oracle, Purse.with_filter(rule), records=here.records, l2=l2, radius=RADIUS)
    wanted = method.filter(probe)
    # A method with a cost in rho is accounted as in the paper; others by their own filter.
    purse = Purse.with_filter(rule if wanted.name == "gdp" else wanted, noise=noise)
    result = fit(here.oracle, method, purse, records=here.records, l2=l2, radius=RADIUS)
    private = not isinstance(wanted, DeclaredNonPrivate)
    if private:
        check_spent(method.name, purse, epsilon, rule.delta, rule.neighbouring.value)
    return result.point, private


def _made(spent: Sequence[float], epsilon: float) -> int:
    """Return the number of steps within epsilon."""
    return int(np.searchsorted(spent, epsilon * (1 + 1e-9), side="right"))


def _short(value: float) -> float:
    """Round to the digits that a figure or a table uses."""
    return float(f"{value:.8g}")


class _Measured:
    """Exact values at the points of one run, each computed once. NOT PRIVATE."""

    def __init__(self, here: Problem, l2: float, points: Sequence[FloatArray]) -> None:
        self._exactly, self._points = here.exactly(l2), points
        self._norms: dict[int, float] = {}
        self._risks: dict[int, float] = {}

    def norm(self, step: int) -> float:
        if step not in self._norms:
            self._norms[step] = _short(float(np.linalg.norm(self._exactly.gradient(self._points[step]))))
        return self._norms[step]

    def risk(self, step: int) -> float:
        if step not in self._risks:
            self._risks[step] = _short(self._exactly.loss(self._points[step]))
        return self._risks[step]
