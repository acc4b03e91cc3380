"""[OPENS THE BOX] Mechanisms: frozen objects that define both the noise and its charge."""

from privypurse.mechanisms._base import Mechanism
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.mechanisms._selection import ExponentialSelection, PermuteAndFlip

__all__ = ["ExponentialSelection", "Gaussian", "Mechanism", "PermuteAndFlip"]
