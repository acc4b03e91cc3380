"""Minimisers inside the box, and the losses of several models: right, and bounded against any one
record.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize, sparse
from sklearn.linear_model import LogisticRegression

from privypurse import InvalidArgument, Neighbouring, NoiseSource, Norm
from privypurse.core._errors import UnboundedSensitivity
from privypurse.core._sensitive import SensitiveObjective
from privypurse.core.queries import GradientAt, LossesAt, Objective
from privypurse.losses import Hinge, Huber, HuberHinge, Logistic, Softmax, Squared
from privypurse.losses._linear import Gamma, LogLink, Poisson
from privypurse.mechanisms._perturbed_minimiser import TOLERANCE, OutputPerturbation
from privypurse.oracles._encoding import ROUNDING_MARGIN
from privypurse.oracles._linear import ChunkedOracle, DenseOracle, SparseOracle
from privypurse.oracles._minimise import minimise
from privypurse.oracles._softmax import SoftmaxOracle
from tests.each import each
from tests.oracles import reference

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE
LOGISTIC = Logistic(clip_derivative=0.5)
SMOOTH = {
    "logistic": Logistic(),
    "logistic clipped": LOGISTIC,
    "huber hinge": HuberHinge(),
    "huber hinge narrow": HuberHinge(width=0.1),
    "huber": Huber(threshold=0.5),
    "squared clipped": Squared(clip_derivative=0.3),
    "poisson": Poisson(clip_derivative=0.5),
    "gamma": Gamma(clip_derivative=2.0),
}
RECORDS = (
    [0.5, -0.5],
    [0.0, 0.0],
    [1e6, -1e6],
    [1e300, 1e300],
    [math.nan, 1.0],
    [math.inf, 0.0],
    [1.0, -math.inf],
    [1e-310, 0.0],
)


def chunked(X, y, **more):
    cuts = [0, len(X) // 3, len(X)]
    pairs = [(X[a:b], y[a:b]) for a, b in itertools.pairwise(cuts)]
    return ChunkedOracle(lambda: iter(pairs), features=X.shape[1], **more)


ORACLES = {
    "dense": DenseOracle,
    "by column": lambda X, y, **more: DenseOracle(np.asfortranarray(X), y, **more),
    "sparse": lambda X, y, **more: SparseOracle(sparse.csr_matrix(X), y, **more),
    "chunked": chunked,
}


def table(loss, seed=0, n=400, d=5, spread=0.0):
    """Rows, targets as given and as encoded, and what an oracle needs to know; columns of very
    different sizes.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.exp(rng.uniform(-spread, spread, d))
    scores = X @ (rng.standard_normal(d) * np.exp(rng.uniform(-spread, spread, d)))
    if loss.classification:
        y = (scores + rng.standard_normal(n) > 0).astype(int)
        return X, y, np.where(y == 1, 1.0, -1.0), {}
    y = scores / np.abs(scores).max() + 0.1 * rng.standard_normal(n)
    low = 0.1 if isinstance(loss, LogLink) else -1.0
    return X, y, np.clip(y, low, 1.0), {"target_bounds": (low, 1.0)}


def minimiser(oracle, ridge, tolerance):
    """What the box would hand to a mechanism without a perturbation."""
    return oracle.answer(Objective())._value(np.zeros(oracle.dimension), ridge, tolerance)


# ----------------------------------------------------------------------------------------- minimise


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("loss", SMOOTH.values(), ids=SMOOTH.keys())
def test_the_search_ends_at_its_tolerance_however_badly_conditioned(loss, seed):
    """Columns that differ by up to exp(6) in size, and a ridge of one record's curvature, the least
    that is allowed.
    """
    X, y, target, more = table(loss, seed, spread=3.0)
    oracle = DenseOracle(X, y, loss=loss, **more)
    ridge, tolerance = loss.smoothness_for(1.0), 1e-7 * loss.lipschitz
    point = minimiser(oracle, ridge, tolerance)
    gradient = reference.answer(X, target, GradientAt(point=point), loss=loss) + ridge * point
    assert np.linalg.norm(gradient) <= tolerance


