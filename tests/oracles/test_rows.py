"""Rows: no record moves a box by more than its bound, and each score is what a loop over single
rows says.
"""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from privypurse import InvalidArgument, Neighbouring, Norm, Sensitive
from privypurse.core._errors import SealedValue
from privypurse.oracles._rows import Rows

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE
EDGES = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e300, -1e300, 1e-300, 1e-160, 1e151, 1e149, 1e76, 1e74, 3e38, 1e-39]
anything = st.one_of(st.floats(-3, 3), st.sampled_from(EDGES))
CANDIDATES = np.array([1e-200, 1e-3, 0.5, 1.0, 1.7, 1e5, 1e148])


def single(X):
    with np.errstate(over="ignore"):
        return np.asarray(X).astype(np.float32)


FORMS = {
    "float64": np.asarray,
    "float32": single,
    "by column": np.asfortranarray,
    "sparse": sparse.csr_matrix,
    "sparse float32": lambda X: sparse.csr_matrix(single(X)),
    "sparse array": sparse.csr_array,
    "sparse columns": sparse.csc_matrix,
}
forms = st.sampled_from(list(FORMS.values()))


def tables(rows, width=2):
    return hnp.arrays(np.float64, st.tuples(rows, st.just(width)), elements=anything)


@st.composite
def preparations(draw, width=2):
    """Nothing, or a move, or a move and a stretch: what is public about a table."""
    kind = draw(st.sampled_from(["as given", "unit", "unit and centre"]))
    unit = draw(st.sampled_from([1.0, 1e-8, 3e5, 1e30, 1e50, 1e-50]))
    numbers = hnp.arrays(np.float64, width, elements=st.floats(-2, 2))
    factors = hnp.arrays(np.float64, width, elements=st.sampled_from([1e-3, 0.5, 1.0, 40.0]))
    centre, stretch = draw(numbers), draw(st.one_of(st.none(), factors))

    def prepare(rows):
        if kind == "as given":
            return rows
        rows.move(unit, centre if kind == "unit and centre" else None)
        if stretch is not None:
            rows.stretch(stretch)
        return rows

    return prepare


def held(rows):
    """The rows as they are, in float64."""
    table = rows.table
    return np.asarray(table.toarray() if sparse.issparse(table) else table, dtype=np.float64)


def one_by_one(table, power):
    """Each row's entries raised to the power, and their length; None where that is not a number
    below 1e150.
    """
    for row in table.tolist():
        entries = [x if power == 1 else x * x for x in row]
        length = math.hypot(*entries) if all(map(math.isfinite, entries)) else math.inf
        yield (entries, length) if length < 1e150 else None


def plain_sum(table, power, clip_norm):
    total = np.zeros(table.shape[1])
    for entries, length in filter(None, one_by_one(table, power)):
        total += np.array(entries) * (clip_norm / length if length > clip_norm else 1.0)
    return total


def plain_scores(table, power, candidates):
    def worth(length, limit):
        return length / limit if length <= limit else (limit / length) ** 2

    kept = [length for _, length in filter(None, one_by_one(table, power))]
    return np.array([math.fsum(worth(length, c) for length in kept if length > 0) for c in candidates])


BOXES = {
    "count": lambda rows: rows.count(),
    "total": lambda rows: rows.total(clip_norm=0.7),
    "total, long": lambda rows: rows.total(clip_norm=1e12),
    "total of squares": lambda rows: rows.total(clip_norm=1.3, power=2),
    "limits": lambda rows: rows.limits(CANDIDATES),
    "limits of squares": lambda rows: rows.limits(CANDIDATES, power=2),
}


def size(difference, norm):
    difference = np.atleast_1d(difference)
    return float(np.ptp(difference)) if norm is Norm.RANGE else float(np.linalg.norm(difference))


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES.keys())
@settings(max_examples=120)
@given(
    table=tables(st.integers(1, 5)),
    one=tables(st.just(1)),
    other=tables(st.just(1)),
    form=forms,
    prepare=preparations(),
)
def test_no_record_moves_a_box_by_more_than_the_bound(box, table, one, other, form, prepare):
    without, with_one, with_other = (
        box(prepare(Rows(form(X)))) for X in (table, np.vstack([table, one]), np.vstack([other, table]))
    )
    norm = without.norm
    assert isinstance(without, Sensitive)
    assert size(with_one._value - without._value, norm) <= without.bound(ADD_REMOVE, norm)
    assert size(with_one._value - with_other._value, norm) <= without.bound(REPLACE_ONE, norm)
    for relation in Neighbouring:
        bounds = {made.bound(relation, norm) for made in (without, with_one, with_other)}
        assert len(bounds) == 1, "a bound does not depend on data"


