"""A table that is changed after its oracle was made: bounds hold, and compiled sums stay within
their memory.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from privypurse import InvalidArgument, NoiseSource
from privypurse.core._checks import check_positions
from privypurse.core.queries import GradientAt, LossesAlong
from privypurse.estimators import BoundedScaler, PrivateLogisticRegression, PrivateSearchCV
from privypurse.losses import Logistic
from privypurse.losses._linear import Softmax
from privypurse.oracles._encoding import check_sparse
from privypurse.oracles._linear import ChunkedOracle, DenseOracle, SparseOracle
from privypurse.oracles._rows import Rows
from privypurse.oracles._softmax import SoftmaxOracle
from privypurse.oracles.chunks import from_arrays
from privypurse.training import linear_scores

ROWS, COLUMNS, CLASSES = 6, 5, 3
LABELS = np.arange(ROWS) % 2


def a_matrix(index=np.int32):
    dense = np.where(np.random.default_rng(0).random((ROWS, COLUMNS)) < 0.6, 0.9, 0.0)
    matrix = sparse.csr_matrix(dense)
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    return matrix


def linear(matrix, noise):
    oracle = SparseOracle(matrix, LABELS, loss=Logistic(clip_derivative=0.5), constant=False)
    point = np.linspace(-1, 1, COLUMNS)
    along = LossesAlong(point=point, direction=np.ones(COLUMNS), steps=[0.0, 0.5])
    return lambda: [oracle.answer(query, noise=noise)._value for query in (GradientAt(point=point), along)]


def sampled(matrix, noise):
    oracle = SparseOracle(matrix, LABELS, loss=Logistic(clip_derivative=0.5), constant=False)
    query = GradientAt(point=np.zeros(COLUMNS))
    return lambda: [oracle.answer(query, sample_prob=0.7, noise=NoiseSource(3, secure=noise.secure))._value]


def softmax(matrix, noise):
    oracle = SoftmaxOracle(matrix, np.arange(ROWS) % CLASSES, loss=Softmax(CLASSES), classes=(0, 1, 2), constant=False)
    return lambda: [oracle.answer(GradientAt(point=np.zeros(COLUMNS * CLASSES)), noise=noise)._value]


def rows(matrix, noise):
    held = Rows(matrix)
    return lambda: [held.total(clip_norm=1.0)._value, held.magnitudes().of_table()._value]


ASKERS = {"linear": linear, "sampled": sampled, "softmax": softmax, "rows": rows}
POSITIONS = st.integers(-(2**31), 2**31 - 1) | st.integers(-2, COLUMNS + 1)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
@pytest.mark.parametrize("ask", ASKERS.values(), ids=ASKERS)
@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["indices", "indptr"]),
    place=st.integers(0, 100),
    position=POSITIONS,
    all_of_them=st.booleans(),
)
def test_positions_changed_after_the_oracle_was_made_change_no_answer(
    ask, secure, index, name, place, position, all_of_them
):
    matrix = a_matrix(index)
    answer = ask(matrix, NoiseSource(1, secure=secure))
    before = answer()
    array = getattr(matrix, name)
    array[slice(None) if all_of_them else place % array.size] = position
    for one, other in zip(before, answer(), strict=True):
        assert np.array_equal(one, other)


POSITIONS_OF = {form: ["indices", "indptr"] for form in ("csr", "csc", "bsr")} | {"coo": ["row", "col"]}


@pytest.mark.parametrize("form", POSITIONS_OF)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), index=st.sampled_from([np.int32, np.int64]))
def test_positions_changed_before_are_refused_or_bounded(form, data, index):
    matrix = a_matrix(index).asformat(form)
    for name in data.draw(st.lists(st.sampled_from(POSITIONS_OF[form]), min_size=1, max_size=3)):
        array = getattr(matrix, name)
        array[data.draw(st.integers(0, array.size - 1))] = data.draw(POSITIONS)
    try:
        BoundedScaler([(0, 1)] * COLUMNS).fit_transform(matrix)
        oracle = SparseOracle(matrix, LABELS, loss=Logistic(clip_derivative=0.5), constant=False)
    except InvalidArgument:
        return
    assert np.linalg.norm(oracle.answer(GradientAt(point=np.zeros(COLUMNS)))._value) <= ROWS * 0.5


TAKERS = (
    BoundedScaler([(0, 1)] * COLUMNS).fit,
    Rows,
    check_sparse,
    lambda X: linear_scores(X, np.zeros(COLUMNS), constant=False),
    lambda X: PrivateLogisticRegression(1.0, classes=[0, 1]).fit(X, LABELS),
    lambda X: PrivateSearchCV(PrivateLogisticRegression(classes=[0, 1]), {"l2": [0.1, 1.0]}, epsilon=1.0).fit(
        X, LABELS
    ),
)


def check_refused(matrix):
    # Where this one does not refuse, none of the others is asked: scipy could crash.
    with pytest.raises(InvalidArgument, match="Rebuild the matrix"):
        check_positions(matrix)
    for take in TAKERS:
        with pytest.raises(InvalidArgument, match="Rebuild the matrix"):
            take(matrix)


def cut(array, place):
    return array[: place % len(array)]


def deeper(array, _):
    return array[..., None]


def halves(array, _):
    return array + 0.5


def outside(array, place):
    changed = array.copy()
    changed[place % len(changed)] = [10**6, -1, -(2**31), 2**31 - 1][place % 4]
    return changed


# What each format cannot be without, and what breaks it.
BREAKS = {
    "csr": [
        ("indices", cut),
        ("indptr", cut),
        ("data", cut),
        ("indices", deeper),
        ("data", deeper),
        ("indptr", halves),
    ],
    "csc": [
        ("indices", cut),
        ("indptr", cut),
        ("data", cut),
        ("indptr", deeper),
        ("data", deeper),
        ("indices", halves),
    ],
    "bsr": [
        ("indices", cut),
        ("indptr", cut),
        ("data", cut),
        ("indices", deeper),
        ("data", deeper),
        ("indptr", outside),
    ],
    "coo": [("row", cut), ("col", cut), ("data", cut), ("data", deeper), ("row", outside), ("col", outside)],
    "lil": [("rows", cut), ("data", cut), ("rows", deeper), ("data", deeper)],
    "dia": [("offsets", cut), ("data", cut), ("offsets", deeper), ("data", deeper), ("offsets", halves)],
}


@pytest.mark.parametrize(
    ("form", "name", "broken"), [(form, *one) for form, several in BREAKS.items() for one in several]
)
@settings(max_examples=4, deadline=None)
@given(place=st.integers(0, 100))
def test_parts_that_do_not_fit_together_are_refused_before_scipy_sees_them(form, name, broken, place):
    matrix = a_matrix().asformat(form)
    setattr(matrix, name, broken(getattr(matrix, name), place))
    check_refused(matrix)


@settings(max_examples=20, deadline=None)
@given(
    row=st.integers(0, ROWS - 1),
    columns=st.lists(st.sampled_from([-1, COLUMNS, 10**6, 2**40, 1.5, "a", None]), min_size=1, max_size=3),
    short=st.sampled_from(["rows", "data", None]),
)
def test_lists_of_a_sparse_table_are_checked_row_by_row(row, columns, short):
    matrix = a_matrix().tolil()
    if short is None:
        matrix.rows[row] = list(columns)
        matrix.data[row] = [1.0] * len(columns)
    else:
        getattr(matrix, short)[row] = getattr(matrix, short)[row] + [0]
    check_refused(matrix)


@pytest.mark.parametrize("key", [(0, 10**6), (0, -1), (10**6, 0), (-5, 2), (0, 2.5), ("a", 1), (0,), 3])
def test_keys_of_a_sparse_table_are_checked(key):
    matrix = a_matrix().todok()
    if hasattr(matrix, "_dict"):
        matrix._dict[key] = 5.0
    else:  # earlier versions of scipy: the matrix is the dict
        dict.__setitem__(matrix, key, 5.0)
    check_refused(matrix)


@pytest.mark.parametrize("shape", [(3, COLUMNS), (ROWS, 2), (10**4, COLUMNS)])
@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil", "dok"])
def test_a_shape_that_the_parts_do_not_have_is_refused(form, shape):
    matrix = a_matrix().asformat(form)
    matrix._shape = shape
    if form in ("coo", "dok", "csc") and shape[0] > ROWS:
        check_positions(matrix)  # rows without entries
        return
    with pytest.raises(InvalidArgument, match="Rebuild the matrix"):
        check_positions(matrix)


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil", "dia", "dok"])
@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_whole_tables_of_every_format_are_taken(form, kind):
    dense = a_matrix().toarray()
    for table in (dense, np.zeros_like(dense), dense[:0]):
        matrix = getattr(sparse, f"{form}_{kind}")(table)
        check_positions(matrix)
        assert np.array_equal(check_sparse(matrix).toarray(), table)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("starts", [[0, 2**31 - 1, 0], [0, 2**31 - 1, -(2**31)]], ids=["last is 0", "wraps around"])
def test_row_starts_that_scipy_does_not_check_are_refused(starts, index):
    """scipy wrote 2**31 row numbers into an array of none."""
    matrix = sparse.csr_matrix((2, COLUMNS))
    matrix.indptr = np.array(starts, dtype=index)
    for take in (BoundedScaler([(0, 1)] * COLUMNS).fit, Rows, check_sparse):
        with pytest.raises(InvalidArgument, match="Rebuild the matrix"):
            take(matrix)


def change_values(matrix):
    matrix.data[:] = 1e9


def drop_zeros(matrix):
    matrix.data[::2] = 0.0
    matrix.eliminate_zeros()


def replace_arrays(matrix):
    matrix.indices = np.full_like(matrix.indices, 10**6)
    matrix.data = matrix.data[:1]


@pytest.mark.parametrize("change", [change_values, drop_zeros, replace_arrays, lambda m: m.resize(1, 1)])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
def test_a_sparse_table_changed_afterwards_keeps_its_bound(change, secure):
    matrix = sparse.csr_matrix(np.full((1, COLUMNS), 0.2))
    settings = {"loss": Logistic(clip_derivative=0.5), "constant": False}
    oracle = SparseOracle(matrix, [1], **settings)
    change(matrix)
    answer = oracle.answer(GradientAt(point=np.zeros(COLUMNS)), noise=NoiseSource(1, secure=secure))
    assert np.linalg.norm(answer._value) <= 0.5


def test_duplicate_columns_made_afterwards_do_not_escape_the_row_limit():
    """Five entries of one row in one column: the sum was 2.5, and its bound is 1.12."""
    matrix = sparse.csr_matrix(np.full((1, 5), 0.9999))
    oracle = SparseOracle(matrix, [1], loss=Logistic(clip_derivative=0.5), constant=False, row_limit=np.sqrt(5))
    bound = 0.5 * np.sqrt(5)
    matrix.indices[:] = 0
    assert np.linalg.norm(oracle.answer(GradientAt(point=np.zeros(5)))._value) <= bound


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
def test_dense_tables_and_targets_changed_afterwards_keep_their_bound(order, secure):
    X, y = np.array(np.full((2, 3), 0.1), order=order), np.array([0, 1])
    held = {"loss": Logistic(clip_derivative=0.5), "constant": False}
    oracles = [DenseOracle(X, y, **held), ChunkedOracle(from_arrays(X, y, rows=1), features=3, **held)]
    several = SoftmaxOracle(X, y, loss=Softmax(3), classes=(0, 1, 2), constant=False)
    X[:] = [[1e9, np.nan, 0.0], [1e9, -1e9, np.inf]]
    X[1] = 1e9
    noise = NoiseSource(1, secure=secure)
    for oracle in oracles:
        assert np.linalg.norm(oracle.answer(GradientAt(point=np.zeros(3)), noise=noise)._value) <= 0.5
    y[:] = 2**40  # the targets were encoded when the oracle was made
    assert np.linalg.norm(several.answer(GradientAt(point=np.zeros(9)), noise=noise)._value) <= np.sqrt(2)
