"""Cache of downloaded tables, with checksums."""

import hashlib
import os
import pathlib
import tempfile
import warnings
from typing import Any

import numpy as np

from privypurse.core._checks import at_home
from privypurse.core._errors import UnexpectedFile
from privypurse_lab.data.table import Table

FOLDER = "PRIVYPURSE_CACHE"
_WORDS = ("name", "uncovered", "source", "target")


def folder() -> pathlib.Path:
    """Return the folder ``PRIVYPURSE_CACHE``, else ``privypurse`` in the XDG cache folder."""
    if os.environ.get(FOLDER):
        return at_home(os.environ[FOLDER])
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore relative paths.
    return (pathlib.Path(base) if os.path.isabs(base) else pathlib.Path.home() / ".cache") / "privypurse"


def save(table: Table) -> None:
    """Save a table and the SHA-256 of its file; warn if the folder cannot be written to."""
    path = _path(table.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as unfinished:
            part = pathlib.Path(unfinished) / path.name
            np.savez_compressed(part, **_arrays(table))
            # The checksum first: after a crash in between the table is fetched again.
            digest = pathlib.Path(unfinished) / "digest"
            digest.write_text(f"{_digest(part)}  {path.name}\n", encoding="utf-8")
            digest.replace(_digest_path(path))
            part.replace(path)
    except OSError as error:
        warnings.warn(
            f"{table.name} could not be kept in {path.parent} ({error}). Set {FOLDER} to a folder.", stacklevel=2
        )


def read(name: str) -> Table | None:
    """Return a cached table or None; raise UnexpectedFile if its checksum differs."""
    path = _path(name)
    if not path.exists():
        return None
    beside = _digest_path(path)
    recorded = beside.read_text(encoding="utf-8").split(" ")[0] if beside.exists() else "not recorded"
    found = _digest(path)
    if found != recorded:
        raise UnexpectedFile(
            f"{path} was changed after it was fetched: expected SHA-256 {recorded}, got {found}. "
            "Delete the file to fetch it again."
        )
    with np.load(path, allow_pickle=False) as arrays:
        return _table(arrays)


def _path(name: str) -> pathlib.Path:
    return folder() / f"{name}.npz"


def _digest_path(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(path.name + ".sha256")


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _arrays(table: Table) -> dict[str, Any]:
    """Return a table as arrays without Python objects, so that reading a file never runs code."""
    arrays = {word: np.array(getattr(table, word)) for word in _WORDS}
    arrays |= {"y": table.y, "classes": np.array(table.classes), "column_names": np.array(table.column_names)}
    if not table.is_mixed:
        return arrays | {"X": table.X}
    for position, values in enumerate(table.X.values()):
        # No value is an empty string, so it stands for a missing one.
        plain = np.array([value or "" for value in values], dtype=np.str_) if values.dtype == object else values
        arrays[f"column_{position}"] = plain
    return arrays


def _table(arrays: Any) -> Table:
    names = tuple(arrays["column_names"].tolist())
    columns = {name: _column(arrays[f"column_{i}"]) for i, name in enumerate(names) if f"column_{i}" in arrays}
    X = columns or arrays["X"]
    words = {word: str(arrays[word]) for word in _WORDS}
    return Table(X=X, y=arrays["y"], column_names=names, classes=tuple(arrays["classes"].tolist()), **words)


def _column(values: Any) -> Any:
    if values.dtype.kind != "U":
        return values
    column = np.empty(len(values), dtype=object)
    column[:] = [value or None for value in values.tolist()]
    return column
