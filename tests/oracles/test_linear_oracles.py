"""One contract that every oracle passes: the same answers as a loop over single rows, and bounds
that hold.
"""

import itertools
import math
import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from privypurse import InvalidArgument, Neighbouring, NoiseSource, Norm
from privypurse.core._errors import UnboundedSensitivity
from privypurse.core.queries import ClassCounts, Count, GradientAt, LossesAlong
from privypurse.losses import Hinge, Huber, HuberHinge, Logistic, Squared
from privypurse.losses._linear import Gamma, LogLink, Poisson
from privypurse.oracles._linear import ChunkedOracle, DenseOracle, SparseOracle
from privypurse.oracles._sampling import poisson_rows
from privypurse.oracles.chunks import from_arrays
from privypurse.tables.chunks import from_files
from tests.each import each
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
    "poisson": Poisson(clip_derivative=0.7),
    "gamma": Gamma(clip_derivative=1.5),
    "gamma clipped on both sides": Gamma(clip_derivative=0.4),
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
    low = 0.1 if isinstance(loss, LogLink) else -1.0
    encoded = np.where(y == 1, 1.0, -1.0) if loss.classification else np.clip(y, low, 1.0)
    settings = {} if loss.classification else {"target_bounds": (low, 1.0)}
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
    yield Count()


@each("constant", [True, False])
@each("row_limit", [1.0, 0.4, 3.0])
def test_every_oracle_agrees_with_a_loop_over_single_rows(make, loss, constant, row_limit):
    rng = np.random.default_rng(12)
    X = table(rng)
    y, encoded, more = targets(rng, loss, len(X))
    oracle = make(X, y, loss=loss, constant=constant, row_limit=row_limit, **more)
    for query in queries(rng, oracle.dimension):
        expected = reference.answer(X, encoded, query, loss=loss, row_limit=row_limit, constant=constant)
        box = oracle.answer(query)
        # float32 tables have float32 scores.
        assert box._value == pytest.approx(expected, rel=3e-5, abs=2e-3 if box._value.size > 1 else 5e-3)
    if loss.classification:
        assert oracle.answer(ClassCounts())._value.tolist() == [np.sum(y == 0), np.sum(y == 1)]


# --------------------------------------------------------------------------------------- the bounds

anything = st.one_of(
    st.floats(-3, 3),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e300, -1e300, 1e-300, 1e38, 3e19, 1e155]),
)
BOUND_LOSSES = [
    Logistic(),
    Logistic(clip_derivative=0.5),
    HuberHinge(clip_derivative=0.7),
    Hinge(),
    Huber(threshold=2.0),
    Poisson(clip_derivative=0.8),
    Gamma(clip_derivative=0.8),
]


def moved(after, before, norm):
    difference = after._value - before._value
    return float(difference.max() - difference.min()) if norm is Norm.RANGE else float(np.linalg.norm(difference))


@pytest.mark.parametrize(
    "make",
    [ORACLES[name] for name in ("dense float32", "dense float64", "dense float32 by column", "sparse", "chunked")],
)
@settings(max_examples=120)
@given(data=st.data())
def test_no_record_moves_an_answer_by_more_than_the_bound(make, data):
    """Adding, removing or replacing any row, whatever is in it, in either precision."""
    d = data.draw(st.sampled_from([1, 3, 14]))
    loss = data.draw(st.sampled_from(BOUND_LOSSES))
    X = data.draw(hnp.arrays(np.float64, st.tuples(st.integers(5, 7), st.just(d)), elements=anything))
    label = st.sampled_from([0, 1]) if loss.classification else st.one_of(st.floats(-9, 9), st.just(math.nan))
    y = np.array([data.draw(label) for _ in range(len(X))])
    row_limit = data.draw(st.sampled_from([1.0, 0.25, 5.0]))
    more = {"loss": loss, "row_limit": row_limit, "constant": data.draw(st.booleans())}
    low = 1e-3 if isinstance(loss, Gamma) else 0.0 if isinstance(loss, Poisson) else -5.0
    more |= {} if loss.classification else {"target_bounds": (low, 5.0)}

    def build(rows, labels):
        with np.errstate(over="ignore"):
            return make(rows, labels, **more)

    extra, other = (data.draw(hnp.arrays(np.float64, (1, d), elements=anything)) for _ in range(2))
    base = build(X, y)
    added = build(np.vstack([X, extra]), np.append(y, data.draw(label)))
    replaced = build(np.vstack([X, other]), np.append(y, data.draw(label)))
    w = data.draw(hnp.arrays(np.float64, base.dimension, elements=st.floats(-20, 20)))
    u = data.draw(hnp.arrays(np.float64, base.dimension, elements=st.floats(-2, 2)))
    clip = data.draw(st.sampled_from([None, 0.1, 0.9]))
    steps = np.array([0.0, 0.01, 0.5, 3.0])
    for query in (
        GradientAt(point=w, clip_norm=clip),
        LossesAlong(point=w, direction=u, steps=steps, clip_loss=clip),
        Count(),
    ):
        before, after, instead = (oracle.answer(query) for oracle in (base, added, replaced))
        norm = before.norm
        assert before.bound(ADD_REMOVE, norm) == after.bound(ADD_REMOVE, norm), "a bound does not depend on data"
        assert moved(after, before, norm) <= before.bound(ADD_REMOVE, norm)
        assert moved(after, instead, norm) <= before.bound(REPLACE_ONE, norm)