@pytest.mark.parametrize("power", [1, 2])
@settings(max_examples=120)
@given(table=tables(st.integers(1, 6)), form=forms, prepare=preparations())
def test_sums_are_those_of_a_loop_over_single_rows(power, table, form, prepare):
    rows = prepare(Rows(form(table)))
    box = rows.total(clip_norm=0.9, power=power)
    assert box._value == pytest.approx(plain_sum(held(rows), power, 0.9), rel=6e-4, abs=6e-4 * len(table))
    assert (box.bound(ADD_REMOVE, Norm.L2), box.bound(REPLACE_ONE, Norm.L2)) == (0.9, 1.8)


@pytest.mark.parametrize("power", [1, 2])
@settings(max_examples=120)
@given(
    table=tables(st.integers(1, 6)),
    one=tables(st.just(1)),
    form=forms,
    prepare=preparations(),
    powers=st.lists(st.floats(-5, 5), min_size=1, max_size=6, unique=True),
)
def test_each_record_is_worth_between_nothing_and_one_to_each_limit(power, table, one, form, prepare, powers):
    candidates = 10.0 ** np.array(sorted(powers))
    if (np.diff(candidates) <= 0).any():
        return  # two powers so close that they round to one number

    def scored(X):
        rows = prepare(Rows(form(X)))
        return rows.limits(candidates, power=power), held(rows)

    box, prepared = scored(table)
    assert box._value == pytest.approx(plain_scores(prepared, power, candidates), rel=1e-9, abs=1e-12)
    worth = scored(np.vstack([table, one]))[0]._value - box._value
    assert worth.min() >= -1e-12
    assert worth.max() <= 1 + 1e-12
    assert 1 <= box.bound(ADD_REMOVE, Norm.RANGE) <= 1 + 1e-6, "so that is all that is charged for"
    assert box.bound(REPLACE_ONE, Norm.RANGE) == 2 * box.bound(ADD_REMOVE, Norm.RANGE)


def test_a_replaced_record_can_move_two_limits_apart_by_almost_two():
    """The bound under replace-one is needed: from a record that likes one limit to one that likes
    the other.
    """
    here, there = (Rows([[length]]).limits([1.0, 1e4])._value for length in (1.0, 1e4))
    assert np.ptp(here - there) > 1.99


def test_scores_by_hand():
    box = Rows([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0], [math.nan, 1.0], [1e200, 0.0]]).limits([1.0, 5.0, 10.0])
    assert box._value == pytest.approx([1 + 0.04, 1 + 0.2, 0.5 + 0.1])
    squares = Rows([[3.0, 4.0], [0.0, 1e90]]).limits([math.hypot(9, 16)], power=2)
    assert squares._value == pytest.approx([1.0])


def test_the_best_limit_is_where_the_lengths_are():
    X = np.random.default_rng(3).standard_normal((3_000, 50)) * 40
    candidates = 10.0 ** (np.arange(-40, 41) / 10)
    best = candidates[np.argmax(Rows(X).limits(candidates)._value)]
    assert 0.7 < best / (40 * math.sqrt(50)) < 1.5


