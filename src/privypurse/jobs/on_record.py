"""Jobs on the ledger: when one begins, and what it came to, for whoever reads the ledger later."""

import contextlib
import secrets
import warnings
from collections.abc import Iterator
from typing import Any

from privypurse.core.errors import PrivypurseError, SpentInVain
from privypurse.purse.certificate import rounded_up
from privypurse.purse.purse import Purse
from privypurse.store.folder import ModelNotSaved


@contextlib.contextmanager
def on_record(purse: Purse, run: Purse, what: str) -> Iterator[dict[str, Any]]:
    """Put a job on the ledger as it begins and, if it comes to its end, what it cost.

    What the job writes into the mapping it gets is put on record at its end, too.

    Parameters
    ----------
    purse, run : Purse
        The data set's purse, and the part of it that the job spends.
    what : str
        What it is about; public things only, such as the names of files.
    """
    job = secrets.token_hex(8)
    purse.note(what, {"event": "begin", "job": job, "asked": run.epsilon})
    more: dict[str, Any] = {}
    yield more
    end = {"event": "end", "job": job, "epsilon": run.spent.epsilon, "releases": run.spent.releases, **more}
    try:
        purse.note(f"end of: {what}", end)
    except PrivypurseError as error:  # what was paid for is there all the same
        warnings.warn(f"the end of the job could not be put on the ledger: {error}", stacklevel=3)


@contextlib.contextmanager
def counted(run: Purse, without: str) -> Iterator[None]:
    """Say what was spent where something fails after payment.

    Parameters
    ----------
    run : Purse
        What the job spends.
    without : str
        What there is not, then.
    """
    try:
        yield
    except (ModelNotSaved, SpentInVain):
        raise
    except Exception as error:
        if not run.spent.releases:
            raise
        what = (
            str(error)
            if isinstance(error, PrivypurseError)
            else f"an error that should not happen: {type(error).__name__}."
        )
        raise SpentInVain(
            f"{what.replace(' Nothing was spent.', '')} By then this run had spent epsilon "
            f"{rounded_up(run.spent.epsilon)} on data set {run.dataset!r}; {without}."
        ) from error
