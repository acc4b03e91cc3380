"""A noisy answer, as everything outside the gate sees it."""

from dataclasses import dataclass

from privypurse.core.charges import SingleCharge
from privypurse.core.checks import FloatArray


@dataclass(frozen=True, eq=False)
class Released:
    """One release: public from here on.

    Parameters
    ----------
    value : ndarray
        The noisy answer; for a selection, the index that was chosen, as an array without dimensions.
    charge : Charge
        What was paid for it.
    noise_std : float or None, default None
        Standard deviation of the noise in each coordinate, for Gaussian releases.
    """

    value: FloatArray
    charge: SingleCharge
    noise_std: float | None = None

    @property
    def is_selection(self) -> bool:
        """Whether the value is an index."""
        return self.value.dtype.kind == "i"