@pytest.mark.parametrize("dimension", [1, 40])
def test_the_search_agrees_with_linear_algebra_on_a_quadratic(dimension):
    rng = np.random.default_rng(dimension)
    factor = rng.standard_normal((dimension, dimension)) * np.exp(rng.uniform(-3, 3, dimension))
    matrix, offset = factor @ factor.T + 1e-3 * np.eye(dimension), rng.standard_normal(dimension)
    found = minimise(lambda w: matrix @ w - offset, dimension, 1e-8)
    assert np.linalg.norm(matrix @ found - offset) <= 0.5e-8
    np.testing.assert_allclose(found, np.linalg.solve(matrix, offset), atol=1e-8 / 1e-3)


def test_the_search_ends_where_rounding_hides_the_minimum():
    """A gradient that is never shorter than its own error: the best point found comes back, and
    nothing hangs.
    """
    rng = np.random.default_rng(0)
    found = minimise(lambda w: 1e4 * w + rng.uniform(1e-6, 2e-6, 3), 3, 1e-9)
    assert np.linalg.norm(found) < 1e-9


def test_the_search_starts_at_the_answer_if_zero_is_one():
    assert minimise(lambda w: w, 3, 1e-6).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("loss", SMOOTH.values(), ids=SMOOTH.keys())
def test_minimisers_agree_with_scipy(loss):
    X, y, target, more = table(loss)
    rows = np.column_stack([X, np.ones(len(X))])
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))

    def objective(w):
        return loss.value(rows @ w, target).sum() + w @ w, loss.derivative(rows @ w, target) @ rows + 2 * w

    expected = optimize.minimize(objective, np.zeros(6), jac=True, method="L-BFGS-B", options={"gtol": 1e-9}).x
    found = minimiser(DenseOracle(X, y, loss=loss, **more), 2.0, 1e-8)
    # The oracle clips derivatives 0.05 % earlier: that moves the minimiser a little where many
    # records are clipped.
    np.testing.assert_allclose(found, expected, atol=len(X) * loss.lipschitz * 5e-4 / 2)
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)


def test_minimisers_agree_with_scikit_learn():
    X, y, _, _ = table(Logistic(), d=3)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    found = minimiser(DenseOracle(X, y, loss=Logistic(), constant=False), 0.5, 1e-8)
    model = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(found, model.coef_[0], rtol=1e-6)


@pytest.mark.parametrize("loss", SMOOTH.values(), ids=SMOOTH.keys())
def test_all_oracles_find_the_same_minimiser(loss):
    X, y, _, more = table(loss, spread=1.0)
    X[5, 0], X[6, 1] = np.nan, 1e300
    found = [minimiser(make(X, y, loss=loss, **more), loss.smoothness_for(1.0), 1e-7) for make in ORACLES.values()]
    for other in found[1:]:
        assert np.linalg.norm(other - found[0]) <= 2 * 1e-7 / loss.smoothness_for(1.0)


def test_single_precision_tables_have_minimisers_too():
    X, y, _, _ = table(LOGISTIC, n=2_000)
    single, double = (minimiser(DenseOracle(X.astype(kind), y, loss=LOGISTIC), 1.0, 1e-8) for kind in ("f4", "f8"))
    assert np.linalg.norm(single - double) < 1e-3


def test_rounding_takes_little_of_the_half_tolerance_left_for_it():
    """200,000 rows, sorted so that partial sums are as large as they get, at a noise multiplier of
    one (epsilon about 8).
    """
    X, y, _, _ = table(LOGISTIC, n=200_000, d=3)
    order = np.argsort(y)
    X, target, w = X[order], np.where(y[order] == 1, 1.0, -1.0), np.array([2.0, -1.0, 0.5, 0.3])
    rows = np.column_stack([X, np.ones(len(X))])
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    inside = 0.5 * (1 - ROUNDING_MARGIN)
    slopes = np.clip(LOGISTIC.derivative(rows @ w, target), -inside, inside)
    exact = [math.fsum(slopes * column) for column in rows.T]
    computed = DenseOracle(X, y[order], loss=LOGISTIC).answer(GradientAt(point=w))._value
    assert np.linalg.norm(computed - exact) < 0.1 * (TOLERANCE * 0.5) / 2


