"""copy_X: the same model either way, and only an array that was given away is changed."""

import numpy as np
import pytest
from scipy import sparse

from privypurse import InvalidArgument
from privypurse.estimators import PrivateLogisticRegression, PrivateRidge
from privypurse.methods import Nesterov
from privypurse.training._trace import Trace
from tests.estimators.tables import a_table, a_target

X, Y = a_table()
MODELS = {
    "classes": (lambda **settings: PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0, **settings), Y),
    "numbers": (lambda **settings: PrivateRidge(1.0, target_bounds=(0, 100), random_state=0, **settings), a_target(X)),
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_model_is_the_same_whether_the_table_is_copied_or_not(kind):
    make, y = MODELS[kind]
    single = X.astype(np.float32)
    kept, given = single.copy(), single.copy()
    one, other = make(copy_X=True).fit(kept, y), make(copy_X=False).fit(given, y)
    assert one.coef_.tobytes() == other.coef_.tobytes()
    assert np.asarray(one.intercept_).tobytes() == np.asarray(other.intercept_).tobytes()
    np.testing.assert_array_equal(kept, single)
    assert not np.array_equal(given, single)


@pytest.mark.parametrize(
    "form", [np.asarray, np.asfortranarray, sparse.csr_matrix, lambda X: X[:, ::-1].astype(np.float32)[:, ::-1]]
)
def test_what_is_no_array_in_single_precision_is_never_changed(form):
    table = form(X.copy())
    before = table.copy()
    PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0, copy_X=False).fit(table, Y)
    difference = abs(table - before)
    assert difference.max() == 0


def test_an_array_that_may_not_be_written_is_left_alone():
    table = X.astype(np.float32)
    table.flags.writeable = False
    PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0, copy_X=False).fit(table, Y)
    np.testing.assert_array_equal(table, X.astype(np.float32))


def test_copy_X_is_true_or_false():
    with pytest.raises(InvalidArgument, match="copy_X must be True or False"):
        PrivateLogisticRegression(1.0, copy_X="no").fit(X, Y)


def test_a_method_may_be_named():
    by_name = PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0, method="nesterov").fit(X, Y)
    by_object = PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0, method=Nesterov()).fit(X, Y)
    assert by_name.coef_.tobytes() == by_object.coef_.tobytes()
    with pytest.raises(InvalidArgument, match="must be one of auto, nesterov"):
        PrivateLogisticRegression(1.0, method="magic").fit(X, Y)


@pytest.mark.parametrize("method", ["auto", "nesterov", "dp-agd"])
def test_a_trace_knows_how_far_each_update_went(method):
    trace = PrivateLogisticRegression(2.0, classes=[0, 1], random_state=0, method=method).fit(X, Y).trace_
    updates = sum(step.noise_std is not None for step in trace.steps)
    chosen = [step.step_size for step in trace.steps if step.step_size is not None]
    assert bool(chosen) == (method == "dp-agd")
    assert len(trace.step_sizes) == (len(chosen) or updates)
    again = Trace.from_json(trace.to_json())
    assert again == trace
    assert again.step_sizes == trace.step_sizes


def test_traces_from_before_there_were_step_sizes_can_be_read():
    step = '{"number": 1, "query": "q", "charge": {}, "noise_std": 1.0, "chosen": null, "fraction_left": 0.5}'
    old = f'{{"steps": [{step}], "stop_reason": "steps"}}'
    assert Trace.from_json(old).step_sizes == ()
