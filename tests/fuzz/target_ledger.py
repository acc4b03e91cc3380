"""Ledger files: however one is damaged, it is refused, or what was spent is still spent."""

import hashlib
import json
import pathlib
import shutil
import sqlite3
from contextlib import closing, suppress
from random import Random
from typing import Any

from privypurse import Purse, SqliteLedger
from privypurse.core._errors import PrivypurseError
from privypurse.purse._certificate import Certificate
from privypurse.purse._entries import canonical
from privypurse.purse._replay import replay
from privypurse.runs._describe import describe_budget
from tests.fuzz.guard import Finding
from tests.fuzz.mutations import NUMBERS, TEXTS, TOKENS, spoil_json, spoil_text, spoil_tree, value
from tests.fuzz.seeds import DATASETS, spend, write_ledger

COLUMNS = ("seq", "dataset", "kind", "who", "at", "what", "body", "totals", "previous", "digest")
STATEMENTS = (
    "DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)",
    "DELETE FROM entries WHERE seq > 3",
    "DELETE FROM entries",
    "DELETE FROM head",
    "UPDATE entries SET seq = 100 - seq",
    "UPDATE head SET count = count - 1",
    "UPDATE head SET digest = upper(digest)",
    "UPDATE head SET count = 'x'",
    "UPDATE head SET count = 1e300",
    "UPDATE head SET digest = NULL",
    "INSERT INTO entries SELECT seq + 100, dataset, kind, who, at, what, body, totals, previous, digest FROM entries",
    "DROP TABLE entries",
    "DROP TABLE head",
    "ALTER TABLE entries RENAME COLUMN totals TO was",
    "ALTER TABLE entries ADD COLUMN more TEXT",
    "CREATE VIEW IF NOT EXISTS v AS SELECT * FROM entries",
    "CREATE TRIGGER late AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE seq = NEW.seq; END",
    "CREATE TRIGGER soft AFTER INSERT ON entries BEGIN UPDATE head SET count = 1; END",
    "PRAGMA user_version = 7",
    "PRAGMA application_id = 0",
    "PRAGMA journal_mode = WAL",
    "PRAGMA auto_vacuum = FULL",
    "PRAGMA encoding = 'UTF-16'",
    "VACUUM",
)
FIELDS = ("PRAGMA writable_schema = ON", "PRAGMA ignore_check_constraints = ON")


