"""The problems of the dynamic-noise paper (appendix D): 1,000 records, prepared as published or by public records only.

As published, components, mean, deviation and the longest row are read from the private records, at no charge: NOT PRIVATE. The
sound way reads all of that from other records, taken as public, and cuts rows that are longer than the longest of those.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse import datasets
from privypurse.accounting.filters import ZcdpFilter
from privypurse.core.checks import FloatArray
from privypurse.core.queries import Query
from privypurse.core.randomness import NoiseSource
from privypurse.core.released import Released
from privypurse.losses.linear import LinearLoss, Logistic, Squared
from privypurse.mechanisms.gaussian import Gaussian
from privypurse.optimizers.gradient_descent import GradientDescent
from privypurse.oracles.linear_rows import DenseOracle
from privypurse.papers.following import Exactly
from privypurse.papers.items import NOT_PRIVATE
from privypurse.purse.purse import Purse
from privypurse.schedules.base import Budget, Schedule
from privypurse.training.loop import train

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
    """Noise that is stated for each step, whatever it costs: for retraining as published, on a purse that is NOT PRIVATE.

    Parameters
    ----------
    noise_multipliers : sequence of float
        The sigma of each step: standard deviation of the noise divided by the sensitivity.
    """

    noise_multipliers: tuple[float, ...]

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Gaussian:
        """Return the mechanism of this step; sees how many steps were made, and nothing else."""
        return Gaussian(self.noise_multipliers[len(past)])


@dataclass(frozen=True)
class Records:
    """Rows that are scaled already, and their labels, 0 or 1."""

    rows: FloatArray
    labels: np.ndarray


def open_purse(sound: bool, seed: int) -> Purse:
    """Open the paper's budget for one simulation: rho 0.1963 by the classic conversion, or the exact conversion of today.

    As published, the certificate names what was done with the private records at no charge.
    """
    noise = NoiseSource(seed=seed)
    if sound:
        return Purse(EPSILON, DELTA, neighbouring="add-remove", noise=noise)
    purse = Purse.with_filter(ZcdpFilter(EPSILON, DELTA, "add-remove", conversion="classic"), noise=noise)
    # The steps keep to the budget; what was found out before them, on the same records, does not.
    purse.declare_uncovered(AS_PUBLISHED)
    return purse


@functools.lru_cache(maxsize=2)
def _pool(name: str, seed: int) -> tuple[FloatArray, np.ndarray]:
    """Return rows before any preparation, in an order given by the seed: the first 1,000 are private, all others public."""
    random = np.random.default_rng(seed)
    if name == "synthetic":
        # Two clouds of deviation 1, around corners of a cube that are 10 apart; a hyperplane between them tells them apart.
        labels = random.permutation(np.arange(RECORDS + PUBLIC) % 2)
        corner = random.choice([-1.0, 1.0], SYNTHETIC_COLUMNS) * SYNTHETIC_DISTANCE / 2 / SYNTHETIC_COLUMNS**0.5
        return np.outer(2 * labels - 1, corner) + random.standard_normal((labels.size, SYNTHETIC_COLUMNS)), labels
    # Not kept as a whole: it is a quarter of a gigabyte, and processes that grow by more are started anew.
    table = datasets.load("mnist", download=False)
    chosen = np.flatnonzero((table.y == 3) | (table.y == 5))
    chosen = random.permutation(chosen)[: RECORDS + PUBLIC]
    return np.asarray(table.X[chosen]), (table.y[chosen] == 5).astype(np.int64)


@functools.lru_cache(maxsize=4)
def _standard(name: str, sound: bool, seed: int) -> tuple[FloatArray, np.ndarray, float]:
    """Return all rows projected, centred and with deviation 1, their labels, and the length of the longest one looked at."""
    rows, labels = _pool(name, seed)
    looked_at = slice(RECORDS, None) if sound else slice(RECORDS)
    rows = rows.astype(np.float64) - rows[looked_at].mean(axis=0, dtype=np.float64)
    if rows.shape[1] > COMPONENTS and name != "synthetic":
        _, directions = np.linalg.eigh(rows[looked_at].T @ rows[looked_at])
        rows = rows @ directions[:, -COMPONENTS:]
    rows = rows / rows[looked_at].std(axis=0)
    return rows, labels, float(np.linalg.norm(rows[looked_at], axis=1).max())


def records(name: str, scale: float, sound: bool, seed: int, *, public: bool = False) -> Records:
    """Return 1,000 records, none longer than the data scale.

    Parameters
    ----------
    name : {"synthetic", "mnist35"}
        Which.
    scale : float
        The length of the longest row.
    sound : bool
        Prepare by the public records.
    seed : int
        Which records are private.
    public : bool
        Return 1,000 of the public ones, to rehearse on.
    """
    rows, labels, longest = _standard(name, sound, seed)
    part = slice(RECORDS, 2 * RECORDS) if public else slice(RECORDS)
    lengths = np.maximum(np.linalg.norm(rows[part], axis=1, keepdims=True), longest)
    return Records(np.ascontiguousarray(scale * rows[part] / lengths), labels[part])


class LinearProblem:
    """A linear model on 1,000 records, trained as in the paper: steps of 0.1, gradients clipped at 4.

    Parameters
    ----------
    data : Records
        What to train on.
    loss : {"squared", "logistic"}
        On targets -1 and +1.
    """

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
        """Return the exact final loss, which is NOT PRIVATE, and the noise of each step on the sum."""
        result = train(
            self._oracle, GradientDescent(STEP_SIZE, RECORDS, clip_norm=CLIP_NORM), schedule, purse, steps=steps
        )
        return self._exactly.loss(result.point), [float(step.noise_std or 0.0) for step in result.trace.steps]

    def curvatures(self) -> FloatArray | None:
        """Return the curvatures of the mean loss, where they are the same everywhere. From the rows: NOT PRIVATE if they are."""
        if self._loss.classification:
            return None
        return np.asarray(np.linalg.eigvalsh(self._rows.T @ self._rows / len(self._rows)))


def problem(name: str, scale: float, sound: bool, seed: int, *, public: bool = False) -> Any:
    """Return what a row of Figure 3 is about, ready to be trained; `LinearProblem` or its like for the network."""
    if name == NETWORK:
        from privypurse.papers.dynamic_noise.network import PairProblem

        return PairProblem(records("mnist35", scale, sound, seed, public=public))
    source, loss = LINEAR[name]
    return LinearProblem(records(source, scale, sound, seed, public=public), loss)
