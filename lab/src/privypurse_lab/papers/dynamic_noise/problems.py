"""Problems of the dynamic-noise paper (appendix D): 1,000 records, as published or soundly.

As published, components, mean, deviation and longest row are computed from the private records
without charge: NOT PRIVATE. The sound version computes them from other records, taken as public,
and clips longer rows.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse.accounting._filters import ZcdpFilter
from privypurse.core._checks import FloatArray
from privypurse.core._randomness import NoiseSource
from privypurse.core.queries import Query, Released
from privypurse.losses._linear import LinearLoss, Logistic, Squared
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.oracles._linear import DenseOracle
from privypurse.purse._purse import Purse
from privypurse.training._loop import train
from privypurse.training.optimizers._gradient_descent import GradientDescent
from privypurse.training.schedules._base import Budget, Schedule
from privypurse_lab.data import load
from privypurse_lab.papers.exact_measurements import Exactly
from privypurse_lab.papers.items import NOT_PRIVATE

RECORDS, PUBLIC, COMPONENTS = 1_000, 9_000, 60
EPSILON, DELTA = 4.0, 1e-8
CLIP_NORM, STEP_SIZE, STEPS = 4.0, 0.1, 100
# Published: the sum of 1/sigma_t^2, twice the rho of the classic conversion.
BUDGET = 0.3927
AS_PUBLISHED = (
    f"{NOT_PRIVATE}, as published: records are prepared by themselves, and influences, schedules and numbers of steps are found "
    "by training on the same private records, at no charge"
)
SYNTHETIC_COLUMNS, SYNTHETIC_DISTANCE = 100, 10.0

# Row of Figure 3 -> (records, loss).
SQUARED, NETWORK = "squared, MNIST35", "DNN, MNIST35"
LINEAR = {
    "logistic, synthetic": ("synthetic", "logistic"),
    SQUARED: ("mnist35", "squared"),
    "logistic, MNIST35": ("mnist35", "logistic"),
}


@dataclass(frozen=True)
class StatedNoise:
    """Given noise for each step, for retraining as published on a non-private purse. NOT PRIVATE."""

    noise_multipliers: tuple[float, ...]

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Gaussian:
        """Return the mechanism of this step, by the number of steps made."""
        return Gaussian(self.noise_multipliers[len(past)])


@dataclass(frozen=True)
class Records:
    """Scaled rows, and their labels, 0 or 1."""

    rows: FloatArray
    labels: np.ndarray


def seeded_purse(sound: bool, seed: int) -> Purse:
    """Open the paper's budget: rho 0.1963 by the classic conversion, or the exact conversion.

    As published, the certificate names the uncharged use of the private records.
    """
    noise = NoiseSource(seed=seed)
    if sound:
        return Purse(EPSILON, DELTA, neighbouring="add-remove", noise=noise)
    purse = Purse.with_filter(ZcdpFilter(EPSILON, DELTA, "add-remove", conversion="classic"), noise=noise)
    # The steps keep to the budget; what was computed before on the same records does not.
    purse.declare_uncovered(AS_PUBLISHED)
    return purse


@functools.lru_cache(maxsize=2)
def _pool(name: str, seed: int) -> tuple[FloatArray, np.ndarray]:
    """Return raw rows in an order given by the seed: the first 1,000 are private, others public."""
    random = np.random.default_rng(seed)
    if name == "synthetic":
        # Two clouds of deviation 1 around corners of a cube 10 apart, separated by a hyperplane.
        labels = random.permutation(np.arange(RECORDS + PUBLIC) % 2)
        corner = random.choice([-1.0, 1.0], SYNTHETIC_COLUMNS) * SYNTHETIC_DISTANCE / 2 / SYNTHETIC_COLUMNS**0.5
        return np.outer(2 * labels - 1, corner) + random.standard_normal((labels.size, SYNTHETIC_COLUMNS)), labels
    # Not cached as a whole: workers that grow by a quarter of a gigabyte are restarted.
    table = load("mnist", download=False)
    chosen = np.flatnonzero((table.y == 3) | (table.y == 5))
    chosen = random.permutation(chosen)[: RECORDS + PUBLIC]
    return np.asarray(table.X[chosen]), (table.y[chosen] == 5).astype(np.int64)


@functools.lru_cache(maxsize=4)
def _standard(name: str, sound: bool, seed: int) -> tuple[FloatArray, np.ndarray, float]:
    """Return projected and standardised rows, labels, and the norm of the longest row used."""
    rows, labels = _pool(name, seed)
    looked_at = slice(RECORDS, None) if sound else slice(RECORDS)
    rows = rows.astype(np.float64) - rows[looked_at].mean(axis=0, dtype=np.float64)
    if rows.shape[1] > COMPONENTS and name != "synthetic":
        _, directions = np.linalg.eigh(rows[looked_at].T @ rows[looked_at])
        rows = rows @ directions[:, -COMPONENTS:]
    rows = rows / rows[looked_at].std(axis=0)
    return rows, labels, float(np.linalg.norm(rows[looked_at], axis=1).max())


def records(name: str, scale: float, sound: bool, seed: int, *, public: bool = False) -> Records:
    """Return 1,000 records of norm at most the data scale."""
    rows, labels, longest = _standard(name, sound, seed)
    part = slice(RECORDS, 2 * RECORDS) if public else slice(RECORDS)
    lengths = np.maximum(np.linalg.norm(rows[part], axis=1, keepdims=True), longest)
    return Records(np.ascontiguousarray(scale * rows[part] / lengths), labels[part])


class LinearProblem:
    """A linear model on 1,000 records, as in the paper: steps of 0.1, gradients clipped at 4."""

    def __init__(self, data: Records, loss: str) -> None:
        self._loss: LinearLoss = Squared() if loss == "squared" else Logistic()
        self._rows = data.rows
        settings: dict[str, Any] = {"row_limit": None, "constant": False, "threads": 1}
        if loss == "squared":
            self._oracle = DenseOracle(
                data.rows, 2.0 * data.labels - 1, loss=self._loss, target_bounds=(-1.0, 1.0), **settings
            )
        else:
            self._oracle = DenseOracle(data.rows, data.labels, loss=self._loss, **settings)
        self._exactly = Exactly(self._oracle, RECORDS)

    def train(self, schedule: Schedule, purse: Purse, steps: int, seed: int) -> tuple[float, list[float]]:
        """Return the exact final loss (NOT PRIVATE) and the noise of each step on the sum."""
        result = train(
            self._oracle, GradientDescent(STEP_SIZE, RECORDS, clip_norm=CLIP_NORM), schedule, purse, steps=steps
        )
        return self._exactly.loss(result.point), [float(step.noise_std or 0.0) for step in result.trace.steps]

    def curvatures(self) -> FloatArray | None:
        """Return constant curvatures of the mean loss, if any. NOT PRIVATE on private rows."""
        if self._loss.classification:
            return None
        return np.asarray(np.linalg.eigvalsh(self._rows.T @ self._rows / len(self._rows)))


def problem(name: str, scale: float, sound: bool, seed: int, *, public: bool = False) -> Any:
    """Return the problem of a row of Figure 3: a `LinearProblem`, or its like for the network."""
    if name == NETWORK:
        from privypurse_lab.papers.dynamic_noise.network import PairProblem

        return PairProblem(records("mnist35", scale, sound, seed, public=public))
    source, loss = LINEAR[name]
    return LinearProblem(records(source, scale, sound, seed, public=public), loss)
