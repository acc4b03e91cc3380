"""A ledger in one SQLite file, shared safely by threads and processes.

The file must have one name: SQLite looks for the journal of a crash beside the name by which a file
is opened. Under another name it misses the journal, and later lines are rolled back.
"""

import contextlib
import os
import pathlib
import re
import secrets
import sqlite3
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc, pool

from privypurse.accounting._totals import Totals
from privypurse.core._checks import at_home
from privypurse.core._errors import InvalidArgument, LedgerCorrupt, LedgerUnavailable
from privypurse.core._randomness import Shared
from privypurse.purse._entries import FREEZE, GENESIS, OPEN, Entry, canonical, totals_from_text, totals_to_text
from privypurse.purse._ledger import Decide, check_head, check_not_frozen, check_terms, now


def first_name(path: pathlib.Path) -> pathlib.Path:
    """Return a temporary name beside the path under which to make a new ledger."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")


def check_one_name(path: pathlib.Path) -> None:
    """Raise an error unless the file exists and has no other hard links."""
    try:
        if os.stat(path).st_nlink != 1:
            _remove_first_name(path)
        names = os.stat(path).st_nlink
    except OSError as error:
        raise LedgerCorrupt(f"the ledger {path.name} has disappeared. Restore it from a backup.") from error
    if names != 1:
        what = f"the ledger {path.name} must have one name; got a file with {names} (hard links)"
        remedy = f"Remove the other names, which `find / -samefile {path.name}` lists"
        raise LedgerUnavailable(f"{what}: lines could be lost after a crash. {remedy}.")


def _remove_first_name(path: pathlib.Path) -> None:
    """Remove the temporary name of this file if it is still there, as after a kill."""
    made_as = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}")
    for other in path.parent.iterdir():
        if made_as.fullmatch(other.name):
            with contextlib.suppress(FileNotFoundError):
                if other.samefile(path):
                    other.unlink()


def check_not_mounted(path: pathlib.Path) -> None:
    """Raise LedgerUnavailable for a file that is a mount point: it has another name outside."""
    try:
        mounts = pathlib.Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:  # pragma: no cover (not on Linux)
        return
    escaped = re.sub(rb"[ \t\n\\]", lambda odd: b"\\%03o" % ord(odd[0]), os.fsencode(os.path.realpath(path)))
    if any(mount.split()[4] == escaped for mount in mounts):
        what = f"the ledger {path.name} is mounted as a single file: a crash leaves its journal beside another name"
        raise LedgerUnavailable(f"{what}, and lines could be lost. Mount its folder instead.")


# "PPRS", so that another program's database is not taken for a ledger.
_APPLICATION_ID = 0x50505253
_FORMAT = 1
_BUSY_SECONDS = 60

_metadata = sa.MetaData()
_entries = sa.Table(
    "entries",
    _metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    *(
        sa.Column(name, sa.Text, nullable=False)
        for name in ("dataset", "kind", "who", "at", "what", "body", "totals", "previous", "digest")
    ),
)
# The head counts the lines, so that lines missing at the end are noticed too.
_head = sa.Table(
    "head",
    _metadata,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)
# Built once: building a statement takes longer than running it.
_INSERT, _MOVE_HEAD = _entries.insert(), _head.update()
_READ_HEAD = sa.select(_head.c.count, _head.c.digest)
_FROM_LINE = sa.select(_entries).where(_entries.c.seq >= sa.bindparam("first")).order_by(_entries.c.seq)
_GUARDS = tuple(
    f"CREATE TRIGGER entries_{verb.lower()} BEFORE {verb} ON entries "
    f"BEGIN SELECT RAISE(ABORT, 'a privypurse ledger is append-only'); END"
    for verb in ("UPDATE", "DELETE")
)

# SQLite must not be forked inside a transaction; a fork waits until all threads finish theirs.
_no_fork = threading.RLock()


def _unlock_in_child() -> None:
    global _no_fork
    _no_fork = threading.RLock()


os.register_at_fork(
    before=lambda: _no_fork.acquire(), after_in_parent=lambda: _no_fork.release(), after_in_child=_unlock_in_child
)


@dataclass(frozen=True)
class _View:
    """What this object has read and checked so far, from the first line on."""

    seq: int = 0
    digest: str = GENESIS
    totals: dict[str, Totals] = field(default_factory=dict)
    terms: dict[str, dict[str, Any]] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()

    def after(self, entries: Iterator[Entry]) -> "_View":
        """Check the lines that follow and return the updated view."""
        seq, digest, totals, terms = self.seq, self.digest, dict(self.totals), dict(self.terms)
        frozen = self.frozen
        for entry in entries:
            entry.check_follows(seq, digest)
            seq, digest = entry.seq, entry.digest
            totals[entry.dataset] = entry.totals
            if entry.kind == OPEN:
                terms.setdefault(entry.dataset, entry.details)
            elif entry.kind == FREEZE:
                frozen = frozen | {entry.dataset}
        return _View(seq, digest, totals, terms, frozen)


class SqliteLedger(Shared):
    """A durable ledger in one file, with the methods of `Ledger`.

    Parameters
    ----------
    path : str or path
        The file; made at first use. Its folder must exist and be writable. Use a local disk:
        SQLite's locks are unreliable on network file systems.
    must_exist : bool, default False
        Raise an error if there is no ledger, instead of making one: a mistyped path is a new
        budget.

    Guarantees
    ----------
    * `append` runs in one ``BEGIN IMMEDIATE`` transaction: of any number of threads and processes
      only one decides at a time, on totals that include all that came before.
    * It returns only after the line is on the disk (rollback journal, ``synchronous=EXTRA``). A
      crash before that leaves no line and no release; a crash after it leaves a line, perhaps
      without a release: spending is over-counted, never under-counted.
    * Opening checks every line. Afterwards each transaction checks the last line seen here, every
      line added since, and that the head counts them all; totals are taken from lines checked in
      this way. A file that was edited, truncated or reordered is refused with `LedgerCorrupt` when
      it is opened or verified; while it is open, edits to older lines cannot change what may be
      spent.
    * Each transaction has its own connection, and a fork waits until no transaction is under way.
    * A file with several names (hard links, or itself a mount point) is refused: each name would
      have its own journal.
    """

    def __init__(self, path: str | os.PathLike[str], *, must_exist: bool = False) -> None:
        if not isinstance(path, str | os.PathLike) or not str(path) or str(path) == ":memory:":
            raise InvalidArgument(f"path must be a file name; got {path!r}. Pass for example 'budget.db'.")
        if "\x00" in str(path):
            raise InvalidArgument(f"path must be a file name; got {path!r}, with a null byte. Pass another.")
        self._path = at_home(path).absolute()
        if os.path.isdir(self._path):
            raise InvalidArgument(f"path must be a file name; got the folder {str(path)!r}. Pass a file in it.")
        if not os.path.isdir(self._path.parent):
            raise LedgerUnavailable(f"the folder {str(self._path.parent)!r} of the ledger does not exist. Make it.")
        self._engine = sa.create_engine("sqlite://", poolclass=pool.NullPool, creator=lambda: _connect(self._path))
        sa.event.listen(self._engine, "begin", _begin)
        self._view, self._view_lock = _View(), threading.Lock()
        if not os.path.exists(self._path):
            if must_exist:
                raise LedgerUnavailable(f"there is no ledger at {str(path)!r}. Check the path; nothing was made.")
            with self._errors():
                _create(self._path)
        check_not_mounted(self._path)
        self._check_format()
        self._read()

    @property
    def location(self) -> str:
        return self._path.name

    @property
    def path(self) -> pathlib.Path:
        """The file."""
        return self._path

    def append(self, dataset: str, kind: str, body: Any, *, who: str, what: str, decide: Decide) -> Entry:
        with self._transaction(write=True) as connection:
            view = self._catch_up(connection)
            check_not_frozen(kind, dataset, view.frozen)
            totals = decide(_known(view, dataset, self.location))
            entry = _insert(connection, view, dataset, kind, body, who, what, totals)
        self._remember(view.after(iter([entry])))
        return entry

    def open_account(self, dataset: str, terms: dict[str, Any], start: Totals, *, who: str) -> None:
        if self.terms(dataset) is None:
            with self._transaction(write=True) as connection:
                view = self._catch_up(connection)
                # Another process may have been first; its terms are compared below.
                if dataset not in view.terms:
                    entry = _insert(connection, view, dataset, OPEN, terms, who, "open the account", start)
                    view = view.after(iter([entry]))
            self._remember(view)
        check_terms(dataset, self.location, self.terms(dataset) or {}, terms)
        if len(self.totals(dataset).quanta) != len(start.quanta):
            raise LedgerCorrupt(f"{self.location}: the totals of {dataset!r} do not match its terms. Restore a backup.")

    def terms(self, dataset: str) -> dict[str, Any] | None:
        return self._read().terms.get(dataset)

    def is_frozen(self, dataset: str) -> bool:
        return dataset in self._read().frozen

    def entries(self, dataset: str | None = None) -> Iterator[Entry]:
        query = sa.select(_entries).order_by(_entries.c.seq)
        if dataset is not None:
            query = query.where(_entries.c.dataset == dataset)
        with self._transaction(write=False) as connection:
            rows = connection.execute(query).all()
        return (_checked(row) for row in rows)

    def totals(self, dataset: str) -> Totals:
        return _known(self._read(), dataset, self.location)

    def head(self) -> tuple[int, str]:
        view = self._read()
        return view.seq, view.digest

    def verify(self, head: tuple[int, str] | None = None) -> int:
        with self._transaction(write=False) as connection:
            found = self._catch_up(connection, _View())
            seen = self._view
            for known in ((seen.seq, seen.digest), *([head] if head is not None else [])):
                check_head(known, _digest_at(connection, known[0]))
        return found.seq

    def _read(self) -> _View:
        """Read and check the lines added since the last time."""
        with self._transaction(write=False) as connection:
            view = self._catch_up(connection)
        return self._remember(view)

    def _catch_up(self, connection: sa.Connection, start: _View | None = None) -> _View:
        """Check the last line seen, the lines after it, and that the head counts them all."""
        seen = self._view if start is None else start
        rows = iter(connection.execute(_FROM_LINE, {"first": seen.seq}))
        if seen.seq:
            row = next(rows, None)
            check_head((seen.seq, seen.digest), None if row is None else _checked(row).digest)
        view = seen.after(_entry(row) for row in rows)
        if (view.seq, view.digest) != _read_head(connection):
            what = f"{self.location}: the last line is not the one the head names"
            raise LedgerCorrupt(f"{what}: lines were removed, added or changed.")
        return view

    def _remember(self, view: _View) -> _View:
        """Keep the view of a finished transaction, unless another thread has a newer one."""
        with self._view_lock:
            if view.seq > self._view.seq:
                self._view = view
        return view

    def _check_format(self) -> None:
        with self._transaction(write=False) as connection:
            application = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
            version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        if application != _APPLICATION_ID:
            what = f"{self.location} is not a privypurse ledger, or was emptied"
            raise LedgerCorrupt(f"{what}. Pass another path, or restore a backup.")
        if version != _FORMAT:
            what = f"{self.location} has format {version}; this version reads {_FORMAT}"
            raise LedgerCorrupt(f"{what}. Install the version that wrote it.")

    @contextlib.contextmanager
    def _transaction(self, *, write: bool) -> Iterator[sa.Connection]:
        check_one_name(self._path)
        engine = self._engine.execution_options(write=write)
        with _no_fork, self._errors(), engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate database errors; other errors pass through."""
        try:
            yield
        except exc.DBAPIError as error:
            reason = str(error.orig)
            if any(sign in reason for sign in _DAMAGE):
                what = f"{self.location} is damaged or not a ledger ({reason})"
                raise LedgerCorrupt(f"{what}. Restore it from a backup.") from error
            remedy = "Check that the disk has room, file and folder are writable and no other program holds them"
            why = f"the ledger {self.location} cannot be read or written: {reason}"
            raise LedgerUnavailable(f"{why}. {remedy}.") from error
        except (exc.NoResultFound, exc.MultipleResultsFound) as error:
            raise LedgerCorrupt(f"{self.location} has lost its head. Restore it from a backup.") from error
        except UnicodeEncodeError as error:  # a lone surrogate, or bytes of a file's name
            what = "names on a ledger must be valid Unicode"
            raise InvalidArgument(f"{what}. Pass another --dataset or --who.") from error
        except UnicodeDecodeError as error:  # in SQLite's message about a damaged file
            raise LedgerCorrupt(f"{self.location} is damaged. Restore it from a backup.") from error
        except OSError as error:
            raise LedgerUnavailable(f"the ledger {self.location} cannot be made: {error}. Check its folder.") from error

    def __reduce__(self) -> Any:
        # The head travels along, so that an older copy or another ledger at the same path is
        # refused.
        return (_reconnect, (str(self._path), self.head()))

    def __repr__(self) -> str:
        return f"<SqliteLedger: {self.location}>"


