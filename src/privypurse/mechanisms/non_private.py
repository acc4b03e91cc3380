"""The honest way to release a value without noise: declare it, and pay infinity."""

from dataclasses import dataclass

import numpy as np

from privypurse.core.charges import NonPrivateCharge
from privypurse.core.checks import FloatArray, text
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Sensitive


@dataclass(frozen=True)
class NonPrivateRelease:
    """Release the value of a box as it is. NOT PRIVATE.

    Only a purse made by ``Purse.not_private`` admits it; its certificate then says NOT PRIVATE, and why.

    Parameters
    ----------
    reason : str
        Why the value is released without noise; kept on the ledger.
    """

    reason: str

    def __post_init__(self) -> None:
        text(reason=self.reason)

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> NonPrivateCharge:
        """Describe the release, which costs infinity."""
        return NonPrivateCharge(self.reason)

    def charge_seen_under(self, box: Sensitive, neighbouring: Neighbouring, other: Neighbouring) -> NonPrivateCharge:
        """Describe the release, which costs infinity under either relation."""
        return NonPrivateCharge(self.reason)

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        """Return a copy of the value."""
        return np.array(box._value)


@dataclass(frozen=True)
class NoiseAsLongAsTheValue:
    """Add Gaussian noise as long as the value itself. NOT PRIVATE: the noise depends on what it hides.

    The published "oracle" schedule of PUR, kept to be compared with. Only a purse made by ``Purse.not_private`` admits it.

    Parameters
    ----------
    added : tuple of float, optional
        A public vector that is added to the value elsewhere (the gradient of a ridge) and counts towards its length.
    """

    added: tuple[float, ...] = ()

    def noise_std(self, box: Sensitive, neighbouring: Neighbouring) -> float:
        """Return the standard deviation in each coordinate, which is itself private."""
        whole = box._value + np.array(self.added) if self.added else box._value
        return float(np.linalg.norm(whole) / np.sqrt(whole.size))

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> NonPrivateCharge:
        """Describe the release, which costs infinity."""
        return NonPrivateCharge("noise scaled by the true length of the value (PUR with an oracle)")

    def charge_seen_under(self, box: Sensitive, neighbouring: Neighbouring, other: Neighbouring) -> NonPrivateCharge:
        """Describe the release, which costs infinity under either relation."""
        return self.charge(box, other)

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        """Return the value plus noise."""
        return np.asarray(box._value + self.noise_std(box, neighbouring) * noise.normal(box.shape))
