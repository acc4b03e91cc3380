"""[DECIDES] Stopping rules that are valid when each budget is chosen from earlier outputs.

A filter decides, before anything is released, whether a charge still fits. It is stateless: it
takes the spent totals and returns the new ones. Every class cites the theorem that makes it sound.
The one rule that does *not* allow adaptive budgets is in `privypurse.accounting._fixed_schedule`.
"""

import math
from collections.abc import Sequence
from typing import Any

from privypurse.accounting import _gdp as gdp
from privypurse.accounting import _rdp as rdp
from privypurse.accounting import convert
from privypurse.accounting._additive import SELECTION, AdditiveFilter
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Filter, Totals, float_up
from privypurse.core import charges as charge_format
from privypurse.core._checks import ordinary, small_probability
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._reading import refusing
from privypurse.core.charges import BoundedRangeCharge, Charge, GaussianCharge, PureCharge, SingleCharge

# Default reference of an RDP filter: releases of all records.
_UNSAMPLED = GaussianCharge(1.0)


class GdpFilter(AdditiveFilter):
    """Default filter: the sum of mu squared stays within mu squared of the target.

    Parameters
    ----------
    epsilon, delta : float
        The target, converted to mu exactly and rounded down.
    neighbouring : Neighbouring or str
        The relation.

    Guarantees
    ----------
    If each release is mu_t-Gaussian-DP given all earlier outputs, and mu_t is chosen from earlier
    outputs in any way, then stopping before ``sum mu_t^2`` exceeds ``mu^2`` makes the whole
    mu-Gaussian-DP: Smith and Thakurta (2022, arXiv:2210.17520); Koskela, Tobaben and Honkela (ICLR
    2023, arXiv:2209.15596). Nothing is lost against budgets fixed in advance. Proof:
    ``docs/proofs/gdp_filter.md``.

    Examples
    --------
    >>> filter = GdpFilter(1.0, 1e-6, "add-remove")
    >>> spent = filter.admit(filter.start(), GaussianCharge(noise_multiplier=20.0))
    >>> round(filter.epsilon_of(spent, 1e-6), 3)
    0.189
    """

    name = "gdp"
    currency = "mu squared"
    theorem = (
        "GDP filter: Smith and Thakurta 2022 (arXiv:2210.17520); Koskela, Tobaben and Honkela 2023 (arXiv:2209.15596)"
    )

    def __init__(self, epsilon: float, delta: float, neighbouring: Neighbouring | str) -> None:
        epsilon, delta = ordinary(epsilon=epsilon), small_probability(delta=delta)
        self.mu = convert.gdp_mu(epsilon, delta)
        super().__init__(epsilon, delta, neighbouring, [self.mu * self.mu * (1 - 1e-15)])

    def _price(self, charge: SingleCharge, neighbouring: Neighbouring) -> tuple[float, ...]:
        return (gdp.mu_squared(charge),)

    def _two_steps(self) -> tuple[float, float]:
        # Groups of two are (2 mu)-GDP: Dong, Roth and Su 2022.
        return convert.gdp_epsilon(2 * self.mu, self.delta), self.delta

    def epsilon_of(self, spent: Totals, delta: float) -> float:
        if spent.non_private:
            return math.inf
        return convert.gdp_epsilon(math.sqrt(float_up(spent.quanta[0])) * (1 + 1e-15), delta)


