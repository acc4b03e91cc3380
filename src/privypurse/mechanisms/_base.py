"""Interface of mechanisms."""

from typing import Protocol

from privypurse.core._checks import FloatArray
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Sensitive
from privypurse.core.charges import SingleCharge


class Mechanism(Protocol):
    """A frozen object that defines both the charge of a release and the released value.

    Guarantees
    ----------
    For every box and relation, the output of `draw` is as private as `charge` says: both read the
    bound from the same box, `charge` reads nothing else of it, and `draw` fails only for reasons
    that `charge` has already ruled out.

    Notes
    -----
    A mechanism may have ``charge_seen_under(box, neighbouring, other)``: the charge under
    replace-one of a release made under add/remove, so that the certificate can state both. Without
    it the certificate states one. (For a purse under replace-one it never states add/remove.)

    It may have ``check_noise(box, neighbouring, noise)``, which declares that `draw` is exact where
    ``noise.secure`` is set, and raises `InvalidArgument` before the charge where it cannot be.
    Without it, releases are drawn from plain noise, recorded as such, and refused where the purse
    requires exact noise. ``exact_by_default = False`` limits exact noise to purses that require it.

    It may have ``noise_std(box, neighbouring)``, the standard deviation of its noise, which is
    released with the value.
    """

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> SingleCharge:
        """Return the charge of releasing the box. Read the bound, never the value."""

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        """Open the box and return the noisy value. Called by the purse after the charge."""
