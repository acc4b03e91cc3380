"""Identity of the current process. A process id alone is not enough, since ids are reused."""

import os
import secrets

_token = secrets.token_bytes(16)


def this_process() -> tuple[int, bytes]:
    """Return the process id and random bytes that are redrawn in every forked child."""
    return os.getpid(), _token


def _draw_anew() -> None:
    global _token
    _token = secrets.token_bytes(16)


os.register_at_fork(after_in_child=_draw_anew)