class ZcdpFilter(AdditiveFilter):
    """The sum of rho stays within rho of the target. Better than GDP for many selections.

    Parameters
    ----------
    epsilon, delta, neighbouring
        As for `GdpFilter`, converted as `conversion` says.
    conversion : {"optimal", "classic"}
        Conversion from rho to (epsilon, delta); "optimal" is Canonne, Kamath and Steinke (2020).

    Guarantees
    ----------
    The Rényi filter of Feldman and Zrnic (2021, arXiv:2008.11193) holds at each order on its own;
    the rule ``sum rho_t <= rho`` implies its condition ``sum order * rho_t <= order * rho`` at
    every order. See also Whitehouse, Ramdas, Rogers and Wu (ICML 2023, arXiv:2203.05481) for
    approximate zCDP.
    """

    name = "zcdp"
    currency = "rho"
    theorem = "zCDP filter: Feldman and Zrnic 2021 (arXiv:2008.11193) at every order; Whitehouse et al. 2023 (arXiv:2203.05481)"

    def __init__(
        self, epsilon: float, delta: float, neighbouring: Neighbouring | str, conversion: convert.Conversion = "optimal"
    ) -> None:
        epsilon, delta = ordinary(epsilon=epsilon), small_probability(delta=delta)
        self.conversion = conversion
        self.rho = convert.zcdp_rho(epsilon, delta, conversion)
        super().__init__(epsilon, delta, neighbouring, [self.rho])

    def _price(self, charge: SingleCharge, neighbouring: Neighbouring) -> tuple[float, ...]:
        return (gdp.rho(charge),)

    def _two_steps(self) -> tuple[float, float]:
        # Groups of two are (4 rho)-zCDP: Bun and Steinke 2016.
        return convert.zcdp_epsilon(4 * self.rho, self.delta, self.conversion), self.delta

    def epsilon_of(self, spent: Totals, delta: float) -> float:
        if spent.non_private:
            return math.inf
        return convert.zcdp_epsilon(float_up(spent.quanta[0]), delta, self.conversion)

    def terms(self) -> dict[str, Any]:
        return {**super().terms(), "conversion": self.conversion}


class RdpFilter(AdditiveFilter):
    """Rényi costs stay within a target curve at *all* its orders: for Poisson-sampled releases.

    Parameters
    ----------
    epsilon, delta, neighbouring
        As for `GdpFilter`.
    reference : GaussianCharge, optional
        The kind of release that will use most of the budget, such as
        ``GaussianCharge(3.0, sample_prob=0.05)``. The target curve is this charge's curve, scaled
        up as far as the target allows. Choose it before seeing the data.
    orders : sequence of int, optional
        Orders of the curve. By default the single order at which the reference goes furthest: one
        order suffices for the target, and each further one only refuses more. With several, the
        whole is also Rényi-DP along the curve.

    Guarantees
    ----------
    Feldman and Zrnic (2021, arXiv:2008.11193): at an order fixed in advance, stopping before the
    sum of adaptively chosen Rényi costs exceeds the limit makes the whole Rényi-DP at that order.
    The curve is fixed in advance and held at every order, so the theorem applies at each, and the
    conversion may use the best. (Stopping only when *no* order fits would choose the order from
    outputs; this class does not do that.)
    """

    name = "rdp"
    currency = "Rényi divergence"
    theorem = "RDP filter held at orders fixed in advance: Feldman and Zrnic 2021 (arXiv:2008.11193)"

    def __init__(
        self,
        epsilon: float,
        delta: float,
        neighbouring: Neighbouring | str,
        *,
        reference: GaussianCharge = _UNSAMPLED,
        orders: Sequence[int] | None = None,
    ) -> None:
        epsilon, delta = ordinary(epsilon=epsilon), small_probability(delta=delta)
        relation = Neighbouring.parse(neighbouring)
        self.orders = rdp.ORDERS if orders is None else tuple(sorted(set(orders)))
        if not self.orders or not all(type(order) is int and 2 <= order <= 65536 for order in self.orders):
            raise InvalidArgument(f"orders must be whole numbers from 2 to 65536; got {orders!r}. Omit it.")
        # A reference without noise, or of another kind, has no curve to scale.
        unit = rdp.curve(reference, relation, self.orders) if isinstance(reference, GaussianCharge) else (math.inf,)
        reach = [rdp.largest_cost(a, epsilon, delta) / cost for a, cost in zip(self.orders, unit, strict=False)]
        scale = max(reach)
        if orders is None:
            best = reach.index(scale)
            self.orders, unit = (self.orders[best],), (unit[best],)
        limits = [scale * cost * (1 - 1e-12) for cost in unit]
        if not all(map(math.isfinite, limits)):
            what = f"reference must be a GaussianCharge with a cost that is neither 0 nor infinity; got {reference!r}"
            raise InvalidArgument(f"{what}. Pass for example GaussianCharge(1.1, sample_prob=0.01).")
        self.reference = reference
        if scale <= 0:
            what = f"{epsilon=} at {delta=} is below what the orders {self.orders[0]} to {self.orders[-1]} can express"
            raise InvalidArgument(f"{what}. Pass larger orders, a larger epsilon, or filter='gdp'.")
        super().__init__(epsilon, delta, relation, limits)

    def _price(self, charge: SingleCharge, neighbouring: Neighbouring) -> tuple[float, ...]:
        return rdp.curve(charge, neighbouring, self.orders)

    def epsilon_of(self, spent: Totals, delta: float) -> float:
        if spent.non_private:
            return math.inf
        return rdp.rdp_epsilon(self.orders, [float_up(used) for used in spent.quanta], delta)

    def terms(self) -> dict[str, Any]:
        reference = charge_format.to_json(self.reference)
        return {**super().terms(), "reference": reference, "orders": list(self.orders)}


