"""Gaussian noise on a vector or a scalar."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from privypurse.core._checks import FloatArray, positive
from privypurse.core._errors import BudgetExhausted, InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core.charges import GaussianCharge
from privypurse.mechanisms._exact_gaussian import Lattice


@dataclass(frozen=True)
class Gaussian:
    """Add independent Gaussian noise to every coordinate of a box bounded in L2.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the sensitivity of the box: the release is
        ``1/noise_multiplier``-Gaussian-DP. See also `Gaussian.with_mu` and
        `Gaussian.with_noise_std`.

    Guarantees
    ----------
    The standard deviation is ``noise_multiplier`` times the box's bound under the relation, and the
    charge states `noise_multiplier`: price and noise come from one number and one bound.

    With a source of exact noise the value is rounded to a lattice and the noise is a whole number
    of units, never less than stated (``docs/proofs/exact_noise.md``). It is larger by at most two
    millionths for up to a million coordinates and multipliers between 1e-3 and 1e6.

    Examples
    --------
    >>> Gaussian.with_mu(0.5)
    Gaussian(noise_multiplier=2.0)
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", positive(noise_multiplier=self.noise_multiplier))

    @classmethod
    def with_mu(cls, mu: float) -> "Gaussian":
        """Make a mechanism that is mu-Gaussian-DP, with mu rounded down."""
        mu = positive(mu=mu)
        noise_multiplier = 1 / mu
        while Fraction(noise_multiplier) * Fraction(mu) < 1:
            noise_multiplier = math.nextafter(noise_multiplier, math.inf)
        return cls(noise_multiplier)

    @classmethod
    def with_noise_std(cls, noise_std: float, box: Sensitive, neighbouring: Neighbouring | str) -> "Gaussian":
        """Make a mechanism whose noise on this box has a given standard deviation."""
        noise_std = positive(noise_std=noise_std)
        return cls(noise_std / box.bound(Neighbouring.parse(neighbouring), Norm.L2))

    @classmethod
    def spending(cls, remaining: Any) -> "Gaussian":
        """Make the mechanism that spends all that is left: ``Gaussian.spending(purse.remaining)``.

        For boxes of all records. Raises `BudgetExhausted` where nothing is left.
        """
        if not 0 < remaining.noise_multiplier < math.inf:
            raise BudgetExhausted("nothing is left of the budget.")
        return cls(remaining.noise_multiplier)

    def noise_std(self, box: Sensitive, neighbouring: Neighbouring) -> float:
        """Return the standard deviation of the noise on this box; a lower bound for exact noise."""
        return self.noise_multiplier * box.bound(neighbouring, Norm.L2)

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> GaussianCharge:
        noise_std = self.noise_std(box, neighbouring)
        if not 1e-290 < noise_std < 1e290:
            bound = f"a box with bound {box.bound(neighbouring, Norm.L2)!r}"
            what = f"noise_multiplier={self.noise_multiplier!r} on {bound} gives standard deviation {noise_std!r}"
            raise InvalidArgument(f"{what}, which doubles cannot add. Rescale the data or the clip norm.")
        return GaussianCharge(self.noise_multiplier, box.sample_prob)

    def charge_seen_under(self, box: Sensitive, neighbouring: Neighbouring, other: Neighbouring) -> GaussianCharge:
        return GaussianCharge(self.noise_std(box, neighbouring) / box.bound(other, Norm.L2), box.sample_prob)

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> Lattice | None:
        """Return the lattice of exact noise, None for plain noise.

        Raises InvalidArgument, before the charge, if exact noise is impossible.
        """
        if not noise.secure:
            return None
        # A replacement is a removal and an addition, each of which is rounded.
        moves = 2 if neighbouring is Neighbouring.REPLACE_ONE else 1
        sensitivity, count = box.bound(neighbouring, Norm.L2), math.prod(box.shape)
        return Lattice.of(sensitivity, self.noise_multiplier, count, noise.sampler != "secure", moves)

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        # A subclass may have a check_noise of its own, which need not return a lattice.
        lattice = Gaussian.check_noise(self, box, neighbouring, noise)
        if lattice is not None:
            return lattice.add_noise(box._value, noise)
        return np.asarray(box._value + self.noise_std(box, neighbouring) * noise.normal(box.shape))
