"""[RAW DATA] Minimising a strongly convex sum of losses inside the sealed box, by gradients alone."""

from collections.abc import Callable

import numpy as np

from privypurse.core.checks import FloatArray

Gradient = Callable[[FloatArray], FloatArray]

# A Newton step is halved this often before it is given up.
_HALVINGS = 10
# Accelerated steps between two tries of Newton's method, where that does not get on.
_STEPS = 200


def minimise(gradient: Gradient, dimension: int, tolerance: float, ridge: float, steepest: float) -> FloatArray:
    """Return a point where the gradient of a strongly convex function is shorter than a tolerance.

    Newton's method, with each system solved by conjugate gradients on differences of gradients. Where a Newton step does not make
    the gradient shorter, as it may not next to kinks, Nesterov's accelerated steps go on, which always do in the end.

    Parameters
    ----------
    gradient : callable
        The whole gradient, ridge and perturbation included.
    dimension : int
        Number of parameters.
    tolerance : float
        Length of the gradient to end at.
    ridge, steepest : float
        Smallest and largest curvature.

    Guarantees
    ----------
    Returns only when the gradient is at most half the tolerance, which leaves the other half for rounding; never raises.
    """
    point = np.zeros(dimension)
    slope = gradient(point)
    while True:
        length = float(np.linalg.norm(slope))
        if length <= tolerance / 2:
            return point
        direction, step = _newton_direction(gradient, point, slope), 1.0
        for _ in range(_HALVINGS):
            ahead = point - step * direction
            slope_ahead = gradient(ahead)
            if float(np.linalg.norm(slope_ahead)) < length * (1 - 0.1 * step):
                point, slope = ahead, slope_ahead
                break
            step /= 2
        else:
            point, slope = _accelerated(gradient, point, slope, ridge, steepest, tolerance)


def _accelerated(
    gradient: Gradient, point: FloatArray, slope: FloatArray, ridge: float, steepest: float, tolerance: float
) -> tuple[FloatArray, FloatArray]:
    """Make some of Nesterov's steps for strongly convex functions, whose rate is known."""
    root = np.sqrt(ridge / steepest)
    momentum = (1 - root) / (1 + root)
    # As many as the rate needs for a tenth of the excess, so that each call gets on.
    steps = max(_STEPS, int(np.ceil(3 / root)))
    before = point
    for _ in range(steps):
        moved = point - slope / steepest
        point, before = moved + momentum * (moved - before), moved
        slope = gradient(point)
        if float(np.linalg.norm(slope)) <= tolerance / 2:
            break
    return point, slope


def _newton_direction(gradient: Gradient, point: FloatArray, slope: FloatArray) -> FloatArray:
    """Solve ``H p = slope`` roughly; H times a vector is a difference of two gradients."""
    width = 1e-6 * (1 + float(np.linalg.norm(point)))
    solution = np.zeros_like(slope)
    residual = slope.copy()
    search = residual.copy()
    squared = float(residual @ residual)
    goal = squared * 1e-4
    for _ in range(min(10 * slope.size, 250)):
        length = float(np.linalg.norm(search))
        curved = (gradient(point + search * (width / length)) - slope) * (length / width)
        along = float(search @ curved)
        if along <= 0:  # rounding; what there is will do
            break
        solution += squared / along * search
        residual -= squared / along * curved
        before, squared = squared, float(residual @ residual)
        if squared <= goal:
            break
        search = residual + squared / before * search
    return solution if solution.any() else slope
