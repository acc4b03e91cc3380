"""Releases without noise: declared as not private, at a cost of infinity."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse.core._checks import FloatArray, ordinary, text
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core.charges import NonPrivateCharge
from privypurse.mechanisms._perturbed_minimiser import check_objective


@dataclass(frozen=True)
class NonPrivateRelease:
    """Release the value of a box as it is. NOT PRIVATE.

    Only a purse made by ``Purse.not_private`` admits it. The certificate says NOT PRIVATE, and why.

    Parameters
    ----------
    reason : str
        Why there is no noise; recorded on the ledger.
    """

    reason: str

    def __post_init__(self) -> None:
        text(reason=self.reason)

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> NonPrivateCharge:
        if box.norm is Norm.GRADIENT:
            raise InvalidArgument(f"box holds an objective, not a value; got {box!r}. Use NonPrivateMinimiser.")
        return NonPrivateCharge(self.reason)

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> None:
        """Accept any noise, since none is drawn."""

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        return np.array(box._value)


@dataclass(frozen=True)
class NonPrivateAnswer(NonPrivateRelease):
    """Release a function of the exact value and of noise. NOT PRIVATE, whatever the function.

    For published methods that are not private: `privypurse_lab.papers` compares with them. Charged
    like `NonPrivateRelease`. ``make(value, noise)`` returns the answer.
    """

    make: Callable[[FloatArray, NoiseSource], FloatArray]

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        return np.asarray(self.make(np.array(box._value), noise))


@dataclass(frozen=True)
class NonPrivateMinimiser:
    """Release the minimiser of an objective as it is. NOT PRIVATE."""

    reason: str
    ridge: float  # on the sum of losses
    tolerance: float  # gradient norm at which the search ends

    def __post_init__(self) -> None:
        text(reason=self.reason)
        ordinary(ridge=self.ridge)
        ordinary(tolerance=self.tolerance)

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> NonPrivateCharge:
        check_objective(box, self.ridge)
        return NonPrivateCharge(self.reason)

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        minimise: Any = box._value
        return np.asarray(minimise(np.zeros(box.shape), self.ridge, self.tolerance))


@dataclass(frozen=True)
class NoiseAsLongAsTheValue:
    """Add Gaussian noise as long as the value itself. NOT PRIVATE: the noise depends on the value.

    The published "oracle" schedule of PUR, for comparison. Only a purse made by
    ``Purse.not_private`` admits it.
    """

    added: tuple[float, ...] = ()  # public vector, such as a ridge gradient, that counts in the length

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> NonPrivateCharge:
        box.bound(neighbouring, Norm.L2)
        return NonPrivateCharge("noise scaled by the true length of the value (PUR with an oracle)")

    def noise_std(self, box: Sensitive, neighbouring: Neighbouring) -> float:
        """Return the standard deviation of the noise. NOT PRIVATE: read from the sealed value."""
        whole = box._value + np.array(self.added) if self.added else box._value
        return float(np.linalg.norm(whole) / np.sqrt(whole.size))

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        return np.asarray(box._value + self.noise_std(box, neighbouring) * noise.normal(box.shape))
