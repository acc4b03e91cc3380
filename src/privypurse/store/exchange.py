"""Two folders change places: in one step where the system can."""

import ctypes
import errno
import os
import pathlib
import sys

_AT_FDCWD, _EXCHANGE = -100, 2


def exchange(new: pathlib.Path, there: pathlib.Path) -> None:
    """Put a folder where another one is, and that one in its place.

    Parameters
    ----------
    new, there : path
        In one folder.

    Guarantees
    ----------
    On Linux a crash at any moment leaves one or the other under `there`, if the file system can exchange names. Elsewhere there
    are two renames, and a crash between them leaves what was there under the name ``.old``.
    """
    try:
        _in_one_step(new, there)
        return
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV):
            raise
    old = new.with_suffix(".old")
    there.rename(old)
    try:
        new.rename(there)
    except OSError:
        old.rename(there)
        raise
    old.rename(new)


def _in_one_step(new: pathlib.Path, there: pathlib.Path) -> None:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if rename(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(there), _EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
