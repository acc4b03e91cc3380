"""Sizes of numbers, limits and targets: bounds that hold whatever record comes or goes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from privypurse import InvalidArgument, Neighbouring, Norm
from privypurse.oracles._scores import EXPONENTS, Magnitudes, Targets, limit_scores, tail_scores

numbers = st.sampled_from([0.0, -0.0, 1.0, -1.5, 3e-5, 1e-45, 7e30, -1e38, 1e300, np.inf, np.nan]) | st.floats(
    -1e6, 1e6, width=32
)
rows = st.lists(numbers, min_size=3, max_size=3)
tables = st.lists(rows, min_size=1, max_size=5)


def values(box, relation=Neighbouring.ADD_REMOVE):
    return box._value, box.bound(relation, Norm.RANGE)


def apart(first, second):
    """How much more one score moved than another."""
    return np.ptp(first - second)


def boxes(table):
    sizes = Magnitudes(np.array(table))
    return [sizes.of_table(), *(sizes.of_column(j) for j in range(3))]


@settings(max_examples=150)
@given(table=tables, record=rows, other=rows)
def test_no_record_moves_the_scores_of_sizes_by_more_than_stated(table, record, other):
    for one, two, three in zip(boxes(table), boxes([*table, record]), boxes([*table, other]), strict=True):
        before, bound = values(one)
        added, _ = values(two)
        assert apart(before, added) <= bound
        assert ((added - before > -1e-9) & (added - before <= 1 + 1e-9)).all()
        assert apart(added, values(three)[0]) <= values(one, Neighbouring.REPLACE_ONE)[1]


@given(table=tables)
def test_sparse_and_dense_tables_have_the_same_sizes(table):
    with np.errstate(over="ignore"):
        dense = np.array(table).astype(np.float32)
    dense[~np.isfinite(dense)] = 0.0
    stored = Magnitudes(sparse.csr_matrix(dense))
    plain = Magnitudes(dense)
    assert stored.of_table()._value == pytest.approx(plain.of_table()._value)
    for column in range(3):
        assert stored.of_column(column)._value.tolist() == plain.of_column(column)._value.tolist()


def test_the_unit_of_a_column_has_the_highest_score():
    rng = np.random.default_rng(0)
    sizes = Magnitudes(rng.uniform(0.5, 1.0, (500, 3)) * [1.0, 2.0**20, 2.0**-30])
    assert [EXPONENTS[sizes.of_column(j)._value.argmax()] for j in range(3)] == [-1, 19, -31]


def test_sizes_are_worth_what_they_say():
    box = Magnitudes(np.array([[4.0], [4.0], [1.0]])).of_column(0)
    scores = dict(zip(EXPONENTS.tolist(), box._value.tolist(), strict=True))
    assert scores[2] == 2 + 0.25
    assert scores[0] == 2 / 16 + 1
    assert scores[4] == 2 * 0.25 + 1 / 16


lengths = st.lists(st.floats(0, 1e100), min_size=1, max_size=6)


@given(known=lengths, new=st.floats(0, 1e100), other=st.floats(0, 1e100))
def test_no_record_moves_the_scores_of_limits_by_more_than_stated(known, new, other):
    limits = 10.0 ** np.arange(-3, 4)
    before, bound = values(limit_scores(np.array(known), limits))
    added = limit_scores(np.array([*known, new]), limits)._value
    assert apart(before, added) <= bound
    replaced = limit_scores(np.array([*known, other]), limits)
    assert apart(added, replaced._value) <= values(replaced, Neighbouring.REPLACE_ONE)[1]


@given(known=lengths, new=st.floats(0, 1e100), other=st.floats(0, 1e100))
def test_no_record_moves_the_scores_of_a_tail_by_more_than_stated(known, new, other):
    limits = 10.0 ** np.arange(-3, 4)
    added = tail_scores(np.array([*known, new]), limits)
    assert apart(values(tail_scores(np.array(known), limits))[0], added._value) <= values(added)[1]
    replaced = tail_scores(np.array([*known, other]), limits)
    assert apart(added._value, replaced._value) <= values(replaced, Neighbouring.REPLACE_ONE)[1]


def test_a_limit_scores_minus_the_records_beyond_it():
    box = tail_scores(np.array([0.5, 1.0, 3.0, 50.0, np.nan]), np.array([1.0, 10.0, 100.0]))
    assert box._value.tolist() == [-2, -1, 0]


@given(y=st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=6), new=st.floats(-1e300, 1e300))
def test_no_record_moves_the_scores_of_targets_by_more_than_stated(y, new):
    with np.errstate(over="raise", invalid="raise"):
        one, two = Targets(y, (-5.0, 3.0)), Targets([*y, new], (-5.0, 3.0))
        grid = np.linspace(-5, 3, 17)
        limits = grid[9:] + 1
        for ask in (
            lambda target: target.medians(grid),
            lambda target: target.beyond(-1.0, limits),
            lambda target: target.spreads(-1.0, 0.68, limits),
        ):
            before, bound = values(ask(one))
            assert apart(before, ask(two)._value) <= bound
        mapped, (low, high) = two.mapped(-1.0, 0.5)
        assert (low, high) == (-8, 8)
        assert low <= mapped.min() <= mapped.max() <= high


def test_targets_need_bounds():
    with pytest.raises(InvalidArgument, match="target_bounds must be"):
        Targets([1.0], (3.0, 1.0))
