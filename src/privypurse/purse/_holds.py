"""Holds: what running jobs may still spend, visible to other processes.

A run that would not fit beside them is refused at its start, so that two runs do not both stop
half-way. A hold is no guarantee: the filter alone decides, and a hold ends with its process.
"""

import contextlib
import fcntl
import json
import math
import os
import pathlib
import re
import secrets
import stat
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from privypurse.accounting import convert
from privypurse.core._errors import BudgetExhausted
from privypurse.purse._allowance import Allowance, mu_squared_left
from privypurse.purse._purse import Purse
from privypurse.purse._sqlite_ledger import SqliteLedger

# Length of the first line, which is rewritten in place.
_NUMBER = 32
# Names of holds; other files in their folder are ignored.
_NAME = re.compile(r"[0-9a-f]{16}\.json")


@dataclass(frozen=True)
class Held:
    """What one running job may still spend, as squared mu, and whose it is."""

    mu_squared: float
    who: str
    process: int


@contextlib.contextmanager
def held(run: Purse) -> Iterator[None]:
    """Hold what a run may still spend of a ledger's budget, until the run or its process ends.

    Only allowances on a ledger file are held. Raises BudgetExhausted if another run began in the
    meantime and this one does not fit beside it.
    """
    if not isinstance(run, Allowance) or not isinstance(run.purse.ledger, SqliteLedger):
        yield
        return
    folder, hold = _folder(run.purse.ledger), None
    try:
        with _one_at_a_time(folder):
            others = _read(folder, run.dataset, remove_dead=True)
            limit = mu_squared_left(run.filter, run.totals)
            if limit > beside(run.purse, others) * (1 + 1e-6):
                what = f"another run on data set {run.dataset!r} began at the same time, and this one does not fit beside it"
                raise BudgetExhausted(f"{what}. {describe(others, run.delta)} Wait until it ends, or request less.")
            hold = _Hold(folder, run)
    except OSError as error:
        what = f"the budget of this run cannot be held ({error.strerror}): others may spend it in the meantime."
        warnings.warn(what, stacklevel=3)
    run.hold = hold
    try:
        yield
    finally:
        run.hold = None
        if hold is not None:
            hold.close()


def held_by_others(purse: Purse) -> list[Held]:
    """Return what running jobs hold of a purse's budget."""
    if isinstance(purse.ledger, SqliteLedger):
        with contextlib.suppress(OSError):  # holders are warned when they begin
            return _read(_folder(purse.ledger), purse.dataset)
    return []


def beside(purse: Purse, others: list[Held]) -> float:
    """Return what is left of a purse beside what others hold, as squared mu."""
    return max(mu_squared_left(purse.filter, purse.totals) - math.fsum(one.mu_squared for one in others), 0.0)


def describe(others: list[Held], delta: float) -> str:
    """Describe who holds how much."""
    each = [
        f"{convert.gdp_epsilon(math.sqrt(one.mu_squared), delta):.3g} for {one.who} (process {one.process})"
        for one in others
        if one.mu_squared > 0
    ]
    return f"Runs under way hold epsilon {', '.join(each)}." if each else ""


class _Hold:
    """A file that is locked while this process has it open."""

    def __init__(self, folder: pathlib.Path, run: Allowance) -> None:
        self._folder, self._run, self._ceiling = folder, run, object()
        self._path = folder / f"{secrets.token_hex(8)}.json"
        self._file = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        about = {"dataset": run.dataset, "who": run.who, "process": os.getpid()}
        os.pwrite(self._file, json.dumps(about).encode(), _NUMBER)
        self.update()
        # Readable by those who share the ledger.
        with contextlib.suppress(OSError):
            os.fchmod(self._file, run.purse.ledger.path.stat().st_mode & 0o666)  # type: ignore[attr-defined]

    def update(self) -> None:
        """Write what the run may still spend beyond what is on the ledger."""
        block = self._run.purse.block
        if block is not None and block[1] is self._ceiling:
            return  # charged from a block that is on the ledger as a whole
        still = mu_squared_left(self._run.filter, self._run.totals)
        if block is not None:
            self._ceiling = block[1]
            rule = self._run.purse.filter
            still -= mu_squared_left(rule, block[0]) - mu_squared_left(rule, block[1])
        with contextlib.suppress(OSError):  # the run continues
            os.pwrite(self._file, repr(max(still, 0.0)).ljust(_NUMBER).encode(), 0)

    def close(self) -> None:
        """Release the hold."""
        with contextlib.suppress(OSError), _one_at_a_time(self._folder):
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def _folder(ledger: SqliteLedger) -> pathlib.Path:
    path = ledger.path.resolve()
    return path.with_name(f"{path.name}.runs")


@contextlib.contextmanager
def _one_at_a_time(folder: pathlib.Path) -> Iterator[None]:
    """Lock the folder of holds. Make it if needed; remove it at the end if empty."""
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            with contextlib.suppress(OSError):  # same permissions as the folder of the ledger
                folder.chmod(folder.parent.stat().st_mode & 0o7777)
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # It may have been removed or recreated in the meantime.
            if folder.exists() and os.path.samestat(os.fstat(lock), folder.lstat()):
                try:
                    yield
                finally:
                    with contextlib.suppress(OSError):
                        folder.rmdir()
                return
        finally:
            os.close(lock)


def _read(folder: pathlib.Path, dataset: str, *, remove_dead: bool = False) -> list[Held]:
    """Return the holds on a data set whose processes are alive."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if not _NAME.fullmatch(path.name) or not stat.S_ISREG(path.lstat().st_mode):
                continue
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                # Otherwise it is being written, or is not a hold.
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    about: dict[str, Any] = json.loads(os.pread(file, 1 << 16, _NUMBER))
                    of = about["dataset"]
                    one = Held(float(os.pread(file, _NUMBER, 0)), str(about["who"]), int(about["process"]))
                    if _is_locked(file):
                        found += [one] if of == dataset else []
                    elif remove_dead:
                        path.unlink()
            finally:
                os.close(file)
    return found


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