def test_a_perturbed_minimiser_is_a_function_that_stays_in_its_box():
    X, y, target, _ = table(LOGISTIC)
    box = DenseOracle(X, y, loss=LOGISTIC).answer(Objective())
    assert isinstance(box, SensitiveObjective)
    assert (box.bound(ADD_REMOVE, box.norm), box.curvature, box.shape) == (0.5, 0.25, (6,))
    b = np.random.default_rng(1).standard_normal(6) * 20
    w = box._value(b, 1.5, 1e-6)
    gradient = reference.answer(X, target, GradientAt(point=w), loss=LOGISTIC) + 1.5 * w + b
    assert np.linalg.norm(gradient) <= 1e-6


# ------------------------------------------------------------------- what one record can do to them


def released_without_noise(oracle, ridge):
    """The minimiser as output perturbation searches for it, and how far one record moves it, as is
    charged for.
    """
    box = oracle.answer(Objective())
    mechanism = OutputPerturbation(1.0, ridge)
    tolerance = TOLERANCE * box.bound(ADD_REMOVE, Norm.GRADIENT)
    point = box._value(np.zeros(oracle.dimension), ridge, tolerance)
    return point, {relation: mechanism.sensitivity(box, relation) for relation in Neighbouring}


def moved(first, second):
    return float(np.linalg.norm(first[0] - second[0]))


@pytest.mark.parametrize("make", ORACLES.values(), ids=ORACLES.keys())
@pytest.mark.parametrize("loss", [LOGISTIC, HuberHinge(), Huber(threshold=0.5)], ids=repr)
def test_no_record_moves_the_minimiser_further_than_stated(make, loss):
    X, y, _, more = table(loss, n=9, d=2)

    def find(rows, targets):
        return released_without_noise(make(rows, targets, loss=loss, **more), loss.smoothness_for(1.0))

    whole = find(X, y)
    for record, label in itertools.product(RECORDS, (0, 1)):
        added = find(np.vstack([X, record]), np.append(y, label))
        replaced = find(np.vstack([record, X[1:]]), np.append(label, y[1:]))
        assert moved(whole, added) <= whole[1][ADD_REMOVE] == added[1][ADD_REMOVE]
        assert moved(whole, replaced) <= whole[1][REPLACE_ONE]
    for k in range(len(X)):
        assert moved(whole, find(np.delete(X, k, 0), np.delete(y, k))) <= whole[1][ADD_REMOVE]


entries = st.one_of(st.floats(-3, 3), st.sampled_from([0.0, 1e8, -1e200, math.nan, math.inf, -math.inf]))


@st.composite
def changes(draw):
    """Two tables that differ in the first row, and the table without it; labels too."""
    rows = draw(st.integers(2, 8))
    X = draw(hnp.arrays(np.float64, (rows, 3), elements=entries))
    other = draw(hnp.arrays(np.float64, (3,), elements=entries))
    y = draw(hnp.arrays(np.int64, (rows,), elements=st.integers(0, 1)))
    return (X, y), (X[1:], y[1:]), (np.vstack([other, X[1:]]), np.append(1 - y[0], y[1:]))


@settings(max_examples=60, deadline=None)
@given(changes(), st.floats(1.0, 10.0), st.sampled_from([LOGISTIC, HuberHinge(), Logistic()]))
def test_no_record_whatever_moves_the_minimiser_further_than_stated(tables, factor, loss):
    ridge = factor * loss.smoothness_for(1.0)
    whole, without, replaced = (released_without_noise(DenseOracle(X, y, loss=loss), ridge) for X, y in tables)
    assert moved(whole, without) <= whole[1][ADD_REMOVE]
    assert moved(whole, replaced) <= whole[1][REPLACE_ONE]


def test_the_stated_bound_is_nearly_attained():
    """One record on its own, with a ridge so large that its derivative stays clipped."""
    nobody = released_without_noise(DenseOracle([[math.nan, 0.0]], [1], loss=LOGISTIC), 100.0)
    somebody = released_without_noise(DenseOracle([[50.0, 0.0]], [1], loss=LOGISTIC), 100.0)
    assert 0.99 * somebody[1][ADD_REMOVE] < moved(nobody, somebody)


@pytest.mark.parametrize(("width", "ridge"), [(1e-4, 5_000.0), (0.01, 50.0), (0.1, 5.0)])
def test_the_search_ends_next_to_kinks_whatever_one_record_does(width, ridge):
    """The gradient nearly jumps there, and its length alone is no guide."""
    loss = HuberHinge(width=width)
    for seed in range(6):
        X, y, target, _ = table(loss, seed, n=200, d=3)
        for rows, targets, encoded in ((X, y, target), (X[1:], y[1:], target[1:])):
            point = minimiser(DenseOracle(rows, targets, loss=loss), ridge, 1e-8)
            gradient = reference.answer(rows, encoded, GradientAt(point=point), loss=loss) + ridge * point
            assert np.linalg.norm(gradient) <= 1e-8


