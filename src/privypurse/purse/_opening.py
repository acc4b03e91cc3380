"""Checks of what a run asks of a purse, and the allowance it gets, before any data is read."""

import math
from typing import Any

from privypurse.accounting import convert
from privypurse.accounting._filters import GdpFilter
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core._checks import positive, shown
from privypurse.core._errors import BudgetExhausted, InvalidArgument
from privypurse.core._formats import rounded_down
from privypurse.core._randomness import NoiseSource
from privypurse.purse._allowance import Allowance
from privypurse.purse._entries import CHARGE
from privypurse.purse._holds import beside, describe, held_by_others
from privypurse.purse._ledger import check_not_frozen
from privypurse.purse._purse import Purse

DELTA = 1e-6
# How noise may be drawn: exact wherever that costs little, always exact, or in floating point.
NOISES = ("auto", "secure", "plain")


def check_delta(delta: float, records: float | None) -> None:
    """Raise InvalidArgument for a delta above one over the declared number of records (or 1e-4).

    The true number of records is not used: an error that depends on it would reveal it.
    """
    if delta * (1e4 if records is None else positive(n_public=records)) >= 1:
        raise InvalidArgument(
            f"delta must be far below one over the number of records; got {delta:g}. Pass for example delta=1e-6"
            + (", or declare n_public=... if there are so few records." if records is None else ".")
        )


def part_of(purse: Purse, epsilon: float | None) -> Purse:
    """Return an allowance of this epsilon, by default all that is left. Raise if it is too large."""
    empty = (
        f"nothing is left in the purse of data set {purse.dataset!r}: all of its epsilon {purse.epsilon:g} is spent. "
        "Released values may be used freely; another budget on the same records would add to what was spent."
    )
    if purse.fraction_left < 1e-9:
        raise BudgetExhausted(empty)
    check_not_frozen(CHARGE, purse.dataset, {purse.dataset} if purse.ledger.is_frozen(purse.dataset) else set())
    if isinstance(purse.filter, FixedSchedule):
        if epsilon is not None and epsilon < purse.epsilon:
            why = f"epsilon must be None for a schedule fixed in advance, which cannot be divided; got {epsilon!r}"
            raise InvalidArgument(f"{why}. Omit it.")
        return purse
    others = held_by_others(purse)
    held = describe(others, purse.delta)
    # Many Gaussian releases fit where one does: every filter adds their squared mu, or charges
    # less.
    mu = math.sqrt(beside(purse, others))
    left = convert.gdp_epsilon(mu, purse.delta) if math.isfinite(mu) else math.inf
    limit = left if epsilon is None else min(epsilon, left)
    if limit <= 0:
        waits = f"nothing is left of the budget of data set {purse.dataset!r} just now. {held} Wait until "
        raise BudgetExhausted(f"{waits}it ends." if held else empty)
    if epsilon is not None and limit < epsilon * (1 - 1e-6):
        remedy = f"{held} Wait until it ends, or request" if held else "Request"
        its = f"{rounded_down(limit)} is left of the {purse.epsilon:g} of data set {purse.dataset!r}"
        raise BudgetExhausted(f"epsilon={epsilon:g} was requested, but {its}. {remedy} {rounded_down(limit)} or less.")
    if math.isinf(limit):
        return purse  # declared not private, and all of it was requested
    return Allowance(purse, GdpFilter(limit, purse.delta, purse.neighbouring))


def check_noise_name(noise: Any) -> None:
    """Raise InvalidArgument unless `noise` names a way to draw noise."""
    if not isinstance(noise, str) or noise not in NOISES:
        raise InvalidArgument(f"noise must be one of {', '.join(map(repr, NOISES))}; got {shown(noise)}. Omit it.")


def noise_source(noise: str, seed: int | None) -> NoiseSource:
    """Return a noise source by name, seeded for simulations."""
    return NoiseSource(seed, secure={"auto": None, "secure": True, "plain": False}[noise])