@pytest.mark.parametrize("prepared", [False, True], ids=["as given", "prepared"])
@given(table=tables(st.integers(1, 6), width=3))
@settings(max_examples=60)
def test_dense_and_sparse_agree(prepared, table):
    dense, thin = Rows(table), Rows(sparse.csr_matrix(table))
    assert (dense.is_sparse, thin.is_sparse) == (False, True)
    if prepared:
        for rows in (dense, thin):
            rows.move(0.25)
            rows.stretch(np.array([1.0, 3.0, 0.1]))
        assert thin.is_sparse, "without a centre it stays sparse"
    for box in BOXES.values():
        one, other = box(dense)._value, box(thin)._value
        assert one == pytest.approx(other, rel=1e-6, abs=1e-9)
    thin.move(2.0, np.ones(3))
    assert not thin.is_sparse


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("centre", [None, np.array([0.5, -1.0, 2.0])], ids=["no centre", "centre"])
def test_moving_and_stretching_are_what_they_say(form, centre):
    X = np.random.default_rng(1).standard_normal((2_000, 3)) * [1.0, 100.0, 0.01]
    rows, factors = Rows(form(X)), np.array([2.0, 0.01, 30.0])
    rows.move(4.0, centre)
    rows.stretch(factors)
    assert rows.columns == 3
    assert rows.table.dtype == np.float32
    expected = (X / 4.0 - (0 if centre is None else centre)) * factors
    assert held(rows) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("centre", [None, np.ones(3)], ids=["no centre", "centre"])
def test_the_table_that_was_given_is_never_changed(form, centre):
    X = np.random.default_rng(2).standard_normal((1_500, 3))
    X[3], X[4, 1], X[5] = 0.0, np.nan, 1e200
    given, kept = form(X), form(X)
    rows = Rows(given)
    for _ in range(2):
        for box in BOXES.values():
            box(rows)
        rows.move(3.0, centre)
        rows.stretch(np.array([2.0, 3.0, 4.0]))
        centre = None if rows.is_sparse else np.ones(3)
    assert given.dtype == kept.dtype
    as_arrays = (thing.toarray() if sparse.issparse(thing) else thing for thing in (given, kept))
    np.testing.assert_array_equal(*as_arrays)


