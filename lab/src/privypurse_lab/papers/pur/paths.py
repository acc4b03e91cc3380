"""Runs of the PUR paper: one long descent per schedule, measured along its cumulative epsilon.

Repetitions differ in noise only, so they are the columns of one matrix: a step is one pass over the
table for all of them. The noise of a path does not depend on the budget: epsilon 20 only ends it.
The adaptive rule and a user's schedules divide a known budget, so they are run once for each
epsilon, by the library and its purse.

Short steps are merged. ``k`` steps of size eta with noise sigma cost as much as one step of size
``k eta`` with noise ``sigma/sqrt(k)``, and add the same noise to the model. They differ in the
gradient, which one step evaluates at its start only: by a share of about ``k eta M/2``, where M is
the smoothness of the data. `MERGED` limits that share to 1 %. It matters where the worst-case M of
the paper is thousands of times that of the data (MNIST).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import optimize

from privypurse.accounting._filters import DeclaredNonPrivate, ZcdpFilter
from privypurse.accounting.convert import zcdp_epsilon, zcdp_rho
from privypurse.core._checks import FloatArray
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.methods import _pur as pur
from privypurse.methods._pur import AdaptivePUR
from privypurse.purse._purse import Purse
from privypurse.training._loop import facts_for, fit, train
from privypurse.training.optimizers._gradient_descent import GradientDescent
from privypurse.training.schedules._base import Schedule
from privypurse_lab.papers.entries import as_method, as_schedule, check_spent
from privypurse_lab.papers.pur.problems import (
    CONSTANT_SCHEDULES,
    INDEPENDENT,
    MOST_STEPS,
    Problem,
    most_gradients,
    problem,
)

REPLACE_ONE = Neighbouring.REPLACE_ONE
LARGEST_EPSILON = 20.0
# Epsilons of the curves, and of the comparisons.
GRID = tuple(float(f"{epsilon:.6g}") for epsilon in np.geomspace(0.01, LARGEST_EPSILON, 40))
MARKS = (0.1, 1.0, LARGEST_EPSILON)
# The paper does not give R.
RADIUS = 10.0
ADAPTIVE = "adaptive, sound"
# Largest ``k eta M`` of k merged steps, and largest share of the steps so far.
MERGED, MERGED_SHARE = 0.02, 0.02
MOST_PLANNED = 2_000  # steps of a user's schedule


# The paper's schedules; R is not stated, so a second one is tried.
SCHEDULES = (*INDEPENDENT, "oracle", *CONSTANT_SCHEDULES)
RESERVED = (*SCHEDULES, "adaptive", ADAPTIVE)


def noise_of(schedule: str, here: Problem, l2: float, steps: int, of: str = "worst case") -> FloatArray:
    """Return the standard deviation of the noise on the mean gradient at each step.

    Parameters
    ----------
    schedule : str
        "constant LEVEL", or "independent" with ", R = RADIUS" and ", capped" where they differ.
        For a ridge, F(0) - F* is bounded by log 2, the loss at zero; where R is given, by
        ``M R^2/2``, as for any start within R of the minimum.
    here, l2, steps
        The problem, and the number of steps.
    of : {"worst case", "data"}
        Which smoothness M is.
    """
    if schedule.startswith("constant "):
        return np.full(steps, float(schedule.removeprefix("constant ")))
    smoothness, dimension = here.smoothness(l2, of), here.dimension
    said = schedule.removesuffix(", capped").partition("R = ")[2]
    radius = float(said or RADIUS)
    if l2 > 0:
        gap = smoothness * radius**2 / 2 if said else here.oracle.bounds.initial_gap
        noise = pur.strongly_convex_noise(steps, smoothness=smoothness, convexity=l2, gap=gap, dimension=dimension)
    else:
        noise = pur.convex_noise(steps, smoothness=smoothness, radius=radius, dimension=dimension)
    return pur.capped(noise, gradient=here.longest, dimension=dimension) if schedule.endswith(", capped") else noise


def classic_filter(here: Problem, epsilon: float) -> ZcdpFilter:
    """Return the paper's filter: ``epsilon = rho + 2 sqrt(rho ln N)``, delta = 1/N, replace-one."""
    return ZcdpFilter(epsilon, 1 / here.records, REPLACE_ONE, conversion="classic")


