"""One contract that every oracle passes: the same answers as a loop over single rows, and bounds that hold."""

import itertools

import numpy as np
import pytest
from scipy import sparse

from privypurse import Neighbouring
from privypurse.core.queries import ClassCounts, Count, CurvatureAlong, GradientAt, LossesAlong, SlopeAlong
from privypurse.losses import Hinge, Huber, HuberHinge, Logistic, Squared
from privypurse.oracles.linear import ChunkedOracle, DenseOracle, SparseOracle
from tests.oracles import reference

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE


def single(X):
    """The table in float32, where 1e300 is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(X).astype(np.float32)


def chunked(X, y, **settings):
    """Three uneven chunks, the middle one sparse."""
    cuts = [0, len(X) // 5, len(X) // 2, len(X)]
    pairs = [(X[a:b], y[a:b]) for a, b in itertools.pairwise(cuts)]
    pairs[1] = (sparse.csr_matrix(pairs[1][0]), pairs[1][1])
    return ChunkedOracle(lambda: iter(pairs), features=X.shape[1], **settings)


ORACLES = {
    "dense float32": lambda X, y, **s: DenseOracle(single(X), y, **s),
    "dense float64": DenseOracle,
    "dense float32 by column": lambda X, y, **s: DenseOracle(np.asfortranarray(single(X)), y, **s),
    "dense float64 by column": lambda X, y, **s: DenseOracle(np.asfortranarray(X), y, **s),
    "dense strided": lambda X, y, **s: DenseOracle(np.repeat(X, 2, axis=0)[::2], y, **s),
    "sparse": lambda X, y, **s: SparseOracle(sparse.csr_matrix(X), y, **s),
    "sparse float32": lambda X, y, **s: SparseOracle(sparse.csr_matrix(single(X)), y, **s),
    "sparse columns": lambda X, y, **s: SparseOracle(sparse.csc_matrix(X), y, **s),
    "sparse array": lambda X, y, **s: SparseOracle(sparse.csr_array(X), y, **s),
    "chunked": chunked,
}
LOSSES = {
    "logistic": Logistic(),
    "logistic clipped": Logistic(clip_derivative=0.5),
    "logistic clipped low": Logistic(clip_derivative=0.2),
    "hinge": Hinge(),
    "hinge clipped": Hinge(clip_derivative=0.3),
    "huber hinge": HuberHinge(),
    "huber hinge clipped": HuberHinge(clip_derivative=0.4, width=0.3),
    "squared clipped": Squared(clip_derivative=0.7),
    "huber": Huber(threshold=0.5),
}


@pytest.fixture(params=ORACLES.values(), ids=ORACLES.keys())
def make(request):
    return request.param


@pytest.fixture(params=LOSSES.values(), ids=LOSSES.keys())
def loss(request):
    return request.param


def table(rng, n=700, d=9):
    X = rng.standard_normal((n, d)) * rng.uniform(0.1, 2, size=(n, 1))
    X[rng.random((n, d)) < 0.4] = 0.0
    X[3] = 0.0  # an empty row
    X[4, 0] = np.nan
    X[5, 1] = np.inf
    X[6, 2] = -np.inf
    X[7] = 1e300  # its square overflows in any precision
    X[8] = X[9]
    return X


def targets(rng, loss, n):
    y = rng.integers(0, 2, n) if loss.classification else rng.uniform(-2, 2, n)
    if not loss.classification:
        y[11] = np.nan
    encoded = np.where(y == 1, 1.0, -1.0) if loss.classification else np.clip(y, -1.0, 1.0)
    settings = {} if loss.classification else {"target_bounds": (-1.0, 1.0)}
    return y, encoded, settings


def queries(rng, dimension):
    w, u = rng.standard_normal((2, dimension))
    steps = np.array([0.0, 0.1, 0.5, 2.0, 10.0])
    yield GradientAt(point=w)
    yield GradientAt(point=np.zeros(dimension), clip_norm=0.3)
    yield GradientAt(point=20 * w, clip_norm=5.0)
    yield LossesAlong(point=w, direction=u, steps=steps)
    yield LossesAlong(point=w, direction=u, steps=steps, clip_loss=0.6)
    yield LossesAlong(point=30 * w, direction=u, steps=steps, clip_loss=3.0)
    yield SlopeAlong(point=w, direction=u)
    yield SlopeAlong(point=w, direction=u, clip_slope=0.2)
    yield CurvatureAlong(point=w, direction=u, clip_curvature=0.15)
    yield Count()


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("row_limit", [1.0, 0.4, 3.0])
def test_every_oracle_agrees_with_a_loop_over_single_rows(make, loss, constant, row_limit):
    rng = np.random.default_rng(12)
    X = table(rng)
    y, encoded, more = targets(rng, loss, len(X))
    oracle = make(X, y, loss=loss, constant=constant, row_limit=row_limit, **more)
    for query in queries(rng, oracle.dimension):
        expected = reference.answer(X, encoded, query, loss=loss, row_limit=row_limit, constant=constant)
        box = oracle.answer(query)
        # Clips sit 1e-5 inside the bound; float32 tables have float32 scores.
        assert box._value == pytest.approx(expected, rel=3e-5, abs=2e-3 if box._value.size > 1 else 5e-3)
    if loss.classification:
        assert oracle.answer(ClassCounts())._value.tolist() == [np.sum(y == 0), np.sum(y == 1)]
