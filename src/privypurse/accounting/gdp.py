"""Cost of a charge in Gaussian differential privacy: mu squared, which adds over releases."""

import math

from privypurse.accounting import convert
from privypurse.accounting.exact import inflate
from privypurse.core.charges import BoundedRangeCharge, GaussianCharge, NonPrivateCharge, PureCharge, SingleCharge
from privypurse.core.checks import positive
from privypurse.core.errors import UnsupportedCharge


def mu_squared(charge: SingleCharge) -> float:
    """Return the squared mu of one release, rounded up; infinity for a release without noise.

    Examples
    --------
    >>> mu_squared(GaussianCharge(noise_multiplier=10.0))
    0.010000000000000...
    """
    if isinstance(charge, NonPrivateCharge):
        return math.inf
    if isinstance(charge, GaussianCharge | BoundedRangeCharge | PureCharge):
        refuse_sampled(charge, "Gaussian-DP")
        if isinstance(charge, GaussianCharge):
            if charge.noise_multiplier == 0:
                return math.inf
            # Squared after the division: z^2 would under- or overflow too early.
            mu = 1 / charge.noise_multiplier
        elif isinstance(charge, BoundedRangeCharge):
            mu = convert.bounded_range_mu(charge.epsilon)
        else:
            mu = convert.pure_mu(charge.epsilon)
        return inflate(mu * mu)
    raise UnsupportedCharge(
        f"the GDP filter has no price for {charge!r}. Use a purse with filter='rdp', or one made by "
        "Purse.with_filter(method.filter(facts))."
    )


def refuse_sampled(charge: GaussianCharge | BoundedRangeCharge | PureCharge, notion: str) -> None:
    """Raise UnsupportedCharge for a sampled release in a notion without a theorem for it."""
    if charge.sample_prob < 1:
        raise UnsupportedCharge(
            f"a Poisson-sampled release has no {notion} bound, so this filter cannot price {charge!r}. "
            "Use a purse with filter='rdp' for adaptive budgets, a FixedSchedule for a list known in advance, "
            "or query all records."
        )


def noise_multiplier_for(budget: float) -> float:
    """Return the smallest noise multiplier whose cost is at most a budget in mu squared.

    Examples
    --------
    >>> mu_squared(GaussianCharge(noise_multiplier_for(0.01))) <= 0.01
    True
    """
    noise_multiplier = 1 / math.sqrt(positive(budget=budget))
    # Raise by units in the last place until the charged price fits.
    while mu_squared(GaussianCharge(noise_multiplier)) > budget:
        noise_multiplier = math.nextafter(noise_multiplier, math.inf)
    return noise_multiplier
