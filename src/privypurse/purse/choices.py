"""What a purse may be given: each choice checked, and names turned into the objects they stand for."""

import os
from typing import Any

from privypurse.accounting import filters
from privypurse.accounting.totals import Filter
from privypurse.core.checks import positive, small_probability
from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Sensitive
from privypurse.purse.ledger import Ledger, MemoryLedger
from privypurse.purse.sqlite_ledger import SqliteLedger


def open_ledger(ledger: "Ledger | str | os.PathLike[str] | None") -> Ledger:
    """Make or open a ledger, or keep the one that is given."""
    if ledger is None:
        return MemoryLedger()
    if isinstance(ledger, str | os.PathLike):
        return SqliteLedger(ledger)
    if not hasattr(ledger, "open_account"):
        raise InvalidArgument(
            f"ledger must be None, a file name or a Ledger; got {ledger!r}. Pass for example ledger='budget.db'."
        )
    return ledger


def choose_noise(noise: NoiseSource | str | None, filter: Filter) -> NoiseSource:
    """Make or keep a noise source; refuses a law of noise that the filter has no price for."""
    source = NoiseSource.parse(noise)
    if source.sampler in ("discrete", "opendp") and filter.name not in ("zcdp", "non-private"):
        raise InvalidArgument(
            f"noise={source.sampler!r} has a price in zCDP only, but the filter is {filter.name!r}. Pass filter='zcdp', or "
            "noise='secure', which every filter can price."
        )
    return source


_PLAIN = NoiseSource(secure=False)


def draws_exactly(kind: type) -> bool:
    """Say whether a kind of mechanism speaks for its own `draw`: a class that draws anew must say anew that it is exact."""
    for base in kind.__mro__:
        if "check_noise" in vars(base):
            return True
        if "draw" in vars(base):
            return False
    return False


def noise_for(mechanism: Any, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> NoiseSource:
    """Return the source to draw a release from: the purse's own, or a plain one where that may be and exact noise costs much.

    Raises before anything is paid where the purse's noise is to be exact and the mechanism has no exact way.
    """
    if not noise.secure:
        return noise
    check = mechanism.check_noise if draws_exactly(type(mechanism)) else None
    if noise.strict:
        if check is None:
            raise InvalidArgument(
                f"mechanism {type(mechanism).__name__} does not say that it can draw exact noise (it has no check_noise of its "
                f"own), and the noise of this purse is {noise.sampler!r}. Open the purse with noise='plain'. Nothing was spent."
            )
        check(box, neighbouring, noise)
        return noise
    if check is None or not getattr(mechanism, "exact_by_default", True):
        return _PLAIN
    try:
        check(box, neighbouring, noise)
    except InvalidArgument:
        return _PLAIN
    return noise


def check_filter(filter: Filter) -> Filter:
    """Refuse what is no filter."""
    if not hasattr(filter, "admit") or isinstance(filter, type):
        raise InvalidArgument(
            f"filter must be one of {sorted(filters.BY_NAME)} or a filter object; got {filter!r}. "
            "Leave it out for 'gdp', or pass for example RdpFilter(1.0, 1e-6, 'add-remove')."
        )
    return filter


def choose_filter(filter: "Filter | str", epsilon: float, delta: float, neighbouring: Neighbouring) -> Filter:
    """Make a filter from its name, or keep one that agrees with the other terms."""
    epsilon, delta = positive(epsilon=epsilon), small_probability(delta=delta)
    if isinstance(filter, str):
        if filter not in filters.BY_NAME:
            raise InvalidArgument(
                f"filter must be one of {sorted(filters.BY_NAME)} or a filter object; got {filter!r}. Leave it out for 'gdp'."
            )
        chosen: Filter = filters.BY_NAME[filter](epsilon, delta, neighbouring)
        return chosen
    check_filter(filter)
    for name, mine, its in (
        ("epsilon", epsilon, filter.epsilon),
        ("delta", delta, filter.delta),
        ("neighbouring", neighbouring, filter.neighbouring),
    ):
        if mine != its:
            raise InvalidArgument(
                f"{name} must agree between purse and filter; got {mine!r} and {its!r}. Build both from the same numbers."
            )
    return filter
