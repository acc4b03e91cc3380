"""[RAW DATA] Minimising a strongly convex sum of losses inside the sealed box, by gradients alone."""

from collections.abc import Callable

import numpy as np

from privypurse.core.checks import FloatArray

_MOST_NEWTON_STEPS = 10_000


def minimise(gradient: Callable[[FloatArray], FloatArray], dimension: int, tolerance: float) -> FloatArray:
    """Return a point where the gradient of a strongly convex function is shorter than a tolerance.

    Newton's method, with each system solved by conjugate gradients on differences of gradients, and steps halved until the
    gradient gets shorter: for a strongly convex function it always does.

    Parameters
    ----------
    gradient : callable
        The whole gradient, ridge and perturbation included.
    dimension : int
        Number of parameters.
    tolerance : float
        Length of the gradient to end at.

    Guarantees
    ----------
    Returns only when the gradient is at most half the tolerance, which leaves the other half for rounding.
    """
    point = np.zeros(dimension)
    slope = gradient(point)
    for _ in range(_MOST_NEWTON_STEPS):
        length = float(np.linalg.norm(slope))
        if length <= tolerance / 2:
            return point
        direction = _newton_direction(gradient, point, slope)
        step = 1.0
        while True:
            ahead = point - step * direction
            slope_ahead = gradient(ahead)
            if float(np.linalg.norm(slope_ahead)) < length * (1 - 1e-4 * step):
                break
            step /= 2
            if step < 1e-12:
                raise ArithmeticError("the minimiser of a strongly convex objective was not found. Please report this.")
        point, slope = ahead, slope_ahead
    raise ArithmeticError("the minimiser of a strongly convex objective was not found. Please report this.")


def _newton_direction(gradient: Callable[[FloatArray], FloatArray], point: FloatArray, slope: FloatArray) -> FloatArray:
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
