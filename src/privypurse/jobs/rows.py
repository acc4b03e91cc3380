"""[RAW DATA] From a file to a matrix in memory, block by block: a file of any size needs little more than its matrix."""

import math
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privypurse.core.errors import InvalidArgument
from privypurse.jobs.progress import Progress
from privypurse.tables.columns import MISSING, UNKNOWN, column_of, numbers, places
from privypurse.tables.encoder import TableEncoder
from privypurse.tables.files import TableFile, release_memory
from privypurse.tables.schema import Category, ClassTarget, NumberTarget, Schema

# Named on the certificate: an error would have told.
CHECKED = (
    "that the file passed the checks before payment: it can be read line by line, its first values are of the kind that is "
    "described, more than one record has a target, and it fits in memory"
)

# So many values that are not as described make a file a wrong one; fewer may be the fault of a few records.
FEW = 10

GROWTH_BYTES = 64 << 20


@dataclass
class Rows:
    """Encoded rows, and their targets: the place of the class in its list, or a number.

    `left_out` counts rows without a target, exactly: not for those who may not see the records.
    """

    X: Any
    y: NDArray[Any]
    left_out: int = 0


class _Growing:
    """An array that grows at its end without a second copy of it."""

    def __init__(self, width: int | None, dtype: Any) -> None:
        self._shape = () if width is None else (width,)
        self._data = np.empty((0, *self._shape), dtype)
        self._rows = 0

    def append(self, block: NDArray[Any]) -> None:
        needed = self._rows + len(block)
        if needed > len(self._data):
            # Large arrays are moved by the system, not copied; but what is new is filled with zeros, while no other thread
            # runs. So it is little at a time: half of a large matrix would take memory, and seconds without a sign of life.
            room = len(self._data) + max(1, GROWTH_BYTES // (self._data.itemsize * math.prod(self._shape)))
            self._data.resize((max(needed, min(int(len(self._data) * 1.5), room)), *self._shape), refcheck=False)
        self._data[self._rows : needed] = block
        self._rows = needed

    def finish(self) -> NDArray[Any]:
        self._data.resize((self._rows, *self._shape), refcheck=False)
        return self._data


class _Part:
    """Rows that are being collected."""

    def __init__(self, encoder: TableEncoder, target_type: Any) -> None:
        self._sparse: list[Any] | None = [] if encoder.is_sparse else None
        self._dense = _Growing(len(encoder.schema.features), np.float32)
        self._target = _Growing(None, target_type)

    def append(self, X: Any, y: NDArray[Any]) -> None:
        if self._sparse is None:
            self._dense.append(X)
        else:
            self._sparse.append(X)
        self._target.append(y)

    def finish(self) -> Rows:
        X = self._dense.finish()
        if self._sparse:
            X = sparse.vstack(self._sparse, format="csr")
        elif self._sparse is not None:
            X = sparse.csr_matrix(X)
        return Rows(X, self._target.finish())


def read_rows(
    file: TableFile, schema: Schema, progress: Progress, *, hold_out: float = 0.0, seed: int | None = None
) -> tuple[Rows, Rows]:
    """Read and encode a file. Rows whose target is missing or on no list are left out.

    Parameters
    ----------
    file, schema
        The table and its description, with a target.
    progress : Progress
        Told of bytes.
    hold_out : float, default 0.0
        Probability with which each record is set aside.
    seed : int or None
        For simulations.

    Returns
    -------
    pair of Rows
        Those to train on, and those set aside.

    Guarantees
    ----------
    Whether a record is left out, set aside or kept, and what becomes of it, depends on that record and on randomness of its own.
    """
    encoder, target = TableEncoder(schema), schema.target
    if target is None:
        raise InvalidArgument('the schema has no [target]. Add one: column = "income" and classes or range.')
    rng = np.random.default_rng(seed)
    kept, aside = (_Part(encoder, np.intp if isinstance(target, ClassTarget) else np.float64) for _ in range(2))
    left_out = 0
    for index, (block, done) in enumerate(_blocks(file, schema.names, progress)):
        if index == 0:
            check_kinds(block, schema, file.path.name)
            _check_memory(file, block.num_rows, done, encoder)
        y = _targets(block, target, schema)
        known = _is_known(y, target)
        left_out += int((~known).sum())
        X = encoder.transform(block)
        if hold_out > 0:
            out = rng.random(len(y)) < hold_out
            aside.append(X[known & out], y[known & out])
            known &= ~out
        kept.append(X if known.all() else X[known], y if known.all() else y[known])
    finished = kept.finish(), aside.finish()
    finished[0].left_out = left_out
    release_memory()
    return finished


def read_columns(file: TableFile, schema: Schema, progress: Progress) -> NDArray[np.float64]:
    """Read the columns of numbers whose range is to be bought, one row for each record; check all that `read_rows` would."""
    names = [column.name for column in schema.to_buy]
    table = _Growing(len(names), np.float64)
    known = 0
    for block, found in _checked_blocks(file, schema, progress):
        known += found
        table.append(
            np.column_stack([numbers(column_of(block, name), schema.missing_values, schema.decimal) for name in names])
        )
    check_some(known, file.path.name)
    return table.finish()


def check_readable(file: TableFile, schema: Schema, progress: Progress) -> None:
    """Read and encode a file to its end, so that whatever is wrong with it is noticed before something is paid for."""
    for _ in _checked_blocks(file, schema, progress):
        pass


def _checked_blocks(file: TableFile, schema: Schema, progress: Progress) -> Iterator[tuple[Any, int]]:
    """Do with each block what `read_rows` does, and yield it with how many of its rows have a target."""
    # Which range a column is encoded by makes no difference to whether it can be.
    encoder = TableEncoder(schema.with_ranges({column.name: (0.0, 1.0) for column in schema.to_buy}))
    for index, (block, done) in enumerate(_blocks(file, schema.names, progress)):
        if index == 0:
            check_kinds(block, schema, file.path.name)
            _check_memory(file, block.num_rows, done, encoder)
        encoder.transform(block)
        target = schema.target
        yield (
            block,
            0 if target is None else int(_is_known(_targets(block, target, schema), target).sum()),
        )


def _blocks(file: TableFile, names: Sequence[str], progress: Progress) -> Iterator[tuple[Any, int]]:
    done = 0

    def read(so_far: int) -> None:
        nonlocal done
        done = so_far
        progress.update(so_far)

    progress.stage(f"reading {file.path.name}", file.size)
    for block in file.blocks(names, progress=read):
        yield block, done


def _targets(block: Any, target: ClassTarget | NumberTarget, schema: Schema) -> NDArray[Any]:
    column = column_of(block, target.name)
    if isinstance(target, ClassTarget):
        return places(column, sorted(target.classes), schema.missing_values).astype(np.intp)
    return np.clip(numbers(column, schema.missing_values, schema.decimal), *target.range)


def _is_known(y: NDArray[Any], target: ClassTarget | NumberTarget) -> NDArray[np.bool_]:
    return np.asarray(y >= 0 if isinstance(target, ClassTarget) else ~np.isnan(y))


def check_some(records: int, name: str) -> None:
    """Refuse to train where there is next to nothing to train on."""
    if records < 2:
        raise InvalidArgument(
            f"file {name!r} has fewer than two records to train on: the target is missing, or on no list, in all others. Check "
            "the [target] of the schema. Nothing was spent."
        )


def check_kinds(block: Any, schema: Schema, name: str) -> None:
    """Refuse a file whose first rows have nothing to do with the schema: a misspelt list, text where numbers should be."""
    for part in (*schema.columns, *(() if schema.target is None else (schema.target,))):
        column = column_of(block, part.name)
        if isinstance(part, Category | ClassTarget):
            listed = part.categories if isinstance(part, Category) else part.classes
            codes = places(column, listed, schema.missing_values)
            wrong = bool((codes == UNKNOWN).sum() >= FEW and not (codes >= 0).any())
            what = "none of its first values is on its list"
        else:
            found = numbers(column, schema.missing_values, schema.decimal)
            absent = places(column, [], schema.missing_values) == MISSING
            wrong = bool(np.isnan(found).all() and (~absent).sum() >= FEW)
            what = "none of its first values is a number"
        if wrong:
            raise InvalidArgument(
                f"column {part.name!r} of {name!r} is not as the schema says: {what}. Check the spelling, or the delimiter. "
                "Nothing was spent."
            )


def _check_memory(file: TableFile, rows: int, done: int, encoder: TableEncoder) -> None:
    """Refuse a file whose matrix would not fit, by the size of the file and of its first block."""
    available, width = available_memory(), len(encoder.schema.features)
    estimate = rows * max(1.0, file.size / max(done, 1))
    needed = estimate * width * 4 * (0.2 if encoder.is_sparse else 1.0)
    if available is not None and needed * 1.3 + 5e8 > available and needed > 1e9:
        raise InvalidArgument(
            f"file {file.path.name!r} is too large: about {estimate:.2g} rows of {width} encoded columns need {needed / 1e9:.1f} "
            f"GB, and {available / 1e9:.1f} GB are free. Leave columns out in the schema, or train from Python with "
            "privypurse.oracles.ChunkedOracle, which reads from disk. Nothing was spent."
        )


def available_memory() -> int | None:
    """Return how many bytes are free, by the system and by the limit on this process's group; None where it does not tell."""
    found = []
    try:
        lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")))
    except (OSError, StopIteration, ValueError):
        return None
    try:
        group = pathlib.Path("/sys/fs/cgroup")
        limit, used, details = (
            (group / name).read_text(encoding="ascii").strip()
            for name in ("memory.max", "memory.current", "memory.stat")
        )
        # Files that were read are counted as used, and make way.
        cached = next((int(line.split()[1]) for line in details.splitlines() if line.startswith("inactive_file")), 0)
        if limit != "max":
            found.append(int(limit) - int(used) + cached)
    except (OSError, ValueError):
        pass
    return min(found)