_DAMAGE = ("malformed", "not a database", "no such table", "no such column", "corrupt")


def _reconnect(path: str, head: tuple[int, str]) -> SqliteLedger:
    ledger = SqliteLedger(path, must_exist=True)
    ledger.verify(head)
    return ledger


def _connect(path: pathlib.Path, mode: str = "rw") -> sqlite3.Connection:
    """Open the file. Make one only with `mode="rwc"`, since an empty ledger is a fresh budget."""
    uri = f"file:{urllib.parse.quote(os.fsencode(path))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        # Wait for the disk and the folder. SQLite's default rollback journal is gone after each
        # transaction, so a copy of the file between transactions is complete.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")  # on macOS, also past the disk's cache
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _create(path: pathlib.Path) -> None:
    """Make an empty ledger beside the path and link it there, unless another process was first."""
    new = first_name(path)
    # Made with the user's default permissions; SQLite then finds it empty.
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    engine = sa.create_engine("sqlite://", poolclass=pool.NullPool, creator=lambda: _connect(new))
    try:
        with engine.begin() as connection:
            _metadata.create_all(connection)
            for guard in _GUARDS:
                connection.exec_driver_sql(guard)
            connection.execute(_head.insert().values(id=1, count=0, digest=GENESIS))
            connection.exec_driver_sql(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.exec_driver_sql(f"PRAGMA user_version = {_FORMAT}")
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)


