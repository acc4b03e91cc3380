"""Jobs on the ledger: when one begins, and what it came to, for whoever reads the ledger later."""

import contextlib
import secrets
from collections.abc import Iterator

from privypurse.purse.purse import Purse


@contextlib.contextmanager
def on_record(purse: Purse, run: Purse, what: str) -> Iterator[None]:
    """Put a job on the ledger as it begins and, if it comes to its end, what it cost.

    Parameters
    ----------
    purse, run : Purse
        The data set's purse, and the part of it that the job spends.
    what : str
        What it is about; public things only, such as the names of files.
    """
    job = secrets.token_hex(8)
    purse.note(what, {"event": "begin", "job": job, "asked": run.epsilon})
    yield
    purse.note(
        f"end of: {what}", {"event": "end", "job": job, "epsilon": run.spent.epsilon, "releases": run.spent.releases}
    )
