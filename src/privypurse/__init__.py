"""Differentially private training for small budgets.

One sentence: an optimizer that sees only public values talks to an oracle that holds the data, and every answer passes
one gate, the purse, which charges the privacy budget before it lets a noisy value out.
"""

from privypurse.core.errors import (
    BudgetExhausted,
    InvalidArgument,
    LedgerCorrupt,
    LedgerUnavailable,
    PrivypurseError,
    TermsMismatch,
    UnboundedSensitivity,
    UnsupportedCharge,
)
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Norm, Sensitive
from privypurse.core.version import __version__
from privypurse.mechanisms import ExponentialSelection, Gaussian, NonPrivateRelease, PermuteAndFlip
from privypurse.purse import Certificate, MemoryLedger, Purse, SqliteLedger

__all__ = [
    "BudgetExhausted",
    "Certificate",
    "ExponentialSelection",
    "Gaussian",
    "InvalidArgument",
    "LedgerCorrupt",
    "LedgerUnavailable",
    "MemoryLedger",
    "Neighbouring",
    "NoiseSource",
    "NonPrivateRelease",
    "Norm",
    "PermuteAndFlip",
    "PrivypurseError",
    "Purse",
    "Sensitive",
    "SqliteLedger",
    "TermsMismatch",
    "UnboundedSensitivity",
    "UnsupportedCharge",
    "__version__",
]