def path(
    data: str, quick: bool, l2: float, schedule: str, start: str, seeds: Sequence[int], of: str = "worst case"
) -> dict[str, Any]:
    """Run one schedule once for each seed, side by side, and measure it along its cumulative epsilon.

    Parameters
    ----------
    data, quick, l2
        The problem.
    schedule : str
        One of `SCHEDULES`, or as for `noise_of`.
    start : {"zero", "random"}
        The origin, or a random unit vector drawn from the seed.
    seeds : sequence of int
        One run each.
    of : {"worst case", "data"}
        Which smoothness M the step 1/(2M) and the noise are for.

    Returns
    -------
    dict
        For each run: "norms" and "risks", exact gradient norm and objective at each of `MARKS`;
        "published", the objective with the paper's larger Lipschitz constant ``lambda R + Z``;
        "first" and "reached", the cumulative epsilon after one step and after all; "steps";
        "capped", whether the limit on work ended it. For all: "quartiles" of gradient norms at each
        epsilon of `GRID`, whether they were "private", the "longest" row, and the number of
        "gradients" evaluated.
    """
    here = problem(data, quick)
    points = np.zeros((here.dimension, len(seeds)))
    if start == "random":
        points = np.column_stack([random_start(here.dimension, seed) for seed in seeds])
    generator, most = np.random.default_rng(list(seeds)), most_gradients(data, quick)
    size = 1 / (2 * here.smoothness(l2, of))
    if schedule == "oracle":
        found = oracle_descent(here, l2, size, points, most, generator)
    else:
        found = descent(here, l2, size, noise_of(schedule, here, l2, MOST_STEPS, of), points, most, generator)
    return {**found, "private": schedule != "oracle", "longest": here.longest}


def descent(
    here: Problem, l2: float, size: float, noise: FloatArray, points: FloatArray, most: int, generator: Any
) -> dict[str, Any]:
    """Descend with given noise from the columns of `points`."""
    every = (*GRID, *MARKS)
    with np.errstate(divide="ignore", over="ignore"):  # noise that has shrunk to nothing costs infinity
        cost = np.cumsum((2 * here.longest / here.records / noise) ** 2 / 2)
    stops = [_steps_within(here, cost, epsilon) for epsilon in every]
    larger = (1 + l2 * RADIUS / here.longest) ** 2
    published = [_steps_within(here, cost, epsilon, larger) for epsilon in MARKS]
    visits, end = sorted({*stops, *published}), max(stops)
    variance = np.concatenate([[0.0], np.cumsum(noise**2)])
    norms, places, made = {}, {}, 0
    for evaluated in range(most + 1):
        gradients = here.gradients(points, l2)
        over = made == end or evaluated == most
        if made in visits or over:
            norms[made], places[made] = np.linalg.norm(gradients, axis=0), points
        if over:
            break
        many = min(merged_steps(here, l2, size, made), next(visit for visit in visits if visit > made) - made)
        points = stepped(points, gradients, size, many, variance[made + many] - variance[made], generator)
        made += many
    risks = {visit: here.losses(places[visit], l2) for visit in {min(stop, made) for stop in (*stops[-3:], *published)}}
    columns = points.shape[1]
    spent = [zcdp_epsilon(float(cost[step - 1]), 1 / here.records, conversion="classic") for step in (1, made) if step]
    return {
        **_summarised([norms[min(stop, made)] for stop in stops]),
        "risks": _by_run([risks[min(stop, made)] for stop in stops[-3:]]),
        "published": _by_run([risks[min(stop, made)] for stop in published]),
        "first": [min(spent[0], LARGEST_EPSILON)] * columns,
        "reached": [min(spent[-1], LARGEST_EPSILON) if made else 0.0] * columns,
        "steps": [made] * columns,
        "capped": [made < end or end == len(noise)] * columns,
        "gradients": evaluated,
    }