def test_a_row_that_is_not_finite_after_moving_contributes_nothing_and_says_nothing():
    """Also no warning: it would tell that there is such a row."""
    for form in FORMS.values():
        rows = Rows(form([[3e38, 0.0], [1.0, 1.0]]))
        rows.move(0.5)
        assert rows.limits([2.0, 4.0])._value == pytest.approx([0.5, math.sqrt(0.5)])
        rows.stretch(np.array([1e3, 0.0]))
        assert rows.total(clip_norm=1.0)._value == pytest.approx([1.0, 0.0], rel=1e-3)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_rounding_of_a_long_sum_stays_within_the_bound(form, power):
    """As in `test_statistics`: a sum brought to just below a power of two, then many rows that
    round up above it.

    The margin alone would cover this many rows: what is left of it for more is looked at too.
    """
    large, small = 2**19, 400_000
    table = np.zeros((large + 1 + small, 2))
    table[: large + 1, 0] = 0.5
    table[large // 2, 0] = 0.25
    table[large + 1 :, 0] = 0.3 * np.spacing(float(large))
    without = np.delete(table, 0, axis=0)
    assert abs((table.sum(axis=0) - without.sum(axis=0))[0] - 0.5) > 5e-6, "the attack works on the plain sum"
    with_it, without_it = (Rows(form(X ** (1 / power))) for X in (table, without))
    for box, own in (
        (lambda rows: rows.total(clip_norm=1.0, power=power), [0.5, 0.0]),
        (lambda rows: rows.limits([0.3, 0.5, 1.0], power=power), [0.36, 1.0, 0.5]),
    ):
        here, there = box(with_it), box(without_it)
        assert size(here._value - there._value, here.norm) <= here.bound(ADD_REMOVE, here.norm)
        assert here._value - there._value == pytest.approx(own, abs=1e-7), "enough for a hundred times as many rows"


@given(labels=st.lists(st.integers(0, 2), min_size=1, max_size=8), one=st.integers(0, 2), other=st.integers(0, 2))
def test_counts_move_by_no_more_than_the_bound(labels, one, other):
    def counted(target):
        rows = Rows(np.full((len(target), 1), math.nan), np.array(target), classes=3)
        return rows.count(), rows.class_counts()

    for before, after, instead in zip(*map(counted, (labels, [*labels, one], [other, *labels])), strict=True):
        assert size(after._value - before._value, Norm.L2) == before.bound(ADD_REMOVE, Norm.L2) == 1.0
        assert size(after._value - instead._value, Norm.L2) <= before.bound(REPLACE_ONE, Norm.L2)
    assert counted(labels)[0]._value == len(labels), "whatever is in them"
    assert counted(labels)[1]._value.tolist() == [labels.count(k) for k in range(3)]


def test_boxes_are_sealed_and_the_rest_says_nothing_about_records():
    rows, more = Rows([[1.0, 12345.0]], np.array([0]), classes=2), Rows([[9.0, 8.0], [7.0, 6.0]], np.array([0, 1]), 2)
    assert repr(rows) == repr(more) == "<Rows: 2 columns>"
    assert (rows.columns, rows.classes) == (2, 2)
    for box in (rows.class_counts(), *(make(rows) for make in BOXES.values())):
        for look in (float, np.asarray, bool, list, pickle.dumps):
            with pytest.raises(SealedValue):
                look(box)
        assert "12345" not in repr(box)


def test_wrong_arguments_are_refused():
    rows = Rows(np.eye(2))
    for wrong in ([], [0.0, 1.0], [-1.0], [1.0, 1.0], [2.0, 1.0], [1.0, math.nan], [[1.0]]):
        for power in (1, 2):
            with pytest.raises(InvalidArgument, match="candidates must be"):
                rows.limits(wrong, power=power)
    for wrong in (0.0, -1.0, math.nan, math.inf, 1e200):
        for power in (1, 2):
            with pytest.raises(InvalidArgument, match="clip_norm must be"):
                rows.total(clip_norm=wrong, power=power)
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(InvalidArgument, match="unit must be"):
            rows.move(wrong)
    for wrong in (np.zeros(3), np.array([1.0, math.nan]), np.zeros((1, 2))):
        with pytest.raises(InvalidArgument, match="numbers must be"):
            rows.move(1.0, wrong)
        rows.move(1.0)
        with pytest.raises(InvalidArgument, match="numbers must be"):
            rows.stretch(wrong)
    with pytest.raises(InvalidArgument, match="target is needed"):
        rows.class_counts()
    for empty in (np.zeros((0, 2)), sparse.csr_matrix((0, 2))):
        with pytest.raises(InvalidArgument, match="at least one row"):
            Rows(empty)


def test_the_users_table_is_never_changed_in_place():
    X = np.array([[1.0, 2.0]])
    for change in (lambda rows: rows.stretch(np.array([10.0, 1.0])), lambda rows: rows.limit(0.1)):
        with pytest.raises(InvalidArgument, match="rows must be moved"):
            change(Rows(X))
    rows = Rows(X.astype(np.float32))
    rows.move(1.0)
    rows.limit(0.1)
    assert X.tolist() == [[1.0, 2.0]]
    assert np.linalg.norm(rows.table) == pytest.approx(0.1)


def test_turning_multiplies_each_row_whatever_its_place():
    rng = np.random.default_rng(4)
    X, matrix = rng.standard_normal((1_500, 3)), rng.standard_normal((3, 3))
    X[7, 1] = np.nan
    whole, part = Rows(X), Rows(X[1:])
    for rows in (whole, part):
        rows.move(2.0)
        rows.turn(matrix)
    assert held(whole) == pytest.approx(X / 2 @ matrix, rel=1e-5, abs=1e-5, nan_ok=True)
    np.testing.assert_array_equal(whole.table[1:], part.table)


@given(known=tables(st.integers(1, 5)), new=tables(st.just(1)), clip=st.sampled_from([0.1, 1.0, 50.0]))
def test_products_of_columns_move_by_at_most_their_bound(known, new, clip):
    box = Rows(known).products(clip_norm=clip)
    more = Rows(np.vstack([known, new])).products(clip_norm=clip)
    assert np.linalg.norm(more._value - box._value) <= box.bound(Neighbouring.ADD_REMOVE, Norm.L2) == clip**2
    assert box.bound(Neighbouring.REPLACE_ONE, Norm.L2) == 2 * clip**2


def test_products_of_columns_are_the_upper_triangle():
    X = np.random.default_rng(5).standard_normal((1_200, 3))
    square = X.T @ X
    square[np.triu_indices(3, 1)] *= math.sqrt(2)
    assert Rows(X).products(clip_norm=100.0)._value == pytest.approx(square[np.triu_indices(3)], rel=1e-5)