def _begin(connection: sa.Connection) -> None:
    # A writer takes the lock before reading, so that nothing is spent between its read and its
    # line.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("write") else "BEGIN")


def _insert(
    connection: sa.Connection, view: _View, dataset: str, kind: str, body: Any, who: str, what: str, totals: Totals
) -> Entry:
    entry = Entry(view.seq + 1, dataset, kind, who, now(), what, canonical(body), totals, view.digest)
    row = vars(entry) | {"at": entry.when, "totals": totals_to_text(entry.totals)}
    del row["when"]
    connection.execute(_INSERT, row)
    connection.execute(_MOVE_HEAD, {"count": entry.seq, "digest": entry.digest})
    return entry


def _known(view: _View, dataset: str, location: str) -> Totals:
    if dataset not in view.totals:
        raise LedgerCorrupt(f"{location} has no account for data set {dataset!r}, which was opened before.")
    return view.totals[dataset]


def _read_head(connection: sa.Connection) -> tuple[int, str]:
    row = connection.execute(_READ_HEAD).one()
    try:
        return int(row[0]), str(row[1])
    except (ValueError, TypeError, OverflowError) as error:
        raise LedgerCorrupt("the head of the ledger does not give the number of lines.") from error


def _digest_at(connection: sa.Connection, seq: int) -> str | None:
    if seq == 0:
        return GENESIS
    if isinstance(seq, bool) or not isinstance(seq, int) or not 0 < seq < 2**63:  # from a certificate or a checkpoint
        return None
    digest: str | None = connection.execute(sa.select(_entries.c.digest).where(_entries.c.seq == seq)).scalar()
    return digest


def _checked(row: Any) -> Entry:
    entry = _entry(row)
    entry.check_digest()
    return entry


def _entry(row: Any) -> Entry:
    seq, dataset, kind, who, when, what, body, totals, previous, digest = row
    totals = totals_from_text(totals)
    return Entry(seq, dataset, kind, who, when, what, body, totals, previous, digest or "missing")
