"""Release of the minimiser of a private objective, by objective or output perturbation.

The search for the minimum runs inside `draw`, after the charge. Its length and steps are private.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse.core._checks import FloatArray, ordinary, positive
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive, SensitiveObjective
from privypurse.core.charges import GaussianCharge, ObjectivePerturbationCharge, SingleCharge
from privypurse.mechanisms._exact_gaussian import Lattice

# Gradient norm at which the search ends, relative to the perturbation or one record's gradient.
TOLERANCE = 1e-8
# Noise on the minimiser relative to twice the distance that this tolerance allows.
OUTPUT_NOISE_MULTIPLIER = 1e5


@dataclass(frozen=True)
class _Perturbation:
    """Noise relative to what one record can change, and the ridge on the *sum* of losses."""

    noise_multiplier: float
    ridge: float

    def __post_init__(self) -> None:
        positive(noise_multiplier=self.noise_multiplier)
        ordinary(ridge=self.ridge)


class ObjectivePerturbation(_Perturbation):
    """Release the minimiser of ``sum of losses + ridge/2 |w|^2 + <b, w>`` with Gaussian b.

    The noise multiplier is relative to the largest norm of one record's gradient. The ridge is
    above the largest second derivative of one record's loss.

    Guarantees
    ----------
    ``accounting/_objective_perturbation.py`` bounds the privacy loss of the exact minimiser. The
    release is a point within ``tolerance/ridge`` of it, plus Gaussian noise whose scale is
    `OUTPUT_NOISE_MULTIPLIER` times twice that distance. Given the exact minimiser, that is a
    Gaussian mechanism of its own, and it is in the charge. (Iyengar et al. 2019.)
    """

    def noise_std(self, box: Sensitive, neighbouring: Neighbouring) -> float:
        """Return the standard deviation of the perturbation of the objective's gradient."""
        return self.noise_multiplier * box.bound(Neighbouring.ADD_REMOVE, Norm.GRADIENT)

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> ObjectivePerturbationCharge:
        ratio = check_objective(box, self.ridge).curvature / self.ridge
        check_noise(self.noise_std(box, neighbouring), self.ridge)
        if ratio >= 1:
            raise InvalidArgument(f"ridge must be above the largest curvature; got {self.ridge!r}. Raise it.")
        return ObjectivePerturbationCharge(self.noise_multiplier, ratio, OUTPUT_NOISE_MULTIPLIER)

    def charge_seen_under(self, box: Sensitive, neighbouring: Neighbouring, other: Neighbouring) -> SingleCharge:
        return self.charge(box, other)

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> None:
        """Raise InvalidArgument for exact noise: the proof assumes a search among real numbers."""
        if noise.secure:
            what = "noise must be 'plain' for a perturbed objective, whose guarantee does not cover floating point"
            remedy = "Pass noise='plain', or use another method, such as output perturbation"
            raise InvalidArgument(f"{what}; got {noise.sampler!r}. {remedy}.")

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        std = self.noise_std(box, neighbouring)
        minimise: Any = box._value
        minimiser = minimise(std * noise.normal(box.shape), self.ridge, TOLERANCE * std)
        cover = OUTPUT_NOISE_MULTIPLIER * 2 * TOLERANCE * std / self.ridge
        return np.asarray(minimiser + cover * noise.normal(box.shape))


class OutputPerturbation(_Perturbation):
    """Release the minimiser of ``sum of losses + ridge/2 |w|^2`` with Gaussian noise.

    The noise multiplier is relative to how far one record moves the minimiser. The ridge is no
    smaller than the largest second derivative of one record's loss.

    Guarantees
    ----------
    The objective is ``ridge``-strongly convex, so its minimiser moves by at most the change of its
    gradient over the ridge; each of two searches ends within ``tolerance/ridge`` of its minimiser.
    """

    def sensitivity(self, box: Sensitive, neighbouring: Neighbouring) -> float:
        """Return how far one record moves the minimiser."""
        gradient = box.bound(Neighbouring.ADD_REMOVE, Norm.GRADIENT)
        return (box.bound(neighbouring, Norm.GRADIENT) + 2 * TOLERANCE * gradient) / self.ridge

    def noise_std(self, box: Sensitive, neighbouring: Neighbouring) -> float:
        return self.noise_multiplier * self.sensitivity(box, neighbouring)

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> GaussianCharge:
        check_objective(box, self.ridge)
        check_noise(self.noise_std(box, neighbouring), 1.0)
        return GaussianCharge(self.noise_multiplier)

    def charge_seen_under(self, box: Sensitive, neighbouring: Neighbouring, other: Neighbouring) -> GaussianCharge:
        return GaussianCharge(self.noise_std(box, neighbouring) / self.sensitivity(box, other))

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> None:
        """Raise InvalidArgument, before the charge, if exact noise is impossible."""
        if noise.secure:
            self._lattice(box, neighbouring, noise)

    def _lattice(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> Lattice:
        sensitivity, discrete = self.sensitivity(box, neighbouring), noise.sampler != "secure"
        return Lattice.of(sensitivity, self.noise_multiplier, math.prod(box.shape), discrete)

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        tolerance = TOLERANCE * box.bound(Neighbouring.ADD_REMOVE, Norm.GRADIENT)
        minimise: Any = box._value
        minimiser = minimise(np.zeros(box.shape), self.ridge, tolerance)
        if noise.secure:
            return self._lattice(box, neighbouring, noise).add_noise(minimiser, noise)
        return np.asarray(minimiser + self.noise_std(box, neighbouring) * noise.normal(box.shape))


def check_noise(noise_std: float, ridge: float) -> None:
    """Raise InvalidArgument, before the charge, for noise that over- or underflows."""
    if not (1e-90 < noise_std < 1e90 and 1e-90 < noise_std / ridge < 1e90):
        what = f"noise_multiplier and ridge give noise of standard deviation {noise_std!r}, {noise_std / ridge!r} on the model"
        raise InvalidArgument(f"{what}, outside the range from 1e-90 to 1e90. Rescale them to ordinary numbers.")


def check_objective(box: Sensitive, ridge: float) -> SensitiveObjective:
    """Raise InvalidArgument unless the box holds an objective and the ridge is large enough."""
    if not isinstance(box, SensitiveObjective):
        raise InvalidArgument(f"box must hold an objective; got {box!r}. Ask the oracle for Objective().")
    if ridge < box.curvature:
        what = f"ridge must be at least the largest curvature, {box.curvature:g}; got {ridge!r}"
        raise InvalidArgument(f"{what}. Raise it.")
    return box
