"""The multinomial oracle with any constant, any loss, in blocks and in samples: always the loop
over single rows.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from privypurse import Neighbouring, NoiseSource, Norm
from privypurse.core.queries import ClassCounts, Count, GradientAt, LossesAlong
from privypurse.losses import Softmax
from privypurse.losses._linear import OneVsRest
from privypurse.oracles._encoding import ROUNDING_MARGIN
from privypurse.oracles._sampling import poisson_rows
from privypurse.oracles._softmax import SoftmaxOracle
from tests.each import each

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE
LOSSES = [Softmax(3), Softmax(3, clip_derivative=0.6), OneVsRest(3), OneVsRest(3, width=0.1, clip_derivative=0.7)]
STEPS = np.array([0.0, 0.2, 1.5])


def single(X):
    with np.errstate(over="ignore"):
        return np.asarray(X).astype(np.float32)


FORMS = {
    "float64": np.asarray,
    "float32": single,
    "by column": np.asfortranarray,
    "sparse": sparse.csr_matrix,
    "sparse float32": lambda X: sparse.csr_matrix(single(X)),
    "sparse columns": sparse.csc_array,
}


def table(rng, rows, columns=4):
    X = rng.standard_normal((rows, columns)) * 10.0 ** rng.uniform(-2, 1, (rows, 1))
    X[rng.random(X.shape) < 0.4] = 0.0
    X[0], X[1, 0], X[2, 1], X[3] = 0.0, np.nan, np.inf, 1e300
    return X, rng.integers(0, 3, rows)


def limited(X, constant, row_limit):
    """Each row with its constant, scaled down; None where it is not finite."""
    for x in X:
        row = [*x, constant] if constant else list(x)
        length = math.hypot(*row) if all(abs(v) < 1e150 for v in row) else math.inf
        yield np.array(row) * min(1.0, row_limit / length if length else 1.0) if length < math.inf else None


def plain_gradient(X, y, w, loss, constant=0.25, row_limit=1.0, clip=math.inf):
    total, inside = np.zeros_like(w), min(clip, loss.lipschitz * row_limit) * (1 - ROUNDING_MARGIN)
    for row, label in zip(limited(X, constant, row_limit), y, strict=True):
        if row is not None:
            gradient = np.outer(row, loss.derivative((row @ w)[None], np.array([label]))[0])
            total += gradient * min(1.0, inside / max(np.linalg.norm(gradient), 1e-200))
    return total.ravel()


def plain_scores(X, y, w, u, loss, constant=0.25, row_limit=1.0, clip=math.inf):
    total = np.zeros(STEPS.size)
    for row, label in zip(limited(X, constant, row_limit), y, strict=True):
        if row is not None:
            losses = [float(loss.value((row @ (w - s * u))[None], np.array([label]))[0]) for s in STEPS]
            total -= np.minimum(losses, clip) - min(losses[0], clip)
    return total


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@each(("constant", "row_limit"), [(0.25, 1.0), (0.25, 0.2), (4.0, 1.5), (True, 2.0), (False, 1.0)])
def test_every_constant_is_a_column_of_its_value(form, loss, constant, row_limit):
    rng = np.random.default_rng(7)
    X, y = table(rng, 60)
    oracle = SoftmaxOracle(form(X), y, loss=loss, classes=range(3), row_limit=row_limit, constant=constant)
    columns = 4 + (constant is not False)
    assert oracle.dimension == 3 * columns
    assert oracle.has_constant is (constant is not False)
    w, u = rng.standard_normal((2, columns, 3))
    for clip in (None, 0.15):
        box = oracle.answer(GradientAt(point=w.ravel(), clip_norm=clip))
        expected = plain_gradient(X, y, w, loss, float(constant), row_limit, clip or math.inf)
        assert box._value == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert box.bound(ADD_REMOVE, Norm.L2) == pytest.approx(min(clip or math.inf, loss.lipschitz * row_limit))
        query = LossesAlong(point=w.ravel(), direction=u.ravel(), steps=STEPS, clip_loss=clip)
        scores = plain_scores(X, y, w, u, loss, float(constant), row_limit, clip or math.inf)
        assert oracle.answer(query)._value == pytest.approx(scores, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_blocks_are_put_together(form):
    """More rows than one block has, some of them not finite, also where columns are many and blocks
    are small.
    """
    rng = np.random.default_rng(8)
    X, y = table(rng, 4_500)
    X[rng.integers(0, 4_500, 50), 1] = np.nan
    w = rng.standard_normal((5, 3))
    oracle = SoftmaxOracle(form(X), y, loss=Softmax(3), classes=range(3), constant=0.25)
    expected = plain_gradient(X, y, w, Softmax(3))
    for _ in range(2):  # lengths are remembered
        assert oracle.answer(GradientAt(point=w.ravel()))._value == pytest.approx(expected, rel=1e-6, abs=1e-6)
    wide = sparse.random(150, 40_000, density=2e-4, format="csr", random_state=1)
    labels, at = rng.integers(0, 3, 150), rng.standard_normal((40_001, 3))
    oracle = SoftmaxOracle(wide, labels, loss=Softmax(3), classes=range(3), constant=0.25)
    rows = wide.toarray()
    assert oracle._block_rows < 150
    expected = plain_gradient(rows, labels, at, Softmax(3))
    assert oracle.answer(GradientAt(point=at.ravel()))._value == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_a_sample_is_the_answer_over_its_rows(form, rate):
    rng = np.random.default_rng(9)
    X, y = table(rng, 700)
    oracle = SoftmaxOracle(form(X), y, loss=OneVsRest(3), classes=range(3), constant=0.25)
    w, u = rng.standard_normal((2, 5, 3))
    chosen = poisson_rows(700, rate, NoiseSource(seed=2))
    assert abs(chosen.size - 700 * rate) < 5 * math.sqrt(700 * rate)

    def sampled(query):
        box = oracle.answer(query, sample_prob=rate, noise=NoiseSource(seed=2))
        assert box.sample_prob == rate
        return box._value

    expected = plain_gradient(X[chosen], y[chosen], w, OneVsRest(3))
    assert sampled(GradientAt(point=w.ravel())) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    scores = plain_scores(X[chosen], y[chosen], w, u, OneVsRest(3))
    along = LossesAlong(point=w.ravel(), direction=u.ravel(), steps=STEPS)
    assert sampled(along) == pytest.approx(scores, rel=1e-5, abs=1e-5)
    assert sampled(Count()) == chosen.size
    assert sampled(ClassCounts()).tolist() == np.bincount(y[chosen], minlength=3).tolist()


EDGES = [math.nan, math.inf, 1e300, 1e154, 1e153, 0.0, 1e-160, 1e-300]
anything = st.one_of(st.floats(-3, 3), st.sampled_from(EDGES))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("form", [np.asarray, single, sparse.csr_matrix], ids=["float64", "float32", "sparse"])
@settings(max_examples=40)
@given(data=st.data())
def test_no_record_moves_an_answer_by_more_than_the_bound(loss, form, data):
    X = data.draw(hnp.arrays(np.float64, (4, 2), elements=anything))
    extra = data.draw(hnp.arrays(np.float64, (2, 2), elements=anything))
    y = np.array(data.draw(st.lists(st.integers(0, 2), min_size=6, max_size=6)))
    # With a limit of 1e12 and no constant, a row of zeros divides a large number by its length.
    constant, row_limit = data.draw(
        st.sampled_from([(0.25, 1.0), (1e-3, 0.1), (30.0, 2.0), (False, 1.0), (False, 1e12)])
    )
    size_ = 3 * (2 + (constant is not False))
    far = 9.0 if row_limit < 1e6 else 1e-12
    w, u = far * data.draw(hnp.arrays(np.float64, (2, size_), elements=st.floats(-1, 1)))
    clip = data.draw(st.sampled_from([None, 0.3]))

    def build(rows, labels):
        settings_ = {"loss": loss, "classes": [0, 1, 2], "constant": constant, "row_limit": row_limit}
        return SoftmaxOracle(form(rows), labels, **settings_)

    base, added = build(X, y[:4]), build(np.vstack([X, extra[:1]]), y[:5])
    replaced = build(np.vstack([extra[1:], X]), np.append(y[5], y[:4]))
    for query in (
        GradientAt(point=w, clip_norm=clip),
        LossesAlong(point=w, direction=u, steps=STEPS, clip_loss=clip),
        ClassCounts(),
        Count(),
    ):
        before, after, instead = (oracle.answer(query) for oracle in (base, added, replaced))

        def size(difference, norm=before.norm):
            difference = np.atleast_1d(difference)
            return np.ptp(difference) if norm is Norm.RANGE else np.linalg.norm(difference)

        assert size(after._value - before._value) <= before.bound(ADD_REMOVE, before.norm)
        assert size(after._value - instead._value) <= before.bound(REPLACE_ONE, before.norm)


def test_the_bound_on_scores_leaves_room_for_losses_as_large_as_they_are():
    """The rounding of a sum is that of its terms, which begin at the loss's own value at zero."""
    at = np.zeros(6)
    tiny = LossesAlong(point=at, direction=at + 1e-9, steps=[0.0, 1.0])

    def slack(loss):
        oracle = SoftmaxOracle([[1.0, 0.0]], [0], loss=loss, classes=[0, 1])
        return oracle.answer(tiny).bound(ADD_REMOVE, Norm.RANGE) - loss.range_along(1e-9 * math.sqrt(6))

    for loss in (Softmax(2), OneVsRest(2), OneVsRest(2, width=5.0)):
        assert slack(loss) > 0.99e-7 * loss.value_at_zero()