class LedgerTarget:
    """An input is a list of edits, so that it means the same on the ledger of every run."""

    name, seconds = "ledger", 5.0

    def prepare(self, folder: pathlib.Path) -> None:
        self._seed, self._path = folder / "seed.db", folder / "budget.db"
        write_ledger(self._seed)
        ledger = SqliteLedger(self._seed)
        self._head = ledger.head()
        self._entries = list(ledger.entries())
        self._known = {name: (ledger.totals(name), ledger.terms(name), ledger.is_frozen(name)) for name in DATASETS}
        self._size = self._seed.stat().st_size
        for edits in ([], [["sql", STATEMENTS[15], []]]):
            self.check(json.dumps(edits).encode())

    def make(self, random: Random) -> bytes:
        edits = [self._edit(random) for _ in range(random.choice((1, 1, 1, 2, 3)))]
        if random.random() < 0.25:
            edits.append(["forge"])
        return json.dumps(edits).encode()

    def _edit(self, random: Random) -> list[Any]:
        kind = random.randrange(12)
        at = random.randrange(self._size)
        if kind < 3:
            return ["put", at, random.randbytes(random.choice((1, 1, 2, 8, 100))).hex()]
        if kind == 3:
            # The first page holds SQLite's header: lengths, versions, encodings.
            return [
                "put",
                random.randrange(100),
                random.choice((b"\x00", b"\x01", b"\x02", b"\xff", random.randbytes(4))).hex(),
            ]
        if kind == 4:
            return random.choice(
                (["cut", at, random.choice((1, 512, 4096))], ["truncate", at], ["truncate", at // 4096 * 4096])
            )
        if kind == 5:
            return ["insert", at, random.choice((random.choice(TOKENS), bytes(4096))).hex()]
        if kind == 6:
            return random.choice(
                (["journal", random.randbytes(600).hex()], ["wal", random.randbytes(600).hex()], ["link"], ["loop"])
            )
        if kind < 9:
            return ["sql", random.choice(STATEMENTS), []]
        return self._row_edit(random)

    def _row_edit(self, random: Random) -> list[Any]:
        entry = random.choice(self._entries)
        column = random.choice(COLUMNS)
        old = {"seq": entry.seq, "at": entry.when, "totals": '[["0"],0,0]'}.get(column) or getattr(entry, column)
        new: Any
        kind = random.randrange(6)
        if column == "body" and kind < 4:
            new = spoil_json(random, json.loads(entry.body)).decode("utf-8", "replace")
        elif column == "totals" and kind < 4:
            new = canonical_text(spoil_tree(random, json.loads(json.dumps([["0", "ffff"], 1, 0]))))
        elif kind < 2:
            new = random.choice((random.choice(TEXTS), random.choice(NUMBERS)))
        elif kind == 2:
            new = {"blob": random.randbytes(8).hex()}
        elif kind == 3:
            new = value(random)
        else:
            new = spoil_text(random, str(old))
        return ["row", entry.seq, column, new if isinstance(new, str | int | float | dict) else None]

    def check(self, content: bytes) -> None:
        for path in self._path.parent.glob("budget.db*"):
            path.unlink()
        shutil.copyfile(self._seed, self._path)
        edits = json.loads(content)
        for edit in edits:
            # What SQLite itself does not let pass was not an edit.
            with suppress(sqlite3.Error, OSError, OverflowError, UnicodeError, TypeError, ValueError):
                self._apply(edit)
        forged = ["forge"] in edits
        ledger = SqliteLedger(self._path, must_exist=True)
        ledger.verify()
        self._use(ledger, forged)
        if forged:
            self._check_pinned(ledger)
            return
        for name, (totals, terms, frozen) in self._known.items():
            if (
                not totals.fits_within(ledger.totals(name))
                or ledger.terms(name) != terms
                or ledger.is_frozen(name) < frozen
            ):
                raise Finding(
                    f"a damaged ledger shows more budget, other terms or no freeze of {name!r}, without an error"
                )
        self._check_spending(ledger)

    def _use(self, ledger: SqliteLedger, forged: bool) -> None:
        """Do with it what people do."""
        for name in sorted({entry.dataset for entry in ledger.entries()}):
            purse = Purse.reopen(ledger, name)
            purse.remaining, purse.spent, repr(purse)
            certificate = purse.certificate()
            if Certificate.from_json(certificate.to_json()) != certificate:
                raise Finding("a certificate is not what it was after it was written and read")
            str(certificate)
            describe_budget(purse)
            replay(ledger, name, purse.filter)

    def _check_pinned(self, ledger: SqliteLedger) -> None:
        """Who makes all hashes anew is found out by whoever has seen the ledger before."""
        try:
            ledger.verify(self._head)
        except PrivypurseError:
            return
        for name, (totals, terms, _) in self._known.items():
            if ledger.totals(name) != totals or ledger.terms(name) != terms:
                raise Finding("a forged ledger passes for the one that was seen before")

    def _check_spending(self, ledger: SqliteLedger) -> None:
        """What is released now is on the ledger, for whoever opens it next."""
        before = ledger.totals("survey")
        spend(Purse.reopen(ledger, "survey"), 200.0)
        after = SqliteLedger(self._path, must_exist=True).totals("survey")
        if after.releases != before.releases + 1 or after.quanta <= before.quanta:
            raise Finding("something was released, and the ledger does not show it")

    def _apply(self, edit: list[Any]) -> None:
        kind, *rest = edit
        if kind in ("put", "cut", "truncate", "insert"):
            self._path.write_bytes(_bytes_edited(self._path.read_bytes(), kind, rest))
        elif kind in ("journal", "wal"):
            self._path.with_name(f"budget.db-{kind}").write_bytes(bytes.fromhex(rest[0]))
        elif kind in ("link", "loop"):
            real = self._path.with_name("budget.db.real")
            self._path.replace(real)
            self._path.symlink_to(real if kind == "link" else self._path)
        else:
            self._sql(kind, rest)

    def _sql(self, kind: str, rest: list[Any]) -> None:
        with closing(sqlite3.connect(self._path, timeout=0.1, isolation_level=None)) as base:
            for trigger in ("entries_update", "entries_delete"):
                base.execute(f"DROP TRIGGER IF EXISTS {trigger}")
            for statement in FIELDS:
                base.execute(statement)
            if kind == "sql":
                base.execute(rest[0], rest[1])
            elif kind == "row":
                seq, column, new = rest
                if isinstance(new, dict):
                    new = bytes.fromhex(new["blob"]) if "blob" in new else json.dumps(new)
                base.execute(f"UPDATE entries SET {column} = ? WHERE seq = ?", (new, seq))
            elif kind == "forge":
                _forge(base)


def canonical_text(tree: Any) -> str:
    """Write totals as a ledger does, as far as they can be."""
    try:
        return canonical(tree)
    except (ValueError, TypeError):  # no such number; keys of several kinds
        return json.dumps(tree)


def _bytes_edited(content: bytes, kind: str, rest: list[Any]) -> bytes:
    at = rest[0]
    if kind == "put":
        new = bytes.fromhex(rest[1])
        return content[:at] + new + content[at + len(new) :]
    if kind == "cut":
        return content[:at] + content[at + rest[1] :]
    return content[:at] if kind == "truncate" else content[:at] + bytes.fromhex(rest[1]) + content[at:]


def _forge(base: sqlite3.Connection) -> None:
    """Make all hashes anew, as somebody who knows how would."""
    previous, count = "0" * 64, 0
    rows = base.execute(f"SELECT {', '.join(COLUMNS)} FROM entries ORDER BY seq").fetchall()
    for seq, dataset, kind, who, at, what, body, totals, _, _ in rows:
        text = canonical([seq, dataset, kind, who, at, what, body, _same_totals(totals), previous])
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        base.execute("UPDATE entries SET previous = ?, digest = ? WHERE seq = ?", (previous, digest, seq))
        previous, count = digest, seq
    base.execute("UPDATE head SET count = ?, digest = ?", (count, previous))


def _same_totals(text: Any) -> Any:
    with suppress(Exception):
        quanta, releases, non_private = json.loads(text)
        return canonical([[format(int(entry, 16), "x") for entry in quanta], int(releases), int(non_private)])
    return text