# ------------------------------------------------------------------------- losses of several models

LOSSES = {**SMOOTH, "hinge": Hinge(), "hinge clipped": Hinge(clip_derivative=0.4)}
MODELS = np.random.default_rng(4).standard_normal((6, 6)) * [[0.0], [1.0], [1.0], [5.0], [1.0], [20.0]]


def scores(X, target, points, loss, row_limit=1.0, clip=math.inf):
    """Minus the sum of each model's losses, relative to the first; rows that are not finite are
    left out.
    """
    rows = np.column_stack([X, np.ones(len(X))])
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.sqrt((rows**2).sum(axis=1))
    keep = np.isfinite(length)
    rows = rows[keep] * np.minimum(1.0, row_limit / length[keep])[:, None]
    sums = np.array([np.minimum(loss.value(rows @ p, target[keep]), clip).sum() for p in points])
    return sums[0] - sums


@pytest.mark.parametrize("make", ORACLES.values(), ids=ORACLES.keys())
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@each("clip", [None, 0.6])
def test_the_losses_of_models_are_what_numpy_finds(loss, make, clip):
    X, y, target, more = table(loss)
    X[3], X[4, 1] = 1e300, np.nan
    box = make(X, y, loss=loss, row_limit=2.0, **more).answer(LossesAt(points=MODELS, clip_loss=clip))
    expected = scores(X, target, MODELS, loss, 2.0, math.inf if clip is None else clip)
    assert box.norm is Norm.RANGE
    np.testing.assert_allclose(box._value, expected, rtol=1e-9, atol=1e-8)


def test_the_losses_of_models_in_single_precision():
    X, y, target, _ = table(LOGISTIC)
    box = DenseOracle(X.astype(np.float32), y, loss=LOGISTIC).answer(LossesAt(points=MODELS))
    np.testing.assert_allclose(box._value, scores(X, target, MODELS, LOGISTIC), rtol=1e-4, atol=1e-3)


def test_the_bound_is_the_range_over_the_two_models_furthest_apart_or_the_clip():
    X, y, _, _ = table(LOGISTIC)
    oracle = DenseOracle(X, y, loss=LOGISTIC, row_limit=3.0)
    furthest = max(np.linalg.norm(a - b) for a, b in itertools.combinations(MODELS, 2))
    for clip, expected in ((None, 0.5 * 3.0 * furthest), (0.2, 0.2)):
        box = oracle.answer(LossesAt(points=MODELS, clip_loss=clip))
        assert expected <= box.bound(ADD_REMOVE, Norm.RANGE) < 1.001 * expected
        assert box.bound(REPLACE_ONE, Norm.RANGE) == 2 * box.bound(ADD_REMOVE, Norm.RANGE)


def spread(first, second):
    """Range of the difference: how much more one candidate moved than another."""
    return float(np.ptp(first._value - second._value))


models = hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.just(4)), elements=st.floats(-30, 30))


@settings(max_examples=150)
@given(changes(), models, st.sampled_from(sorted(LOSSES)), st.sampled_from([None, 0.3, 5.0]), st.booleans())
def test_no_record_whatever_moves_one_score_more_than_another_by_more_than_stated(tables, points, name, clip, single):
    loss = LOSSES[name]
    more = {} if loss.classification else {"target_bounds": (0.1 if isinstance(loss, LogLink) else -1.0, 1.0)}
    query = LossesAt(points=points, clip_loss=clip)
    with np.errstate(over="ignore"):
        kinds = [(X.astype(np.float32) if single else X, y) for X, y in tables]
    whole, without, replaced = (DenseOracle(X, y, loss=loss, **more).answer(query) for X, y in kinds)
    assert spread(whole, without) <= whole.bound(ADD_REMOVE, Norm.RANGE)
    assert spread(whole, replaced) <= whole.bound(REPLACE_ONE, Norm.RANGE)


