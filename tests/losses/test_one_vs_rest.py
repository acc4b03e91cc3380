"""The support vector machine for several classes: its constants hold, and are reached."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privypurse import InvalidArgument
from privypurse.losses import Softmax
from privypurse.losses._linear import OneVsRest

WIDTHS = [0.05, 0.5, 1.0, 3.0]


@st.composite
def problems(draw, points=2, far=8.0):
    """A loss, a target and some places for the scores, often within the rounded part."""
    classes, width = draw(st.integers(2, 6)), draw(st.sampled_from(WIDTHS))
    clip = draw(st.sampled_from([math.inf, 0.9, 0.2]))
    near = st.floats(-1 - width, 1 + width)
    scores = hnp.arrays(np.float64, classes, elements=st.one_of(near, st.floats(-far, far)))
    loss = OneVsRest(classes, width=width, clip_derivative=clip)
    return loss, draw(st.integers(0, classes - 1)), [draw(scores) for _ in range(points)]


def unclipped(loss):
    return OneVsRest(loss.classes, width=loss.width)


def value(loss, scores, target):
    return float(loss.value(scores[None], np.array([target]))[0])


def slope(loss, scores, target):
    return loss.derivative(scores[None], np.array([target]))[0]


def plain(scores, target, width):
    """One class at a time."""

    def hinge(z):
        return 0.0 if z > 1 + width else 1 - z if z < 1 - width else (1 + width - z) ** 2 / (4 * width)

    others = [hinge(-s) for k, s in enumerate(scores) if k != target]
    return hinge(scores[target]) + sum(others) / len(others)


@given(problems(points=1))
def test_values(problem):
    loss, target, (scores,) = problem
    assert value(unclipped(loss), scores, target) == pytest.approx(
        plain(scores, target, loss.width), rel=1e-12, abs=1e-12
    )
    many = np.array([scores, scores[::-1], 0 * scores])
    alone = [value(loss, row, target) for row in many]
    assert loss.value(many, np.full(3, target)).tolist() == alone, "no record changes another's"


@given(problems(points=1))
def test_the_derivative_is_that_of_the_value(problem):
    loss, target, (scores,) = problem
    loss, step = unclipped(loss), 1e-6
    for k, exact in enumerate(slope(loss, scores, target)):
        ahead, behind = scores.copy(), scores.copy()
        ahead[k] += step
        behind[k] -= step
        numerical = (value(loss, ahead, target) - value(loss, behind, target)) / (2 * step)
        assert numerical == pytest.approx(exact, abs=loss.smoothness * step + 1e-8)


@settings(max_examples=200)
@given(problems(far=1e9))
def test_no_constant_is_passed(problem):
    loss, target, (here, there) = problem
    moved = float(np.linalg.norm(here - there))
    change = slope(loss, here, target) - slope(loss, there, target)
    for scores in (here, there):
        assert np.linalg.norm(slope(loss, scores, target)) <= loss.lipschitz * (1 + 1e-12)
        # Clipping shortens, and does not turn.
        whole = slope(unclipped(loss), scores, target)
        assert slope(loss, scores, target) == pytest.approx(
            whole * min(1.0, loss.clip_derivative / max(np.linalg.norm(whole), 1e-9)), abs=1e-12
        )
    assert np.linalg.norm(change) <= loss.smoothness * moved * (1 + 1e-9) + 1e-12, "a projection does not stretch"
    difference = abs(value(loss, here, target) - value(loss, there, target))
    assert difference <= loss.range_along(moved) * (1 + 1e-12) + 1e-12
    middle = value(loss, (here + there) / 2, target)
    assert middle <= (value(loss, here, target) + value(loss, there, target)) / 2 * (1 + 1e-12) + 1e-12, "convex"


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_constant_is_reached(classes, width):
    loss, wrong = OneVsRest(classes, width=width), np.full(classes, 10.0)
    wrong[1] = -10.0
    assert (
        np.linalg.norm(slope(loss, wrong, 1)) == pytest.approx(loss.lipschitz) == pytest.approx(loss.range_along(1.0))
    )
    away = 2 * slope(loss, wrong, 1)
    rise = value(loss, wrong + away, 1) - value(loss, wrong, 1)
    assert rise == pytest.approx(loss.range_along(float(np.linalg.norm(away))))
    around, step = np.zeros(classes), 0.1 * width
    around[1] = 1.0
    ahead = around.copy()
    ahead[1] += step
    assert np.linalg.norm(slope(loss, ahead, 1) - slope(loss, around, 1)) == pytest.approx(loss.smoothness * step)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_loss_at_zero(width):
    for classes in (2, 7):
        loss = OneVsRest(classes, width=width)
        assert loss.value_at_zero() == pytest.approx(value(loss, np.zeros(classes), 1))
        bounds = loss.bounds(3.0)
        assert bounds.gradient == pytest.approx(3 * loss.lipschitz)
        assert bounds.smoothness == pytest.approx(9 * loss.smoothness)


def test_it_is_a_loss_for_the_softmax_oracle():
    assert isinstance(OneVsRest(3), Softmax)
    assert OneVsRest(3) == OneVsRest(3, width=0.5) != Softmax(3)
    assert repr(OneVsRest(3, width=2)) == "OneVsRest(classes=3, clip_derivative=inf, width=2.0)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 1}, "classes must be"),
        ({"width": 0.0}, "width must be"),
        ({"width": -1.0}, "width must be"),
        ({"width": math.nan}, "width must be"),
        ({"clip_derivative": 0.0}, "clip_derivative must be"),
    ],
    ids=repr,
)
def test_wrong_arguments_are_refused_at_once(changes, message):
    with pytest.raises(InvalidArgument, match=message):
        OneVsRest(**{"classes": 3} | changes)
