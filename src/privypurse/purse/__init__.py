"""The purse, its ledger and its certificate."""

from privypurse.purse.certificate import Certificate
from privypurse.purse.ledger import Ledger, MemoryLedger
from privypurse.purse.purse import Purse, Remaining, Spent
from privypurse.purse.sqlite_ledger import SqliteLedger

__all__ = ["Certificate", "Ledger", "MemoryLedger", "Purse", "Remaining", "Spent", "SqliteLedger"]
