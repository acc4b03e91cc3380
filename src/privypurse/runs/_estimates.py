"""Figures and 95 % intervals from counts and sums, noisy or exact.

An interval holds every value that the counts do not contradict (Fieller 1954): so it covers
sampling and noise together, also where the noise of a denominator matters. Without noise, that of a
share is Wilson's.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privypurse.core._checks import FloatArray
from privypurse.report._content import Estimate

Z95 = 1.959963984540054
MOST_FREQUENT = "always the most frequent class"
KURTOSIS = 6.0  # of errors and of targets, at most: that of the Laplace distribution
COUNT_WEIGHT = 0.4  # of the constant in sums of errors
SPREAD = 0.5  # variance of shares of wrong order, as a part of the largest that their mean allows
WORST = -9.0  # R2 is not reported below this


@dataclass(frozen=True, eq=False)
class Noise:
    """Covariance of the noise of counts: a variance of each, less a part that a group of them shares."""

    variance: FloatArray  # of each count
    group: NDArray[Any]  # of each count
    shared: FloatArray  # of each group

    @classmethod
    def none(cls, shape: Any) -> "Noise":
        """Return the noise of exact counts."""
        return cls(np.zeros(shape), np.zeros(shape, dtype=int), np.zeros(1))

    def form(self, a: Any, b: Any) -> float:
        """Return the covariance of two sums of counts with these weights."""
        a, b, variance, group = (np.ravel(one) for one in (a, b, self.variance, self.group))
        sums = (np.bincount(group, weights=one, minlength=self.shared.size) for one in (a, b))
        return float((variance * a) @ b) - float(self.shared @ np.prod(list(sums), axis=0))


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of predictions, the same for every class: public, so that records are counted by them.

    Without edges a cell is a predicted class; without answers it is a wrong or a right answer.
    """

    answers: NDArray[Any] | None  # the predicted class in each cell
    edges: FloatArray | None = None  # of scores, in increasing order
    chances: bool = False  # whether scores are probabilities

    @classmethod
    def around(cls, edges: FloatArray, threshold: float, chances: bool) -> "Cells":
        """Make cells of the scores of two classes, divided where the predicted class changes."""
        edges = np.unique(np.append(edges, threshold))
        return cls((np.arange(edges.size + 1) > np.searchsorted(edges, threshold)).astype(int), edges, chances)

    @property
    def number(self) -> int:
        return 2 if self.answers is None else len(self.answers)

    def of(self, y: Any, predicted: Any, scores: Any) -> NDArray[Any]:
        """Return the cell of each record: one of its predicted class, whatever its score."""
        if self.answers is None:
            return np.asarray(predicted == y, dtype=int)
        if self.edges is None:
            return np.asarray(predicted, dtype=int)
        first = int(np.argmax(self.answers))  # cell of the second class
        cell = np.searchsorted(self.edges, scores)
        return np.asarray(np.where(predicted == 0, np.minimum(cell, first - 1), np.maximum(cell, first)))

    def below(self, scores: Any, counts: FloatArray, made: FloatArray) -> FloatArray:
        """Return the share of counted records below each score, within a cell by sorted synthetic scores."""
        counts, edges = np.maximum(counts, 0.0), np.zeros(0) if self.edges is None else self.edges
        places = np.concatenate([[0], np.searchsorted(made, edges, side="right"), [len(made)]])
        place = (np.searchsorted(made, scores) + np.searchsorted(made, scores, side="right")) / 2
        shares = np.append(0.0, np.cumsum(counts)) / max(float(counts.sum()), 1.0)
        return np.asarray(np.interp(place, places, shares))

    def right(self, classes: int) -> NDArray[Any]:
        """Return for each class (row) and cell whether its records are predicted right."""
        answers = np.arange(self.number) == 1 if self.answers is None else self.answers == np.arange(classes)[:, None]
        return np.broadcast_to(answers, (classes, self.number))


def combined(coarse: FloatArray, fine: FloatArray, right: NDArray[Any], noise: Any) -> tuple[FloatArray, Noise]:
    """Combine wrong and right answers of each class with finer counts of the same, by least squares.

    `noise` are the standard deviations of both, for all classes or for each.
    """
    group = 2 * np.arange(len(fine))[:, None] + right
    pair = np.ones(fine.shape), fine
    size, sums = (np.bincount(group.ravel(), weights=one.ravel(), minlength=coarse.size) for one in pair)
    first, second = (np.repeat(np.broadcast_to(one, len(fine)) ** 2.0, 2) for one in noise)
    weight = second / (size * second + first)
    return fine + (weight * (coarse.ravel() - sums))[group], Noise(second[group], group, second * weight)


