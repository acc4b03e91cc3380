"""Record jobs on the ledger: their begin, their end and their cost."""

import contextlib
import secrets
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from privypurse.core._errors import PrivypurseError, SpentInVain
from privypurse.core._formats import rounded_up
from privypurse.purse._purse import Purse
from privypurse.runs.folder import ModelNotSaved


@contextlib.contextmanager
def held_back() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list instead of stopping, for work that takes seconds."""
    interrupts: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread
        yield interrupts
        return
    kinds = signal.SIGINT, signal.SIGTERM
    before = {kind: signal.signal(kind, lambda number, _: interrupts.append(number)) for kind in kinds}
    try:
        yield interrupts
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


@contextlib.contextmanager
def on_record(
    purse: Purse, run: Purse, what: str, statement: Sequence[tuple[str, str]] = ()
) -> Iterator[dict[str, Any]]:
    """Record the beginning of a job and, if it ends normally, its cost and what is put in the mapping.

    A statement of its schema is recorded with the beginning.
    """
    job = secrets.token_hex(8)
    stated = {"statement": dict(statement)} if statement else {}
    purse.note(what, {"event": "begin", "job": job, "asked": run.epsilon, **stated})
    more: dict[str, Any] = {}
    failed: ModelNotSaved | None = None
    try:
        yield more
    except ModelNotSaved as error:  # the job itself is done
        failed = error
    end = {"event": "end", "job": job, "epsilon": run.spent.epsilon, "releases": run.spent.releases, **more}
    try:
        purse.note(f"end of: {what}", end)
    except PrivypurseError as error:  # the result is there all the same
        warnings.warn(f"the end of the job could not be recorded on the ledger: {error}", stacklevel=3)
    if failed is not None:
        raise failed


@contextlib.contextmanager
def counted(run: Purse, without: str) -> Iterator[None]:
    """Raise SpentInVain with the amount, and with what is lost, if a job fails after spending."""
    try:
        yield
    except (ModelNotSaved, SpentInVain):
        raise
    except KeyboardInterrupt:
        if not run.spent.releases:
            raise
        # The run may not have counted a release that was in progress.
        raise KeyboardInterrupt(f"{_spent(run)}; {without}. The exact amount is on the ledger.") from None
    except Exception as error:
        if not run.spent.releases:
            raise
        own = error if isinstance(error, PrivypurseError) else None  # other messages may quote a record
        what = own.message if own else f"internal error: {type(error).__name__}."
        raise SpentInVain(f"{what} {_spent(run)}; {without}.") from own


def _spent(run: Purse) -> str:
    return f"By then this run had spent epsilon {rounded_up(run.spent.epsilon)} on data set {run.dataset!r}"
