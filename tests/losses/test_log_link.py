"""Losses with a log link: derivatives are derivatives, constants are bounds, clipping keeps convexity."""

import math

import numpy as np
import pytest
from scipy import stats

from privypurse import InvalidArgument
from privypurse.losses._linear import Gamma, Poisson

LOSSES = [Poisson(clip_derivative=c) for c in (0.2, 1.0, 5.0)] + [Gamma(clip_derivative=c) for c in (0.2, 1.0, 5.0)]
SCORES = np.linspace(-6, 4, 20_001)
TARGETS = [0.05, 0.7, 1.0, 3.0, 12.0]
LARGEST = 20.0  # 0.05 is one over this


@pytest.fixture(params=LOSSES, ids=repr)
def loss(request):
    return request.param


@pytest.mark.parametrize("target", TARGETS)
def test_the_derivative_is_the_slope_of_the_value(loss, target):
    values, slopes = loss.value(SCORES, target), loss.derivative(SCORES, target)
    trapezes = np.diff(SCORES) * (slopes[1:] + slopes[:-1]) / 2
    assert np.abs(np.diff(values) - trapezes).max() < 1e-6
    assert (np.diff(slopes) >= -1e-12).all(), "convex"
    assert values.min() == pytest.approx(0, abs=1e-6)
    assert SCORES[values.argmin()] == pytest.approx(math.log(target), abs=1e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_constants_bound_what_they_say(loss, target):
    slopes, bounds = loss.derivative(SCORES, target), loss.bounds(2.0, LARGEST)
    assert np.abs(slopes).max() <= loss.lipschitz * (1 + 1e-12)
    steepest = np.abs(np.diff(slopes) / np.diff(SCORES)).max()
    assert steepest <= loss.smoothness_for(target) * (1 + 1e-9)
    assert steepest > 0.99 * (loss.clip_derivative + (target if isinstance(loss, Poisson) else 1))
    assert float(loss.value(0.0, target)) <= bounds.initial_gap
    assert bounds.gradient == 2 * loss.clip_derivative
    assert bounds.smoothness == 4 * loss.smoothness_for(LARGEST)


def test_the_largest_loss_at_zero_is_reached(loss):
    targets = np.geomspace(1 / LARGEST, LARGEST, 501)
    if isinstance(loss, Poisson):
        targets = np.append(0.0, targets)
    assert loss.value(0.0, targets).max() == pytest.approx(loss.value_at_zero(LARGEST))


def test_without_a_clip_they_are_negative_log_likelihoods():
    scores, counts = np.linspace(-2, 3, 11), np.arange(11.0)
    density = -stats.poisson.logpmf(counts, np.exp(scores))
    at_best = -stats.poisson.logpmf(counts, np.maximum(counts, 1e-99))
    assert Poisson().value(scores, counts) == pytest.approx(density - at_best)
    density, at_best = (-stats.expon.logpdf(counts + 1, scale=mean) for mean in (np.exp(scores), counts + 1))
    assert Gamma().value(scores, counts + 1) == pytest.approx(density - at_best)
    assert Poisson().derivative(1.0, 3.0) == pytest.approx(math.e - 3)
    assert Gamma().derivative(1.0, 3.0) == pytest.approx(1 - 3 / math.e)


def test_beyond_the_knees_the_loss_is_linear():
    for target in (0.0, 2.0):
        values = Poisson(clip_derivative=0.5).value([5.0, 6.0, 1e9], target)
        assert np.diff(values) == pytest.approx([0.5, 0.5 * (1e9 - 6)])
    assert Poisson(clip_derivative=0.5).derivative(-9.0, 0.0) == pytest.approx(math.exp(-9))
    assert np.diff(Gamma(clip_derivative=3.0).value([-50.0, -49.0], 1.0)) == pytest.approx([-3.0])


@pytest.mark.parametrize(
    ("loss", "bounds", "message"),
    [
        (Poisson(), (-1.0, 5.0), "at 0 or above"),
        (Gamma(), (0.0, 5.0), "above 0"),
        (Gamma(), (-3.0, 5.0), "above 0"),
    ],
)
def test_targets_that_a_loss_does_not_allow_are_refused(loss, bounds, message):
    with pytest.raises(InvalidArgument, match=message):
        loss.target_bound(*bounds)
