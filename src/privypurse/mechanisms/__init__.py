"""[OPENS THE BOX] Mechanisms: frozen objects that define both the noise and its charge."""

from privypurse.mechanisms.base import Mechanism
from privypurse.mechanisms.gaussian import Gaussian
from privypurse.mechanisms.non_private import NonPrivateRelease
from privypurse.mechanisms.perturbed_minimiser import ObjectivePerturbation, OutputPerturbation
from privypurse.mechanisms.repeat_and_select import RepeatAndSelect
from privypurse.mechanisms.selection import ExponentialSelection, PermuteAndFlip

__all__ = [
    "ExponentialSelection",
    "Gaussian",
    "Mechanism",
    "NonPrivateRelease",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PermuteAndFlip",
    "RepeatAndSelect",
]
