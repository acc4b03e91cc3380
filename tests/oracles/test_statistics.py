"""Sums, counts and scores: no record moves the answer by more than the box says, whatever the
record is.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privypurse import InvalidArgument, Neighbouring, Norm
from privypurse.oracles.statistics import clipped_sum, counts, negated_losses, record_count, residual_sums

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE
PAIRS = [(0, 1), (0, 2), (1, 2)]
anything = st.floats(allow_nan=True, allow_infinity=True)  # also 1e300, subnormal, -0.0


def tables(width=3):
    return hnp.arrays(np.float64, st.tuples(st.integers(0, 8), st.just(width)), elements=anything)


def rows(width=3):
    return hnp.arrays(np.float64, (1, width), elements=anything)


def length(difference):
    return float(np.linalg.norm(difference))


def spread(difference):
    return float(difference.max() - difference.min())


@pytest.mark.parametrize(
    ("build", "norm", "size"),
    [
        (lambda table: clipped_sum(table, clip_norm=2.0), Norm.L2, length),
        (lambda table: negated_losses(table, clip_loss=2.0), Norm.RANGE, spread),
    ],
    ids=["clipped_sum", "negated_losses"],
)
@given(table=tables(), one=rows(), other=rows())
def test_one_record_moves_the_answer_by_no_more_than_the_bound(build, norm, size, table, one, other):
    without = build(table)
    with_one = build(np.vstack([table, one]))
    with_other = build(np.vstack([other, table]))
    assert size(with_one._value - without._value) <= without.bound(ADD_REMOVE, norm)
    assert size(with_one._value - with_other._value) <= without.bound(REPLACE_ONE, norm)


@given(st.lists(st.sampled_from("abcz"), max_size=10), st.sampled_from("abcz"), st.sampled_from("abcz"))
def test_counts_move_by_no_more_than_the_bound(labels, one, other):
    def build(listed):
        return counts(listed, categories="abc")

    base = build(labels)
    assert length(build([*labels, one])._value - base._value) <= base.bound(ADD_REMOVE, Norm.L2)
    replaced = length(build([*labels, one])._value - build([*labels, other])._value)
    assert replaced <= base.bound(REPLACE_ONE, Norm.L2)


@pytest.mark.parametrize(
    ("build", "norm", "size"),
    [
        (lambda table: clipped_sum(table, clip_norm=1.0), Norm.L2, length),
        (lambda table: negated_losses(table, clip_loss=1.0), Norm.RANGE, spread),
    ],
    ids=["clipped_sum", "negated_losses"],
)
def test_rounding_of_a_long_sum_stays_within_the_bound(build, norm, size):
    """A sum brought to just below a power of two, then many rows that round up above it and down
    below.

    Added up row by row, one record moves such a sum by 2e-5 more than its own size.
    """
    large, small = 2**19, 400_000
    ulp = np.spacing(float(large))
    table = np.zeros((large + 1 + small, 2))
    table[: large + 1, 0] = 1.0
    table[large // 2, 0] = 0.5
    table[large + 1 :, 0] = 0.6 * ulp
    without = np.delete(table, 0, axis=0)
    naive = table.sum(axis=0) - without.sum(axis=0)
    assert naive[0] > 1 + 1e-5, "the attack works on the plain sum"
    moved = build(table)._value - build(without)._value
    assert size(moved) <= build(table[:1]).bound(ADD_REMOVE, norm)


def test_values():
    table = [[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0], [np.inf, 0.0], [0.0, 0.0]]
    assert clipped_sum(table, clip_norm=1.0)._value == pytest.approx([0.9, 1.2], rel=1e-5)
    assert clipped_sum([[1e300, 1e300]], clip_norm=1.0)._value == pytest.approx([0.5**0.5] * 2, rel=1.1e-5)
    assert clipped_sum(np.zeros((0, 2)), clip_norm=1.0)._value.tolist() == [0.0, 0.0]
    assert counts([1, 1, 2, 9], categories=[2, 1])._value.tolist() == [1.0, 2.0]
    losses = [[0.25, 5.0], [np.nan, -1.0], [np.inf, 0.5]]
    assert negated_losses(losses, clip_loss=1.0)._value == pytest.approx([-2.25, -1.5], rel=1e-5)


def test_what_cannot_be_read_contributes_nothing():
    assert clipped_sum([[1.0, None], [0.5, 0.5]], clip_norm=1.0)._value.tolist() == [0.5, 0.5]
    assert counts([[1], "a", ([],), "b"], categories=["a"])._value.tolist() == [1.0]


def test_a_single_category_moves_by_one():
    assert counts(["a"], categories=["a"]).bound(REPLACE_ONE, Norm.L2) == 1.0


@pytest.mark.parametrize("rows", [[1.0, 2.0], [["a"]], 3.0, [[[1.0]]], [[1.0], [1.0, 2.0]], [["a", None]]], ids=repr)
def test_what_is_not_a_table_is_refused(rows):
    with pytest.raises(InvalidArgument, match="rows must be a table of numbers"):
        clipped_sum(rows, clip_norm=1.0)


def test_wrong_arguments_are_refused():
    with pytest.raises(InvalidArgument, match="clip_norm must be"):
        clipped_sum([[1.0]], clip_norm=-1.0)
    with pytest.raises(InvalidArgument, match="clip_loss must be"):
        negated_losses([[1.0]], clip_loss=0.0)
    with pytest.raises(InvalidArgument, match="labels must be in one dimension"):
        counts(np.zeros((3, 1)), categories=[0, 1])
    for categories in ([], ["a", "a"], {"a", "b"}, 2):
        with pytest.raises(InvalidArgument, match="categories must be"):
            counts(["a"], categories=categories)


def test_records_are_counted_whatever_is_in_them():
    for rows in ([[1.0], [None]], np.full((2, 3), np.nan), ["a", "b"], np.empty((2, 0))):
        box = record_count(rows)
        assert box._value.tolist() == [2.0]
        assert box.bound(ADD_REMOVE, Norm.L2) == box.bound(REPLACE_ONE, Norm.L2) == 1.0
    for rows in ("ab", 3, np.array(1.0)):
        with pytest.raises(InvalidArgument, match="rows must have one entry"):
            record_count(rows)


@given(table=tables(2), one=rows(2), other=rows(2), data=st.data())
def test_residual_sums_move_by_no_more_than_the_bound(table, one, other, data):
    cells = hnp.arrays(np.intp, (len(table) + 2, 3), elements=st.integers(-2, 5))
    places = data.draw(cells)

    def build(chosen, rows):
        return residual_sums(rows, places[chosen], pairs=PAIRS, sizes=[2, 3, 2], clip_norm=0.5)

    kept = list(range(len(table)))
    without, added = build(kept, table), build([*kept, -2], np.vstack([table, one]))
    replaced = build([*kept, -1], np.vstack([table, other]))
    assert length(added._value - without._value) <= without.bound(ADD_REMOVE, Norm.L2)
    assert length(added._value - replaced._value) <= without.bound(REPLACE_ONE, Norm.L2)


def test_the_bounds_of_residual_sums_are_nearly_reached():
    def build(value):
        return residual_sums([[value]], np.zeros((1, 3), dtype=int), pairs=PAIRS, sizes=[2, 3, 2], clip_norm=0.5)

    box = build(9.0)
    assert length(box._value) == pytest.approx(box.bound(ADD_REMOVE, Norm.L2), rel=2e-5)
    assert length(box._value - build(-9.0)._value) == pytest.approx(box.bound(REPLACE_ONE, Norm.L2), rel=2e-5)


def test_residual_sums_are_exact_in_any_order():
    rng = np.random.default_rng(0)
    table, cells, order = rng.normal(size=(50_000, 1)), rng.integers(0, 2, (50_000, 3)), rng.permutation(50_000)
    one, other = (
        residual_sums(table[at], cells[at], pairs=PAIRS, sizes=[2, 3, 2], clip_norm=0.7)._value
        for at in (slice(None), order)
    )
    np.testing.assert_array_equal(one, other)
    inside = (cells[:, 0] == 1) & (cells[:, 1] == 0)
    assert one[3] == pytest.approx(np.clip(table[inside, 0], -0.7, 0.7).sum(), rel=1e-3)
