"""Cost of a charge in zero-concentrated differential privacy: rho, which adds over releases."""

import math

from privypurse.accounting.exact import inflate
from privypurse.accounting.gdp import refuse_sampled
from privypurse.core.charges import BoundedRangeCharge, GaussianCharge, NonPrivateCharge, PureCharge, SingleCharge
from privypurse.core.errors import UnsupportedCharge


def rho(charge: SingleCharge) -> float:
    """Return the rho of one release, rounded up; infinity for a release without noise.

    Gaussian: ``1/(2 z^2)``. Bounded range: ``epsilon^2/8`` (Cesar and Rogers 2021). Pure:
    ``epsilon^2/2`` (Bun and Steinke 2016).

    Examples
    --------
    >>> rho(BoundedRangeCharge(epsilon=0.4))
    0.02000000000000...
    """
    if isinstance(charge, NonPrivateCharge):
        return math.inf
    if isinstance(charge, GaussianCharge | BoundedRangeCharge | PureCharge):
        refuse_sampled(charge, "zCDP")
        if isinstance(charge, GaussianCharge):
            if charge.noise_multiplier == 0:
                return math.inf
            mu = 1 / charge.noise_multiplier
            return inflate(mu * mu / 2)
        divisor = 8 if isinstance(charge, BoundedRangeCharge) else 2
        return inflate(charge.epsilon * charge.epsilon / divisor)
    raise UnsupportedCharge(
        f"the zCDP filter has no price for {charge!r}. Use a purse with filter='rdp', or one made by "
        "Purse.with_filter(method.filter(facts))."
    )
