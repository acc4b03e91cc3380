"""Perturbing the objective instead of the answer."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse.core.charges import ObjectivePerturbationCharge
from privypurse.core.checks import FloatArray, positive
from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Norm, Sensitive, SensitiveObjective

# The search ends at a gradient this small, relative to the perturbation, ...
TOLERANCE = 1e-9
# ... and this much noise, relative to twice the distance it leaves, covers what the search did with it.
OUTPUT_NOISE_MULTIPLIER = 1e6


@dataclass(frozen=True)
class ObjectivePerturbation:
    """Release the minimiser of ``sum of losses + ridge/2 |w|^2 + b . w`` with Gaussian b.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of b divided by the largest norm of one record's gradient.
    ridge : float
        On the *sum* of losses; above the largest second derivative of one record's loss.

    Guarantees
    ----------
    The exact minimiser has the privacy loss that ``accounting.objective_perturbation`` bounds. What is released is a point within
    ``tolerance/ridge`` of it, plus Gaussian noise whose scale is a million times twice that distance: given the exact
    minimiser, that is a Gaussian mechanism of its own, and it is in the charge. (Iyengar et al. 2019.)
    """

    noise_multiplier: float
    ridge: float

    def __post_init__(self) -> None:
        positive(noise_multiplier=self.noise_multiplier)
        positive(ridge=self.ridge)

    def noise_std(self, box: Sensitive, neighbouring: Neighbouring) -> float:
        """Return the standard deviation of the perturbation of the objective's gradient."""
        return self.noise_multiplier * box.bound(Neighbouring.ADD_REMOVE, Norm.L2)

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> ObjectivePerturbationCharge:
        """Describe the release."""
        problem = _check(box)
        if problem.curvature >= self.ridge:
            raise InvalidArgument(
                f"ridge must be above the largest curvature of one record, {problem.curvature:g}; got {self.ridge!r}. Raise it."
            )
        ratio = problem.curvature / self.ridge
        return ObjectivePerturbationCharge(self.noise_multiplier, ratio, OUTPUT_NOISE_MULTIPLIER)

    def charge_seen_under(
        self, box: Sensitive, neighbouring: Neighbouring, other: Neighbouring
    ) -> ObjectivePerturbationCharge:
        """Describe the release, which is priced under either relation."""
        return self.charge(box, other)

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        """Perturb, minimise, and cover the tolerance."""
        std = self.noise_std(box, neighbouring)
        minimise: Any = box._value
        minimiser = minimise(std * noise.normal(box.shape), self.ridge, TOLERANCE * std)
        cover = OUTPUT_NOISE_MULTIPLIER * 2 * TOLERANCE * std / self.ridge
        return np.asarray(minimiser + cover * noise.normal(box.shape))


def _check(box: Sensitive) -> SensitiveObjective:
    if not isinstance(box, SensitiveObjective):
        raise InvalidArgument(f"box must hold an objective; got {box!r}. Ask the oracle for PerturbedMinimiser().")
    return box