def test_bounds_are_the_smaller_of_clip_and_loss(make):
    X, y = np.eye(3), np.array([0, 1, 0])
    oracle = make(X, y, loss=Logistic(clip_derivative=0.5), row_limit=2.0)
    w, u = np.zeros(4), np.array([3.0, 0.0, 4.0, 0.0])

    def bound(query):
        box = oracle.answer(query)
        return box.bound(ADD_REMOVE, box.norm)

    assert bound(GradientAt(point=w)) == 1.0
    assert bound(GradientAt(point=w, clip_norm=0.3)) == 0.3
    assert bound(GradientAt(point=w, clip_norm=3.0)) == 1.0
    assert bound(LossesAlong(point=w, direction=u, steps=[0.0, 0.1])) == pytest.approx(0.5, rel=1e-3), (
        "Lipschitz x length"
    )
    assert bound(LossesAlong(point=w, direction=u, steps=[0.0, 0.1], clip_loss=0.2)) == pytest.approx(0.2, rel=1e-3)


def test_a_query_without_any_bound_is_refused(make):
    X, y = np.eye(3), np.array([0.0, 0.5, 1.0])
    unbounded = make(X, y, loss=Squared(), target_bounds=(0, 1))
    with pytest.raises(UnboundedSensitivity, match="Pass clip_norm"):
        unbounded.answer(GradientAt(point=np.zeros(4)))
    assert unbounded.answer(GradientAt(point=np.zeros(4), clip_norm=1.0)).add_remove == 1.0
    no_limit = make(X, np.array([0, 1, 1]), loss=Logistic(), row_limit=None)
    with pytest.raises(UnboundedSensitivity, match="clip_loss"):
        no_limit.answer(LossesAlong(point=np.zeros(4), direction=np.ones(4), steps=[0, 1.0]))


def test_answers_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40_000, 31)).astype(np.float32), rng.integers(0, 2, 40_000)
    w, u = rng.standard_normal((2, 32))
    queries = [
        GradientAt(point=w),
        LossesAlong(point=w, direction=u, steps=[0.0, 0.5, 1.0]),
    ]
    for make_oracle in (DenseOracle, lambda X, y, **s: SparseOracle(sparse.csr_matrix(X), y, **s)):
        answers = []
        for threads in (1, 2, 3, 8):
            oracle = make_oracle(X, y, loss=Logistic(), threads=threads)
            answers.append([oracle.answer(query)._value.tolist() for query in queries])
        assert all(answer == answers[0] for answer in answers)


