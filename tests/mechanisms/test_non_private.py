"""Releases without privacy give what they say, and only through a purse that is declared so."""

import math

import numpy as np
import pytest

from privypurse import InvalidArgument, Neighbouring, NoiseSource, Norm, Purse, Sensitive
from privypurse.core._errors import UnboundedSensitivity, UnsupportedCharge
from privypurse.core._sensitive import SensitiveObjective
from privypurse.mechanisms._non_private import (
    NoiseAsLongAsTheValue,
    NonPrivateAnswer,
    NonPrivateMinimiser,
    NonPrivateRelease,
)

BOX = Sensitive([3.0, 4.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)
SCORES = Sensitive([3.0, 4.0], norm=Norm.RANGE, add_remove=1.0, replace_one=2.0)


def objective():
    """The sum of (w - 3)^2 / 2 in each of two coordinates, with its exact minimiser."""
    return SensitiveObjective(
        lambda shift, ridge, tolerance: (np.full(2, 3.0) - shift) / (1 + ridge),
        dimension=2,
        gradient=1.0,
        curvature=1.0,
    )


EACH = {
    "value": (NonPrivateRelease("test"), BOX),
    "answer": (NonPrivateAnswer("test", lambda value, noise: value + 1), BOX),
    "minimiser": (NonPrivateMinimiser("test", ridge=1.0, tolerance=1e-6), objective()),
    "noise": (NoiseAsLongAsTheValue(), BOX),
}


@pytest.mark.parametrize("name", EACH)
def test_only_a_purse_that_says_so_admits_them(name):
    mechanism, box = EACH[name]
    with pytest.raises(UnsupportedCharge, match=r"needs a purse made by Purse\.not_private"):
        Purse(1.0, 1e-6, neighbouring="add-remove").release(box, mechanism)
    purse = Purse.not_private()
    purse.release(box, mechanism)
    assert purse.spent.epsilon == math.inf
    assert not purse.certificate().private


def test_what_is_released():
    purse = Purse.not_private()
    assert purse.release(*reversed(EACH["value"])).value.tolist() == [3.0, 4.0]
    assert purse.release(*reversed(EACH["answer"])).value.tolist() == [4.0, 5.0]
    assert purse.release(*reversed(EACH["minimiser"])).value.tolist() == [1.5, 1.5]


def test_noise_as_long_as_the_value():
    for mechanism, length in ((NoiseAsLongAsTheValue(), 5.0), (NoiseAsLongAsTheValue((-3.0, 4.0)), 8.0)):
        released = Purse.not_private(noise=NoiseSource(seed=3)).release(BOX, mechanism)
        assert released.noise_std == pytest.approx(length / math.sqrt(2))
        drawn = NoiseSource(seed=3).normal((2,))
        assert released.value == pytest.approx([3.0, 4.0] + released.noise_std * drawn)


@pytest.mark.parametrize(
    ("mechanism", "box", "error"),
    [
        (NonPrivateRelease("test"), objective(), InvalidArgument),
        (NonPrivateMinimiser("test", 1.0, 1e-6), BOX, InvalidArgument),
        (NonPrivateMinimiser("test", 0.5, 1e-6), objective(), InvalidArgument),
        (NoiseAsLongAsTheValue(), SCORES, UnboundedSensitivity),
    ],
)
def test_a_box_that_holds_something_else_is_refused(mechanism, box, error):
    with pytest.raises(error):
        mechanism.charge(box, Neighbouring.ADD_REMOVE)
