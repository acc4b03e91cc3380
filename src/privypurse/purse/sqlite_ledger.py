"""A ledger in one SQLite file, shared safely by threads and processes."""

import contextlib
import os
import pathlib
import sqlite3
import tempfile
import urllib.parse
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc, pool

from privypurse.accounting.totals import Totals
from privypurse.core.errors import InvalidArgument, LedgerCorrupt, LedgerUnavailable
from privypurse.purse.entries import GENESIS, OPEN, Entry, canonical, totals_from_text, totals_to_text
from privypurse.purse.ledger import Decide, Shared, check_terms, now, verify_chain

# "PPRS": so that another program's database is not taken for a ledger.
_APPLICATION_ID = 0x50505253
_FORMAT = 1
_BUSY_SECONDS = 60

_metadata = sa.MetaData()
_entries = sa.Table(
    "entries",
    _metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("what", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("totals", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Index("entries_by_dataset", "dataset", "seq"),
)
# The head says how many lines there are, so that lines missing at the end are noticed too.
_head = sa.Table(
    "head",
    _metadata,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)
_GUARDS = tuple(
    f"CREATE TRIGGER entries_{verb.lower()} BEFORE {verb} ON entries "
    f"BEGIN SELECT RAISE(ABORT, 'a privypurse ledger is append-only'); END"
    for verb in ("UPDATE", "DELETE")
)


class SqliteLedger(Shared):
    """A durable ledger in one file.

    Parameters
    ----------
    path : str or path
        The file; made at first use. Its folder must exist and be writable. Keep it on a local disk: SQLite's locks
        are unreliable on network file systems.
    must_exist : bool, default False
        Refuse a path where there is no ledger, instead of making one: a mistyped path is a fresh budget.

    Guarantees
    ----------
    * `append` runs in one ``BEGIN IMMEDIATE`` transaction: of any number of threads and processes only one decides at a
      time, on totals that include all that came before.
    * It returns only after the line is on the disk (rollback journal, ``synchronous=EXTRA``). A crash before that leaves no
      line and no release; a crash after it leaves a line, perhaps without a release: spending is over-counted, never
      under-counted.
    * Opening walks the whole hash chain; each append checks the last line, the data set's last line and the head, and that the
      ledger still continues the one this object has seen. An edited, truncated or reordered file raises `LedgerCorrupt`.
    * Each transaction has its own connection, so that nothing is inherited over a fork.
    """

    def __init__(self, path: str | os.PathLike[str], *, must_exist: bool = False) -> None:
        if not isinstance(path, str | os.PathLike) or not str(path) or str(path) == ":memory:":
            raise InvalidArgument(
                f"path must be a file name; got {path!r}. Pass for example 'budget.db', or ledger=None for memory."
            )
        self._path = pathlib.Path(path).expanduser().absolute()
        if self._path.is_dir():
            raise InvalidArgument(f"path must be a file name; got the folder {str(path)!r}. Pass a file in it.")
        if not self._path.parent.is_dir():
            raise LedgerUnavailable(
                f"the folder of the ledger, {str(self._path.parent)!r}, does not exist. Make it, or pass another path."
            )
        self._engine = sa.create_engine("sqlite://", poolclass=pool.NullPool, creator=lambda: _connect(self._path))
        sa.event.listen(self._engine, "begin", _begin)
        self._seen = (0, GENESIS)
        if not self._path.exists():
            if must_exist:
                raise LedgerUnavailable(f"there is no ledger at {str(path)!r}. Check the path; nothing was made.")
            with self._errors():
                _create(self._path)
        self._check_format()
        self.verify()

    @property
    def location(self) -> str:
        """The file's name."""
        return self._path.name

    @property
    def path(self) -> pathlib.Path:
        """The file."""
        return self._path

    def append(self, dataset: str, kind: str, body: Any, *, who: str, what: str, decide: Decide) -> Entry:
        """Record one line in one transaction."""
        with self._transaction() as connection:
            last = self._checked_last(connection)
            # Usually the data set's last line is the ledger's, and its hash has just been checked.
            totals = last.totals if last is not None and last.dataset == dataset else _totals(connection, dataset)
            return self._insert(connection, last, dataset, kind, body, who, what, decide(totals))

    def open_account(self, dataset: str, terms: dict[str, Any], start: Totals, *, who: str) -> None:
        """Fix the terms of a data set at first use; refuse other terms later."""
        if self.terms(dataset) is None:
            with self._transaction() as connection:
                last = self._checked_last(connection)
                if _first(connection, dataset) is None:
                    self._insert(connection, last, dataset, OPEN, terms, who, "open the account", start)
        recorded = self.terms(dataset)
        if recorded is not None:
            check_terms(dataset, self.location, recorded, terms)

    def terms(self, dataset: str) -> dict[str, Any] | None:
        """Return the terms a data set was opened with, or None if it is not on the ledger."""
        with self._transaction(write=False) as connection:
            first = _first(connection, dataset)
        return None if first is None else dict(first.details)

    def entries(self, dataset: str | None = None) -> Iterator[Entry]:
        """Return the lines in order."""
        query = sa.select(_entries).order_by(_entries.c.seq)
        if dataset is not None:
            query = query.where(_entries.c.dataset == dataset)
        with self._transaction(write=False) as connection:
            rows = connection.execute(query).all()
        return (_checked(row) for row in rows)

    def totals(self, dataset: str) -> Totals:
        """Return what is recorded as spent on a data set."""
        with self._transaction(write=False) as connection:
            self._checked_last(connection)
            return _totals(connection, dataset)

    def head(self) -> tuple[int, str]:
        """Return the number of lines and the digest of the last one."""
        with self._transaction(write=False) as connection:
            return _read_head(connection)

    def verify(self, head: tuple[int, str] | None = None) -> int:
        """Walk the whole chain; return the number of lines or raise LedgerCorrupt."""
        with self._transaction(write=False) as connection:
            self._checked_last(connection)
            count = verify_chain(_stream(connection), head)
            if count != _read_head(connection)[0]:
                raise LedgerCorrupt(f"{self.location}: the head counts other lines than the ledger holds.")
            return count

    def _insert(
        self,
        connection: sa.Connection,
        last: Entry | None,
        dataset: str,
        kind: str,
        body: Any,
        who: str,
        what: str,
        totals: Totals,
    ) -> Entry:
        count, digest = (last.seq, last.digest) if last is not None else (0, GENESIS)
        entry = Entry(count + 1, dataset, kind, who, now(), what, canonical(body), totals, digest)
        connection.execute(
            _entries.insert().values(
                seq=entry.seq,
                dataset=entry.dataset,
                kind=entry.kind,
                who=entry.who,
                at=entry.when,
                what=entry.what,
                body=entry.body,
                totals=totals_to_text(entry.totals),
                previous=entry.previous,
                digest=entry.digest,
            )
        )
        connection.execute(_head.update().values(count=entry.seq, digest=entry.digest))
        self._seen = (entry.seq, entry.digest)
        return entry

    def _checked_last(self, connection: sa.Connection) -> Entry | None:
        """Return the last line, checked against the head and against what this object has seen before."""
        row = connection.execute(sa.select(_entries).order_by(_entries.c.seq.desc()).limit(1)).one_or_none()
        last = None if row is None else _checked(row)
        found = (0, GENESIS) if last is None else (last.seq, last.digest)
        if found != _read_head(connection):
            raise LedgerCorrupt(
                f"{self.location}: the last line is not the one the head names: lines were removed or added."
            )
        seen_seq, seen_digest = self._seen
        if seen_seq and (seen_seq, seen_digest) != found:
            digest = connection.execute(sa.select(_entries.c.digest).where(_entries.c.seq == seen_seq)).scalar()
            if digest != seen_digest:
                raise LedgerCorrupt(
                    f"{self.location}: line {seen_seq} is not what it was: the file was exchanged or edited."
                )
        self._seen = found
        return last

    def _check_format(self) -> None:
        with self._transaction(write=False) as connection:
            application = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
            version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        if application != _APPLICATION_ID:
            raise LedgerCorrupt(
                f"{self.location} is not a privypurse ledger, or was emptied. Pass another path, or restore it from a backup."
            )
        if version != _FORMAT:
            raise LedgerCorrupt(
                f"{self.location} has ledger format {version}; this version of privypurse reads format {_FORMAT}. "
                "Install the version that wrote it."
            )

    @contextlib.contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[sa.Connection]:
        if not self._path.exists():
            # SQLite would make a new, empty file in its place: a fresh budget.
            raise LedgerCorrupt(
                f"the ledger {self.location} has disappeared. Restore it from a backup before spending more."
            )
        seen = self._seen
        try:
            engine = self._engine.execution_options(write=write)
            with self._errors(), engine.begin() as connection:
                yield connection
        except BaseException:
            # What was not committed was not seen.
            self._seen = seen
            raise

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate the database's errors; every other error passes through."""
        try:
            yield
        except exc.DBAPIError as error:
            reason = str(error.orig)
            if any(
                sign in reason for sign in ("malformed", "not a database", "no such table", "no such column", "corrupt")
            ):
                raise LedgerCorrupt(
                    f"{self.location} is damaged or not a ledger ({reason}). Restore it from a backup; nothing was released."
                ) from error
            raise LedgerUnavailable(
                f"the ledger {self.location} cannot be read or written: {reason}. Nothing was released. "
                "Check that the disk has room, the file and its folder are writable and no other program holds them."
            ) from error
        except exc.NoResultFound as error:
            raise LedgerCorrupt(f"{self.location} has lost lines. Restore it from a backup.") from error
        except OSError as error:
            raise LedgerUnavailable(
                f"the ledger {self.location} cannot be made: {error}. Nothing was released."
            ) from error

    def __reduce__(self) -> Any:
        return (_reconnect, (str(self._path),))

    def __repr__(self) -> str:
        return f"<SqliteLedger: {self.location}>"


def _reconnect(path: str) -> SqliteLedger:
    """Unpickle: the file must still be there."""
    return SqliteLedger(path, must_exist=True)


def _connect(path: pathlib.Path, mode: str = "rw") -> sqlite3.Connection:
    """Open the file; without `mode="rwc"` never make one, since an empty ledger is a fresh budget."""
    uri = f"file:{urllib.parse.quote(str(path))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        # Durable to the disk, and one file with no side files that a copy could miss.
        connection.execute("PRAGMA synchronous = EXTRA")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _create(path: pathlib.Path) -> None:
    """Make an empty ledger beside the path and move it there whole, unless somebody else was first."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    new = pathlib.Path(name)
    engine = sa.create_engine("sqlite://", poolclass=pool.NullPool, creator=lambda: _connect(new, "rwc"))
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
        new.unlink()


def _begin(connection: sa.Connection) -> None:
    # A writer takes the lock before reading, so that nobody can spend between its look and its line.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("write") else "BEGIN")


def _read_head(connection: sa.Connection) -> tuple[int, str]:
    row = connection.execute(sa.select(_head.c.count, _head.c.digest)).one()
    return int(row[0]), str(row[1])


def _stream(connection: sa.Connection) -> Iterator[Entry]:
    for row in connection.execute(sa.select(_entries).order_by(_entries.c.seq)):
        yield _entry(row)


def _totals(connection: sa.Connection, dataset: str) -> Totals:
    row = connection.execute(
        sa.select(_entries).where(_entries.c.dataset == dataset).order_by(_entries.c.seq.desc()).limit(1)
    ).one()
    return _checked(row).totals


def _first(connection: sa.Connection, dataset: str) -> Entry | None:
    row = connection.execute(
        sa.select(_entries).where(_entries.c.dataset == dataset).order_by(_entries.c.seq).limit(1)
    ).one_or_none()
    return None if row is None else _checked(row)


def _checked(row: Any) -> Entry:
    entry = _entry(row)
    if entry.digest != entry.expected_digest():
        raise LedgerCorrupt(f"line {entry.seq} of the ledger was changed: its hash does not match its content.")
    return entry


def _entry(row: Any) -> Entry:
    return Entry(
        seq=row.seq,
        dataset=row.dataset,
        kind=row.kind,
        who=row.who,
        when=row.at,
        what=row.what,
        body=row.body,
        totals=totals_from_text(row.totals),
        previous=row.previous,
        digest=row.digest or "missing",
    )