def test_oracles_work_from_many_threads_and_after_a_fork(make):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((9_000, 60)), rng.integers(0, 2, 9_000)
    oracle, query = make(X, y, loss=Logistic()), GradientAt(point=np.ones(61))
    expected = oracle.answer(query)._value.tolist()
    found = []
    threads = [threading.Thread(target=lambda: found.append(oracle.answer(query)._value.tolist())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4
    child = os.fork()
    if child == 0:
        code = 9
        try:
            code = 7 if oracle.answer(query)._value.tolist() == expected else 8
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


# ------------------------------------------------- what one record must not change about the others


def test_a_row_that_is_not_one_hot_does_not_move_the_scores_of_those_that_are():
    """Weights whose sum depends on the order of addition, at the kink of the hinge: both ways of
    reading rows must agree.
    """
    w = np.array([0.129, 0.092, 0.226, 0.045, 0.215, 0.021, 0.141, 0.131])
    ones = sparse.csr_matrix(np.ones((1_000, 8)))
    mixed = sparse.vstack([ones, [[2.0, 0, 0, 0, 0, 0, 0, 0]]]).tocsr()
    settings = {"loss": Hinge(), "constant": False, "row_limit": 10.0}
    before = SparseOracle(ones, np.ones(1_000, dtype=int), **settings).answer(GradientAt(point=w))
    after = SparseOracle(mixed, np.ones(1_001, dtype=int), **settings).answer(GradientAt(point=w))
    assert moved(after, before, Norm.L2) <= before.bound(ADD_REMOVE, Norm.L2)


def test_a_missing_value_does_not_change_how_other_rows_are_read(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="the arrow extra is not installed")
    from pyarrow import parquet

    def answer(flags):
        columns = {"a": pyarrow.array(np.full(6_000, 0.003, np.float32)), "b": pyarrow.array(flags, pyarrow.int8())}
        parquet.write_table(pyarrow.table({**columns, "y": np.ones(6_000, np.int8)}), tmp_path / "data")
        oracle = ChunkedOracle(
            from_files(tmp_path / "data", features=["a", "b"], target="y"),
            features=2,
            loss=Hinge(),
            constant=False,
            row_limit=10.0,
        )
        return oracle.answer(GradientAt(point=[333.333330435885, 0.0]))

    whole, missing = answer([0] * 6_000), answer([0] * 5_999 + [None])
    assert moved(whole, missing, Norm.L2) <= whole.bound(REPLACE_ONE, Norm.L2)


def test_one_row_and_two_rows_by_column_are_read_the_same_way():
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(300):
        row = rng.standard_normal(20)
        w = rng.standard_normal(20)
        w /= row @ w  # a score of one, up to rounding: the kink of the hinge
        settings = {"loss": Hinge(), "constant": False, "row_limit": 100.0}
        one = DenseOracle(np.asfortranarray(row[None]), [1], **settings).answer(GradientAt(point=w, clip_norm=1.0))
        two = DenseOracle(np.asfortranarray(np.vstack([row, np.zeros(20)])), [1, 1], **settings)
        worst = max(worst, moved(two.answer(GradientAt(point=w, clip_norm=1.0)), one, Norm.L2))
    assert worst <= 1.0


@pytest.mark.parametrize(
    ("row", "target", "settings", "query"),
    [
        (
            [1e-23, 0.0],
            1e30,
            {"loss": Squared(), "target_bounds": (-1e30, 1e30)},
            GradientAt(point=[0.0, 0.0], clip_norm=1.0),
        ),
        ([1e-23, 0.0], 1, {"loss": Logistic(), "row_limit": 1e-30}, GradientAt(point=[0.0, 0.0])),
        ([1e-23, 0.0], 1, {"loss": Logistic()}, GradientAt(point=[0.0, 0.0], clip_norm=1e-30)),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_whose_squares_underflow_are_still_clipped(row, target, settings, query, order):
    table = np.asarray([row, row], dtype=np.float32, order=order)
    oracle = DenseOracle(table, [target] * 2, constant=False, **settings)
    box = oracle.answer(query)
    assert np.linalg.norm(box._value) <= 2 * box.bound(ADD_REMOVE, Norm.L2)


@pytest.mark.parametrize(("weight", "length"), [(1.0, 1e-12), (30.0, 1e-10), (1e6, 1e-6), (1e10, 1e-4), (1e16, 1.0)])
def test_losses_along_short_directions_and_at_far_points_stay_within_the_bound(weight, length):
    rng = np.random.default_rng(2)
    settings = {"loss": Logistic(), "constant": False}
    query = LossesAlong(point=[weight], direction=[length], steps=[0.0, 1.0])
    for _ in range(40):
        X = rng.uniform(0.999, 1.0, (600, 1))
        whole = DenseOracle(X, np.zeros(600, dtype=int), **settings).answer(query)
        part = DenseOracle(X[1:], np.zeros(599, dtype=int), **settings).answer(query)
        assert moved(whole, part, Norm.RANGE) <= whole.bound(ADD_REMOVE, Norm.RANGE)


def test_losses_of_a_regression_with_large_targets_stay_within_the_bound():
    rng = np.random.default_rng(2)
    settings = {"loss": Huber(threshold=1_000.0), "constant": False, "target_bounds": (0.0, 1e6)}
    query = LossesAlong(point=[0.0], direction=[1e-4], steps=[0.0, 1.0])
    for _ in range(40):
        X, y = rng.uniform(0.9, 1.0, (600, 1)), rng.uniform(0, 1e6, 600)
        whole = DenseOracle(X, y, **settings).answer(query)
        part = DenseOracle(X[1:], y[1:], **settings).answer(query)
        assert moved(whole, part, Norm.RANGE) <= whole.bound(ADD_REMOVE, Norm.RANGE)


def test_a_private_memory_map_keeps_what_was_changed_in_memory(tmp_path):
    np.save(tmp_path / "X.npy", np.ones((20_000, 4), dtype=np.float32))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="c")
    mapped[:] = 0.0  # the user took these rows out
    oracle = ChunkedOracle(
        from_arrays(mapped, np.zeros(20_000, dtype=int), rows=3_000), features=4, loss=Logistic(), constant=False
    )
    assert oracle.answer(GradientAt(point=np.zeros(4)))._value.tolist() == [0.0] * 4
    assert float(mapped.max()) == 0.0


def test_duplicates_that_scipy_does_not_know_of_are_added_up():
    matrix = sparse.csr_matrix(np.array([[1.0, 2.0, 3.0, 4.0]]))
    assert matrix.has_canonical_format
    matrix.indices[:] = 0
    oracle = SparseOracle(matrix, [1], loss=Logistic(), constant=False)
    assert np.linalg.norm(oracle.answer(GradientAt(point=np.zeros(4)))._value) <= 0.5
    outside = sparse.csr_matrix(np.array([[1.0, 2.0]]))
    outside.indices[1] = 7
    with pytest.raises(InvalidArgument, match="Rebuild the matrix"):
        SparseOracle(outside, [1], loss=Logistic())


def test_a_model_that_has_diverged_is_refused_whatever_the_rows_hold(make):
    oracle = make(np.eye(3), np.array([0, 1, 0]), loss=Logistic())
    with pytest.raises(InvalidArgument, match="has diverged"):
        oracle.answer(GradientAt(point=np.full(4, 1e101)))
    with pytest.raises(InvalidArgument, match="direction must have"):
        oracle.answer(LossesAlong(point=np.zeros(4), direction=np.full(4, 1e60), steps=[0.0, 1.0]))


def test_the_table_is_not_copied():
    X = np.zeros((100, 3), dtype=np.float32)
    oracle = DenseOracle(X, np.zeros(100, dtype=int), loss=Logistic())
    assert np.shares_memory(oracle._held[0]._table, X)
    by_column = np.asfortranarray(X)
    assert np.shares_memory(
        DenseOracle(by_column, np.zeros(100, dtype=int), loss=Logistic())._held[0]._table, by_column
    )
    thin = sparse.csr_matrix(np.eye(5) * 2)
    assert np.shares_memory(SparseOracle(thin, np.zeros(5, dtype=int), loss=Logistic())._held[0]._values, thin.data)


def test_a_table_changed_afterwards_is_still_clipped():
    """The bound is enforced where the sum is made, on what is there then."""
    X = np.full((10, 2), 0.1)
    oracle = DenseOracle(X, np.zeros(10, dtype=int), loss=Logistic(), constant=False)
    X *= 1e6
    assert np.linalg.norm(oracle.answer(GradientAt(point=np.zeros(2)))._value) <= 10 * 0.5


# ----------------------------------------------------------------------------------------- sampling


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["dense float64", "sparse", "chunked"])
def test_poisson_samples_have_the_right_size_and_membership(name):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1_000, 2)), rng.integers(0, 2, 1_000)
    oracle, noise = ORACLES[name](X, y, loss=Logistic()), NoiseSource(seed=2)
    sizes = np.array([float(oracle.answer(Count(), sample_prob=0.2, noise=noise)._value) for _ in range(400)])
    assert sizes.mean() == pytest.approx(200, abs=5 * np.sqrt(160 / 400))
    assert sizes.var() == pytest.approx(160, rel=0.35), "each record on its own, not a fixed size"
    box = oracle.answer(GradientAt(point=np.zeros(3)), sample_prob=0.2, noise=noise)
    assert box.sample_prob == 0.2


