"""[RAW DATA] Minimisation of a strongly convex sum of losses inside the box, by gradients."""

import math
from collections.abc import Callable

import numpy as np

from privypurse.core._checks import FloatArray

Gradient = Callable[[FloatArray], FloatArray]

_MOST_TRIALS = 200
# Most steps that do not halve the shortest gradient: rounding then keeps it from getting shorter.
_PATIENCE = 200
_FARTHEST = 1e90  # largest length of a point


def minimise(gradient: Gradient, dimension: int, tolerance: float) -> FloatArray:
    """Return a point where the gradient of a strongly convex function is shorter than a tolerance.

    Newton's method, with each system solved by conjugate gradients on differences of gradients. A
    step is taken if it halves the shortest gradient so far, or if it goes down the line without
    passing the line's lowest point. The length of the gradient alone is not enough: past a jump of
    the second derivative of a Huberised loss it can grow in every Newton direction.

    Guarantees
    ----------
    Never raises. Returns when the gradient is at most half the tolerance, which leaves the other
    half for rounding; or, where rounding is more than that, at the nearest representable point.
    """
    point = np.zeros(dimension)
    slope = gradient(point)
    best, shortest, waited = point, float(np.linalg.norm(slope)), 0
    while shortest > tolerance / 2 and waited < _PATIENCE:
        before = point
        point, slope = _step(gradient, point, slope, shortest)
        if np.array_equal(before, point):  # no representable point lies nearer to the minimum
            break
        length = float(np.linalg.norm(slope))
        waited = 0 if length <= shortest / 2 else waited + 1
        if length < shortest:
            best, shortest = point, length
    return best


def _step(gradient: Gradient, point: FloatArray, slope: FloatArray, shortest: float) -> tuple[FloatArray, FloatArray]:
    """Go along the Newton direction: by a full step if possible, else by bisection on its slope."""
    direction = _newton_direction(gradient, point, slope)
    if not direction @ slope > 0:  # rounding
        direction = slope
    steepness = float(direction @ slope)
    low, high, step = 0.0, math.inf, 1.0
    for _ in range(_MOST_TRIALS):
        ahead = point - step * direction
        along = -math.inf
        if float(np.linalg.norm(ahead)) < _FARTHEST:
            slope_ahead = gradient(ahead)
            if float(np.linalg.norm(slope_ahead)) <= shortest / 2:
                return ahead, slope_ahead
            along = float(direction @ slope_ahead)
            if 0 <= along <= 0.9 * steepness:
                return ahead, slope_ahead
        low, high = (low, step) if along < 0 else (step, high)  # too far, or hardly moved
        step = 2 * step if high == math.inf else (low + high) / 2
        if not low < step < high:
            break
    return point, slope


def _newton_direction(gradient: Gradient, point: FloatArray, slope: FloatArray) -> FloatArray:
    """Solve ``H p = slope`` approximately; H times a vector is a difference of two gradients."""
    # Narrow, so that few second derivatives jump in between; wide enough for about eight digits.
    width = 1e-8 * (1 + float(np.linalg.norm(point)))
    solution = np.zeros_like(slope)
    residual = slope.copy()
    search = residual.copy()
    squared = float(residual @ residual)
    goal = squared * 1e-4
    for _ in range(min(10 * slope.size, 250)):
        length = float(np.linalg.norm(search))
        curved = (gradient(point + search * (width / length)) - slope) * (length / width)
        along = float(search @ curved)
        if along <= 0:  # rounding; keep what there is
            break
        solution += squared / along * search
        residual -= squared / along * curved
        before, squared = squared, float(residual @ residual)
        if squared <= goal:
            break
        search = residual + squared / before * search
    return solution if solution.any() else slope
