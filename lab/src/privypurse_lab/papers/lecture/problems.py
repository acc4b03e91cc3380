"""Synthetic problems of the lecture: a smooth one, and one on which its bound is tight."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.accounting import convert
from privypurse.core._checks import FloatArray
from privypurse.core.queries import Query, Released
from privypurse.losses._linear import Hinge, LinearLoss, Logistic
from privypurse.mechanisms._non_private import NonPrivateRelease
from privypurse.oracles._linear import DenseOracle
from privypurse.purse._purse import Purse
from privypurse.training._loop import train
from privypurse.training.optimizers._base import Ball
from privypurse.training.optimizers._gradient_descent import GradientDescent
from privypurse.training.schedules._base import Budget
from privypurse_lab.papers.exact_measurements import Exactly

RECORDS, DIMENSION, DELTA = 1_000, 20, 1e-5
# The hardest problem has fewer: its number of steps grows as the square of the records.
FEW_RECORDS = 400
# Relation of the lecture: one record is replaced, so a mean gradient moves by 2G/n.
RELATION = "replace-one"


@dataclass(frozen=True, eq=False)
class Problem:
    """A convex problem in a ball whose minimum is known.

    Parameters
    ----------
    oracle : DenseOracle
        The records.
    radius : float
        R: descent starts in the middle of the ball. (The lecture's R is the diameter; with the
        radius the same proof gives half its bound.)
    best : float
        Least loss in the ball.
    records : int
        n.
    """

    oracle: DenseOracle
    radius: float
    best: float
    records: int = RECORDS

    def excess(self, point: FloatArray) -> float:
        """Return the exact excess loss of a point. NOT PRIVATE."""
        return Exactly(self.oracle, self.records).loss(point) - self.best


@dataclass(frozen=True)
class WithoutNoise:
    """Schedule of releases without noise. NOT PRIVATE."""

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> NonPrivateRelease:
        """Return the declared non-private release."""
        return NonPrivateRelease("descent without noise, to compare with")


@functools.lru_cache(maxsize=2)
def smooth_problem(seed: int) -> Problem:
    """Return a logistic regression on unit rows; G = 1."""
    random = np.random.default_rng((seed, 1))
    radius = 3.0
    X = random.standard_normal((RECORDS, DIMENSION))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    direction = random.standard_normal(DIMENSION)
    scores = 12 * X @ direction / np.linalg.norm(direction)
    y = random.random(RECORDS) < 1 / (1 + np.exp(-scores))
    oracle = _oracle(X, y, Logistic())
    exactly = Exactly(oracle, RECORDS)
    point = least_point(oracle, radius)
    # By convexity, the gradient bounds how much lower any point of the ball can be.
    gap = distance_to_best(exactly.gradient(point), point, radius)
    assert gap < 1e-7, gap
    return Problem(oracle, radius, exactly.loss(point))


@functools.lru_cache(maxsize=16)
def hardest_problem(epsilon: float) -> Problem:
    """Return the hardest problem at this epsilon; G = R = 1.

    A hinge within the unit ball is linear, ``1 - <m, w>`` with m the mean of the rows. Most rows
    cancel in pairs; the others make m as long as the noise of one release of the whole budget. This
    is the problem of the lower bound (Bassily, Smith and Thakurta 2014).
    """
    noise = 2 * math.sqrt(DIMENSION) / (FEW_RECORDS * convert.gdp_mu(epsilon, DELTA))
    aligned = 2 * max(1, round(min(noise, 1.0) * FEW_RECORDS / 2))
    axes = np.eye(DIMENSION)[np.arange((FEW_RECORDS - aligned) // 2) % DIMENSION]
    common = np.full((aligned, DIMENSION), 1 / math.sqrt(DIMENSION))
    X = np.concatenate([common, axes, -axes])
    best = 1 - float(np.linalg.norm(X.mean(axis=0)))
    return Problem(_oracle(X, np.ones(FEW_RECORDS), Hinge()), 1.0, best, FEW_RECORDS)


def least_point(oracle: DenseOracle, radius: float, steps: int = 600) -> FloatArray:
    """Return the minimiser of a smooth loss in a ball, by descent without noise. NOT PRIVATE."""
    descent = GradientDescent(step_size=1 / oracle.bounds.smoothness, records=RECORDS, projection=Ball(radius))
    return train(oracle, descent, WithoutNoise(), Purse.not_private(neighbouring=RELATION), steps=steps).point


def distance_to_best(gradient: FloatArray, point: FloatArray, radius: float) -> float:
    """Return an upper bound on the excess loss in the ball (Frank and Wolfe 1956)."""
    return float(gradient @ point + radius * np.linalg.norm(gradient))


def _oracle(X: FloatArray, y: NDArray[Any], loss: LinearLoss) -> DenseOracle:
    return DenseOracle(X, y.astype(int), loss=loss, constant=False, threads=1)
