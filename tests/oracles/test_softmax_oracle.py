"""The multinomial oracle: one loop over single rows agrees, and no record moves an answer by more
than the bound.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from privypurse import InvalidArgument, Neighbouring, NoiseSource, Norm
from privypurse.core.queries import ClassCounts, Count, GradientAt, LossesAlong, Objective
from privypurse.losses import Logistic, Softmax
from privypurse.oracles._encoding import ROUNDING_MARGIN
from privypurse.oracles._softmax import SoftmaxOracle

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE
FORMS = {
    "float64": np.asarray,
    "float32": lambda X: np.asarray(X).astype(np.float32),
    "by column": np.asfortranarray,
    "sparse": sparse.csr_matrix,
}


@pytest.fixture(params=FORMS.values(), ids=FORMS.keys())
def form(request):
    return request.param


def single_rows(X, y, w, loss, row_limit, clip):
    total = np.zeros_like(w)
    for x, label in zip(X, y, strict=True):
        row = np.append(x, 1.0)
        length = np.linalg.norm(row)
        if not math.isfinite(length):
            continue
        row *= min(1.0, row_limit / length)
        gradient = np.outer(row, loss.derivative((row @ w)[None], np.array([label]))[0])
        bound = min(clip, loss.lipschitz * row_limit) * (1 - ROUNDING_MARGIN)
        total += gradient * min(1.0, bound / max(np.linalg.norm(gradient), 1e-300))
    return total


@pytest.mark.parametrize("clip", [None, 0.2])
def test_gradients_and_losses(form, clip):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2_500, 3)), rng.integers(0, 4, 2_500)
    X[5, 0] = np.nan
    loss = Softmax(4, clip_derivative=0.8)
    oracle = SoftmaxOracle(form(X), y, loss=loss, classes=range(4), row_limit=1.5)
    w, u = rng.standard_normal((2, 4, 4))
    box = oracle.answer(GradientAt(point=w.ravel(), clip_norm=clip))
    expected = single_rows(X, y, w, loss, 1.5, clip or math.inf)
    assert box._value.reshape(4, 4) == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert box.bound(ADD_REMOVE, Norm.L2) == (clip or pytest.approx(1.2))
    steps = np.array([0.0, 0.3, 1.0])
    scores = oracle.answer(LossesAlong(point=w.ravel(), direction=u.ravel(), steps=steps))._value
    clean = np.delete(np.column_stack([X, np.ones(len(X))]), 5, axis=0)
    clean *= np.minimum(1.0, 1.5 / np.linalg.norm(clean, axis=1))[:, None]
    losses = [loss.value(clean @ (w - step * u), np.delete(y, 5)).sum() for step in steps]
    assert scores == pytest.approx(-(np.array(losses) - losses[0]), rel=1e-4, abs=1e-3)


anything = st.one_of(st.floats(-3, 3), st.sampled_from([math.nan, math.inf, 1e300, 0.0, 1e-300]))


@settings(max_examples=80)
@given(st.data())
def test_no_record_moves_an_answer_by_more_than_the_bound(data):
    X = data.draw(hnp.arrays(np.float64, (6, 2), elements=anything))
    extra = data.draw(hnp.arrays(np.float64, (2, 2), elements=anything))
    y = np.array(data.draw(st.lists(st.integers(0, 2), min_size=8, max_size=8)))
    w, u = data.draw(hnp.arrays(np.float64, (2, 9), elements=st.floats(-9, 9)))
    clip = data.draw(st.sampled_from([None, 0.3]))

    def build(rows, labels):
        return SoftmaxOracle(rows, labels, loss=Softmax(3), classes=[0, 1, 2])

    base, added = build(X, y[:6]), build(np.vstack([X, extra[:1]]), y[:7])
    replaced = build(np.vstack([X, extra[1:]]), np.append(y[:6], y[7]))
    for query in (
        GradientAt(point=w, clip_norm=clip),
        LossesAlong(point=w, direction=u, steps=[0.0, 0.1, 2.0], clip_loss=clip),
    ):
        before, after, instead = (oracle.answer(query) for oracle in (base, added, replaced))

        def size(difference, norm=before.norm):
            return np.ptp(difference) if norm is Norm.RANGE else np.linalg.norm(difference)

        assert size(after._value - before._value) <= before.bound(ADD_REMOVE, before.norm)
        assert size(after._value - instead._value) <= before.bound(REPLACE_ONE, before.norm)


def test_counts_and_samples(form):
    X, y = np.eye(4), np.array(["a", "b", "a", "c"])
    oracle = SoftmaxOracle(form(X), y, loss=Softmax(3), classes=["a", "b", "c"])
    assert oracle.answer(ClassCounts())._value.tolist() == [2.0, 1.0, 1.0]
    assert float(oracle.answer(Count())._value) == 4.0
    empty = oracle.answer(GradientAt(point=np.zeros(15)), sample_prob=1e-9, noise=NoiseSource(seed=1))
    assert empty._value.tolist() == [0.0] * 15
    assert empty.sample_prob == 1e-9


def test_mistakes():
    X, y = np.eye(3), np.array([0, 1, 2])
    for change, message in (
        ({"loss": Logistic()}, "loss must be a Softmax"),
        ({"classes": [0, 1]}, "classes must list the 3 different"),
        ({"classes": [0, 1, 1]}, "classes must list the 3 different"),
        ({"classes": [0, 1, 5]}, "declared classes"),
        ({"row_limit": 0.0}, "row_limit must be"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            SoftmaxOracle(X, y, **{"loss": Softmax(3), "classes": [0, 1, 2]} | change)
    oracle = SoftmaxOracle(X, y, loss=Softmax(3), classes=[0, 1, 2])
    with pytest.raises(InvalidArgument, match="12 entries"):
        oracle.answer(GradientAt(point=np.zeros(4)))
    with pytest.raises(InvalidArgument, match="query must be"):
        oracle.answer(Objective())


def test_a_table_that_is_changed_after_the_first_answer_is_still_limited():
    X = np.full((3, 2), 0.1)
    oracle = SoftmaxOracle(X, [0, 1, 2], loss=Softmax(3), classes=[0, 1, 2])
    query = GradientAt(point=np.zeros(9))
    oracle.answer(query)
    X[0] = 1e6
    total = oracle.answer(query)
    X[0] = 0.0
    without = oracle.answer(query)
    moved = np.linalg.norm(total._value - without._value)
    assert moved <= 2 * np.sqrt(2)