def test_every_row_is_sampled_with_the_same_probability():
    noise = NoiseSource(seed=1)
    hits = np.zeros(50)
    for _ in range(20_000):
        hits[poisson_rows(50, 0.1, noise)] += 1
    assert np.abs(hits / 20_000 - 0.1).max() < 5 * np.sqrt(0.09 / 20_000)
    pairs = np.array([np.isin([3, 4], poisson_rows(50, 0.3, noise)) for _ in range(5_000)])
    assert np.mean(pairs.all(axis=1)) == pytest.approx(0.09, abs=0.02)


def test_an_empty_sample_is_a_zero_box(make):
    X, y = np.eye(3), np.array([0, 1, 0])
    oracle = make(X, y, loss=Logistic())
    box = oracle.answer(GradientAt(point=np.ones(4)), sample_prob=1e-9, noise=NoiseSource(seed=1))
    assert box._value.tolist() == [0.0] * 4
    losses = LossesAlong(point=np.ones(4), direction=np.ones(4), steps=[0.0, 1.0])
    assert oracle.answer(losses, sample_prob=1e-9, noise=NoiseSource(seed=1))._value.tolist() == [0.0, 0.0]


def test_sampling_needs_secret_coins(make):
    oracle = make(np.eye(3), np.array([0, 1, 0]), loss=Logistic())
    with pytest.raises(InvalidArgument, match=r"noise=purse\.noise"):
        oracle.answer(Count(), sample_prob=0.5)


