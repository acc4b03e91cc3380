"""Sums for secure noise: whole numbers, to which each record adds its own, whatever the order, the
threads and the neighbours.
"""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numba import njit
from scipy import sparse

from privypurse import InvalidArgument, Neighbouring, NoiseSource, Norm
from privypurse.core.queries import GradientAt
from privypurse.losses import Hinge, Huber, HuberHinge, Logistic, Squared
from privypurse.losses._linear import Gamma, LogLink, OneVsRest, Poisson, Softmax
from privypurse.oracles import _exact_kernels, _exact_softmax, _kernels
from privypurse.oracles._encoding import ROUNDING_MARGIN
from privypurse.oracles._linear import ChunkedOracle, DenseOracle, SparseOracle
from privypurse.oracles._partitions import GradientWork, lattice_unit
from privypurse.oracles._sampling import poisson_rows
from privypurse.oracles._softmax import SoftmaxOracle
from tests.each import each

SECURE = NoiseSource(secure=True)


def single(X):
    """The table in float32, where 1e300 is infinite."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(X).astype(np.float32)


def by_column(X):
    """Store by column, also a table of one row, of which numpy would say that it is so already."""
    table = np.empty(X.shape, X.dtype, order="F")
    table[:] = X
    return table


ORACLES = {
    "dense float32": lambda X, y, **s: DenseOracle(single(X), y, **s),
    "dense float64": DenseOracle,
    "dense float32 by column": lambda X, y, **s: DenseOracle(by_column(single(X)), y, **s),
    "dense float64 by column": lambda X, y, **s: DenseOracle(by_column(X), y, **s),
    "sparse": lambda X, y, **s: SparseOracle(sparse.csr_matrix(X), y, **s),
    "sparse float32": lambda X, y, **s: SparseOracle(sparse.csr_matrix(single(X)), y, **s),
    "one-hot": lambda X, y, **s: SparseOracle(sparse.csr_matrix((X > 0.5).astype(np.float64)), y, **s),
}
IN_SINGLE = (ORACLES["dense float32"], ORACLES["dense float32 by column"])
LOSSES = {
    "logistic": Logistic(),
    "logistic clipped": Logistic(clip_derivative=0.5),
    "hinge": Hinge(),
    "huber hinge": HuberHinge(clip_derivative=0.4, width=0.3),
    "squared": Squared(clip_derivative=0.7),
    "huber": Huber(threshold=0.5),
    "poisson": Poisson(clip_derivative=0.7),
    "gamma": Gamma(clip_derivative=1.5),
}


def table(rng, n, d):
    X = rng.standard_normal((n, d)) * rng.uniform(0.05, 2, size=(n, 1))
    X[rng.random((n, d)) < 0.3] = 0.0
    X[3] = 0.0  # an empty row
    X[4, 0] = np.nan
    X[n // 2, 1] = np.inf
    X[6, 2] = -np.inf
    X[7] = 1e300  # its square overflows in any precision
    X[8] = 1e17  # in float32 its square does not
    X[9] = 1e-300
    X[10] = 1e-40  # not a normal number in float32
    return X


def problem(rng, loss, n):
    y = rng.integers(0, 2, n) if loss.classification else rng.uniform(-2, 2, n)
    if not loss.classification:
        y[11] = np.nan
    low = 0.1 if isinstance(loss, LogLink) else -1.0
    return y, ({} if loss.classification else {"target_bounds": (low, 1.0)})


def whole(oracle, query, *, sample_prob=1.0, noise=SECURE):
    """The answer in lattice units, which must be whole numbers, with the bound in units."""
    box = oracle.answer(query, sample_prob=sample_prob, noise=noise)
    bound = box.bound(Neighbouring.ADD_REMOVE, Norm.L2)
    unit = lattice_unit(bound, query.point.size)
    assert unit == lattice_unit(bound, query.point.size + 1)
    steps = box._value / unit
    assert np.array_equal(steps, np.rint(steps))
    assert np.array_equal(steps * unit, box._value)
    return [int(step) for step in steps], bound / unit


def added(rows):
    """Sums of Python's whole numbers."""
    return [sum(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("make", ORACLES.values(), ids=ORACLES.keys())
@each(("n", "d"), [(290, 29), (290, 5)])
def test_sums_are_those_of_the_records_alone(make, loss, n, d):
    rng = np.random.default_rng(5)
    X = table(rng, n, d)
    y, more = problem(rng, loss, n)
    w = 2 * rng.standard_normal(d + 1)
    selections = [np.arange(n), rng.permutation(n), np.arange(n)[::-1], np.arange(61), np.arange(3, n, 2), np.arange(1)]
    for query in (GradientAt(point=w), GradientAt(point=w, clip_norm=0.1)):
        alone = [whole(make(X[i : i + 1], y[i : i + 1], loss=loss, **more), query) for i in range(n)]
        steps = alone[0][1]
        assert 2**22 <= steps < 2**23
        # The bound holds for the whole numbers, without any allowance; and it is nearly reached.
        lengths = [sum(number**2 for number in record) for record, _ in alone]
        assert max(lengths) <= steps**2
        assert max(lengths) > (0.2 * steps) ** 2
        # Rows that are not finite contribute nothing.
        if make is not ORACLES["one-hot"]:
            assert not any(alone[i][0][j] for i in (4, n // 2, 6, 7) for j in range(d + 1))
        for rows in selections:
            oracle = make(X[rows], y[rows], loss=loss, **more)
            assert whole(oracle, query)[0] == added([alone[i][0] for i in rows])


@pytest.mark.parametrize("make", ORACLES.values(), ids=ORACLES.keys())
@each("row_limit", [None, 0.3, 5.0])
@each("constant", [False, True, 0.25])
def test_removing_a_record_takes_away_its_own_numbers(make, constant, row_limit):
    rng = np.random.default_rng(8)
    n, d = 60, 20
    X = table(rng, n, d)
    y = rng.uniform(-2, 2, n)
    settings = {"loss": Squared(), "constant": constant, "row_limit": row_limit, "target_bounds": (-1.0, 1.0)}
    query = GradientAt(point=rng.standard_normal(d + bool(constant)), clip_norm=0.37)
    total, steps = whole(make(X, y, **settings), query)
    for i in range(n):
        rest, _ = whole(make(np.delete(X, i, axis=0), np.delete(y, i), **settings), query)
        alone, _ = whole(make(X[i : i + 1], y[i : i + 1], **settings), query)
        assert [a - b for a, b in zip(total, rest, strict=True)] == alone
        assert sum(number**2 for number in alone) <= steps**2


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("make", ORACLES.values(), ids=ORACLES.keys())
@each("d", [29, 5])
def test_the_last_bits_of_a_record_are_its_own_too(make, loss, d):
    """On a lattice so fine that every bit of a product counts, where chance cannot hide that a
    neighbour shows.
    """
    rng = np.random.default_rng(15)
    n = 290
    X = table(rng, n, d)
    y, more = problem(rng, loss, n)
    w = 2 * rng.standard_normal(d + 1)
    bits = 30 if make in IN_SINGLE else 50

    def fine(rows, clip_norm):
        part = make(X[rows], y[rows], loss=loss, **more)._held[0]
        work = GradientWork(loss, w, clip_norm, loss.clip_derivative, min(clip_norm, loss.lipschitz) * 2.0**-bits)
        # In float32 the sums of blocks are kept in 32 bits, and these are too many for them: equal
        # but for multiples of 2^32.
        return part.sum(work, 1) % 2**32

    for clip_norm in (math.inf, 0.1):
        alone = np.array([fine(slice(i, i + 1), clip_norm) for i in range(n)])
        for rows in (np.arange(n), rng.permutation(n), np.arange(7), np.arange(5, 22)):
            assert np.array_equal(fine(rows, clip_norm), alone[rows].sum(axis=0) % 2**32)


hostile = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e300, -1e300, 1e38, 3e-39, 5e-324, 1e-160]),
    st.floats(-3, 3, width=32),
    st.floats(allow_nan=True, allow_infinity=True),
)


@settings(max_examples=150, deadline=None)
@given(
    X=hnp.arrays(np.float64, st.tuples(st.integers(1, 9), st.just(13)), elements=hostile),
    w=hnp.arrays(np.float64, 14, elements=st.floats(-1e6, 1e6)),
    clip_norm=st.sampled_from([None, 1e-90, 0.2, 1e90]),
    row_limit=st.sampled_from([1.0, 1e-60, 1e60]),
    make=st.sampled_from(list(ORACLES.values())[:6]),
)
@example(X=np.full((2, 13), 1e-19), w=np.zeros(14), clip_norm=1e90, row_limit=1e60, make=ORACLES["dense float32"])
def test_hostile_records_add_their_own_numbers(X, w, clip_norm, row_limit, make):
    y = np.arange(len(X)) % 3 - 1.0
    more = {"loss": Huber(threshold=0.5), "row_limit": row_limit, "target_bounds": (-1.0, 1.0)}
    query = GradientAt(point=w, clip_norm=clip_norm)
    alone = [whole(make(X[i : i + 1], y[i : i + 1], **more), query) for i in range(len(X))]
    assert all(sum(number**2 for number in record) <= steps**2 for record, steps in alone)
    assert whole(make(X, y, **more), query)[0] == added([record for record, _ in alone])
    assert whole(make(X[::-1], y[::-1], **more), query)[0] == added([record for record, _ in alone])


def large(rng, n=40_000, d=21):
    X = rng.standard_normal((n, d)) * rng.uniform(0.05, 0.6, size=(n, 1))
    X[rng.random((n, d)) < 0.5] = 0.0
    X[17, 3] = np.nan
    return X, rng.integers(0, 2, n)


@pytest.mark.parametrize("make", ORACLES.values(), ids=ORACLES.keys())
def test_threads_order_and_chunks_do_not_show(make):
    rng = np.random.default_rng(2)
    X, y = large(rng)
    n, d = X.shape
    query = GradientAt(point=3 * rng.standard_normal(d + 1))
    loss = Logistic(clip_derivative=0.5)
    expected = whole(make(X, y, loss=loss, threads=1), query)[0]
    for threads in (2, 5):
        assert whole(make(X, y, loss=loss, threads=threads), query)[0] == expected
    order = rng.permutation(n)
    assert whole(make(X[order], y[order], loss=loss, threads=2), query)[0] == expected
    pieces = np.sort(rng.choice(np.arange(1, n), 6, replace=False))
    parts = zip(np.split(order, pieces), strict=True)
    assert added([whole(make(X[rows], y[rows], loss=loss), query)[0] for (rows,) in parts]) == expected


@pytest.mark.parametrize("kind", ["float32", "float64", "sparse"])
def test_chunks_add_up_to_the_table(kind):
    rng = np.random.default_rng(4)
    X, y = large(rng, 5_000)
    loss, query = Logistic(), GradientAt(point=rng.standard_normal(22), clip_norm=0.3)
    stored = sparse.csr_matrix(X) if kind == "sparse" else X.astype(kind)
    oracle = SparseOracle if kind == "sparse" else DenseOracle
    expected = whole(oracle(stored, y, loss=loss), query)[0]
    for cuts in ([1], [700, 701, 4_000], list(range(97, 5_000, 97))):
        edges = [0, *cuts, 5_000]
        pairs = [(stored[a:b], y[a:b]) for a, b in itertools.pairwise(edges)]
        dtype = None if kind == "sparse" else kind
        chunked = ChunkedOracle(lambda pairs=pairs: iter(pairs), features=21, dtype=dtype, loss=loss)
        assert whole(chunked, query)[0] == expected


@pytest.mark.filterwarnings("ignore")  # the cluster's sockets are not ours
@pytest.mark.xdist_group("dask")
def test_partitions_on_a_cluster_add_up_to_the_table():
    distributed = pytest.importorskip("distributed", reason="the dask extra is not installed")
    da = pytest.importorskip("dask.array", reason="the dask extra is not installed")
    dask_backend = pytest.importorskip("privypurse.oracles._dask_backend")
    rng = np.random.default_rng(14)
    X, y = large(rng, 3_000)
    loss, query = Logistic(), GradientAt(point=rng.standard_normal(22))
    expected = whole(DenseOracle(X, y, loss=loss), query)[0]
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        for rows in (3_000, 700, 119):
            parts = (da.from_array(array, chunks=(rows, *array.shape[1:])) for array in (X, y))
            oracle = dask_backend.DaskOracle(*parts, client=client, loss=loss)
            assert whole(oracle, query)[0] == expected


@pytest.mark.parametrize("make", ORACLES.values(), ids=ORACLES.keys())
def test_a_sample_adds_up_the_numbers_of_its_records(make):
    rng = np.random.default_rng(3)
    X, y = large(rng, 700)
    loss, query = Logistic(), GradientAt(point=rng.standard_normal(22))
    oracle = make(X, y, loss=loss)
    for seed in range(4):
        sampled, _ = whole(oracle, query, sample_prob=0.1, noise=NoiseSource(seed=seed, secure=True))
        rows = poisson_rows(700, 0.1, NoiseSource(seed=seed, secure=True))
        # A sample of a table by column is a table by row.
        row = {"dense float32 by column": "dense float32", "dense float64 by column": "dense float64"}
        name = next(name for name, maker in ORACLES.items() if maker is make)
        chosen = ORACLES[row.get(name, name)]
        alone = [whole(chosen(X[i : i + 1], y[i : i + 1], loss=loss), query)[0] for i in rows]
        assert sampled == added(alone)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("make", ORACLES.values(), ids=ORACLES.keys())
def test_close_to_the_plain_sum(make, loss):
    rng = np.random.default_rng(6)
    n, d = 3_000, 25
    X = table(rng, n, d)
    y, more = problem(rng, loss, n)
    oracle = make(X, y, loss=loss, **more)
    for query in (GradientAt(point=rng.standard_normal(d + 1)), GradientAt(point=np.zeros(d + 1), clip_norm=0.2)):
        box = oracle.answer(query)
        unit = lattice_unit(box.bound(Neighbouring.ADD_REMOVE, Norm.L2), d + 1)
        difference = np.linalg.norm(oracle.answer(query, noise=SECURE)._value - box._value)
        # Scores of float32 tables are summed in another order, which moves them by about their last
        # digit.
        scores = 2.0**-21 * float(np.linalg.norm(query.point)) * n if make in IN_SINGLE else 0.0
        assert 0 < difference < n * math.sqrt(d + 1) * unit + scores


def test_plain_noise_changes_nothing():
    rng = np.random.default_rng(9)
    X, y = large(rng, 2_000)
    query = GradientAt(point=rng.standard_normal(22))
    for make in ORACLES.values():
        oracle = make(X, y, loss=Logistic())
        plain = oracle.answer(query)._value
        assert np.array_equal(oracle.answer(query, noise=NoiseSource(seed=1))._value, plain)
        assert not np.array_equal(oracle.answer(query, noise=SECURE)._value, plain)


@pytest.mark.parametrize("make", ORACLES.values(), ids=ORACLES.keys())
def test_the_plain_sum_is_not_exact(make):
    """What these tests ask for is not met by the plain sums: the order shows, and so does a record
    that is not there.
    """
    rng = np.random.default_rng(10)
    X, y = large(rng, 3_000)
    query = GradientAt(point=rng.standard_normal(22))

    def plain(rows):
        return make(X[rows], y[rows], loss=Logistic()).answer(query)._value

    everything = np.arange(3_000)
    assert not np.array_equal(plain(everything), plain(everything[::-1]))
    alone = plain(everything[20:21])
    assert not np.array_equal(plain(everything) - plain(np.delete(everything, 20)), alone)


KERNELS = {
    "dense": _exact_kernels.dense_gradient,
    "sparse": _exact_kernels.sparse_gradient,
    "softmax rows": _exact_softmax._whole_rows,
    "softmax slopes": _exact_softmax._whole_slopes,
}
LICENCE = re.compile(
    r"= f(?:add|sub|mul|div|neg|cmp)[a-z ]*\b(?:fast|reassoc|contract|arcp|nsz|nnan|ninf|afn)\b|fma|fmuladd"
)


def compiled(kernel, arguments):
    """The intermediate code of a kernel for the types of these arguments, compiled here and not
    read from a file.
    """
    fresh = njit(nogil=True, error_model="numpy")(kernel.py_func)
    fresh.compile(tuple(map(fresh.typeof_pyval, arguments)))
    return fresh.inspect_llvm(fresh.signatures[0]), fresh.inspect_asm(fresh.signatures[0])


def dense_arguments(dtype):
    X = np.zeros((3, 20), dtype)
    X.flags.writeable = False
    start = ((X, X[:, 0].copy()), np.zeros(21, dtype), (1.0,) * 4, (0, 1.0, 1.0, 1.0, 1.0))
    whole_type = np.int32 if dtype == np.float32 else np.int64
    return start, ((1.0, 1.0, np.zeros(20, whole_type)), False, (1, 0, 3), np.zeros((3, 21), np.int64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_compiled_dense_sums_have_no_licence_to_reorder(dtype):
    start, end = dense_arguments(dtype)
    code, machine = compiled(_exact_kernels.dense_gradient, (*start, *end))
    assert "fmul" in code
    assert not LICENCE.findall(code)
    assert "fmadd" not in machine
    # The plain kernel is what the pattern looks for.
    plain, _ = compiled(_kernels.dense_gradient, (*start, 1.0, False, (1, 0, 3), np.zeros((3, 21))))
    assert LICENCE.search(plain)


def test_other_compiled_sums_have_no_licence_to_reorder():
    ones, floats = np.zeros(5), np.zeros((3, 21))
    rows = (ones, ones.astype(np.uint32), ones.astype(np.uint32), False)
    ends = ((1.0,) * 4, (0, 1.0, 1.0, 1.0, 1.0), (1.0, 1.0), (1, 0, 3), floats.astype(np.int64))
    arguments = {
        "sparse": ((rows, ones), ones, *ends),
        "softmax rows": (floats, 1.0, 1.0, 1.0, floats),
        "softmax slopes": (False, 1.0, 1.0, 1.0, floats, ones.astype(np.intp), (1.0,) * 3, floats),
    }
    for name, given_ in arguments.items():
        code, machine = compiled(KERNELS[name], given_)
        assert "fmul" in code
        assert not LICENCE.findall(code), name
        assert "fmadd" not in machine


def test_strict_functions_are_not_taken_from_the_fast_ones_files():
    """Numba's files tell functions apart by name and line, not by flags: these must not be kept
    there.
    """
    for function in (_exact_kernels._slopes, _exact_kernels._products_by_column, _exact_kernels._finish_scores):
        assert function.targetoptions.get("fastmath", False) in (False, None)
        assert not function._cache.cache_path


@given(bound=st.floats(1e-100, 1e100), dimension=st.integers(1, 10**9))
def test_the_lattice_is_fine_enough(bound, dimension):
    unit = lattice_unit(bound, dimension)
    assert math.frexp(unit)[0] == 0.5
    assert bound / unit >= 2**22
    assert math.sqrt(dimension) / 2 * unit <= ROUNDING_MARGIN / 2 * bound
    if dimension < 4_000_000:
        assert bound / unit < 2**23


SOFTMAX = {
    "softmax": Softmax(classes=5),
    "softmax clipped": Softmax(classes=5, clip_derivative=0.6),
    "one against the rest": OneVsRest(classes=5, width=0.3),
    "one against the rest clipped": OneVsRest(classes=5, clip_derivative=0.5),
}
TABLES = {
    "float32": single,
    "float64": lambda X: X,
    "by column": by_column,
    "sparse": sparse.csr_matrix,
}


def softmax_records(X, y, w, loss, bound, row_limit, constant):
    """Each record's whole numbers in fine steps, through the compiled code, by itself."""
    columns = X.shape[1] + bool(constant)
    steps = _exact_softmax.Steps.of(loss, bound, row_limit, columns)
    weights = _exact_softmax.whole_weights(w.reshape(columns, loss.classes))
    records = []
    for i in range(X.shape[0]):
        row = X[i : i + 1].toarray() if sparse.issparse(X) else X[i : i + 1]
        block = _exact_softmax.block_gradient(loss, row, y[i : i + 1], weights, constant, steps)
        records.append([int(number) for number in block.ravel()])
    return records, steps


@pytest.mark.parametrize("kind", TABLES.values(), ids=TABLES.keys())
@pytest.mark.parametrize("loss", SOFTMAX.values(), ids=SOFTMAX.keys())
@each("clip_norm", [None, 0.01, 0.5])
@each("constant", [0.0, 1.0, 0.3])
def test_softmax_sums_are_those_of_the_records_alone(loss, kind, constant, clip_norm):
    rng = np.random.default_rng(7)
    n, d, row_limit = 150, 11, 0.8
    X = kind(table(rng, n, d))
    y = rng.integers(0, 5, n)
    w = 3 * rng.standard_normal((d + bool(constant)) * 5)
    query = GradientAt(point=w, clip_norm=clip_norm)
    oracle = SoftmaxOracle(X, y, loss=loss, classes=range(5), row_limit=row_limit, constant=constant or False)
    bound = oracle.answer(query).bound(Neighbouring.ADD_REMOVE, Norm.L2)
    records, steps = softmax_records(X, y, w, loss, bound, row_limit, constant)
    fine = steps.row * steps.slope
    lengths = [fine * math.sqrt(sum(number**2 for number in record)) for record in records]
    # What is left of the margin covers the one rounding of the sum.
    assert max(lengths) <= bound * (1 - ROUNDING_MARGIN / 2)
    assert max(lengths) > 0.5 * bound
    assert not any(any(records[i]) for i in (4, n // 2, 6))
    assert math.sqrt(w.size) * steps.unit <= ROUNDING_MARGIN / 2 * bound
    ratio = round(steps.unit / fine)
    for rows in (np.arange(n), rng.permutation(n), np.arange(5, 90)):
        part = SoftmaxOracle(
            X[rows], y[rows], loss=loss, classes=range(5), row_limit=row_limit, constant=constant or False
        )
        answer = part.answer(query, noise=SECURE)._value / steps.unit
        exact = added([records[i] for i in rows])
        assert [int(number) for number in answer] == [(2 * number + ratio) // (2 * ratio) for number in exact]


@pytest.mark.parametrize("loss", SOFTMAX.values(), ids=SOFTMAX.keys())
def test_the_last_bits_of_a_softmax_record_are_its_own_too(loss):
    rng = np.random.default_rng(13)
    n, d = 67, 43
    X, y = table(rng, n, d), rng.integers(0, 5, n)
    scores = np.rint(2**40 * rng.standard_normal((n, 5)))

    def bits(rows):
        X_part, steps = X[rows], np.empty((X[rows].shape[0], d + 1))
        _exact_softmax._whole_rows(X_part, 1.0, 1.0, 2.0**50, steps)
        slopes = scores[rows].copy()
        hinge, width = isinstance(loss, OneVsRest), getattr(loss, "width", 1.0)
        scales = (2.0**-39, 2.0**-50, 2.0**50)
        _exact_softmax._whole_slopes(hinge, width, loss.clip_derivative, 0.4, steps, y[rows], scales, slopes)
        return np.hstack([steps, slopes])

    alone = np.vstack([bits(slice(i, i + 1)) for i in range(n)])
    for rows in (np.arange(n), rng.permutation(n), np.arange(3, 60)):
        assert np.array_equal(bits(rows), alone[rows])


@pytest.mark.parametrize("loss", SOFTMAX.values(), ids=SOFTMAX.keys())
def test_softmax_blocks_and_order_do_not_show(loss):
    rng = np.random.default_rng(11)
    n, d = 5_000, 30
    X = rng.standard_normal((n, d)) * rng.uniform(0.05, 0.6, size=(n, 1))
    y, w = rng.integers(0, 5, n), rng.standard_normal(155)
    X[99, 3] = np.nan

    def answer(rows, noise=SECURE):
        oracle = SoftmaxOracle(X[rows], y[rows], loss=loss, classes=range(5))
        return oracle.answer(GradientAt(point=w), noise=noise)._value

    everything = np.arange(n)
    exact, plain = answer(everything), answer(everything, NoiseSource(seed=1))
    assert np.array_equal(exact, answer(rng.permutation(n)))
    assert np.array_equal(exact, answer(everything[::-1]))
    # The plain sum shows the order; the exact one is near it: a third of a step for each record, at
    # the most.
    assert not np.array_equal(plain, answer(everything[::-1], NoiseSource(seed=1)))
    unit = _exact_softmax.Steps.of(loss, loss.lipschitz, 1.0, 31).unit
    assert 0 < np.linalg.norm(exact - plain) < n * math.sqrt(w.size) * unit / 3


@settings(max_examples=100, deadline=None)
@given(
    X=hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.just(9)), elements=hostile),
    w=hnp.arrays(np.float64, 30, elements=st.floats(-1e9, 1e9)),
    loss=st.sampled_from([Softmax(classes=3), OneVsRest(classes=3)]),
    clip_norm=st.sampled_from([None, 1e-30, 0.2]),
    row_limit=st.sampled_from([1.0, 1e-60, 1e60]),
)
def test_hostile_records_of_several_classes(X, w, loss, clip_norm, row_limit):
    y = np.arange(len(X)) % 3
    oracle = SoftmaxOracle(X, y, loss=loss, classes=range(3), row_limit=row_limit)
    query = GradientAt(point=w, clip_norm=clip_norm)
    box = oracle.answer(query, noise=SECURE)
    bound = box.bound(Neighbouring.ADD_REMOVE, Norm.L2)
    records, steps = softmax_records(X, y, w, loss, bound, row_limit, 1.0)
    fine, ratio = steps.row * steps.slope, round(steps.unit / (steps.row * steps.slope))
    assert all(math.sqrt(sum(number**2 for number in record)) * fine <= bound for record in records)
    expected = [(2 * number + ratio) // (2 * ratio) for number in added(records)]
    assert [int(number) for number in box._value / steps.unit] == expected


def test_exact_totals_hold_any_number_of_blocks():
    rng = np.random.default_rng(1)
    blocks = rng.integers(-(2**52), 2**52, size=(200, 7))
    total = _exact_softmax.ExactTotal((7,))
    for block in blocks:
        total.add(block.astype(np.float64))
    exact = added([[int(number) for number in block] for block in blocks])
    for bits in (0, 1, 19):
        assert [int(n) for n in total.rounded(bits)] == [(2 * n + (1 << bits)) // (2 << bits) for n in exact]


def test_a_loss_that_is_not_compiled_is_refused():
    class Other(Softmax):
        pass

    oracle = SoftmaxOracle(np.eye(3), [0, 1, 2], loss=Other(classes=3), classes=range(3))
    with pytest.raises(InvalidArgument, match="Softmax or OneVsRest"):
        oracle.answer(GradientAt(point=np.zeros(12)), noise=SECURE)


@pytest.mark.parametrize("make", ["float32", "float64"])
def test_several_records_alike_add_up_without_limit_of_the_block(make):
    """A thousand records at the bound in one coordinate: a block's sum just fits in 32 bits, and
    that of all does not.
    """
    X = np.ones((1_000, 20)).astype(make) * np.eye(20)[0].astype(make)
    loss, query = Hinge(clip_derivative=0.99999), GradientAt(point=np.zeros(20))
    oracle = DenseOracle(X, np.ones(1_000, int), loss=loss, constant=False)
    alone = DenseOracle(X[:1], [1], loss=loss, constant=False, classes=(0, 1))
    total, steps = whole(oracle, query)
    assert total == [1_000 * number for number in whole(alone, query)[0]]
    assert abs(total[0]) > 2**32
    assert 2**31 - 2**21 < 256 * abs(total[0]) / 1_000 < 2**31
    assert abs(total[0]) == pytest.approx(1_000 * steps * (1 - ROUNDING_MARGIN), rel=1e-5)
