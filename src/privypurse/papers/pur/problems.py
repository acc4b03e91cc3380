"""The five data sets of the PUR paper, prepared as its Section 4 says. All of it looks at the data outside any purse."""

import functools
from dataclasses import dataclass

import numpy as np

from privypurse.core.checks import FloatArray
from privypurse.losses import Logistic
from privypurse.oracles import DenseOracle
from privypurse.papers import prepared
from privypurse.papers.following import Exactly

RIDGES = (0.0, 0.1)
TITLES = {
    "synthetic": "Synthetic",
    "mnist": "MNIST",
    "iris": "Iris",
    "breast-cancer": "Breast cancer",
    "kddcup99-sf": "KDD Cup '99",
}
# The paper gives neither the number of iterations its curves end at, nor the seed of its synthetic data.
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
    """A data set behind an oracle, and what the paper takes to be public about it.

    Parameters
    ----------
    oracle : DenseOracle
        Logistic regression without a constant column; rows no longer than `longest`, which changes none of them.
    records : int
        N; public under replace-one.
    longest : float
        Z, the length of the longest row. Read off the data, as in the paper.
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
    """Return how many iterations a curve has at most."""
    return QUICK_STEPS.get(data, 100) if quick else MOST_STEPS.get(data, 2_000)


def those_here(names: list[str]) -> list[str]:
    """Return those that can be had; the synthetic one always can."""
    return [name for name in names if name == "synthetic" or prepared.is_here(name)]


@functools.lru_cache(maxsize=2)
def problem(data: str, quick: bool) -> Problem:
    """Return a data set, ready to be asked."""
    X, y = rows_of(data, quick)
    longest = float(np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64).max()))
    oracle = DenseOracle(X, y, loss=Logistic(), row_limit=longest, constant=False, threads=1)
    return Problem(oracle, len(y), longest)


def rows_of(data: str, quick: bool) -> tuple[FloatArray, np.ndarray]:
    """Return standardised features, and labels 0 and 1 for the paper's -1 and 1."""
    if data == "synthetic":
        X, y = synthetic(10_000, DATA_SEED)
    elif data == "mnist":
        table = prepared.table("mnist", "train")
        X, y = table.X, table.y == 0
    elif data == "kddcup99-sf":
        X, y = _connections()
    else:
        table = prepared.table(data)
        # The first class is the positive one in both: setosa, malignant.
        X, y = table.X, table.y == 0
    many = QUICK_ROWS.get(data, len(y)) if quick else len(y)
    return prepared.standardised(X[:many]), np.asarray(y[:many], dtype=np.int64)


def synthetic(records: int, seed: int, dimension: int = 2, flipped: float = 0.1) -> tuple[FloatArray, np.ndarray]:
    """Draw the paper's synthetic data: normal rows with covariances 2 and 1, labels by the sign of their sum, some flipped."""
    generator = np.random.default_rng(seed)
    covariance = np.ones((dimension, dimension)) + np.eye(dimension)
    X = generator.multivariate_normal(np.zeros(dimension), covariance, size=records)
    chance = np.where(X.sum(axis=1) <= 0, flipped, 1 - flipped)
    return X, (generator.random(records) < chance).astype(np.int64)


def _connections() -> tuple[FloatArray, np.ndarray]:
    """Return 70,000 rows of KDD Cup '99: three numbers, of which the loader took logarithms, and the service as its number."""
    table = prepared.table("kddcup99-sf")
    columns = [
        np.unique(values.astype(str), return_inverse=True)[1] if values.dtype == object else values
        for values in table.X.values()
    ]
    rows = np.random.default_rng(DATA_SEED).permutation(len(table))[:KDD_ROWS]
    return np.column_stack(columns).astype(np.float64)[rows], table.y[rows]
