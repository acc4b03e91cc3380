"""How many noisy steps to take, and how long: bounds for projected descent with averaging, and a rule for smooth losses.

With T gradient releases that share a budget mu, each mean gradient has noise of standard deviation
``s = sensitivity sqrt(T) / (n mu)`` in each coordinate. All formulas are in these terms, so they hold under either relation.
"""

import math

from privypurse.planning.facts import Facts

FEWEST_STEPS, MOST_STEPS = 10, 200


def balanced_steps(facts: Facts, fewest: int = FEWEST_STEPS, most: int = MOST_STEPS) -> int:
    """Return the number of steps for accelerated descent on a smooth loss: ``n mu / sqrt(d)``, within limits.

    Each step's noise, relative to the longest mean gradient, is then ``sqrt(T) / T``: enough signal in each, no step wasted.
    Under replace-one the noise is twice as large, and the number half.

    Examples
    --------
    >>> from privypurse.losses import Logistic
    >>> facts = Facts.of(Logistic(clip_derivative=0.5), records=39_000, dimension=124, epsilon=0.05, delta=1e-8,
    ...                  neighbouring="add-remove")
    >>> balanced_steps(facts)
    39
    """
    return min(max(round(1 / facts.noise_floor), fewest), most)


def excess_bound(distance: float, gradient: float, noise_squared: float, steps: int) -> float:
    """Return the bound on the expected excess loss of averaged projected descent.

    ``R sqrt((G^2 + d s^2)/T)`` for a convex loss whose mean gradient has norm at most G, a start within R of the best point,
    and noise with ``E|noise|^2 = d s^2``, where the average is over the T points at which gradients were taken.

    Parameters
    ----------
    distance : float
        R: how far the best point can be from the start.
    gradient : float
        G.
    noise_squared : float
        d s^2.
    steps : int
        T.
    """
    return distance * math.sqrt((gradient**2 + noise_squared) / steps)


def projected_step_size(distance: float, gradient: float, noise_squared: float, steps: int) -> float:
    """Return the step size at which `excess_bound` holds: ``R / sqrt(T (G^2 + d s^2))``."""
    return distance / math.sqrt(steps * (gradient**2 + noise_squared))


def noise_squared(facts: Facts, steps: int) -> float:
    """Return ``d s^2``, the expected squared length of the noise on a mean gradient, if the budget is split over `steps`."""
    return facts.dimension * steps * (facts.sensitivity / (facts.records * facts.mu)) ** 2


def projected_steps(facts: Facts, gradient: float, most: int) -> int:
    """Return the number of steps of averaged projected descent: ``(G n mu / sensitivity)^2 / d``, within limits.

    There the two parts of the bound, ``R G/sqrt(T)`` and the floor ``R sqrt(d) sensitivity/(n mu)``, are equal: the bound is
    within a factor of sqrt(2) of its floor.
    """
    return min(max(round(gradient**2 / noise_squared(facts, 1)), 1), most)