def class_estimates(classes: list[str], table: FloatArray, cells: Cells, noise: Noise) -> dict[str, Any]:
    """Return the fields of a measurement from records by class (row) and cell of the prediction."""
    answers, everything = cells.answers, np.ones_like(table)
    own = np.eye(len(classes))[:, :, None] * everything  # for each class, its records
    right = everything * cells.right(len(classes))
    said = [everything * (answers == place) for place in range(len(classes))] if answers is not None else []
    found = []
    for place, name in enumerate(classes):
        parts = {"share": (own[place], everything), "recall": (own[place] * right, own[place])}
        if said:
            parts["precision"] = (own[place] * said[place], said[place])
        found += [Estimate(kind=kind, of=name, **ratio(*pair, table, noise)) for kind, pair in parts.items()]
    confusion = [[max(float((of * whole * table).sum()), 0.0) for whole in said] for of in own] if said else []
    if cells.edges is not None and cells.chances:
        ends = [0.0, *cells.edges.tolist(), 1.0]
        for place, cell in enumerate(itertools.pairwise(ends)):
            column = everything * (np.arange(table.shape[1]) == place)
            observed = ratio(own[1] * column, column, table, noise)
            found.append(Estimate(kind="calibration", of=classes[1], cell=cell, **observed))
    # With several classes, one of several noisy shares is the largest: their intervals hold together.
    z = float(stats.norm.isf(0.05 / max(len(classes), 2)))
    shares = [ratio(of, everything, table, noise, z=z) for of in own]
    largest = {name: max(one[name] for one in shares) for name in ("value", "low", "high")}
    place = int(np.argmax([one["value"] for one in shares]))
    found.append(Estimate(kind=MOST_FREQUENT, **largest))
    found.append(Estimate(kind="lead", of=MOST_FREQUENT, **ratio(right - own[place], everything, table, noise, z=z)))
    listed = {"estimates": tuple(found), "classes": tuple(classes), "confusion": tuple(map(tuple, confusion))}
    return {**ratio(right, everything, table, noise), "compared_with": ((MOST_FREQUENT, largest["value"]),), **listed}


def ratio(part: Any, whole: Any, table: FloatArray, noise: Noise, *, z: float = Z95) -> dict[str, Any]:
    """Return the value and the interval of ``part . table / whole . table``.

    The weights in `part` are 0, 1 or -1, those in `whole` 0 or 1, and a cell that is not in the
    whole is in no part.
    """
    a, b, counts = (np.asarray(one, dtype=float).ravel() for one in (part, whole, table))
    top, bottom = float(a @ counts), float(b @ counts)
    least = -1.0 if a.min(initial=0.0) < 0 else 0.0
    # Variance of one record: that of a share follows from the share.
    linear, squares = (max(bottom, 0.0), 0.0) if least == 0 else (0.0, max(float((a * a) @ counts), 0.0))
    # Sampling gives top - r bottom the variance linear r + squares - bottom r^2.
    variance = (noise.form(b, b) - max(bottom, 0.0), linear - 2 * noise.form(a, b), noise.form(a, a) + squares)
    interval = _between((bottom**2, -2 * top * bottom, top**2), variance, z, (least, 1.0))
    return _within(top / bottom if bottom > 0 else 0.5, interval)


def area(positive: FloatArray, negative: FloatArray) -> dict[str, Any]:
    """Return the area under the ROC curve from exact counts in increasing order of the score.

    Ties count half. The variance is that of DeLong et al. (1988), but for the area in question.
    """
    many, few = float(negative.sum()), float(positive.sum())
    if not min(many, few):
        return {"value": 0.5, "low": 0.0, "high": 1.0}
    below = (np.cumsum(negative) - negative / 2) / many  # for each score, the share of the other class below
    above = (few - np.cumsum(positive) + positive / 2) / few
    value = float(positive @ below) / few
    variance = np.zeros(3)
    for levels, counts, total in ((below, positive, few), (above, negative, many)):
        variance += np.array([1.0, -2 * value, float(counts @ levels**2) / total]) / total
    return _within(value, _between((1.0, -2 * value, value**2), variance, Z95, (0.0, 1.0)))


