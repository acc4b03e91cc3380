"""A constant of any value is a column of that value: in training, in bounds and in prediction."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from privypurse import InvalidArgument, Neighbouring, Norm
from privypurse.core.queries import GradientAt, LossesAlong
from privypurse.losses import Huber, HuberHinge, Logistic, Softmax
from privypurse.oracles._linear import ChunkedOracle, DenseOracle, SparseOracle
from privypurse.oracles._softmax import SoftmaxOracle
from privypurse.training._prediction import linear_scores, softmax_scores
from tests.each import each
from tests.oracles import reference

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE


def single(X):
    with np.errstate(over="ignore"):
        return np.asarray(X).astype(np.float32)


ORACLES = {
    "float64": DenseOracle,
    "float32": lambda X, y, **s: DenseOracle(single(X), y, **s),
    "float32 by column": lambda X, y, **s: DenseOracle(np.asfortranarray(single(X)), y, **s),
    "float64 by column": lambda X, y, **s: DenseOracle(np.asfortranarray(X), y, **s),
    "sparse": lambda X, y, **s: SparseOracle(sparse.csr_matrix(X), y, **s),
    "sparse ones": lambda X, y, **s: SparseOracle(sparse.csr_matrix(X), y, **s),
    "chunked": lambda X, y, **s: ChunkedOracle(lambda: iter([(X[:50], y[:50]), (X[50:], y[50:])]), features=7, **s),
}
CONSTANTS = [0.3, 1e-3, 6.0, 1]


@pytest.fixture(params=ORACLES.items(), ids=ORACLES.keys())
def kind(request):
    return request.param


def table(rng, ones):
    X = rng.standard_normal((90, 7)) * rng.uniform(0.05, 2, (90, 1))
    X[rng.random(X.shape) < 0.5] = 0.0
    if ones:  # sparse tables of ones have kernels of their own
        return (X != 0).astype(float)
    X[3], X[4, 0], X[5, 1], X[6] = 0.0, np.nan, np.inf, 1e300
    return X


def queries(rng, dimension):
    w, u = rng.standard_normal((2, dimension))
    steps = np.array([0.0, 0.1, 0.5, 2.0])
    yield GradientAt(point=w)
    yield GradientAt(point=3 * w, clip_norm=0.2)
    yield LossesAlong(point=w, direction=u, steps=steps)
    yield LossesAlong(point=w, direction=u, steps=np.arange(6.0), clip_loss=0.9)


@pytest.mark.parametrize(
    "loss", [Logistic(), Logistic(clip_derivative=0.3), HuberHinge(), Huber(threshold=0.5)], ids=repr
)
@each("constant", CONSTANTS)
@each("row_limit", [1.0, 0.4])
def test_it_is_a_column_of_that_value(kind, loss, row_limit, constant):
    name, make = kind
    rng = np.random.default_rng(5)
    X = table(rng, ones=name == "sparse ones")
    y = rng.integers(0, 2, len(X)) if loss.classification else rng.uniform(-1, 1, len(X))
    more = {} if loss.classification else {"target_bounds": (-1.0, 1.0)}
    oracle = make(X, y, loss=loss, row_limit=row_limit, constant=constant, **more)
    assert oracle.dimension == 8
    assert oracle.has_constant
    encoded = np.where(y == 1, 1.0, -1.0) if loss.classification else y
    extended = np.column_stack([X, np.full(len(X), float(constant))])
    for query in queries(rng, 8):
        expected = reference.answer(extended, encoded, query, loss=loss, row_limit=row_limit, constant=False)
        assert oracle.answer(query)._value == pytest.approx(expected, rel=3e-5, abs=1e-3)


def test_true_is_one_and_false_is_none(kind):
    name, make = kind
    rng = np.random.default_rng(6)
    X, y = table(rng, ones=name == "sparse ones"), rng.integers(0, 2, 90)
    w = rng.standard_normal(8)

    def gradient(**settings_):
        oracle = make(X, y, loss=Logistic(), **settings_)
        return oracle.answer(GradientAt(point=w[: oracle.dimension]))._value

    assert gradient(constant=True).tolist() == gradient(constant=1.0).tolist() == gradient().tolist()
    assert gradient(constant=False).shape == (7,)
    assert gradient(constant=0.3)[-1] != pytest.approx(gradient()[-1], rel=0.05)


@pytest.mark.parametrize("wrong", [0, 0.0, -1.0, math.nan, math.inf, 1e-200, "1", None, [1.0]], ids=repr)
def test_wrong_values_are_refused(wrong):
    for make in (
        lambda: DenseOracle([[1.0]], [0], loss=Logistic(), constant=wrong),
        lambda: SoftmaxOracle([[1.0]], [0], loss=Softmax(2), classes=[0, 1], constant=wrong),
        lambda: linear_scores([[1.0]], [1.0, 2.0], constant=wrong),
        lambda: softmax_scores([[1.0]], [1.0, 2.0, 3.0, 4.0], classes=2, constant=wrong),
    ):
        with pytest.raises(InvalidArgument, match="constant must be"):
            make()


anything = st.one_of(st.floats(-3, 3), st.sampled_from([0.0, math.nan, math.inf, 1e300, 1e-300, 1e38, 1e155]))


@pytest.mark.parametrize("name", ["float64", "float32", "float32 by column", "sparse"])
@settings(max_examples=50)
@given(
    X=hnp.arrays(np.float64, (7, 3), elements=anything),
    y=st.lists(st.integers(0, 1), min_size=7, max_size=7),
    constant=st.sampled_from([0.3, 1e-60, 50.0]),
    row_limit=st.sampled_from([1.0, 0.2]),
    w=hnp.arrays(np.float64, 4, elements=st.floats(-20, 20)),
    clip=st.sampled_from([None, 0.1]),
)
def test_no_record_moves_a_gradient_by_more_than_the_bound(name, X, y, constant, row_limit, w, clip):
    def answer(rows):
        labels = np.array(y)[list(rows)]
        oracle = ORACLES[name](X[list(rows)], labels, loss=Logistic(), constant=constant, row_limit=row_limit)
        return oracle.answer(GradientAt(point=w, clip_norm=clip))

    before, after, instead = answer(range(5)), answer(range(6)), answer([*range(5), 6])
    assert np.linalg.norm(after._value - before._value) <= before.bound(ADD_REMOVE, Norm.L2)
    assert np.linalg.norm(after._value - instead._value) <= before.bound(REPLACE_ONE, Norm.L2)


# --------------------------------------------------------------------------------------- prediction


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("constant", [0.3, 6.0, True, False])
@pytest.mark.parametrize("row_limit", [1.0, 0.4, 1e9])
def test_predicted_scores_are_those_of_training(form, constant, row_limit):
    """One record at a time: the slope of the logistic loss, as the oracle takes it, says what score
    it saw.
    """
    rng = np.random.default_rng(7)
    X = rng.standard_normal((30, 4)) * rng.uniform(0.05, 2, (30, 1))
    X[2] = 0.0
    point = rng.standard_normal(4 + (constant is not False))
    predicted = linear_scores(form(X), point, row_limit=row_limit, constant=constant)
    for x, score in zip(X, predicted, strict=True):
        row = np.append(x, float(constant)) if constant else x
        oracle = DenseOracle(x[None], [0], loss=Logistic(), row_limit=row_limit, constant=constant)
        gradient = oracle.answer(GradientAt(point=point))._value
        seen = row * min(1.0, row_limit / np.linalg.norm(row)) if row.any() else row
        # The slope for a negative record is 1/(1 + exp(-score)).
        assert gradient == pytest.approx(seen / (1 + math.exp(-score)), rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("constant", [0.25, True, False])
def test_predicted_scores_of_several_classes_are_those_of_training(constant):
    rng = np.random.default_rng(8)
    X, columns = rng.standard_normal((20, 3)), 3 + (constant is not False)
    point = rng.standard_normal(3 * columns)
    scores = softmax_scores(X, point, classes=3, row_limit=0.8, constant=constant)
    for x, predicted in zip(X, scores, strict=True):
        row = np.append(x, float(constant)) if constant else x
        row = row * min(1.0, 0.8 / np.linalg.norm(row))
        oracle = SoftmaxOracle(x[None], [1], loss=Softmax(3), classes=range(3), row_limit=0.8, constant=constant)
        gradient = oracle.answer(GradientAt(point=point))._value.reshape(columns, 3)
        slope = np.exp(predicted) / np.exp(predicted).sum() - [0.0, 1.0, 0.0]
        assert gradient == pytest.approx(np.outer(row, slope), rel=1e-3, abs=1e-9)


def test_the_constant_takes_its_part_of_the_limit():
    assert linear_scores([[3.0, 0.0]], [1.0, 0.0, 1.0], row_limit=2.5, constant=4.0) == pytest.approx([1.5 + 2.0])
    assert linear_scores([[0.3, 0.0]], [1.0, 0.0, 1.0], row_limit=2.5, constant=0.4) == pytest.approx([0.7])
