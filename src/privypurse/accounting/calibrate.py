"""Calibration of noise to a target (epsilon, delta) that is never exceeded."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable

import numpy as np
from scipy import optimize

from privypurse.accounting import _gdp as gdp
from privypurse.accounting import _rdp as rdp
from privypurse.accounting._filters import GdpFilter
from privypurse.accounting._totals import float_down
from privypurse.accounting.pld import default_interval, pld_epsilon, tally
from privypurse.core._checks import positive, positive_integer, small_probability
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import Charge, GaussianCharge, RepeatedCharge, SingleCharge

__all__ = ["noise_multiplier", "scale_to_budget"]


def noise_multiplier(epsilon: float, delta: float, *, releases: int = 1) -> float:
    """Return the least noise multiplier with which unsampled Gaussian releases fit a GDP purse.

    Parameters
    ----------
    epsilon, delta : float
        The target.
    releases : int, default 1
        Number of releases that share the target evenly.

    Examples
    --------
    >>> round(noise_multiplier(1.0, 1e-6), 3)
    4.225
    >>> round(noise_multiplier(1.0, 1e-6, releases=100), 2)
    42.25
    """
    releases = positive_integer(releases=releases)
    # Independent of the relation: a multiplier is relative to the sensitivity under it.
    (limit,) = GdpFilter(epsilon, delta, Neighbouring.ADD_REMOVE).limits
    return gdp.noise_multiplier_for(float_down(limit // releases))


def scale_to_budget(
    charges: Iterable[Charge],
    epsilon: float,
    delta: float,
    neighbouring: Neighbouring | str,
    *,
    interval: float | None = None,
) -> tuple[Charge, ...]:
    """Scale the noise of a schedule by one factor to spend a target, up to the grid.

    Parameters
    ----------
    charges : iterable of Charge
        The schedule. Ratios of its Gaussian noise multipliers are kept; selections are unchanged.
    epsilon, delta, neighbouring
        The target and the relation.
    interval : float, optional
        Grid of the privacy loss; default as in `FixedSchedule`.

    Returns
    -------
    tuple of Charge
        A schedule with ``pld_epsilon(...) <= epsilon``, within 0.1 % of it.
    """
    epsilon, delta = positive(epsilon=epsilon), small_probability(delta=delta)
    relation = Neighbouring.parse(neighbouring)
    interval = default_interval(epsilon) if interval is None else positive(interval=interval)
    listed = tuple(charges)
    wrong = [charge for charge in listed if not isinstance(charge, SingleCharge | RepeatedCharge)]
    if wrong:
        raise InvalidArgument(f"charges must be a list of charges; got {wrong[0]!r}. Pass [GaussianCharge(1.0)].")
    if not any(isinstance(charge, GaussianCharge) for charge in tally(listed)):
        raise InvalidArgument(f"charges must hold a release whose noise can be scaled; got {listed!r}. Add one.")

    def log_overshoot(log_factor: float, grid: float) -> float:
        spent = pld_epsilon(_scaled(listed, math.exp(log_factor)), delta, relation, interval=grid)
        return math.log(max(spent, 1e-12) / epsilon) if math.isfinite(spent) else 50.0

    # Rényi accounting is fast and slightly pessimistic; a coarse grid then comes nearer.
    root, reach = math.log(rdp_noise_factor(listed, epsilon, delta, relation)), 0.2
    for grid, tolerance in ((max(interval, epsilon / 200), 1e-4), (interval, 1e-5)):
        root = _root(functools.partial(log_overshoot, grid=grid), root, reach, tolerance)
        if math.isinf(root):
            why = f"the selections in the schedule, or the grid {interval=}, already cost more"
            remedy = "Pass fewer selections, a larger epsilon or a finer interval"
            raise InvalidArgument(f"{epsilon=} cannot be met by more noise alone: {why}. {remedy}.")
        reach = 0.01
    return _scaled(listed, math.exp(root))


def _root(log_overshoot: Callable[[float], float], guess: float, reach: float, tolerance: float) -> float:
    """Return the log of the noise factor that just meets the target, near a guess; infinity if none."""
    low, high = guess - reach, guess
    while log_overshoot(high) > 0:
        low, high = high, high + reach
        if high > 40:
            return math.inf
        reach *= 2
    while log_overshoot(low) < 0:
        low, high, reach = low - reach, low, 2 * reach
    root = float(optimize.brentq(log_overshoot, low, high, xtol=tolerance, rtol=tolerance))
    while log_overshoot(root) > 0:
        root += tolerance
    return root


def rdp_noise_factor(charges: Iterable[Charge], epsilon: float, delta: float, neighbouring: Neighbouring) -> float:
    """Return a noise factor that meets a target, by Rényi accounting; e^40 if none does."""
    listed = tuple(charges)

    def overshoots(log_factor: float) -> bool:
        costs = np.zeros(len(rdp.ORDERS))
        for charge, count in tally(_scaled(listed, math.exp(log_factor))).items():
            costs += count * np.array(rdp.curve(charge, neighbouring))
        return rdp.rdp_epsilon(rdp.ORDERS, costs.tolist(), delta) > epsilon

    low, high = -40.0, 40.0
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if overshoots(middle) else (low, middle)
    return math.exp(high)


def _scaled(charges: tuple[Charge, ...], factor: float) -> tuple[Charge, ...]:
    def scale(charge: SingleCharge) -> SingleCharge:
        if isinstance(charge, GaussianCharge):
            return dataclasses.replace(charge, noise_multiplier=charge.noise_multiplier * factor)
        return charge

    return tuple(
        RepeatedCharge(scale(charge.charge), charge.count) if isinstance(charge, RepeatedCharge) else scale(charge)
        for charge in charges
    )
