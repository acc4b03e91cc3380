"""The purse, its ledger and its certificate."""

from privypurse.purse._certificate import Certificate
from privypurse.purse._ledger import Ledger, MemoryLedger
from privypurse.purse._purse import Purse, Spent
from privypurse.purse._sqlite_ledger import SqliteLedger

__all__ = ["Certificate", "Ledger", "MemoryLedger", "Purse", "Spent", "SqliteLedger"]
