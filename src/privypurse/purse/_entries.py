"""One line of a ledger, and the hash chain that links it to all earlier lines."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from privypurse.accounting._totals import Totals
from privypurse.core._errors import LedgerCorrupt
from privypurse.core._statement import QUESTIONS

GENESIS = "0" * 64

# Kinds of lines. They are written into ledgers: never rename them.
OPEN = "open"  # terms of the account
CHARGE = "charge"  # one release, charged before it was made
RESERVE = "reserve"  # future releases, charged as a block
SETTLE = "settle"  # what the block was used for; the unused part is returned
UNCOVERED = "uncovered"  # something done outside the guarantee, declared by the user
FREEZE = "freeze"  # nothing more may be spent, permanently
NOTE = "note"  # what a job was about, for readers; changes nothing
SPENDING = (CHARGE, RESERVE)
KINDS = (OPEN, CHARGE, RESERVE, SETTLE, UNCOVERED, FREEZE, NOTE)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


@dataclass(frozen=True)
class Entry:
    """One line of a ledger: who asked, when (UTC) and for what purpose."""

    seq: int  # from 1 on, over all data sets
    dataset: str
    kind: str  # one of the kinds above
    who: str
    when: str
    what: str
    body: str  # details, as canonical JSON text
    totals: Totals  # of the data set after this line
    previous: str  # SHA-256 of the previous line
    digest: str = ""  # SHA-256 over all other fields; computed if new

    def __post_init__(self) -> None:
        if not self.digest:  # a new line; a line read from a file has one, which is then checked
            object.__setattr__(self, "digest", self.expected_digest())

    def expected_digest(self) -> str:
        """Return the SHA-256 over every field but the digest itself."""
        fields = (self.seq, self.dataset, self.kind, self.who, self.when, self.what, self.body)
        text = canonical([*fields, totals_to_text(self.totals), self.previous])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def details(self) -> Any:
        """The body, parsed as an object."""
        try:
            parsed = json.loads(self.body)
        except (ValueError, TypeError, RecursionError) as error:
            raise LedgerCorrupt(f"the details of line {self.seq} of the ledger cannot be read.") from error
        if not isinstance(parsed, dict):
            raise LedgerCorrupt(f"the details of line {self.seq} of the ledger are not an object.")
        return parsed

    @property
    def is_simulation(self) -> bool:
        """Whether it charged something whose noise was seeded."""
        return self.kind in (*SPENDING, SETTLE) and bool(self.details.get("simulation"))

    def check_digest(self) -> None:
        """Raise LedgerCorrupt if the hash does not match the content."""
        texts = (self.dataset, self.kind, self.who, self.when, self.what, self.body, self.previous, self.digest)
        if not all(isinstance(text, str) for text in texts) or self.digest != self.expected_digest():
            raise LedgerCorrupt(f"line {self.seq} of the ledger was changed: its hash does not match its content.")

    def check_follows(self, seq: int, digest: str) -> None:
        """Raise LedgerCorrupt if the entry was edited, is unknown, or does not follow this line."""
        self.check_digest()
        if self.kind not in KINDS:  # it may restrict spending
            what = f"line {self.seq} of the ledger is of an unknown kind"
            raise LedgerCorrupt(f"{what}. Install the version that wrote it.")
        if self.seq != seq + 1 or self.previous != digest:
            what = f"line {self.seq} of the ledger does not follow line {seq}"
            raise LedgerCorrupt(f"{what}: lines were removed, added or reordered.")


def declared_uncovered(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return what was recorded as not covered, without duplicates."""
    return tuple(dict.fromkeys(entry.what for entry in entries if entry.kind == UNCOVERED))


def declared_statement(entries: Iterable[Entry]) -> dict[str, str]:
    """Return what people stated (`core._statement`); a later answer replaces an earlier one."""
    found: dict[str, Any] = {}
    for entry in entries:
        if entry.kind == NOTE and isinstance(stated := entry.details.get("statement"), dict):
            found |= stated
    return {key: found[key] for key in QUESTIONS if isinstance(found.get(key), str)}


def canonical(value: Any) -> str:
    """Write JSON in the canonical form that is hashed."""
    return _CANONICAL.encode(value)


def totals_to_text(totals: Totals) -> str:
    """Write totals as text, with quanta in hexadecimal: they exceed a database's integers."""
    return canonical([[format(quanta, "x") for quanta in totals.quanta], totals.releases, totals.non_private])


def totals_from_text(text: str) -> Totals:
    """Read totals back. Raise LedgerCorrupt for anything `totals_to_text` did not write."""
    try:
        quanta, releases, non_private = json.loads(text)
        totals = Totals(tuple(int(entry, 16) for entry in quanta), int(releases), int(non_private))
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise LedgerCorrupt(f"the totals of a ledger line cannot be read: {str(text)[:80]!r}.") from error
    if not totals.quanta or min(*totals.quanta, totals.releases, totals.non_private) < 0:
        raise LedgerCorrupt("the totals of a ledger line are below zero: the line was changed.")
    return totals
