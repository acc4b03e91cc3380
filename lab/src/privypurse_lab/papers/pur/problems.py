"""Data sets of the PUR paper, prepared as in its Section 4, outside of any purse."""

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit

from privypurse.core._checks import FloatArray
from privypurse.losses import Logistic
from privypurse.oracles import DenseOracle
from privypurse.oracles._links import FAST, exponential
from privypurse_lab.papers import prepared_data
from privypurse_lab.papers.exact_measurements import Exactly

RIDGES = (0.0, 0.1)
TITLES = {
    "synthetic": "Synthetic",
    "mnist": "MNIST",
    "iris": "Iris",
    "breast-cancer": "Breast cancer",
    "kddcup99-sf": "KDD Cup '99",
}
# Largest number of steps of a run, and of gradients that it evaluates (merged steps share one). The
# paper gives neither its number of iterations nor the seed of its synthetic data.
MOST_STEPS = 200_000
MOST_GRADIENTS, MOST_MNIST_GRADIENTS, QUICK_GRADIENTS = 20_000, 2_000, 300
NARROW = 64  # columns up to which a table is summed by rows, not by matrix products
ROWS_AT_ONCE = 1_024
QUICK_ROWS = {"mnist": 2_000, "kddcup99-sf": 5_000}
KDD_ROWS = 70_000
CONSTANTS = (0.001, 0.01, 0.1, 1.0)
CONSTANT_SCHEDULES = tuple(f"constant {level:g}" for level in CONSTANTS)
INDEPENDENT = ("independent", "independent, R = 1")
DATA_SEED = 2022


@dataclass(frozen=True, eq=False)
class Problem:
    """A data set, and what the paper takes as public about it.

    Parameters
    ----------
    X : ndarray
        Rows. Equal records of a narrow table are one row with a weight.
    y : ndarray
        Labels 0 and 1.
    weights : ndarray
        Number of records of each row.
    oracle : DenseOracle
        Logistic regression without a constant column; the row limit `longest` changes no row.
    records : int
        N; public under replace-one.
    longest : float
        Z, the norm of the longest row, computed from the data as in the paper.
    curvature : float
        Largest eigenvalue of ``X'X/(4N)``: the smoothness of the mean loss. The paper uses the
        worst case, ``Z^2/4``.
    """

    X: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    oracle: DenseOracle
    records: int
    longest: float
    curvature: float

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    def smoothness(self, l2: float, of: str = "worst case") -> float:
        """Return ``M = lambda + Z^2/4``, or that of the data."""
        return l2 + (self.curvature if of == "data" else self.longest**2 / 4)

    def exactly(self, l2: float) -> Exactly:
        """Return exact measurements of the objective at one point. NOT PRIVATE."""
        return Exactly(self.oracle, self.records, l2)

    def gradients(self, points: FloatArray, l2: float) -> FloatArray:
        """Return the exact gradient of the objective at each column of a matrix. NOT PRIVATE."""
        sums = np.zeros_like(points)
        if self.dimension <= NARROW:
            _add_gradients(self.X, self.y, self.weights, points, sums)
            return sums / self.records + l2 * points
        single = points.astype(np.float32)
        for first in range(0, len(self.X), ROWS_AT_ONCE):
            rows, labels = self.X[first : first + ROWS_AT_ONCE], self.y[first : first + ROWS_AT_ONCE, None]
            with np.errstate(over="ignore"):
                sums += rows.T @ (1 / (1 + np.exp(-(rows @ single))) - labels)
        return sums / self.records + l2 * points

    def losses(self, points: FloatArray, l2: float) -> FloatArray:
        """Return the exact objective at each column of a matrix. NOT PRIVATE."""
        sums = np.zeros(points.shape[1])
        for first in range(0, len(self.X), ROWS_AT_ONCE):
            some = slice(first, first + ROWS_AT_ONCE)
            scores = self.X[some] @ points
            sums += self.weights[some] @ (np.logaddexp(0, scores) - self.y[some, None] * scores)
        return np.asarray(sums / self.records + l2 / 2 * (points**2).sum(axis=0))


