"""Schedules for Poisson-sampled runs, fixed in advance and priced as a whole."""

import itertools
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from privypurse.accounting import convert
from privypurse.accounting.calibrate import scale_to_budget
from privypurse.accounting.fixed_schedule import FixedSchedule
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse.core.errors import UnsupportedCharge
from privypurse.core.neighbouring import Neighbouring
from privypurse.planning.facts import Facts

# Distinct noise levels of a sampled schedule. Each costs a convolution, at each step of the calibration.
LEVELS = 12


class Target(Protocol):
    """A budget to spend: facts, or a filter."""

    @property
    def epsilon(self) -> float:
        """Its epsilon."""
        ...

    @property
    def delta(self) -> float:
        """Its delta."""
        ...

    @property
    def neighbouring(self) -> Neighbouring:
        """Its relation."""
        ...


def fixed_schedule(weights: Sequence[float], sample_prob: float, target: Target) -> FixedSchedule:
    """Return the schedule whose noise follows these weights and which spends the budget, by privacy loss distributions."""
    return calibrated(relative_charges(weights, sample_prob), target)


def calibrated(charges: Sequence[GaussianCharge], target: Target) -> FixedSchedule:
    """Return the schedule with noise in these proportions which spends the budget."""
    runs = [RepeatedCharge(charge, sum(1 for _ in same)) for charge, same in itertools.groupby(charges)]
    scaled = scale_to_budget(runs, target.epsilon, target.delta, target.neighbouring)
    return FixedSchedule(scaled, target.epsilon, target.delta, target.neighbouring)


def relative_charges(weights: Sequence[float], sample_prob: float) -> list[GaussianCharge]:
    """Return releases whose noise follows these weights, up to a common factor.

    Noise goes as ``1/sqrt(weight)``, on a geometric grid of a few levels where the weights differ. (For sampled releases a weight
    is only about a share of the budget.)
    """
    levels = np.log(1 / np.sqrt(np.asarray(weights, dtype=np.float64)))
    if np.unique(levels).size > LEVELS:
        grid = np.linspace(levels.min(), levels.max(), LEVELS)
        levels = grid[np.abs(levels[:, None] - grid).argmin(axis=1)]
    return [GaussianCharge(float(math.exp(level)), sample_prob) for level in levels]


def advanced_composition_multiplier(steps: int, sample_prob: float, facts: Facts) -> float:
    """Return the noise multiplier that advanced composition asks for: a baseline, far from the least that would do.

    Each step is (e0, d0)-DP without sampling and ``(ln(1 + q(exp(e0) - 1)), q d0)``-DP with it; T of these are
    ``(e1 sqrt(2 T ln(1/d')) + T e1 (exp(e1) - 1), T q d0 + d')``-DP (Dwork, Rothblum and Vadhan 2010). Half of delta goes to d'.
    The amplification lemma is for add/remove; a replacement is a removal and an addition, so replace-one asks for half of
    epsilon there.
    """
    epsilon, delta, per_sensitivity = facts.epsilon, facts.delta, 1.0
    if facts.neighbouring is Neighbouring.REPLACE_ONE:
        # Two steps of (e, d) are (2e, (1 + exp(e)) d); and noise is counted relative to twice the add/remove sensitivity.
        epsilon, delta, per_sensitivity = epsilon / 2, delta / (1 + math.exp(epsilon / 2)), 0.5
    slack = delta / 2
    per_step_delta = delta / (2 * steps * sample_prob)

    def composed(per_step: float) -> float:
        amplified = math.log1p(sample_prob * math.expm1(per_step))
        return amplified * math.sqrt(2 * steps * math.log(1 / slack)) + steps * amplified * math.expm1(amplified)

    low, high = 1e-12, 50.0
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if composed(middle) <= epsilon else (low, middle)
    return per_sensitivity / convert.gdp_mu(low, min(per_step_delta, 0.5))


def refuse_unsampled_rule(name: str, sample_prob: float, facts: Facts) -> None:
    """Refuse to plan samples for a purse whose filter has no price for them."""
    if sample_prob < 1 and facts.rule.name in ("gdp", "zcdp"):
        raise UnsupportedCharge(
            f"{name} takes Poisson samples, which the {facts.rule.name} filter of this purse cannot price. Make the purse with "
            "training.open_purse(oracle, method, ...). Nothing was spent."
        )