class DeclaredNonPrivate(AdditiveFilter):
    """No limit: for work that is declared not private, and marked so on every output.

    Costs are still added up in GDP, to show the cost of the private part.
    """

    name = "non-private"
    currency = "mu squared"
    theorem = "none: NOT PRIVATE"

    def __init__(self, delta: float, neighbouring: Neighbouring | str) -> None:
        super().__init__(math.inf, small_probability(delta=delta), neighbouring, [0.0])

    def _price(self, charge: SingleCharge, neighbouring: Neighbouring) -> tuple[float, ...]:
        if not isinstance(charge, GaussianCharge | BoundedRangeCharge | PureCharge) or charge.sample_prob < 1:
            return (math.inf,)
        return (gdp.mu_squared(charge),)

    def admit(self, spent: Totals, new: Charge) -> Totals:
        return self.after(spent, new)

    def affordable(self, spent: Totals) -> tuple[float, ...]:
        return (math.inf,)

    def fraction_left(self, start: Totals, now: Totals) -> float:
        return 1.0

    def leaving(self, start: Totals, now: Totals, share: float) -> Totals:
        raise InvalidArgument("a purse declared not private has no budget to divide. Use a purse with an epsilon.")

    def epsilon_left(self, spent: Totals) -> float:
        return math.inf

    def smallest_noise_multiplier(self, spent: Totals, sample_prob: float = 1.0) -> float:
        return 0.0

    def largest_epsilon(self, spent: Totals, like: BoundedRangeCharge | PureCharge = SELECTION) -> float:
        return math.inf

    def epsilon_of(self, spent: Totals, delta: float) -> float:
        return math.inf if spent.releases else 0.0

    def terms(self) -> dict[str, Any]:
        # JSON has no infinity.
        return {**super().terms(), "epsilon": "infinity"}


BY_NAME = {"gdp": GdpFilter, "zcdp": ZcdpFilter, "rdp": RdpFilter}


def from_terms(terms: dict[str, Any]) -> Filter:
    """Rebuild a filter from the terms on a ledger."""
    with refusing("expected the terms of an account of this version of privypurse. Pass those of a ledger."):
        name, relation = terms["filter"], terms["neighbouring"]
        if name == FixedSchedule.name and "schedule" in terms:
            return FixedSchedule.from_terms(terms)
        if name == DeclaredNonPrivate.name:
            return DeclaredNonPrivate(terms["delta"], relation)
        target = (terms["epsilon"], terms["delta"], relation)
        if name == GdpFilter.name:
            return GdpFilter(*target)
        if name == ZcdpFilter.name:
            return ZcdpFilter(*target, terms["conversion"])
        if name == RdpFilter.name:
            reference: Any = charge_format.from_json(terms["reference"])
            return RdpFilter(*target, reference=reference, orders=terms["orders"])
    what = f"an account with filter {name!r} cannot be reopened from its terms alone. Make the same filter again"
    raise InvalidArgument(f"{what}: Purse.with_filter(filter, ledger=...), or training.purse_for(..., ledger=...).")
