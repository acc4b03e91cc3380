"""What the purse asks of a mechanism."""

from typing import Protocol

from privypurse.core.charges import SingleCharge
from privypurse.core.checks import FloatArray
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Sensitive


class Mechanism(Protocol):
    """One frozen object that gives both the price of a release and the released value.

    Guarantees
    ----------
    An implementation promises that, for every box and relation, the output of `draw` is as private as `charge` says:
    both read the bound from the same box, `charge` reads nothing else of it, and `draw` fails only for reasons that
    `charge` has already ruled out.

    Notes
    -----
    A mechanism may also have ``charge_seen_under(box, neighbouring, other)``: what a release made under one relation is under the
    other, so that the certificate can state both. Without it the certificate states one.

    It may have ``check_noise(box, neighbouring, noise)``, which says that `draw` is exact where ``noise.secure`` is set, and
    raises `InvalidArgument` before payment where it cannot be. Without it, releases are drawn from plain noise and put on record
    as such, and are refused where the purse insists on exact noise. ``exact_by_default = False`` leaves the exact way to purses
    that insist.
    """

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> SingleCharge:
        """Describe what releasing the box would reveal; reads the bound, never the value."""
        ...

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        """Open the box and return the noisy value. Called by the purse, after the charge is on the ledger."""
        ...
