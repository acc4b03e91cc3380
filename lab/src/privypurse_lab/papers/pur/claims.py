"""Claim of the PUR paper: its schedule is at least as good as the best constant noise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse_lab.papers.intervals import half_width
from privypurse_lab.papers.items import NOT_PRIVATE, Sheet, Short
from privypurse_lab.papers.pur.problems import CONSTANT_SCHEDULES, TITLES

AT_LEAST, UNCLEAR, WORSE, STILL = "at least as good", "not distinguishable", "worse", "neither moves"
ENDED = "ended before"
HINDSIGHT = f"best constant (picked in hindsight, {NOT_PRIVATE})"
# Least share of cases needed to judge a claim.
ENOUGH = 1 / 3
# Table 3 is printed with four digits; a gradient norm is read off a logarithmic axis.
RISK_TOLERANCE, NORM_TOLERANCE = 1e-4, 0.01


@dataclass(frozen=True)
class Case:
    """One comparison of the paper's schedule with the best constant noise.

    Parameters
    ----------
    data, l2, start, measure, epsilon, ours
        The case.
    best : str
        Constant schedule with the smallest mean.
    our_mean, best_mean : float
        Means over repetitions.
    low, high : float
        95 % confidence interval of ours minus best, paired by seed. The best is chosen by the same
        runs, in its favour.
    says : str
        "at least as good": the interval is below the tolerance; "worse": it is above zero; "not
        distinguishable" in between; "neither moves": no schedule has budget for a step; "ended
        before": our limit on work, not the budget, ended one of the two too early.
    ours_ended, best_ended : float or None
        Cumulative epsilon at which the limit on work ended it before this epsilon.
    """

    data: str
    l2: float
    start: str
    measure: str
    epsilon: float
    ours: str
    best: str
    our_mean: float
    best_mean: float
    low: float
    high: float
    says: str
    ours_ended: float | None = None
    best_ended: float | None = None

    @property
    def difference(self) -> float:
        """Ours minus best."""
        return self.our_mean - self.best_mean

    @property
    def in_full(self) -> str:
        """The result, with the epsilon at which runs ended."""
        ended = [
            f"{name} at epsilon {epsilon:.2g}"
            for name, epsilon in (("ours", self.ours_ended), ("best constant", self.best_ended))
            if epsilon is not None
        ]
        return f"{self.says} (ended by our limit: {', '.join(ended)})" if ended else self.says


def compare(
    ours: str,
    values: Mapping[str, Sequence[float]],
    tolerance: Callable[[float], float],
    ended: Mapping[str, float],
    **which: Any,
) -> Case:
    """Compare one schedule with the best of those called "constant ...", by mean.

    Parameters
    ----------
    ours : str
        The schedule.
    values : mapping of str to sequence of float
        Results of each schedule, by run.
    tolerance : callable
        Tolerance for a best mean.
    ended : mapping of str to float
        Epsilon reached by schedules that the limit on work ended before this epsilon.
    **which
        The other fields of `Case`.
    """
    constants = {name: float(np.mean(values[name])) for name in CONSTANT_SCHEDULES if name in values}
    best = min(constants, key=lambda name: constants[name])
    low, high = interval(values[ours], values[best])
    allowed = tolerance(constants[best])
    # A run that the limit ended has spent less, so its result holds for this epsilon too: it counts
    # against the other, but what it might still have reached does not.
    if ours in ended and best in ended:
        says = ENDED
    elif best in ended:
        says = WORSE if low > max(allowed, 0.0) else ENDED
    elif ours in ended:
        says = AT_LEAST if high <= allowed else ENDED
    elif all(np.array_equal(values[ours], values[name]) for name in constants):
        says = STILL
    elif high <= allowed:
        says = AT_LEAST
    else:
        says = WORSE if low > 0 else UNCLEAR
    return Case(
        ours=ours,
        best=best,
        our_mean=float(np.mean(values[ours])),
        best_mean=constants[best],
        low=low,
        high=high,
        says=says,
        ours_ended=ended.get(ours),
        best_ended=ended.get(best),
        **which,
    )


def by_risk(best: float) -> float:
    """Return the tolerance for a risk."""
    return RISK_TOLERANCE


def by_norm(best: float) -> float:
    """Return the tolerance for a gradient norm."""
    return NORM_TOLERANCE * best


def interval(ours: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean paired difference (Student's t)."""
    differences = np.asarray(ours, dtype=float) - np.asarray(other, dtype=float)
    middle, reach = float(differences.mean()), half_width(differences.tolist())
    return middle - reach, middle + reach


def sheet(cases: Sequence[Case], caption: str) -> Sheet:
    """Return one row for each case."""
    columns = (
        "data, ridge, start",
        "measure",
        "epsilon",
        "schedule",
        "ours",
        HINDSIGHT,
        "noise of the best",
        "difference",
        "95 % interval",
        "says",
    )
    rows = [
        (
            f"{TITLES[case.data]}, {case.l2:g}, {case.start}",
            case.measure,
            f"{case.epsilon:g}",
            case.ours,
            f"{case.our_mean:.4f}",
            f"{case.best_mean:.4f}",
            case.best.removeprefix("constant "),
            f"{case.difference:+.4f}",
            f"{case.low:+.4f} to {case.high:+.4f}",
            case.in_full,
        )
        for case in cases
    ]
    return Sheet(caption, columns, rows)


def counted(cases: Sequence[Case]) -> dict[str, int]:
    """Count the results of cases."""
    return {word: sum(case.says == word for case in cases) for word in (AT_LEAST, UNCLEAR, WORSE, STILL, ENDED)}


def enough(cases: Sequence[Case]) -> bool:
    """Return whether enough cases are decidable: not ended by the limit, with at least a step."""
    count = counted(cases)
    return len(cases) - count[ENDED] - count[STILL] >= ENOUGH * len(cases)


def short(cases: Sequence[Case]) -> Short:
    """Return the short row of the claim in some cases."""
    count = counted(cases)
    left = len(cases) - count[ENDED] - count[STILL]
    return Short(
        "the schedule is at least as good as the best constant noise",
        "no number",
        f"worse in {count[WORSE]} of {left} cases, at least as good in {count[AT_LEAST]}",
    )


def in_words(cases: Sequence[Case]) -> str:
    """Describe the counts of results."""
    count = counted(cases)
    return (
        f"of {len(cases)} cases {count[ENDED]} are left out, because our limit on work ended ours or the best constant before "
        f"that epsilon; in the other {len(cases) - count[ENDED]} the data-independent schedule is at least as good as the best "
        f"constant noise in {count[AT_LEAST]}, not distinguishable in {count[UNCLEAR]}, worse in {count[WORSE]}, and neither "
        f"moves in {count[STILL]}"
    )
