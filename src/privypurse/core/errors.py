"""Every error privypurse raises on purpose, so that a caller can tell them apart."""


class PrivypurseError(Exception):
    """Base class of all errors raised by privypurse."""


class InvalidArgument(PrivypurseError, ValueError):
    """An argument is wrong; the message names it, shows its value and says what to pass instead."""


class FileUnusable(InvalidArgument):
    """A file or folder that was named cannot be read or written: rights, a full disk, a broken one; nothing was spent."""


class BudgetExhausted(PrivypurseError):
    """The next release does not fit in what is left; nothing was spent and nothing was released."""


class BudgetFrozen(BudgetExhausted):
    """The data set's account was frozen: nothing more may be spent on it, whatever is left."""


class SpentInVain(PrivypurseError):
    """A job failed after something was paid for; the message says how much. The payment stays on the ledger."""


class UnsupportedCharge(PrivypurseError):
    """The filter has no theorem that prices the charge; nothing was spent and nothing was released."""


class UnboundedSensitivity(PrivypurseError):
    """A value carries no enforced bound for the relation or norm it was asked about."""


class SealedValue(PrivypurseError, TypeError):
    """Something tried to look inside a sealed box; only a paid release may."""


class LedgerError(PrivypurseError):
    """Base class of what can go wrong with a ledger."""


class LedgerCorrupt(LedgerError):
    """The ledger was edited, truncated, reordered or damaged; it is refused until a person has looked."""


class LedgerUnavailable(LedgerError):
    """The ledger cannot be read or written now (disk full, read-only, locked); nothing was released."""


class TermsMismatch(LedgerError):
    """The data set is already on the ledger under other terms (epsilon, delta, relation or filter)."""


class SharedAcrossProcesses(PrivypurseError):
    """Something that lives in one process's memory was carried into another, where it would be spent twice."""


class DataUnavailable(PrivypurseError, FileNotFoundError):
    """A data set is neither on this machine nor to be had over the network; the message says how to get it."""


class UnexpectedFile(PrivypurseError, ValueError):
    """A file is not the one it should be, or was damaged; the message names it and the checksum it has."""