def area_of_sum(total: float, noise: float, few: tuple[float, float], many: FloatArray, cell: float) -> dict[str, Any]:
    """Return the area under the ROC curve from a sum over the records of the smaller class.

    `total` sums, with noise of this standard deviation, the share of the larger class that is on the
    wrong side of a record, less a half. These shares were computed from counts `many` in cells of the
    score, whose noise has the standard deviation `cell`. `few` is the number of records in the sum
    and the standard deviation of its noise.
    """
    (records, counted), others = few, max(float(many.sum()), 1.0)
    if records <= max(2 * counted, 0.5):
        return {"value": 0.5, "low": 0.0, "high": 1.0}
    # total + few / 2 - r few. A share between 0 and 1 of mean r has variance r - r^2 at most.
    spread = SPREAD * (records + records**2 / others + (records * cell / others) ** 2 * many.size)
    # Scores of one cell were taken as spread like synthetic ones: room for an area of 1/4 in place of 1/2 in each.
    ties = records / 4 * float(np.sum((np.maximum(many, 0) / others) ** 2)) / Z95
    middle = total + records / 2
    variance = (counted**2 - spread, spread - counted**2, noise**2 + counted**2 / 4 + ties**2)
    square = (records**2, -2 * middle * records, middle**2)
    return _within(middle / records, _between(square, variance, Z95, (0.0, 1.0)))


def errors(sums: FloatArray, limit: float, noise: float, hidden: float) -> dict[str, dict[str, Any]]:
    """Return the mean absolute error, R2, and the mean absolute error of one constant.

    `sums` are the number of records times `COUNT_WEIGHT`, then sums over records, with `limit` as the
    unit: the absolute error and its square; by how much targets are above the constant, and below it,
    and the square of both. Each has noise of this standard deviation. `hidden` is the number of records,
    at most, with an error or a target beyond the limit: these are taken to be twice as far on average, at
    most, and their squares twice as large.
    """
    total, off, off_squared, above, below, squared = map(float, np.maximum(sums, 0.0))
    counted = noise / COUNT_WEIGHT
    total = max(total / COUNT_WEIGHT, 1.0, 2 * counted)
    squared = max(squared, (above + below) ** 2 / total)

    def mean(top: float, squares: float, terms: int) -> FloatArray:
        variance = (counted**2, 0.0, terms * noise**2 + squares - top**2 / total)
        found = _within(top / total, _between((total**2, -2 * top * total, top**2), variance, Z95, (0.0, 1.0)))
        return limit * np.add(list(found.values()), [0.0, 0.0, hidden / total])

    # Of squares, relative to the variance of targets. R2 is 1 minus that.
    shift = (above - below) / total
    top, bottom = off_squared, max(squared - shift**2 * total, 0.0)
    noise_below = noise**2 * (1 + 8 * shift**2) + counted**2 * shift**4
    of_bottom = noise_below + min(bottom, KURTOSIS * bottom**2 / total)
    variance = (of_bottom, 0.0, noise**2 + min(top, KURTOSIS * top**2 / total))
    least, most = _between((bottom**2, -2 * top * bottom, top**2), variance, Z95, (0.0, 1 - WORST))
    least *= bottom / (bottom + hidden) if bottom else 1.0
    unexplained = _within(
        top / bottom if bottom > 0 else 1.0, (least, min(most * (1 + hidden / top if top else 1.0), 1 - WORST))
    )
    r2 = {"value": 1 - unexplained["value"], "low": 1 - unexplained["high"], "high": 1 - unexplained["low"]}
    # Squares are no more than the errors, in units of the limit.
    squares = max(min(off, off_squared + 2 * noise), off**2 / total)
    found = {"error": mean(off, squares, 1), "constant": mean(above + below, squared, 2)}
    names = ("value", "low", "high")
    return {key: dict(zip(names, map(float, three), strict=True)) for key, three in found.items()} | {"r2": r2}


def _between(square: Any, variance: Any, z: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return where ``square <= z^2 variance``, for polynomials of degree two, within bounds."""
    a, b, c = (one - z**2 * other for one, other in zip(square, variance, strict=True))
    inside = b * b - 4 * a * c
    if a <= 0 or inside < 0:  # the denominator may be zero: any value is possible
        return bounds
    low, high = ((-b + sign * math.sqrt(inside)) / (2 * a) for sign in (-1, 1))
    half = (high - low) / 2
    # Where noise takes all of it beyond a bound, keep half of its width inside.
    low, high = min(low, bounds[1] - half), max(high, bounds[0] + half)
    return max(low, bounds[0]), min(high, bounds[1])


def _within(value: float, interval: tuple[float, float]) -> dict[str, Any]:
    low, high = interval
    return {"value": min(max(value, low), high), "low": low, "high": high}
