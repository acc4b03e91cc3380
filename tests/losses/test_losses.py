"""Losses: derivatives are derivatives, constants are bounds, clipping keeps convexity."""

import math

import numpy as np
import pytest

from privypurse import InvalidArgument
from privypurse.losses import Hinge, Huber, HuberHinge, Logistic, Softmax, Squared

LOSSES = [
    Logistic(),
    Logistic(clip_derivative=0.5),
    Logistic(clip_derivative=0.1),
    Hinge(),
    Hinge(clip_derivative=0.4),
    HuberHinge(),
    HuberHinge(width=1.5),
    HuberHinge(clip_derivative=0.3, width=0.2),
    Squared(clip_derivative=2.0),
    Huber(threshold=0.7),
    Huber(threshold=3.0, clip_derivative=1.0),
]
SCORES = np.linspace(-6, 6, 2_401)


@pytest.fixture(params=LOSSES, ids=repr)
def loss(request):
    return request.param


@pytest.fixture(params=[-1.0, 1.0])
def target(request):
    return request.param


def test_the_derivative_is_the_slope_of_the_value(loss, target):
    values, slopes = loss.value(SCORES, target), loss.derivative(SCORES, target)
    rises = np.diff(values)
    trapezes = np.diff(SCORES) * (slopes[1:] + slopes[:-1]) / 2
    assert np.abs(rises - trapezes).max() < (1e-4 if math.isfinite(loss.smoothness) else 3e-3)


def test_constants_bound_what_they_say(loss, target):
    values, slopes = loss.value(SCORES, target), loss.derivative(SCORES, target)
    assert np.abs(slopes).max() <= loss.lipschitz * (1 + 1e-12)
    assert np.abs(slopes).max() == pytest.approx(loss.lipschitz, rel=0.01)
    assert np.abs(np.diff(slopes) / np.diff(SCORES)).max() <= loss.smoothness * (1 + 1e-9)
    assert (values >= 0).all()
    assert float(loss.value(0.0, target)) <= loss.value_at_zero() * (1 + 1e-12)
    length = 1.25
    window = int(length / (SCORES[1] - SCORES[0]))
    spread = max(np.ptp(values[k : k + window]) for k in range(0, SCORES.size - window, 7))
    assert spread <= loss.range_along(length)


def test_every_loss_is_convex(loss, target):
    assert (np.diff(loss.derivative(SCORES, target)) >= -1e-12).all()


def test_known_values():
    assert Logistic().value_at_zero() == pytest.approx(math.log(2))
    assert Hinge().value_at_zero() == HuberHinge().value_at_zero() == 1.0
    assert Logistic(clip_derivative=0.5).value(-3.0, 1.0) == pytest.approx(math.log(2) + 1.5), "linear beyond the knee"
    assert Logistic().value(800.0, -1.0) == pytest.approx(800.0)
    assert Logistic().derivative(-800.0, 1.0) == -1.0
    assert Huber(threshold=1.0).value(3.0, 0.0) == 2.5
    assert Squared().lipschitz == math.inf


@pytest.mark.parametrize(
    "make",
    [
        lambda: Logistic(clip_derivative=0.0),
        lambda: Logistic(clip_derivative=-1.0),
        lambda: Logistic(clip_derivative=math.nan),
        lambda: Logistic(clip_derivative=True),
        lambda: HuberHinge(width=0.0),
        lambda: Huber(threshold=math.inf),
        lambda: Softmax(1),
        lambda: Softmax(2.0),
        lambda: Softmax(3, clip_derivative=0.0),
    ],
)
def test_wrong_losses_are_refused(make):
    with pytest.raises(InvalidArgument):
        make()


@pytest.mark.parametrize("clip", [math.inf, 0.5])
def test_softmax(clip):
    loss, rng = Softmax(4, clip_derivative=clip), np.random.default_rng(0)
    scores, target = rng.standard_normal((200, 4)) * 3, rng.integers(0, 4, 200)
    slopes = loss.derivative(scores, target)
    assert np.linalg.norm(slopes, axis=1).max() <= loss.lipschitz * (1 + 1e-12)
    assert np.abs(slopes.sum(axis=1)).max() < 1e-12
    if clip == math.inf:
        for k in range(4):
            step = np.zeros(4)
            step[k] = 1e-6
            numeric = (loss.value(scores + step, target) - loss.value(scores - step, target)) / 2e-6
            assert numeric == pytest.approx(slopes[:, k], abs=1e-6)
    assert loss.value(np.zeros((1, 4)), np.array([2]))[0] == pytest.approx(loss.value_at_zero())
    moved = scores + rng.standard_normal(scores.shape)
    change = np.abs(loss.value(moved, target) - loss.value(scores, target))
    assert (change <= loss.range_along(1.0) * np.linalg.norm(moved - scores, axis=1)).all()
