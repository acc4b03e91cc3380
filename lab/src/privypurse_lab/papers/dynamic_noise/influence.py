"""Influence by retraining, schedules from it, and their comparison (dynamic-noise paper, App. D).

The paper estimates influences and the number of steps on the private records without charge: NOT
PRIVATE. The sound version does the same on other records, taken as public, and runs the result once
on the private ones.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import optimize

from privypurse.core._checks import FloatArray
from privypurse.core._randomness import NoiseSource
from privypurse.methods.dynamic import quadratic_influences
from privypurse.purse._purse import Purse
from privypurse.training.schedules import shapes
from privypurse.training.schedules._base import Schedule, Weighted
from privypurse_lab.papers.cells import Result
from privypurse_lab.papers.dynamic_noise import problems

# Seeds of retraining and of rehearsals, distinct from those of compared runs.
RETRAINING, REHEARSAL = 100_000, 200_000
# Noise of one step on the mean gradient, per unit of sigma.
UNIT = problems.CLIP_NORM / problems.RECORDS
# Estimated influences of zero or less are replaced by this share of the largest.
LEAST = 1e-4


def retrain(problem: Any, steps: int, at: int, sigmas: Sequence[float], runs: int, seed: int) -> FloatArray:
    """Return final losses of each run (rows) for each sigma of step `at` (columns). NOT PRIVATE.

    All other steps have the even noise of the budget. A run has the same noise, up to scale, in all
    columns.
    """
    even = math.sqrt(steps / problems.BUDGET)
    losses = np.empty((runs, len(sigmas)))
    for run in range(runs):
        for column, sigma in enumerate(sigmas):
            noise = [even] * steps
            noise[at - 1] = sigma
            purse = Purse.not_private(delta=problems.DELTA, noise=NoiseSource(seed=seed + run))
            losses[run, column] = problem.train(problems.StatedNoise(tuple(noise)), purse, steps, seed + run)[0]
    return losses


def parabola(sigmas: Sequence[float], losses: FloatArray) -> tuple[float, float]:
    """Fit ``c2 sigma^2 + c0`` by least squares and return both; c2 is the influence."""
    design = np.stack([np.square(sigmas), np.ones(len(sigmas))], axis=1)
    c2, c0 = np.linalg.lstsq(design, np.asarray(losses), rcond=None)[0]
    return float(c2), float(c0)


def by_curvature(curvatures: FloatArray, steps: int) -> FloatArray:
    """Return the influences on a quadratic, per unit of sigma^2, without clipping."""
    return quadratic_influences(curvatures, problems.STEP_SIZE, steps) * UNIT**2


def at_every_step(at: Sequence[int], influences: Sequence[float], steps: int) -> FloatArray:
    """Interpolate the influences of some steps to all steps, linearly in the logarithm."""
    values = np.maximum(np.asarray(influences), LEAST * max(max(influences), 1e-300))
    return np.asarray(np.exp(np.interp(np.arange(1, steps + 1), at, np.log(values))))


def fitted_exponential(noise_std: FloatArray) -> FloatArray:
    """Fit ``s_0 exp(-k t)`` to noise by least squares, as in the paper; the budget differs."""
    levels = np.asarray(noise_std, dtype=np.float64)
    times = np.arange(1, levels.size + 1)
    slope, start = np.polyfit(times, np.log(levels), 1) if levels.size > 1 else (0.0, math.log(levels[0]))
    found = optimize.least_squares(
        lambda guess: (np.exp(guess[0] + guess[1] * times) - levels) / levels.mean(), [start, slope]
    )
    return np.asarray(np.exp(found.x[0] + found.x[1] * times))


def schedules(influences: FloatArray, others: Mapping[str, FloatArray]) -> dict[str, Schedule]:
    """Return the schedules to compare, for as many steps as there are influences."""
    dynamic = Weighted(shapes.influence(influences.tolist()))
    fitted = fitted_exponential(1 / np.sqrt(dynamic.shares))
    found: dict[str, Schedule] = {
        "uniform": Weighted(shapes.uniform(influences.size)),
        "dynamic": dynamic,
        # Least squares alone would not keep to the budget; shares of it do.
        "exponential": Weighted(shapes.noise(fitted.tolist())),
    }
    return found | {name: Weighted(shapes.influence(each.tolist())) for name, each in others.items()}


def spent_by_fit(influences: FloatArray) -> float:
    """Return the share of the budget that the exponential would spend as fitted."""
    shares = Weighted(shapes.influence(influences.tolist())).shares
    return float(np.sum(1 / fitted_exponential(1 / np.sqrt(shares)) ** 2))


def one_step(problem: str, scale: float, steps: int, at: int, sigmas: Sequence[float], runs: int, seed: int) -> Result:
    """Cell: final losses over the noise of one step, on the private records. NOT PRIVATE."""
    found = problems.problem(problem, scale, False, seed)
    losses = retrain(found, steps, at, sigmas, runs, RETRAINING + seed)
    c2, c0 = parabola(sigmas, losses.mean(axis=0))
    each = [parabola(sigmas, row)[0] for row in losses]
    return {"losses": losses.tolist(), "c2": c2, "c0": c0, "coefficients": each}


def compare(
    problem: str,
    scale: float,
    sound: bool,
    counts: Sequence[int],
    at: Sequence[int],
    sigmas: Sequence[float],
    retrainings: int,
    runs: int,
    rehearsals: int,
    seed: int,
    also: Mapping[str, Any],
) -> Result:
    """Cell: estimate influences, make schedules, choose the number of steps of each, and train.

    Parameters
    ----------
    problem, scale
        Problem and data scale.
    sound : bool
        Estimate and choose on public records; else on the private ones, which is NOT PRIVATE.
    counts : sequence of int
        Numbers of steps to choose from.
    at, sigmas, retrainings
        Steps whose noise is varied, its values, and the number of runs.
    runs, rehearsals : int
        Number of compared runs, and of runs to choose by.
    seed : int
        First seed.
    also : mapping of str to Schedule
        More schedules.
    """
    private = problems.problem(problem, scale, sound, seed)
    looked_at = problems.problem(problem, scale, sound, seed, public=True) if sound else private
    steps = max(counts)
    estimates = [
        parabola(sigmas, retrain(looked_at, steps, step, sigmas, retrainings, RETRAINING + seed).mean(axis=0))[0]
        for step in at
    ]
    retrained = at_every_step(at, estimates, steps)
    curvatures = looked_at.curvatures()
    exact = None if curvatures is None else by_curvature(curvatures, steps)
    influences = retrained if exact is None else np.maximum(exact, LEAST**3 * exact.max())
    others = {} if exact is None else {"dynamic, retrained": retrained}

    def made(count: int) -> dict[str, Schedule]:
        # Influence depends on the number of remaining steps: shorter runs take the end.
        found = schedules(influences[-count:], {name: each[-count:] for name, each in others.items()})
        return found | dict(also)

    result: Result = {"at": list(at), "retrained": estimates, "steps": steps, "fit_spends": spent_by_fit(influences)}
    result["curvature"] = None if exact is None else exact.tolist()
    result["schedules"] = {}
    by_count = {count: made(count) for count in counts}
    for name in made(steps):
        tried = {
            count: _runs(looked_at, by_count[count][name], count, sound, *_trial(sound, runs, rehearsals, seed))
            for count in counts
        }
        best = min(tried, key=lambda count: float(np.mean(tried[count]["losses"])))
        kept = _runs(private, by_count[best][name], best, sound, runs, seed) if sound else tried[best]
        by_steps = {str(count): float(np.mean(each["losses"])) for count, each in tried.items()}
        result["schedules"][name] = {"steps": best, "by_steps": by_steps, **kept}
    count = result["schedules"]["dynamic"]["steps"]
    result["variance"] = count**2 * float(np.var(np.sqrt(influences[-count:])))
    result["variance_of_all"] = float(np.var(influences))
    return result


def _trial(sound: bool, runs: int, rehearsals: int, seed: int) -> tuple[int, int]:
    """Return number and first seed of the runs to choose by: as published, the runs themselves."""
    return (rehearsals, REHEARSAL + seed) if sound else (runs, seed)


def _runs(problem: Any, schedule: Schedule, steps: int, sound: bool, runs: int, seed: int) -> Result:
    """Train with every seed; return losses, largest spending, and the noise of each step."""
    losses, spent, noise = [], 0.0, [0.0]
    for run in range(seed, seed + runs):
        purse = problems.seeded_purse(sound, run)
        loss, noise = problem.train(schedule, purse, steps, run)
        losses.append(loss)
        spent = max(spent, purse.spent.epsilon)
    return {"losses": losses, "spent": spent, "noise": noise}
