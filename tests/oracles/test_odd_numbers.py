"""Numbers of odd kinds: none of them makes an error or a warning that one record decides."""

import numpy as np
import pandas as pd
import pytest

from privypurse.core._errors import InvalidArgument
from privypurse.core.queries import GradientAt
from privypurse.losses import Logistic, Squared
from privypurse.oracles import DenseOracle
from privypurse.oracles._scores import Targets, limit_scores


def gradient(rows, targets, **settings):
    oracle = DenseOracle(rows, targets, constant=False, **settings)
    return oracle.answer(GradientAt(point=np.full(2, 0.1), clip_norm=1.0))._value


@pytest.mark.parametrize("odd", [10**400, -(10**400), None, pd.NA, np.nan])
def test_what_is_no_float_contributes_nothing(odd):
    rows = np.array([[0.5, 1.0], [odd, 1.0], [0.25, -0.5]], dtype=object)
    kept = gradient(rows[[0, 2]].astype(float), [0, 1], loss=Logistic())
    assert np.allclose(gradient(rows, [0, 1, 1], loss=Logistic()), kept, atol=1e-12)


def test_text_is_refused_and_not_quoted():
    with pytest.raises(InvalidArgument, match="Encode text columns") as caught:
        gradient(np.array([[0.5, "a secret"], [1.0, 2.0]], dtype=object), [0, 1], loss=Logistic())
    assert "secret" not in str(caught.value)


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(np.float64).max, reason="no longer floats here")
def test_longer_floats_are_cut_without_a_warning():
    huge = np.longdouble("1e400")
    rows = np.array([[0.5, 1.0], [huge, 1.0]], dtype=np.longdouble)
    assert np.allclose(gradient(rows, [0, 1], loss=Logistic()), gradient(rows[:1], [0], loss=Logistic()))
    found = gradient(rows[:1], np.array([huge]), loss=Squared(), target_bounds=(-1.0, 1.0))
    assert np.allclose(found, gradient(rows[:1], [1.0], loss=Squared(), target_bounds=(-1.0, 1.0)))


def test_a_length_that_is_no_number_is_worth_nothing():
    candidates = np.array([0.5, 1.0])
    whole = limit_scores(np.array([0.5, np.nan, 2.0]), candidates)._value
    assert np.array_equal(whole, limit_scores(np.array([0.5, 2.0]), candidates)._value)
    assert np.isfinite(Targets([0.5, np.nan], (-1.0, 1.0)).beyond(0.0, candidates)._value).all()