def test_empty_tables_are_a_mistake_and_empty_chunks_are_not():
    with pytest.raises(InvalidArgument, match="at least one row"):
        DenseOracle(np.zeros((0, 3)), [], loss=Logistic())
    with pytest.raises(InvalidArgument, match="at least one row"):
        SparseOracle(sparse.csr_matrix((0, 3)), [], loss=Logistic())
    empty = (np.zeros((0, 3)), np.zeros(0, dtype=int))
    for chunks in ([], [empty], [empty, empty]):
        oracle = ChunkedOracle(lambda chunks=chunks: iter(chunks), features=3, loss=Logistic())
        assert oracle.answer(GradientAt(point=np.ones(4)))._value.tolist() == [0.0] * 4
        assert float(oracle.answer(Count())._value) == 0.0


# ----------------------------------------------------------------------------------------- mistakes

GOOD_X, GOOD_Y = np.eye(3), np.array([0, 1, 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros(3)}, "X must be a table"),
        ({"X": [["a", "b"]] * 3}, "X must be a table of numbers"),
        ({"X": np.zeros((3, 0))}, "at least one column"),
        ({"X": sparse.eye(3).tocsr()}, "Use SparseOracle"),
        ({"y": [0, 1]}, "one entry for each of the 3 rows"),
        ({"y": [0, 1, 2]}, "declared classes"),
        ({"y": ["0", "1", "0"]}, "declared classes"),
        ({"y": [[0], [1], [0]]}, "one entry for each"),
        ({"classes": (0,)}, "classes must be two"),
        ({"classes": (1, 1)}, "classes must be two"),
        ({"loss": "logistic"}, "loss must be"),
        ({"loss": Squared()}, "target_bounds must be"),
        ({"loss": Squared(), "target_bounds": (1, 0)}, "target_bounds must be"),
        ({"row_limit": -1.0}, "row_limit must be"),
        ({"row_limit": math.nan}, "row_limit must be"),
        ({"constant": -1.0}, "constant must be"),
        ({"constant": "yes"}, "constant must be"),
        ({"threads": 0}, "threads must be"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_mistakes_get_a_message_that_names_the_argument(change, message):
    arguments = {"X": GOOD_X, "y": GOOD_Y, "loss": Logistic()} | change
    with pytest.raises(InvalidArgument, match=message):
        DenseOracle(arguments.pop("X"), arguments.pop("y"), **arguments)


def test_mistakes_in_queries_and_chunks():
    oracle = DenseOracle(GOOD_X, GOOD_Y, loss=Logistic())
    with pytest.raises(InvalidArgument, match=r"point must have 4 entries.*and the constant"):
        oracle.answer(GradientAt(point=np.zeros(3)))
    with pytest.raises(InvalidArgument, match="query must be"):
        oracle.answer("gradient please")
    with pytest.raises(InvalidArgument, match="clip_norm must be"):
        GradientAt(point=np.zeros(4), clip_norm=-1.0)
    regression = DenseOracle(GOOD_X, GOOD_Y, loss=Squared(), target_bounds=(0, 1))
    with pytest.raises(InvalidArgument, match="asks for classes"):
        regression.answer(ClassCounts())
    with pytest.raises(InvalidArgument, match="chunks must be a function"):
        ChunkedOracle([(GOOD_X, GOOD_Y)], features=3, loss=Logistic())
    pairs = iter([(GOOD_X, GOOD_Y)])
    used_up = ChunkedOracle(lambda: pairs, features=3, loss=Logistic())
    assert float(used_up.answer(Count())._value) == 3.0
    with pytest.raises(InvalidArgument, match="same iterator twice"):
        used_up.answer(Count())
    uneven = ChunkedOracle(lambda: [(GOOD_X, GOOD_Y), (np.zeros((1, 2)), [0])], features=3, loss=Logistic())
    with pytest.raises(InvalidArgument, match="3 columns in every chunk"):
        uneven.answer(Count())
    with pytest.raises(InvalidArgument, match="scipy sparse"):
        SparseOracle(GOOD_X, GOOD_Y, loss=Logistic())


def test_labels_of_any_kind():
    text = DenseOracle(GOOD_X, ["no", "yes", "no"], loss=Logistic(), classes=("no", "yes"))
    assert text.answer(ClassCounts())._value.tolist() == [2.0, 1.0]
    flags = DenseOracle(GOOD_X, [False, True, False], loss=Logistic(), classes=(False, True))
    assert flags.answer(ClassCounts())._value.tolist() == [2.0, 1.0]


# ------------------------------------------------------------------------------------------ on disk


def test_memory_mapped_arrays(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((5_000, 4)).astype(np.float32), rng.integers(0, 2, 5_000)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    oracle = ChunkedOracle(from_arrays(mapped, y, rows=700), features=4, loss=Logistic())
    query = GradientAt(point=np.ones(5))
    assert oracle.answer(query)._value == pytest.approx(
        DenseOracle(X, y, loss=Logistic()).answer(query)._value, rel=1e-9
    )
    with pytest.raises(InvalidArgument, match="as many rows"):
        from_arrays(mapped, y[:3])


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_parquet_and_arrow_files(tmp_path, format):
    pyarrow = pytest.importorskip("pyarrow", reason="the arrow extra is not installed")
    from pyarrow import feather, parquet

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3_000, 2)), rng.integers(0, 2, 3_000)
    table = pyarrow.table({"a": X[:, 0], "b": X[:, 1], "label": y})
    write = {"parquet": parquet.write_table, "arrow": feather.write_feather}[format]
    write(table, str(tmp_path / "data"))
    chunks = from_files(tmp_path / "data", features=["a", "b"], target="label", format=format, rows=512)
    oracle = ChunkedOracle(chunks, features=2, loss=Logistic())
    query = GradientAt(point=np.ones(3))
    assert oracle.answer(query)._value == pytest.approx(
        DenseOracle(X, y, loss=Logistic()).answer(query)._value, rel=1e-9
    )
    with pytest.raises(InvalidArgument, match=r"got \['c'\]"):
        from_files(tmp_path / "data", features=["a", "c"], target="label", format=format)
