"""The oracle of several views: one record at a time agrees, and no record moves an answer by more than the bound."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privypurse import InvalidArgument, Neighbouring, Norm
from privypurse.core.queries import Count, GradientAt, Objective
from privypurse.pytorch._views import LARGEST_POINT, ViewsOracle

CONSTANT = 0.3


def oracle_of(views, target, classes=3, at_once=None):
    rows = torch.from_numpy(np.array(views, dtype=np.float32))
    oracle = ViewsOracle(rows, torch.tensor(target), classes=classes, constant=CONSTANT)
    oracle.at_once = at_once or len(rows)
    return oracle


def rows_of(views, centre=0.0):
    """Return rows of length 1 with the constant, in double precision."""
    x = np.asarray(views, dtype=np.float32).astype(float)
    x = x / np.linalg.norm(x, axis=-1, keepdims=True) - centre
    x = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return np.concatenate([x, np.full((*x.shape[:2], 1), CONSTANT)], axis=-1)


def gradients(rows, target, weights):
    """Return the gradient of each record: the mean over its views."""
    scores = np.exp(rows @ weights)
    slopes = scores / scores.sum(axis=-1, keepdims=True) - np.eye(weights.shape[1])[target]
    return np.einsum("kni,knj->nij", rows, slopes) / len(rows)


@pytest.mark.parametrize("clip", [0.2, None])
@pytest.mark.parametrize("records", [5, 1_500])
def test_it_adds_clipped_means_over_views(clip, records):
    rng = np.random.default_rng(0)
    views, target = rng.standard_normal((4, records, 6)), rng.integers(0, 3, records)
    weights, centre = rng.standard_normal((7, 3)) * 3, rng.standard_normal(6) * 0.1
    oracle = oracle_of(views, target)
    scaled = rows_of(views)[..., :-1].mean(axis=0)
    assert oracle.total()._value == pytest.approx(scaled.sum(axis=0), rel=2e-3, abs=1e-3)
    assert oracle.total().bound(Neighbouring.ADD_REMOVE, Norm.L2) == 1.0
    oracle.centre(centre)
    box = oracle.answer(GradientAt(point=weights.ravel(), clip_norm=clip))
    each = gradients(rows_of(views, centre), target, weights)
    lengths = np.linalg.norm(each, axis=(1, 2))
    bound = box.bound(Neighbouring.ADD_REMOVE, Norm.L2)
    assert bound == (clip or pytest.approx(math.sqrt(2) * math.hypot(1, CONSTANT)))
    clipped = each * np.minimum(1, bound / lengths)[:, None, None]
    assert box._value.reshape(7, 3) == pytest.approx(clipped.sum(axis=0), rel=2e-3, abs=2e-3 * bound * records**0.5)
    assert clip is None or (lengths > clip).mean() > 0.5


@pytest.mark.parametrize(("at_once", "used"), [(1, [[0], [1], [2], [0]]), (2, [[0, 1], [2, 0], [1, 2], [0, 1]])])
def test_a_query_takes_the_next_views(at_once, used):
    rng = np.random.default_rng(1)
    views, target, point = rng.standard_normal((3, 40, 5)), rng.integers(0, 3, 40), rng.standard_normal(18)
    oracle = oracle_of(views, target, at_once=at_once)
    query = GradientAt(point=point, clip_norm=0.4)
    oracle.answer(Count())  # is no step
    answers = [oracle.answer(query)._value for _ in used]
    assert answers == [pytest.approx(oracle_of(views[some], target).answer(query)._value, abs=1e-5) for some in used]


def test_views_that_agree_are_one_and_views_that_cancel_leave_their_constant():
    one = np.random.default_rng(2).standard_normal((1, 1, 5))
    query = GradientAt(point=np.zeros(18), clip_norm=0.05)
    same, single = (oracle_of(np.repeat(one, count, axis=0), [1]).answer(query)._value for count in (6, 1))
    assert same == pytest.approx(single, rel=1e-5)
    assert np.linalg.norm(same) == pytest.approx(0.05, rel=2e-3)
    opposite = oracle_of(np.concatenate([one, -one]), [1]).answer(query)._value.reshape(6, 3)
    assert opposite[:-1] == pytest.approx(0.0, abs=1e-5)
    assert np.linalg.norm(opposite[-1]) == pytest.approx(0.05, rel=2e-3)  # clipped by its own length


anything = st.one_of(st.floats(-3, 3, width=32), st.sampled_from([math.nan, math.inf, 1e30, 1e-30, 1e-40, 3e38, 0.0]))
NEARLY_CANCELLING = np.array([[[1.0, 1e-4]] * 5, [[-1.0, 1e-4]] * 5])


@settings(max_examples=150)
@given(
    views=hnp.arrays(np.float32, (2, 5, 2), elements=anything),
    point=hnp.arrays(np.float64, 9, elements=st.floats(-50, 50)),
    clip=st.sampled_from([None, 0.1, 1e-6]),
    at_once=st.sampled_from([1, 2]),
    centre=st.sampled_from([None, (0.3, -0.2), (1.0, 0.0)]),
)
@example(views=np.full((2, 5, 2), 1e-30), point=np.zeros(9), clip=None, at_once=2, centre=None)
@example(views=NEARLY_CANCELLING, point=np.zeros(9), clip=1e-6, at_once=2, centre=None)
def test_no_record_moves_an_answer_by_more_than_the_bound(views, point, clip, at_once, centre):
    def answers(chosen, target):
        oracle = oracle_of(views[:, chosen], target, at_once=at_once)
        if centre is not None:
            oracle.centre(np.array(centre))
        return oracle.total(), oracle.answer(GradientAt(point=point, clip_norm=clip))

    without, added, replaced = (
        answers([0, 1, 2], [0, 1, 2]),
        answers([0, 1, 2, 3], [0, 1, 2, 0]),
        answers([0, 1, 2, 4], [0, 1, 2, 1]),
    )
    for before, after, other in zip(without, added, replaced, strict=True):
        assert np.isfinite(after._value).all()
        moved = np.linalg.norm(after._value - before._value)
        assert moved <= before.bound(Neighbouring.ADD_REMOVE, Norm.L2)
        assert np.linalg.norm(after._value - other._value) <= before.bound(Neighbouring.REPLACE_ONE, Norm.L2)


def test_a_record_with_a_view_that_is_not_finite_adds_nothing():
    views = np.random.default_rng(3).standard_normal((3, 4, 5))
    broken = views.copy()
    broken[1, 2, 0] = np.nan
    query, kept = GradientAt(point=np.ones(18), clip_norm=0.1), [0, 1, 3]
    found = oracle_of(broken, [0, 1, 2, 0]).answer(query)._value
    assert found == pytest.approx(oracle_of(views[:, kept], [0, 1, 0]).answer(query)._value, abs=1e-7)


def test_mistakes():
    oracle = oracle_of(np.ones((2, 3, 4)), [0, 1, 2])
    assert float(oracle.answer(Count())._value) == 3
    with pytest.raises(InvalidArgument, match="sample_prob must be 1"):
        oracle.answer(Count(), sample_prob=0.5)
    with pytest.raises(InvalidArgument, match="expected a GradientAt or Count query"):
        oracle.answer(Objective())
    with pytest.raises(InvalidArgument, match="point has diverged"):
        oracle.answer(GradientAt(point=np.full(15, LARGEST_POINT)))
