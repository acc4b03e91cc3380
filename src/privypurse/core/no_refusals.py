"""Where a refusal would tell of a record: a context in which no table is refused for the records it holds.

Tables are checked before payment, and a certificate names those checks. In the middle of what was paid for, as in a trial of a
search, a check that fails would be an answer nobody paid for: how many records fell into the trial's part, say.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_no_refusals: ContextVar[bool] = ContextVar("_no_refusals", default=False)


@contextlib.contextmanager
def no_refusals() -> Iterator[None]:
    """Take tables with any number of rows, none included, and rows that are not finite, which then contribute nothing."""
    token = _no_refusals.set(True)
    try:
        yield
    finally:
        _no_refusals.reset(token)


def nothing_is_refused() -> bool:
    """Whether a table must be taken whatever records it holds."""
    return _no_refusals.get()
