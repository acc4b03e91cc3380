"""The append-only record of spending per data set; in memory here, in a file in `sqlite_ledger`."""

import datetime
import getpass
import reprlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from privypurse.accounting._totals import Totals
from privypurse.core._errors import BudgetFrozen, LedgerCorrupt, SharedAcrossProcesses, TermsMismatch
from privypurse.core._formats import counted
from privypurse.core._randomness import Shared, this_process
from privypurse.purse._entries import FREEZE, GENESIS, OPEN, SPENDING, Entry, canonical

Decide = Callable[[Totals], Totals]


class Ledger(Protocol):
    """Interface of a ledger, as the purse uses it.

    Guarantees
    ----------
    * `append` is one transaction: it reads the totals of the data set, lets `decide` raise or
      return the new totals, and records them. If it raises, nothing was recorded; if it returns,
      the line is durable.
    * Lines are never changed or removed.
    * After a line of the kind "freeze" no line that spends is recorded for that data set.
    * ``copy``, ``deepcopy`` and scikit-learn's ``clone`` return the same ledger.
    """

    @property
    def location(self) -> str:
        """Location of the ledger, for certificates and messages."""

    def append(self, dataset: str, kind: str, body: Any, *, who: str, what: str, decide: Decide) -> Entry:
        """Let `decide` compute the data set's new totals and record them, in one transaction."""

    def open_account(self, dataset: str, terms: dict[str, Any], start: Totals, *, who: str) -> None:
        """Fix the terms of a data set at first use; refuse other terms later."""

    def terms(self, dataset: str) -> dict[str, Any] | None:
        """Return the terms a data set was opened with, or None if it is not on the ledger."""

    def is_frozen(self, dataset: str) -> bool:
        """Return whether nothing more may be spent on a data set."""

    def entries(self, dataset: str | None = None) -> Iterator[Entry]:
        """Return the lines in order, all of them or those of one data set."""

    def totals(self, dataset: str) -> Totals:
        """Return what is recorded as spent on a data set."""

    def head(self) -> tuple[int, str]:
        """Return the number of lines and the last digest, which pin the ledger."""

    def verify(self, head: tuple[int, str] | None = None) -> int:
        """Verify the chain, past a known head if given; return the number of lines."""


def now() -> str:
    """Return the time for a ledger line: UTC, to the microsecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def current_user() -> str:
    """Return the login name of the person running the process, or 'unknown'."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def check_terms(dataset: str, location: str, recorded: dict[str, Any], asked: dict[str, Any]) -> None:
    """Raise TermsMismatch unless an account is reopened under its recorded terms."""
    if recorded == asked:
        return
    differing = sorted(name for name in {*recorded, *asked} if recorded.get(name) != asked.get(name))
    on_record = ", ".join(f"{name}={reprlib.repr(recorded.get(name))}" for name in differing)
    wanted = ", ".join(f"{name}={reprlib.repr(asked.get(name))}" for name in differing)
    what = f"data set {dataset!r} is already on the ledger ({location}) with {on_record}; got {wanted}"
    remedy = "Open the purse with the recorded terms (Purse.reopen does), or pass another dataset= if these are other records"
    raise TermsMismatch(f"{what}. A data set has one permanent budget. {remedy}.")


class MemoryLedger(Shared):
    """A ledger in the memory of one process, with the methods of `Ledger`.

    Threads may share it. Another process may not: a forked or pickled copy would be a second
    budget, so both raise `SharedAcrossProcesses`.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: list[Entry] = []
        self._totals: dict[str, Totals] = {}
        self._terms: dict[str, dict[str, Any]] = {}
        self._frozen: set[str] = set()
        self._process = this_process()

    @property
    def location(self) -> str:
        return "memory of this process"

    def append(self, dataset: str, kind: str, body: Any, *, who: str, what: str, decide: Decide) -> Entry:
        self._check_process()
        with self._lock:
            check_not_frozen(kind, dataset, self._frozen)
            totals = decide(self._totals[dataset])
            return self._record(dataset, kind, body, who, what, totals)

    def open_account(self, dataset: str, terms: dict[str, Any], start: Totals, *, who: str) -> None:
        self._check_process()
        with self._lock:
            if dataset in self._terms:
                check_terms(dataset, self.location, self._terms[dataset], terms)
            else:
                self._record(dataset, OPEN, terms, who, "open the account", start)
                self._terms[dataset] = terms

    def terms(self, dataset: str) -> dict[str, Any] | None:
        return self._terms.get(dataset)

    def is_frozen(self, dataset: str) -> bool:
        return dataset in self._frozen

    def entries(self, dataset: str | None = None) -> Iterator[Entry]:
        with self._lock:
            lines = tuple(self._entries)
        return (entry for entry in lines if dataset is None or entry.dataset == dataset)

    def totals(self, dataset: str) -> Totals:
        self._check_process()
        return self._totals[dataset]

    def head(self) -> tuple[int, str]:
        with self._lock:
            return len(self._entries), self._entries[-1].digest if self._entries else GENESIS

    def verify(self, head: tuple[int, str] | None = None) -> int:
        lines = list(self.entries())
        seq, digest = 0, GENESIS
        for entry in lines:
            entry.check_follows(seq, digest)
            seq, digest = entry.seq, entry.digest
        if head is not None and head != (0, GENESIS):
            check_head(head, lines[head[0] - 1].digest if 0 < head[0] <= len(lines) else None)
        return seq

    def _record(self, dataset: str, kind: str, body: Any, who: str, what: str, totals: Totals) -> Entry:
        count, digest = self.head()
        entry = Entry(count + 1, dataset, kind, who, now(), what, canonical(body), totals, digest)
        self._entries.append(entry)
        self._totals[dataset] = totals
        if kind == FREEZE:
            self._frozen.add(dataset)
        return entry

    def _check_process(self) -> None:
        if this_process() != self._process:
            what = "a ledger in memory was carried into a forked process, where its budget would be spent a second time"
            raise SharedAcrossProcesses(f"{what}. Give the purse a file: Purse(..., ledger='budget.db').")

    def __reduce__(self) -> Any:
        what = "a ledger in memory cannot be pickled: the copy would be a second budget. Give the purse a file"
        raise SharedAcrossProcesses(f"{what}, which processes can share: Purse(..., ledger='budget.db').")

    def __repr__(self) -> str:
        return f"<MemoryLedger: {counted(len(self._entries), 'line')}>"


def check_not_frozen(kind: str, dataset: str, frozen: "set[str] | frozenset[str]") -> None:
    """Raise BudgetFrozen for a line that spends where the account is frozen."""
    if kind in SPENDING and dataset in frozen:
        what = f"the account of data set {dataset!r} was frozen: nothing more may be spent on it"
        raise BudgetFrozen(f"{what}. This cannot be undone; `privypurse ledger show` tells who froze it.")


def check_head(known: tuple[int, str], digest: str | None) -> None:
    """Raise LedgerCorrupt unless the ledger contains a line as it was seen before."""
    if digest != known[1]:
        what = f"the ledger does not contain line {known[0]} as it was seen before"
        raise LedgerCorrupt(f"{what}: it was replaced by an older or another one, or edited.")
