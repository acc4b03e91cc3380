"""Cost of a whole list of charges, by privacy loss distributions (Google's dp-accounting).

Only for lists fixed before the data is seen: stopping or steering by a composed privacy loss
distribution is not valid for adaptively chosen budgets (arXiv:2602.06756).
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable

from privypurse.accounting import _gdp as gdp
from privypurse.accounting import _objective_perturbation as objective_perturbation
from privypurse.accounting import convert
from privypurse.accounting._totals import float_up, quanta_up
from privypurse.core._checks import positive, small_probability
from privypurse.core._errors import UnsupportedCharge
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import (
    Charge,
    GaussianCharge,
    NonPrivateCharge,
    ObjectivePerturbationCharge,
    RepeatAndSelectCharge,
    RepeatedCharge,
    SingleCharge,
)

__all__ = ["pld_epsilon"]

# Smallest interval as a share of epsilon; most grid cells for one release (hundreds of megabytes).
SMALLEST_INTERVAL = 1e-7
MOST_CELLS = 2e7


def tally(charges: Iterable[Charge]) -> "Counter[SingleCharge]":
    """Count each distinct charge, with repetitions expanded."""
    counts: Counter[SingleCharge] = Counter()
    for charge in charges:
        if isinstance(charge, RepeatedCharge):
            counts[charge.charge] += charge.count
        else:
            counts[charge] += 1
    return counts


def default_interval(epsilon: float) -> float:
    """Return a grid of the privacy loss for this epsilon: about 0.05 % of it, or less."""
    return max(min(1e-3, max(1e-6, epsilon / 2000)), epsilon / 50_000)


def pld_epsilon(
    charges: Iterable[Charge], delta: float, neighbouring: Neighbouring, *, interval: float = 1e-4
) -> float:
    """Return an epsilon for which a list of releases, fixed in advance, is (epsilon, delta)-DP.

    Parameters
    ----------
    charges : iterable of Charge
        The whole list. Unsampled releases are folded exactly into one Gaussian; each distinct
        sampled release is composed numerically.
    delta : float
        Between 0 and 1.
    neighbouring : Neighbouring
        The relation the charges were made under.
    interval : float, default 1e-4
        Grid of the privacy loss. Any grid gives upper bounds; a finer one is tighter and slower.

    Examples
    --------
    >>> round(pld_epsilon([GaussianCharge(10.0)] * 4, 1e-5, Neighbouring.ADD_REMOVE), 2)
    0.73
    """
    import dp_accounting
    from dp_accounting import pld

    delta, interval = small_probability(delta=delta), positive(interval=interval)
    counts = tally(charges)
    if any(isinstance(charge, NonPrivateCharge) or getattr(charge, "noise_multiplier", 1.0) == 0 for charge in counts):
        return math.inf
    perturbed = [charge for charge in counts.elements() if isinstance(charge, ObjectivePerturbationCharge)]
    if perturbed:
        if len(perturbed) > 1 or len(counts) > 1:
            raise UnsupportedCharge(f"{perturbed[0]!r} has a price on its own, not in a list. Use filter='rdp'.")
        return objective_perturbation.epsilon_of(perturbed[0], delta, neighbouring)
    relations = dp_accounting.NeighboringRelation
    sampled = {c: k for c, k in counts.items() if isinstance(c, GaussianCharge) and c.sample_prob < 1}
    # A sampled selection is priced as an unsampled one, which is an upper bound.
    whole = sum(quanta_up(gdp.mu_squared(_unsampled(c))) * k for c, k in counts.items() if c not in sampled)
    if not sampled:
        return convert.gdp_epsilon(math.sqrt(float_up(whole)) * (1 + 1e-15), delta)
    replace = neighbouring is Neighbouring.REPLACE_ONE
    accountant = pld.PLDAccountant(
        relations.REPLACE_ONE if replace else relations.ADD_OR_REMOVE_ONE, value_discretization_interval=interval
    )
    # dp-accounting takes multipliers relative to the add/remove sensitivity under both relations.
    scale = 2.0 if replace else 1.0
    if whole:
        accountant.compose(dp_accounting.GaussianDpEvent(scale / math.sqrt(float_up(whole))))
    if any(_cells(charge, interval) > MOST_CELLS for charge in sampled):
        return math.inf  # very little noise: an upper bound without a grid that fills the memory
    for charge, count in sampled.items():
        gaussian = dp_accounting.GaussianDpEvent(scale * charge.noise_multiplier)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(charge.sample_prob, gaussian), count)
    return float(accountant.get_epsilon(delta))


def _cells(charge: GaussianCharge, interval: float) -> float:
    """Return about how many grid cells the privacy loss of a release takes."""
    mu = 1 / max(charge.noise_multiplier, 1e-100)
    return (mu * mu / 2 + 10 * mu) / interval


def _unsampled(charge: SingleCharge) -> SingleCharge:
    if isinstance(charge, NonPrivateCharge | ObjectivePerturbationCharge | RepeatAndSelectCharge):
        return charge
    return dataclasses.replace(charge, sample_prob=1.0)
