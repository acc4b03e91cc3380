"""The append-only record of what was spent on which data set; in memory here, in a file in `sqlite_ledger`."""

import datetime
import getpass
import os
import reprlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from privypurse.accounting.totals import Totals
from privypurse.core.errors import BudgetFrozen, LedgerCorrupt, SharedAcrossProcesses, TermsMismatch
from privypurse.purse.entries import FREEZE, GENESIS, OPEN, SPENDING, Entry, canonical

Decide = Callable[[Totals], Totals]


class Ledger(Protocol):
    """What the purse needs of a ledger.

    Guarantees
    ----------
    * `append` is one transaction: it reads the totals of the data set, lets `decide` raise or return the new totals, and
      records them, with nobody in between. If it raises, nothing was recorded; if it returns, the line is durable.
    * Lines are never changed or removed.
    * After a line of the kind "freeze" no line that spends is recorded for that data set.
    * ``copy``, ``deepcopy`` and scikit-learn's ``clone`` return the same ledger.
    """

    @property
    def location(self) -> str:
        """Where the ledger lives, for certificates and messages."""
        ...

    def append(self, dataset: str, kind: str, body: Any, *, who: str, what: str, decide: Decide) -> Entry:
        """Let `decide` turn the data set's totals into new ones, and record them; one transaction."""
        ...

    def open_account(self, dataset: str, terms: dict[str, Any], start: Totals, *, who: str) -> None:
        """Fix the terms of a data set at first use; refuse other terms later."""
        ...

    def terms(self, dataset: str) -> dict[str, Any] | None:
        """Return the terms a data set was opened with, or None if it is not on the ledger."""
        ...

    def is_frozen(self, dataset: str) -> bool:
        """Whether nothing more may be spent on a data set."""
        ...

    def entries(self, dataset: str | None = None) -> Iterator[Entry]:
        """Return the lines in order, all of them or those of one data set."""
        ...

    def totals(self, dataset: str) -> Totals:
        """Return what is recorded as spent on a data set."""
        ...

    def head(self) -> tuple[int, str]:
        """Return the number of lines and the digest of the last one: what a certificate pins the ledger by."""
        ...

    def verify(self, head: tuple[int, str] | None = None) -> int:
        """Walk the whole chain, past a known head if one is given; return the number of lines or raise LedgerCorrupt."""
        ...


class Shared:
    """Makes copies of an object the object itself: a copied ledger would be a second budget."""

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __sklearn_clone__(self) -> Any:
        return self


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
    """Refuse to reopen an account under other terms."""
    if recorded == asked:
        return
    differing = sorted(name for name in {*recorded, *asked} if recorded.get(name) != asked.get(name))
    on_record = ", ".join(f"{name}={reprlib.repr(recorded.get(name))}" for name in differing)
    wanted = ", ".join(f"{name}={reprlib.repr(asked.get(name))}" for name in differing)
    raise TermsMismatch(
        f"data set {dataset!r} is already on the ledger ({location}) with {on_record}; got {wanted}. "
        "A data set has one budget for good. Open the purse with the recorded terms (Purse.reopen does), "
        "or pass another dataset= if these are other records."
    )


class MemoryLedger(Shared):
    """A ledger that lives and dies with the process.

    Threads may share it. Another process may not: a forked or pickled copy would be a second budget, so both are
    refused with the remedy.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: list[Entry] = []
        self._totals: dict[str, Totals] = {}
        self._terms: dict[str, dict[str, Any]] = {}
        self._frozen: set[str] = set()
        self._pid = os.getpid()

    @property
    def location(self) -> str:
        """Where the ledger lives."""
        return "memory of this process"

    def append(self, dataset: str, kind: str, body: Any, *, who: str, what: str, decide: Decide) -> Entry:
        """Record one line, in one step that no other thread can divide."""
        self._check_process()
        with self._lock:
            check_not_frozen(kind, dataset, self._frozen)
            totals = decide(self._totals[dataset])
            return self._record(dataset, kind, body, who, what, totals)

    def open_account(self, dataset: str, terms: dict[str, Any], start: Totals, *, who: str) -> None:
        """Fix the terms of a data set at first use; refuse other terms later."""
        self._check_process()
        with self._lock:
            if dataset in self._terms:
                check_terms(dataset, self.location, self._terms[dataset], terms)
            else:
                self._record(dataset, OPEN, terms, who, "open the account", start)
                self._terms[dataset] = terms

    def terms(self, dataset: str) -> dict[str, Any] | None:
        """Return the terms a data set was opened with, or None if it is not on the ledger."""
        return self._terms.get(dataset)

    def is_frozen(self, dataset: str) -> bool:
        """Whether nothing more may be spent on a data set."""
        return dataset in self._frozen

    def entries(self, dataset: str | None = None) -> Iterator[Entry]:
        """Return the lines in order."""
        with self._lock:
            lines = tuple(self._entries)
        return (entry for entry in lines if dataset is None or entry.dataset == dataset)

    def totals(self, dataset: str) -> Totals:
        """Return what is recorded as spent on a data set."""
        self._check_process()
        return self._totals[dataset]

    def head(self) -> tuple[int, str]:
        """Return the number of lines and the digest of the last one."""
        with self._lock:
            return len(self._entries), self._entries[-1].digest if self._entries else GENESIS

    def verify(self, head: tuple[int, str] | None = None) -> int:
        """Walk the whole chain; return the number of lines or raise LedgerCorrupt."""
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
        if os.getpid() != self._pid:
            raise SharedAcrossProcesses(
                "a ledger in memory was carried into a forked process, where its budget would be spent a second time. "
                "Give the purse a file: Purse(..., ledger='budget.db')."
            )

    def __reduce__(self) -> Any:
        raise SharedAcrossProcesses(
            "a ledger in memory cannot be pickled: the copy would be a second budget. "
            "Give the purse a file, which processes can share: Purse(..., ledger='budget.db')."
        )

    def __repr__(self) -> str:
        return f"<MemoryLedger: {len(self._entries)} lines>"


def check_not_frozen(kind: str, dataset: str, frozen: "set[str] | frozenset[str]") -> None:
    """Refuse a line that spends where the account is frozen."""
    if kind in SPENDING and dataset in frozen:
        raise BudgetFrozen(
            f"the account of data set {dataset!r} was frozen: nothing more may be spent on it. Nothing was spent. Ask who froze "
            "it (`privypurse ledger show` tells); there is no way back."
        )


def check_head(known: tuple[int, str], digest: str | None) -> None:
    """Refuse a ledger that does not contain a line as it was seen before."""
    if digest != known[1]:
        raise LedgerCorrupt(
            f"the ledger does not contain line {known[0]} as it was seen before: "
            "it was replaced by an older or another one, or edited."
        )