def test_one_model_or_the_same_twice_has_nothing_to_choose():
    X, y, _, _ = table(LOGISTIC)
    oracle = DenseOracle(X, y, loss=LOGISTIC)
    for points in (MODELS[1:2], MODELS[[1, 1]]):
        assert oracle.answer(LossesAt(points=points))._value.tolist() == [0.0] * len(points)


def test_a_clip_bounds_losses_without_a_row_limit():
    X, y, target, _ = table(LOGISTIC)
    oracle = DenseOracle(X, y, loss=LOGISTIC, row_limit=None)
    box = oracle.answer(LossesAt(points=MODELS, clip_loss=0.7))
    np.testing.assert_allclose(box._value, scores(X, target, MODELS, LOGISTIC, math.inf, 0.7), rtol=1e-9, atol=1e-8)
    assert box.bound(ADD_REMOVE, Norm.RANGE) == pytest.approx(0.7, rel=1e-3)
    with pytest.raises(UnboundedSensitivity, match="clip_loss"):
        oracle.answer(LossesAt(points=MODELS))


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("loss", "more"),
    [
        (Hinge(), {}),
        (Hinge(clip_derivative=0.5), {}),
        (Squared(), {"target_bounds": (-1.0, 1.0)}),
        (LOGISTIC, {"row_limit": None}),
    ],
    ids=repr,
)
def test_a_minimiser_needs_a_smooth_loss_with_bounded_gradients(loss, more):
    X, y, _, _ = table(LOGISTIC)
    with pytest.raises(InvalidArgument, match=r"a minimiser needs .*smooth loss.*row limit.*clip_derivative"):
        DenseOracle(X, y, loss=loss, **more).answer(Objective())


@pytest.mark.parametrize("query", [Objective(), LossesAt(points=MODELS)], ids=lambda q: type(q).__name__)
def test_samples_of_the_records_are_refused(query):
    X, y, _, _ = table(LOGISTIC)
    with pytest.raises(InvalidArgument, match="sample_prob"):
        DenseOracle(X, y, loss=LOGISTIC).answer(query, sample_prob=0.5, noise=NoiseSource())


@pytest.mark.parametrize("query", [Objective(), LossesAt(points=MODELS)], ids=lambda q: type(q).__name__)
def test_a_loss_of_several_scores_is_refused(query):
    """Its second derivative has a higher rank, and the determinants of objective perturbation need
    rank one.
    """
    X, y, _, _ = table(LOGISTIC)
    oracle = SoftmaxOracle(X, y, loss=Softmax(classes=2), classes=(0, 1))
    with pytest.raises(InvalidArgument, match="query"):
        oracle.answer(query)


@pytest.mark.parametrize("points", [np.zeros((2, 5)), np.zeros((2, 7)), np.zeros(5)])
def test_models_of_another_length_are_refused(points):
    X, y, _, _ = table(LOGISTIC)
    with pytest.raises(InvalidArgument, match="points must have 6 entries"):
        DenseOracle(X, y, loss=LOGISTIC).answer(LossesAt(points=points))


@pytest.mark.parametrize("points", [np.zeros((0, 3)), np.zeros((2, 2, 2)), [[1.0, math.nan]], [[math.inf]]])
def test_models_that_are_no_table_of_numbers_are_refused(points):
    with pytest.raises(InvalidArgument, match="points must be finite"):
        LossesAt(points=points)


def test_the_models_of_a_query_are_its_own():
    points = np.ones((2, 3))
    query = LossesAt(points=points)
    points[:] = 7.0
    assert query.points.tolist() == [[1.0] * 3] * 2
    assert not query.points.flags.writeable


def test_the_search_does_not_stall_where_numbers_end():
    """A steep loss far from zero: one unit in the last place of the model moves the gradient by
    more than the tolerance.
    """
    half = 2_000
    X = np.vstack([np.tile([1.0, 2.0, -1.0], (half, 1)), np.tile([0.5, -1.0, 3.0], (half, 1))])
    y = np.repeat([1e10, 12_345.678], half)
    oracle = DenseOracle(X, y, loss=Huber(threshold=1.0), target_bounds=(-1e10, 1e10))
    calls = []
    inner = oracle._total_in_double()
    oracle._total_in_double = lambda: lambda work: (calls.append(1), inner(work))[1]
    point = minimiser(oracle, 1.0, 1e-8)
    assert np.isfinite(point).all()
    assert len(calls) < 3_000
