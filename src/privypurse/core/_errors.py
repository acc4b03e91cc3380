"""Errors raised by privypurse."""

import contextlib
import itertools
from collections.abc import Iterator


class PrivypurseError(Exception):
    """Base class of all errors raised by privypurse.

    Attributes
    ----------
    spent : bool or None
        Whether the failed call had charged a budget before it failed. None where no call that can
        charge was running. Set only by `spending_noted`.
    call : str or None
        Name of that call; earlier calls may have charged. None for a whole job.
    """

    spent: bool | None = None
    call: str | None = None

    @property
    def message(self) -> str:
        """The message without the statement about spending."""
        return super().__str__()

    def __str__(self) -> str:
        if self.spent is not False:
            return self.message
        return f"{self.message} " + ("Nothing was spent." if self.call is None else f"{self.call} spent nothing.")


class InvalidArgument(PrivypurseError, ValueError):
    """An argument is wrong; the message names it, shows its value and says what to pass instead."""


class FileUnusable(InvalidArgument):
    """A file or folder cannot be read or written, for example for lack of rights or disk space."""


class BudgetExhausted(PrivypurseError):
    """The next release does not fit in the remaining budget. Nothing was spent or released."""


class BudgetFrozen(BudgetExhausted):
    """The data set's account was frozen. Nothing more may be spent on it."""


class SpentInVain(PrivypurseError):
    """A job failed after a charge; the message says how much. The charge stays on the ledger."""


class UnsupportedCharge(PrivypurseError):
    """The filter has no theorem that prices the charge. Nothing was spent or released."""


class UnboundedSensitivity(PrivypurseError):
    """A value carries no enforced bound for the requested relation or norm."""


class SealedValue(PrivypurseError, TypeError):
    """Something tried to read a sealed value; only a charged release may."""


class LedgerError(PrivypurseError):
    """Base class of ledger errors."""


class LedgerCorrupt(LedgerError):
    """The ledger was edited, truncated, reordered or damaged, and is rejected."""


class LedgerUnavailable(LedgerError):
    """The ledger cannot be read or written (disk full, read-only, locked). Nothing was released."""


class TermsMismatch(LedgerError):
    """The data set is on the ledger under other terms (epsilon, delta, relation or filter)."""


class SharedAcrossProcesses(PrivypurseError):
    """An in-memory object was carried into another process, where it could be spent twice."""


class DataUnavailable(PrivypurseError, FileNotFoundError):
    """A data set is neither on this machine nor downloadable; the message says how to get it."""


class UnexpectedFile(PrivypurseError, ValueError):
    """A file has an unexpected checksum; the message names the file and the checksum."""


_next_charge = itertools.count(1).__next__  # atomic, also among threads
_charges = 0


def count_charge() -> None:
    """Count a charge that is, or may be, on a ledger."""
    global _charges
    _charges = _next_charge()


def charges_so_far() -> int:
    """Return the number of charges made by this process."""
    return _charges


@contextlib.contextmanager
def spending_noted(since: int | None = None, *, call: str | None) -> Iterator[None]:
    """Set `PrivypurseError.spent` and `call` on errors that leave the block; also a decorator.

    The operation began at `since`, a value of `charges_so_far`; by default at the start of the block.
    `spent` is False only if this process, in any thread, made no charge since then.
    """
    began = _charges if since is None else since
    try:
        yield
    except PrivypurseError as error:
        error.spent, error.call = _charges != began, call
        raise