def oracle_descent(
    here: Problem, l2: float, size: float, points: FloatArray, most: int, generator: Any
) -> dict[str, Any]:
    """Descend with noise as long as the true gradient: the paper's ideal. NOT PRIVATE.

    The cost is what the paper counts: that of the noise, as if its scale were public.
    """
    limits = np.array([zcdp_rho(epsilon, 1 / here.records, conversion="classic") for epsilon in (*GRID, *MARKS)])
    larger = (1 + l2 * RADIUS / here.longest) ** 2
    columns = points.shape[1]
    spent, first, made = np.zeros(columns), np.zeros(columns), np.zeros(columns, dtype=int)
    norms = np.full((columns, len(limits)), np.nan)
    marked, published = np.zeros((2, len(MARKS), *points.shape))
    going = np.ones(columns, dtype=bool)
    for evaluated in range(most + 1):
        gradients = here.gradients(points, l2)
        length = np.linalg.norm(gradients, axis=0)
        many = merged_steps(here, l2, size, int(made.max()))
        cost = many * (2 * here.longest / here.records) ** 2 * here.dimension / (2 * length**2)
        norms = np.where(spent[:, None] <= limits, length[:, None], norms)
        for mark in range(len(MARKS)):
            limit = limits[len(GRID) + mark]
            marked[mark] = np.where(spent <= limit, points, marked[mark])
            published[mark] = np.where(spent * larger <= limit, points, published[mark])
        going &= spent + cost <= limits.max()
        if evaluated == most or not going.any():
            break
        noise = length / math.sqrt(here.dimension) * generator.standard_normal(points.shape)
        points = points - np.where(going, size * (many * gradients + math.sqrt(many) * noise), 0.0)
        spent, made = spent + np.where(going, cost, 0.0), made + many * going
        first = np.where(first == 0, cost / many, first)
    epsilons = [
        [zcdp_epsilon(float(rho), 1 / here.records, conversion="classic") for rho in of] for of in (first, spent)
    ]
    return {
        **_summarised(norms.T),
        "risks": _by_run([here.losses(each, l2) for each in marked]),
        "published": _by_run([here.losses(each, l2) for each in published]),
        "first": [min(epsilon, LARGEST_EPSILON) for epsilon in epsilons[0]],
        "reached": [min(epsilon, LARGEST_EPSILON) for epsilon in epsilons[1]],
        "steps": made.tolist(),
        "capped": going.tolist(),
        "gradients": evaluated,
    }


def stepped(
    points: FloatArray, gradients: FloatArray, size: float, many: int, variance: float, generator: Any
) -> FloatArray:
    """Return the points after merged steps whose noise has this variance in all."""
    noise = math.sqrt(variance) * generator.standard_normal(points.shape)
    return np.asarray(points - size * (many * gradients + noise))


def merged_steps(here: Problem, l2: float, size: float, made: int) -> int:
    """Return how many steps to merge after so many: see the top of this file."""
    return max(1, min(int(MERGED / (size * here.smoothness(l2, "data"))), int(MERGED_SHARE * made)))


def _steps_within(here: Problem, cost: FloatArray, epsilon: float, larger: float = 1.0) -> int:
    """Return the number of steps within epsilon, if each costs so many times as much."""
    rho = zcdp_rho(epsilon, 1 / here.records, conversion="classic") / larger
    return int(np.searchsorted(cost, rho * (1 + 1e-9), side="right"))


def _summarised(norms: Any) -> dict[str, list[list[float]]]:
    """Return quartiles over runs at each epsilon of `GRID`, and the norms of each run at `MARKS`."""
    curve, marks = norms[: len(GRID)], norms[len(GRID) :]
    return {"quartiles": _by_run(np.percentile(curve, [25, 50, 75], axis=1)), "norms": _by_run(marks)}


def _by_run(columns: Any) -> list[list[float]]:
    """Return a list for each run, with the digits that a figure or a table uses."""
    return [[float(f"{value:.6g}") for value in run] for run in np.transpose(np.asarray(columns))]


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
            point, private = _planned_run(here, l2, entry, epsilon, 100 if quick else MOST_PLANNED, seed)
            points.append(point)
            found["private"] &= private
        found["norms"].append([float(np.linalg.norm(exactly.gradient(point))) for point in points])
        found["risks"].append([exactly.loss(point) for point in points])
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


def random_start(dimension: int, seed: int) -> FloatArray:
    """Return a random unit vector, independent of the data."""
    direction = np.random.default_rng([seed, 7]).standard_normal(dimension)
    return np.asarray(direction / np.linalg.norm(direction))


def _planned_run(here: Problem, l2: float, entry: Any, epsilon: float, most: int, seed: int) -> tuple[FloatArray, bool]:
    rule, noise = classic_filter(here, epsilon), NoiseSource(seed=seed)
    schedule: Schedule | None = None if entry is None else as_schedule(entry)
    if schedule is not None:
        independent = noise_of("independent", here, l2, most)
        steps = max(1, pur.steps_within(rule.rho, independent, 2 * here.longest / here.records))
        purse = Purse.with_filter(rule, noise=noise)
        descending = GradientDescent(step_size=1 / (2 * here.smoothness(l2)), records=here.records, l2=l2)
        return train(here.oracle, descending, schedule, purse, steps=steps).point, True
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
