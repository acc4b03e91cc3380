"""Cost of a charge in Gaussian DP (mu squared) and in zCDP (rho), which add over releases."""

import math

from privypurse.accounting import convert
from privypurse.accounting._totals import inflate
from privypurse.core._checks import positive
from privypurse.core._errors import UnsupportedCharge
from privypurse.core.charges import BoundedRangeCharge, GaussianCharge, NonPrivateCharge, PureCharge, SingleCharge


def mu_squared(charge: SingleCharge) -> float:
    """Return the squared mu of one release, rounded up; infinity for a release without noise."""
    known = _priced(charge, "GDP", "Gaussian-DP")
    if known is None:
        return math.inf
    if isinstance(known, GaussianCharge):
        mu = 1 / known.noise_multiplier  # squared after the division: z^2 would under- or overflow too early
    else:
        mu = convert.bounded_range_mu(known.epsilon * (1 if isinstance(known, BoundedRangeCharge) else 2))
    return inflate(mu * mu)


def rho(charge: SingleCharge) -> float:
    """Return the rho of one release, rounded up; infinity for a release without noise.

    Gaussian: ``1/(2 z^2)``. Bounded range: ``epsilon^2/8`` (Cesar and Rogers 2021). Pure:
    ``epsilon^2/2`` (Bun and Steinke 2016).
    """
    known = _priced(charge, "zCDP", "zCDP")
    if known is None:
        return math.inf
    if isinstance(known, GaussianCharge):
        mu = 1 / known.noise_multiplier
        return inflate(mu * mu / 2)
    return inflate(known.epsilon * known.epsilon / (8 if isinstance(known, BoundedRangeCharge) else 2))


def _priced(charge: SingleCharge, name: str, notion: str) -> GaussianCharge | BoundedRangeCharge | PureCharge | None:
    """Return a charge with a price, None for no noise, or raise UnsupportedCharge."""
    if isinstance(charge, NonPrivateCharge):
        return None
    if not isinstance(charge, GaussianCharge | BoundedRangeCharge | PureCharge):
        what = f"the {name} filter has no price for {charge!r}. Use a purse with filter='rdp'"
        raise UnsupportedCharge(f"{what}, or one made by Purse.with_filter(method.filter(facts)).")
    if charge.sample_prob < 1:
        what = f"a Poisson-sampled release has no {notion} bound, so this filter cannot price {charge!r}"
        raise UnsupportedCharge(f"{what}. Use filter='rdp', a FixedSchedule made in advance, or all records.")
    return None if isinstance(charge, GaussianCharge) and charge.noise_multiplier == 0 else charge


def noise_multiplier_for(budget: float) -> float:
    """Return the smallest noise multiplier whose cost is at most a budget in mu squared."""
    noise_multiplier = 1 / math.sqrt(positive(budget=budget))
    # Raise by units in the last place until the charged price fits.
    while mu_squared(GaussianCharge(noise_multiplier)) > budget:
        noise_multiplier = math.nextafter(noise_multiplier, math.inf)
    return noise_multiplier
