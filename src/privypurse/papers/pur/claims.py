"""The claim of the PUR paper, case by case: that its schedule is at least as good as the best constant noise in hindsight."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse.papers.intervals import half_width
from privypurse.papers.items import NOT_PRIVATE, Sheet
from privypurse.papers.pur.problems import CONSTANT_SCHEDULES, TITLES

AT_LEAST, UNCLEAR, WORSE, STILL = "at least as good", "not distinguishable", "worse", "neither moves"
ENDED = "ended before"
HINDSIGHT = f"best constant (picked in hindsight, {NOT_PRIVATE})"
# A claim is judged by no fewer than this share of its cases.
ENOUGH = 1 / 3
# Table 3 is printed with four digits; a gradient norm is read off a logarithmic axis.
RISK_TOLERANCE, NORM_TOLERANCE = 1e-4, 0.01


@dataclass(frozen=True)
class Case:
    """One comparison of the paper's schedule with the best constant noise.

    Parameters
    ----------
    data, l2, start, measure, epsilon, ours
        Which one.
    best : str
        The constant schedule with the smallest mean.
    our_mean, best_mean : float
        Means over repetitions.
    low, high : float
        95 % confidence interval of ours minus best, paired by seed. The best is chosen by the same runs, in its favour.
    says : str
        "at least as good": the whole interval is below the tolerance; "worse": the whole of it is above zero; "not
        distinguishable" in between; "neither moves": no schedule can pay for a step; "ended before": our step cap, not the
        budget, ended one of the two before it could be told.
    ours_ended, best_ended : float or None
        The cumulative epsilon at which the step cap ended it before this epsilon.
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
        """What it says, with the epsilon at which runs ended."""
        ended = [
            f"{name} at epsilon {epsilon:.2g}"
            for name, epsilon in (("ours", self.ours_ended), ("best constant", self.best_ended))
            if epsilon is not None
        ]
        return f"{self.says} (ended by our cap: {', '.join(ended)})" if ended else self.says


def compare(
    ours: str,
    values: Mapping[str, Sequence[float]],
    tolerance: Callable[[float], float],
    ended: Mapping[str, float],
    **which: Any,
) -> Case:
    """Compare one schedule with those called "constant ..."; the best of them has the smallest mean.

    Parameters
    ----------
    ours : str
        The schedule.
    values : mapping of str to sequence of float
        What each schedule came to, run by run.
    tolerance : callable
        How much more than the best is no difference.
    ended : mapping of str to float
        Of the schedules that the step cap ended before this epsilon, the epsilon that they had reached.
    **which
        The other fields of `Case`.
    """
    constants = {name: float(np.mean(values[name])) for name in CONSTANT_SCHEDULES if name in values}
    best = min(constants, key=lambda name: constants[name])
    low, high = interval(values[ours], values[best])
    allowed = tolerance(constants[best])
    # A run that the cap ended has spent less, so that it is one for this epsilon too: what it reached already counts against the
    # other, what it might still have reached does not.
    if ours in ended and best in ended:
        says = ENDED
    elif best in ended:
        says = WORSE if low > max(allowed, 0.0) else ENDED
    elif ours in ended:
        says = AT_LEAST if high <= allowed else ENDED
    elif _all_the_same(values[ours], [values[name] for name in constants]):
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
    """Return how much more risk is no difference."""
    return RISK_TOLERANCE


def by_norm(best: float) -> float:
    """Return how much more gradient is no difference."""
    return NORM_TOLERANCE * best


def interval(ours: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean difference (Student's t): run k of both has the same seed and start."""
    differences = np.asarray(ours, dtype=float) - np.asarray(other, dtype=float)
    middle, reach = float(differences.mean()), half_width(differences.tolist())
    return middle - reach, middle + reach


def sheet(cases: Sequence[Case], caption: str) -> Sheet:
    """Write one line for each case."""
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
    """Count what the cases say."""
    return {word: sum(case.says == word for case in cases) for word in (AT_LEAST, UNCLEAR, WORSE, STILL, ENDED)}


def enough(cases: Sequence[Case]) -> bool:
    """Say whether the cases that can tell anything are enough to judge by: neither ended by the cap, nor without a step."""
    count = counted(cases)
    return len(cases) - count[ENDED] - count[STILL] >= ENOUGH * len(cases)


def in_words(cases: Sequence[Case]) -> str:
    """Say how many cases say what."""
    count = counted(cases)
    return (
        f"of {len(cases)} cases {count[ENDED]} are left out, because our step cap ended ours or the best constant before that "
        f"epsilon; in the other {len(cases) - count[ENDED]} the data-independent schedule is at least as good as the best "
        f"constant noise in {count[AT_LEAST]}, not distinguishable in {count[UNCLEAR]}, worse in {count[WORSE]}, and neither "
        f"moves in {count[STILL]}"
    )


def _all_the_same(ours: Sequence[float], others: Sequence[Sequence[float]]) -> bool:
    return all(np.array_equal(np.asarray(ours), np.asarray(each)) for each in others)
