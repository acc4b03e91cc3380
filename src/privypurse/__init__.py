"""Differentially private training for small budgets.

An optimizer that sees only public values queries an oracle that holds the data. Every answer passes
one gate, the purse, which charges the privacy budget before it releases a noisy value.
"""

from privypurse.accounting._filters import GdpFilter, RdpFilter, ZcdpFilter
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core._errors import (
    BudgetExhausted,
    InvalidArgument,
    LedgerCorrupt,
    LedgerUnavailable,
    PrivypurseError,
    TermsMismatch,
)
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core._version import __version__
from privypurse.core.charges import GaussianCharge
from privypurse.mechanisms import ExponentialSelection, Gaussian, PermuteAndFlip
from privypurse.purse import Certificate, MemoryLedger, Purse, SqliteLedger

__all__ = [
    "BudgetExhausted",
    "Certificate",
    "ExponentialSelection",
    "FixedSchedule",
    "Gaussian",
    "GaussianCharge",
    "GdpFilter",
    "InvalidArgument",
    "LedgerCorrupt",
    "LedgerUnavailable",
    "MemoryLedger",
    "Neighbouring",
    "NoiseSource",
    "Norm",
    "PermuteAndFlip",
    "PrivypurseError",
    "Purse",
    "RdpFilter",
    "Sensitive",
    "SqliteLedger",
    "TermsMismatch",
    "ZcdpFilter",
    "__version__",
]
