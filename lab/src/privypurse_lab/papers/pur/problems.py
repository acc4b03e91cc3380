"""Data sets of the PUR paper, prepared as in its Section 4, outside of any purse."""

import functools
from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray
from privypurse.losses import Logistic
from privypurse.oracles import DenseOracle
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
# The paper gives neither the number of iterations of its curves nor the seed of its synthetic data.
MOST_STEPS = {"mnist": 200, "kddcup99-sf": 500}
QUICK_STEPS = {"mnist": 40}
QUICK_ROWS = {"mnist": 2_000, "kddcup99-sf": 5_000}
KDD_ROWS = 70_000
CONSTANTS = (0.001, 0.01, 0.1, 1.0)
CONSTANT_SCHEDULES = tuple(f"constant {level:g}" for level in CONSTANTS)
INDEPENDENT = ("independent", "independent, R = 1")
DATA_SEED = 2022


@dataclass(frozen=True, eq=False)
class Problem:
    """A data set in an oracle, and what the paper takes as public about it.

    Parameters
    ----------
    oracle : DenseOracle
        Logistic regression without a constant column; the row limit `longest` changes no row.
    records : int
        N; public under replace-one.
    longest : float
        Z, the norm of the longest row, computed from the data as in the paper.
    """

    oracle: DenseOracle
    records: int
    longest: float

    def smoothness(self, l2: float) -> float:
        """Return ``M = lambda + Z^2/4``."""
        return l2 + self.longest**2 / 4

    def exactly(self, l2: float) -> Exactly:
        """Return exact measurements of the objective. NOT PRIVATE."""
        return Exactly(self.oracle, self.records, l2)


def most_steps(data: str, quick: bool) -> int:
    """Return the largest number of iterations of a curve."""
    return QUICK_STEPS.get(data, 100) if quick else MOST_STEPS.get(data, 2_000)


def those_here(names: list[str]) -> list[str]:
    """Return the available data sets; the synthetic one always is."""
    return [name for name in names if name == "synthetic" or prepared_data.is_here(name)]


@functools.lru_cache(maxsize=2)
def problem(data: str, quick: bool) -> Problem:
    """Return a problem by name."""
    X, y = rows_of(data, quick)
    longest = float(np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64).max()))
    oracle = DenseOracle(X, y, loss=Logistic(), row_limit=longest, constant=False, threads=1)
    return Problem(oracle, len(y), longest)


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
