"""Losses along evenly spaced steps, which are computed from one another: the same values, the same
bound.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from privypurse import Neighbouring, Norm
from privypurse.core.queries import LossesAlong
from privypurse.losses import HuberHinge, Logistic
from privypurse.oracles import DenseOracle, SparseOracle
from privypurse.oracles._partitions import LossesWork
from tests.each import each


def expected(X, y, loss, point, direction, steps):
    rows = np.column_stack([X, np.ones(len(X))])
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    sums = np.array([loss.value(rows @ (point - step * direction), 2 * y - 1).sum() for step in steps])
    return sums[0] - sums


@pytest.mark.parametrize("kind", ["dense", "single", "sparse"])
@each("clip", [0.1, 0.5, 0.9])
@each("size", [0.01, 1.0, 100.0])
@each("first", [0.0, 0.3])
def test_even_steps_give_what_the_losses_say(clip, size, first, kind):
    rng = np.random.default_rng(0)
    X, y = 2 * rng.standard_normal((2_000, 4)), rng.integers(0, 2, 2_000)
    loss = Logistic(clip_derivative=clip)
    point, direction = size * rng.standard_normal(5), size * rng.standard_normal(5)
    steps = np.linspace(first, 2.0, 21)
    table = sparse.csr_matrix(X) if kind == "sparse" else X.astype(np.float32 if kind == "single" else np.float64)
    oracle = (SparseOracle if kind == "sparse" else DenseOracle)(table, y, loss=loss)
    box = oracle.answer(LossesAlong(point=point, direction=direction, steps=steps))
    tolerance = 1e-4 * size if kind == "single" else 1e-12
    scale = np.abs(expected(X, y, loss, point, direction, steps)).max()
    assert box._value == pytest.approx(expected(X, y, loss, point, direction, steps), abs=tolerance * max(scale, 1.0))


def test_which_searches_are_even():
    def work(loss=None, steps=None, size=1.0, clip_loss=math.inf):
        loss = Logistic(clip_derivative=0.5) if loss is None else loss
        steps = np.linspace(0.0, 1.0, 9) if steps is None else np.asarray(steps)
        weights = np.full(3, size)
        return LossesWork(loss, weights, weights, float(np.linalg.norm(weights)), steps, clip_loss).even

    assert work()
    assert not work(loss=Logistic())  # no knee: a product of exponentials could overflow
    assert not work(loss=HuberHinge())
    assert not work(clip_loss=1.0)
    assert not work(steps=[0.0, 0.1, 0.4, 1.0])
    assert not work(steps=[0.0, 0.5, 1.0])
    assert not work(size=400.0)  # exponentials would leave the range of a double
    assert work(steps=[1.0, 1.0, 1.0, 1.0])


entries = st.one_of(st.floats(-3, 3), st.sampled_from([0.0, 1e8, -1e200, math.nan, math.inf]))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_record_moves_one_score_more_than_another_by_more_than_stated(data):
    rows = data.draw(st.integers(1, 8))
    X = data.draw(hnp.arrays(np.float64, (rows, 3), elements=entries))
    other = data.draw(hnp.arrays(np.float64, (3,), elements=entries))
    y = data.draw(hnp.arrays(np.int64, (rows,), elements=st.integers(0, 1)))
    point = data.draw(hnp.arrays(np.float64, (4,), elements=st.floats(-100, 100)))
    direction = data.draw(hnp.arrays(np.float64, (4,), elements=st.floats(-30, 30)))
    steps = np.linspace(0.0, data.draw(st.floats(1e-3, 5.0)), data.draw(st.integers(4, 25)))
    loss = Logistic(clip_derivative=data.draw(st.sampled_from([0.2, 0.5, 0.8])))
    query = LossesAlong(point=point, direction=direction, steps=steps)

    def answer(table, labels):
        return DenseOracle(table, labels, loss=loss).answer(query)

    whole = answer(X, y)
    added = answer(np.vstack([X, other]), np.append(y, 1))
    replaced = answer(np.vstack([other, X[1:]]), np.append(1 - y[0], y[1:]))
    assert np.ptp(whole._value - added._value) <= whole.bound(Neighbouring.ADD_REMOVE, Norm.RANGE)
    assert np.ptp(whole._value - replaced._value) <= whole.bound(Neighbouring.REPLACE_ONE, Norm.RANGE)


def test_one_row_that_is_not_one_hot_does_not_change_how_the_others_are_added():
    """Whether all rows hold ones decides which loop runs; the scores of the other rows must not
    show it.
    """
    rng = np.random.default_rng(5)
    ones = (rng.random((500, 30)) < 0.4).astype(float)
    mixed = np.vstack([ones, np.full(30, 0.5)])
    y = rng.integers(0, 2, 501)
    point, direction = rng.standard_normal(31), rng.standard_normal(31)
    for steps in (np.linspace(0.0, 1.0, 9), np.array([0.0, 0.3, 0.4, 1.0, 1.5])):
        query = LossesAlong(point=point, direction=direction, steps=steps)
        settings_ = {"loss": Logistic(clip_derivative=0.5)}
        all_ones = SparseOracle(sparse.csr_matrix(ones), y[:500], **settings_).answer(query)
        with_other = SparseOracle(sparse.csr_matrix(mixed), y, **settings_).answer(query)
        other = SparseOracle(sparse.csr_matrix(mixed[500:]), y[500:], **settings_).answer(query)
        # Exact up to the rounding of adding one number to the sums.
        assert with_other._value - all_ones._value == pytest.approx(other._value, abs=1e-12)
