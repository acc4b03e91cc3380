"""Runs for the items of the PUR paper, and their combined results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse.core._checks import FloatArray
from privypurse_lab.papers.cells import Cell, Results
from privypurse_lab.papers.items import GIVEN_SCALING, NOT_PRIVATE, Settings
from privypurse_lab.papers.pur.paths import ADAPTIVE, GRID, MARKS, RADIUS, SCHEDULES, path, planned

# As in the paper. The adaptive rule is not in it, and its runs on MNIST are not side by side.
REPETITIONS, MNIST_PLANNED_REPETITIONS, QUICK_REPETITIONS = 120, 12, 6
# On large tables, of readings that neither the figures nor table 3 have: 120 take an hour more.
LARGE, LARGE_READING_REPETITIONS = ("mnist", "kddcup99-sf"), 24
PLANNED = (0.1, 0.3, 1.0, 3.0, 10.0, 20.0)
TABLE_RIDGE = 0.1
# Column "private" for all lines but the oracle: their noise is right for Z, but Z and the scaling
# were computed from the data without charge. Private if both are public.


@dataclass(frozen=True, eq=False)
class Line:
    """All runs of one schedule on one problem.

    Parameters
    ----------
    name : str
        Name of the schedule.
    private : bool
        Whether it is private.
    epsilons : sequence of float
        Epsilons of the measurements.
    quartiles : ndarray
        Quartiles of the gradient norm, one column for each of `epsilons`.
    norms, risks : ndarray
        One row for each run: gradient norms and objectives at `MARKS`.
    published : ndarray
        Objectives at `MARKS` under the paper's Lipschitz constant; empty for planned runs.
    first, reached : float
        Medians of the cumulative epsilon after one step, and after all.
    capped : float or None
        Smallest cumulative epsilon of runs ended by our limit on work; None if the budget ended all.
    longest : float
        Z, the norm of the longest row.
    """

    name: str
    private: bool
    epsilons: Sequence[float]
    quartiles: FloatArray
    norms: FloatArray
    risks: FloatArray
    published: FloatArray
    first: float
    reached: float
    capped: float | None
    longest: float

    @property
    def stamp(self) -> str:
        """Value of the column "private"."""
        return GIVEN_SCALING if self.private else NOT_PRIVATE

    def ended_before(self, epsilon: float) -> bool:
        """Return whether our limit on work, not the budget, ended it before this epsilon."""
        return self.capped is not None and self.capped < epsilon * (1 - 1e-9)

    def norms_at(self, mark: float) -> list[float]:
        """Return the gradient norms of all runs at one of `MARKS`."""
        return [float(value) for value in self.norms[:, MARKS.index(mark)]]

    def risks_at(self, mark: float, published: bool = False) -> list[float]:
        """Return the objectives of all runs at one of `MARKS`."""
        return [float(value) for value in (self.published if published else self.risks)[:, MARKS.index(mark)]]


def scaling_note(what: str) -> str:
    """Describe what the privacy of lines or schedules depends on."""
    return (
        f"{what} ('{GIVEN_SCALING}' in the CSV file) are private only given the scaling and Z as public. In truth both were "
        f"read from the data, uncharged, as in the paper: {NOT_PRIVATE} as a whole. delta = 1/N is what the paper uses; it is "
        "large for Iris (1/150)."
    )


def path_cell(
    settings: Settings, data: str, l2: float, schedule: str, start: str = "zero", of: str = "worst case"
) -> Cell:
    """Return the runs of one schedule, side by side."""
    if l2 == 0 and schedule == f"independent, R = {RADIUS:g}":  # the same noise without a ridge
        schedule = "independent"
    many = repetitions(settings)
    in_paper = of == "worst case" and schedule in SCHEDULES and (start == "zero" or l2 == TABLE_RIDGE)
    if data in LARGE and not in_paper:
        many = min(many, LARGE_READING_REPETITIONS)
    seeds = list(range(settings.seed, settings.seed + many))
    common = {"data": data, "quick": settings.quick, "l2": l2, "schedule": schedule, "start": start, "seeds": seeds}
    return Cell(path, common | ({} if of == "worst case" else {"of": of}))


def planned_cells(settings: Settings, data: str, l2: float, entry: Any) -> list[Cell]:
    """Return the runs of a method or of a user's schedule."""
    common = {
        "data": data,
        "quick": settings.quick,
        "l2": l2,
        "entry": entry,
        "epsilons": list(_budgets(settings, data)),
    }
    many = min(repetitions(settings), MNIST_PLANNED_REPETITIONS) if data == "mnist" else repetitions(settings)
    seeds = range(settings.seed, settings.seed + many)
    return [Cell(planned, common | {"seeds": list(seeds[first : first + 10])}) for first in range(0, many, 10)]


def all_cells(settings: Settings, data: str, l2: float) -> list[Cell]:
    """Return all runs from zero on one problem: the paper's, the adaptive rule, and the user's."""
    cells = [path_cell(settings, data, l2, schedule) for schedule in SCHEDULES]
    for entry in (None, *settings.also.values()):
        cells += planned_cells(settings, data, l2, entry)
    return cells


def line(
    settings: Settings,
    results: Results,
    data: str,
    l2: float,
    schedule: str,
    start: str = "zero",
    of: str = "worst case",
) -> Line:
    """Return the runs of one schedule."""
    found = results[path_cell(settings, data, l2, schedule, start, of)]
    capped = [reached for ended, reached in zip(found["capped"], found["reached"], strict=True) if ended]
    return Line(
        schedule,
        found["private"],
        GRID,
        np.transpose(found["quartiles"]),
        np.array(found["norms"]),
        np.array(found["risks"]),
        np.array(found["published"]),
        float(np.median(found["first"])),
        float(np.median(found["reached"])),
        min(capped, default=None),
        found["longest"],
    )


def planned_line(settings: Settings, results: Results, data: str, l2: float, name: str, entry: Any) -> Line:
    """Combine the runs of a method or of a user's schedule."""
    found = [results[cell] for cell in planned_cells(settings, data, l2, entry)]
    budgets = _budgets(settings, data)
    marks = [budgets.index(mark) for mark in MARKS]
    norms = np.array([each for one in found for each in one["norms"]])
    risks = np.array([each for one in found for each in one["risks"]])[:, marks]
    private = all(one["private"] for one in found)
    none = np.empty((0, len(MARKS)))
    quartiles = np.percentile(norms, [25, 50, 75], axis=0)
    ends = budgets[0], budgets[-1]
    return Line(name, private, budgets, quartiles, norms[:, marks], risks, none, *ends, None, found[0]["longest"])


def all_lines(settings: Settings, results: Results, data: str, l2: float) -> list[Line]:
    """Return all lines from zero on one problem."""
    lines = [line(settings, results, data, l2, schedule) for schedule in SCHEDULES]
    for name, entry in ((ADAPTIVE, None), *settings.also.items()):
        lines.append(planned_line(settings, results, data, l2, name, entry))
    return lines


def ended_before(lines: Sequence[Line], epsilon: float) -> dict[str, float]:
    """Return the epsilon reached by schedules that our limit on work ended before this epsilon."""
    return {each.name: each.capped for each in lines if each.capped is not None and each.ended_before(epsilon)}


def repetitions(settings: Settings) -> int:
    """Return the number of runs of each schedule."""
    return QUICK_REPETITIONS if settings.quick else REPETITIONS


def _budgets(settings: Settings, data: str) -> tuple[float, ...]:
    return MARKS if settings.quick or data == "mnist" else PLANNED
