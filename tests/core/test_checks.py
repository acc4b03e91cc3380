"""Argument checks refuse what is a number only by accident, and say what to pass instead."""

import math

import numpy as np
import pytest
from tests.each import each

from privypurse import Purse
from privypurse.core import _checks as checks
from privypurse.core._errors import InvalidArgument
from privypurse.losses import Huber, Logistic
from privypurse.methods import Nesterov
from privypurse.oracles import ChunkedOracle, DenseOracle
from privypurse.oracles.statistics import counts
from privypurse.training import fit, train

NOT_NUMBERS = [math.nan, math.inf, -math.inf, True, False, np.True_, "1.0", None, [1.0], np.array([1.0]), 1j, b"1"]
NUMBER_CHECKS = [checks.ordinary, checks.positive, checks.non_negative, checks.probability, checks.small_probability]


@pytest.mark.parametrize("check", NUMBER_CHECKS)
@each("value", NOT_NUMBERS)
def test_every_number_check_refuses_what_is_not_a_finite_number(check, value):
    with pytest.raises(InvalidArgument) as refusal:
        check(clip_norm=value)
    message = str(refusal.value)
    assert message.startswith("clip_norm must be"), "names the argument"
    assert f"got {checks.shown(value)}" in message, "shows the value, or what kind of thing it is"
    assert "Pass for example clip_norm=" in message, "says what to pass"


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checks.positive, [1, 2.5, np.float32(3), np.int64(4), 5e-324], [0, -1, -0.0]),
        (checks.ordinary, [1e-100, 1, 1e100], [0, 9e-101, 1.1e100, -1]),
        (checks.non_negative, [0, 0.0, 7], [-1e-300]),
        (checks.probability, [1, 1.0, 1e-9], [0, 1.0000001, -0.5]),
        (checks.small_probability, [0.5, 1e-15], [0, 1, 2]),
    ],
)
def test_limits_of_number_checks(check, good, bad):
    for value in good:
        assert check(x=value) == float(value)
        assert type(check(x=value)) is float
    for value in bad:
        with pytest.raises(InvalidArgument):
            check(x=value)


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 1.0, 0, -3, np.float64(2)], ids=repr)
def test_positive_integer_refuses(value):
    with pytest.raises(InvalidArgument, match="steps must be a whole number"):
        checks.positive_integer(steps=value)


def test_positive_integer_accepts_numpy_integers():
    assert checks.positive_integer(steps=np.int32(3)) == 3


def test_an_integer_too_large_for_a_float_is_refused():
    with pytest.raises(InvalidArgument):
        checks.positive(x=10**400)


def test_values_without_a_short_text_are_shown_by_their_type():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert checks.shown(deep) == "an object of type list"
    assert checks.shown([10**5000]) == "an object of type list"
    assert checks.shown(Logistic) == "the class Logistic"


def test_the_home_folder_of_an_unknown_user_is_refused():
    with pytest.raises(InvalidArgument, match="names the home of an unknown user"):
        checks.at_home("~no-such-user/budget.db")


def test_the_constant_of_a_model():
    assert [checks.constant_value(value) for value in (True, False, 2)] == [1.0, 0.0, 2.0]
    with pytest.raises(InvalidArgument, match="constant must be True, False or a number"):
        checks.constant_value(0.0)


@pytest.mark.parametrize("value", ["", "  ", None, 3])
def test_text_refuses(value):
    with pytest.raises(InvalidArgument, match="dataset must be a non-empty string"):
        checks.text(dataset=value)


def test_finite_vector_copies_and_freezes():
    original = np.array([1, 2], dtype=np.int32)
    checked = checks.finite_vector(point=original)
    original[0] = 9
    assert checked.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        checked[0] = 0


@pytest.mark.parametrize("value", [[[1.0]], [math.nan], [math.inf], ["a"], [True], 3.0], ids=repr)
def test_finite_vector_refuses(value):
    with pytest.raises(InvalidArgument, match="point must be"):
        checks.finite_vector(point=value)


def test_messages_never_show_what_may_be_records():
    """A table passed in the wrong place is named by its type and shape."""
    rows = np.full((500, 3), 41.123456)
    shows = [
        lambda: checks.positive(records=rows),
        lambda: DenseOracle(rows, np.zeros(500), loss=rows),
        lambda: DenseOracle(rows, np.zeros(500), loss=Logistic(), classes=rows[:, 0]),
        lambda: DenseOracle(rows, rows[:, 0], loss=Huber(threshold=1.0), target_bounds=rows[:, 0]),
        lambda: DenseOracle(rows, np.zeros(500), loss=Logistic(), constant=rows),
        lambda: DenseOracle(rows, np.zeros(500), loss=Logistic()).answer(rows),
        lambda: ChunkedOracle([(rows, rows)], features=3, loss=Logistic()),
        lambda: counts(rows[:, 0], categories=rows[:, 0]),
        lambda: Purse(rows, 1e-6, neighbouring="add-remove"),
        lambda: fit(rows, Nesterov(), Purse(1.0, 1e-6, neighbouring="add-remove"), records=500),
        lambda: train(rows, rows, rows, rows, steps=3),
    ]
    for call in shows:
        with pytest.raises(InvalidArgument) as caught:
            call()
        assert "41.12" not in str(caught.value)
    assert checks.shown((0, 1)) == "(0, 1)"
    assert checks.shown("x" * 200) == "an object of type str"
    assert checks.shown(Logistic()) == "Logistic(clip_derivative=inf)"
