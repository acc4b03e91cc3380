"""The claim of the PUR paper, case by case: that its schedule is at least as good as the best constant noise in hindsight."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from privypurse.papers.items import Sheet
from privypurse.papers.pur.problems import TITLES

AT_LEAST, UNCLEAR, WORSE, STILL = "at least as good", "not distinguishable", "worse", "neither moves"
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
        distinguishable" in between; "neither moves": no schedule can pay for a step.
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

    @property
    def difference(self) -> float:
        """Ours minus best."""
        return self.our_mean - self.best_mean


def compare(
    ours: str, values: Mapping[str, Sequence[float]], tolerance: Callable[[float], float], **which: Any
) -> Case:
    """Compare one schedule with those called "constant ..."; the best of them has the smallest mean."""
    constants = {name: float(np.mean(each)) for name, each in values.items() if name.startswith("constant ")}
    best = min(constants, key=lambda name: constants[name])
    low, high = interval(values[ours], values[best])
    allowed = tolerance(constants[best])
    if _all_the_same(values[ours], [values[name] for name in constants]):
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
    middle, error = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(differences.size)
    reach = float(stats.t.ppf(0.975, differences.size - 1)) * error
    return middle - reach, middle + reach


def sheet(cases: Sequence[Case], caption: str) -> Sheet:
    """Write one line for each case."""
    columns = (
        "data, ridge, start",
        "measure",
        "epsilon",
        "schedule",
        "ours",
        "best constant",
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
            case.says,
        )
        for case in cases
    ]
    return Sheet(caption, columns, rows)


def counted(cases: Sequence[Case]) -> dict[str, int]:
    """Count what the cases say."""
    return {word: sum(case.says == word for case in cases) for word in (AT_LEAST, UNCLEAR, WORSE, STILL)}


def in_words(cases: Sequence[Case]) -> str:
    """Say how many cases say what."""
    count = counted(cases)
    return (
        f"of {len(cases)} cases the data-independent schedule is at least as good as the best constant noise in "
        f"{count[AT_LEAST]}, not distinguishable in {count[UNCLEAR]}, worse in {count[WORSE]}, and neither moves in "
        f"{count[STILL]}"
    )


def _all_the_same(ours: Sequence[float], others: Sequence[Sequence[float]]) -> bool:
    return all(np.array_equal(np.asarray(ours), np.asarray(each)) for each in others)