@njit(nogil=True, error_model="numpy", fastmath=FAST)
def _add_gradients(X: Any, y: Any, weights: Any, points: Any, sums: Any) -> None:
    """Add each row's logistic gradient at each column of `points`."""
    rows, dimension = X.shape
    columns = points.shape[1]
    slope = np.empty(columns)
    for i in range(rows):
        slope[:] = 0.0
        for j in range(dimension):
            value = X[i, j]
            for c in range(columns):
                slope[c] += value * points[j, c]
        for c in range(columns):
            slope[c] = weights[i] * (1.0 / (1.0 + exponential(-slope[c])) - y[i])
        for j in range(dimension):
            value = X[i, j]
            for c in range(columns):
                sums[j, c] += value * slope[c]


def most_gradients(data: str, quick: bool) -> int:
    """Return the largest number of gradients that a run evaluates."""
    return QUICK_GRADIENTS if quick else MOST_MNIST_GRADIENTS if data == "mnist" else MOST_GRADIENTS


def those_here(names: list[str]) -> list[str]:
    """Return the available data sets; the synthetic one always is."""
    return [name for name in names if name == "synthetic" or prepared_data.is_here(name)]


@functools.lru_cache(maxsize=2)
def problem(data: str, quick: bool) -> Problem:
    """Return a problem by name."""
    return problem_of(*rows_of(data, quick))


def problem_of(X: FloatArray, y: np.ndarray, longest: float | None = None) -> Problem:
    """Return the problem of a table, with rows up to a given norm or as long as its longest."""
    records = len(y)
    longest = longest or float(np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64).max()))
    oracle = DenseOracle(X, y, loss=Logistic(), row_limit=longest, constant=False, threads=1)
    curvature = float(np.linalg.eigvalsh(X.T @ X / records)[-1]) / 4
    if X.shape[1] > NARROW:
        single, ones = X.astype(np.float32), np.ones(records, dtype=np.float32)
        return Problem(single, y.astype(np.float32), ones, oracle, records, longest, curvature)
    rows, counts = np.unique(np.column_stack([X, y]), axis=0, return_counts=True)
    kept = np.ascontiguousarray(rows[:, :-1], dtype=np.float64)
    return Problem(kept, rows[:, -1].copy(), counts.astype(np.float64), oracle, records, longest, curvature)


def rows_of(data: str, quick: bool) -> tuple[FloatArray, np.ndarray]:
    """Return standardised features, and labels 0 and 1 for the paper's -1 and 1."""
    if data == "synthetic":
        X, y = synthetic(10_000, DATA_SEED)
    elif data == "mnist":
        table = prepared_data.table("mnist", "train")
        X, y = table.X, table.y == 0
    elif data == "kddcup99-sf":
        X, y = _connections()
    else:
        table = prepared_data.table(data)
        # The first class is the positive one in both: setosa, malignant.
        X, y = table.X, table.y == 0
    many = QUICK_ROWS.get(data, len(y)) if quick else len(y)
    return prepared_data.standardised(X[:many]), np.asarray(y[:many], dtype=np.int64)


def synthetic(records: int, seed: int, dimension: int = 2, flipped: float = 0.1) -> tuple[FloatArray, np.ndarray]:
    """Draw normal rows, with labels by the sign of their sum, some flipped."""
    generator = np.random.default_rng(seed)
    covariance = np.ones((dimension, dimension)) + np.eye(dimension)
    X = generator.multivariate_normal(np.zeros(dimension), covariance, size=records)
    chance = np.where(X.sum(axis=1) <= 0, flipped, 1 - flipped)
    return X, (generator.random(records) < chance).astype(np.int64)


def _connections() -> tuple[FloatArray, np.ndarray]:
    """Return 70,000 rows of KDD Cup '99: logarithms of three numbers, and the service."""
    table = prepared_data.table("kddcup99-sf")
    columns = [
        np.unique(values.astype(str), return_inverse=True)[1] if values.dtype == object else values
        for values in table.X.values()
    ]
    rows = np.random.default_rng(DATA_SEED).permutation(len(table))[:KDD_ROWS]
    return np.column_stack(columns).astype(np.float64)[rows], table.y[rows]
