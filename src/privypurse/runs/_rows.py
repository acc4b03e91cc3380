"""[RAW DATA] Read a file into a matrix, block by block, and count the lines that are not used.

Reading takes little more memory than the matrix.
"""

import math
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import about, counted, percent
from privypurse.estimators._curves import MOST_KNOTS, hats
from privypurse.estimators._private_statistics import gaussian
from privypurse.purse._purse import Purse
from privypurse.runs._progress import Progress
from privypurse.tables._columns import MISSING, UNKNOWN, column_of, places
from privypurse.tables._draft import draft_schema
from privypurse.tables._encoder import MOST_DENSE_COLUMNS, TableEncoder, read_numbers
from privypurse.tables._files import CSV, TableFile
from privypurse.tables._schema import Category, ClassTarget, Date, Number, Schema, Target, read_schema

# Named on the certificate: a refusal depends on the data.
CHECKED = (
    "that the file passed the checks before payment: it can be read line by line, its first values are as the schema "
    "describes, more than one record has a target, and it fits in memory"
)

FEW = 10  # fewer wrong values may come from a few bad records
GROWTH_BYTES = 64 << 20


@dataclass
class EncodedRows:
    """Encoded rows and their targets."""

    X: Any
    y: NDArray[Any]  # the index of the class among the sorted classes, or a number
    left_out: int = 0  # exact number of rows without a target: private


class _Growing:
    """An array that grows at its end without being copied."""

    def __init__(self, width: int | None, dtype: Any) -> None:
        self._shape = () if width is None else (width,)
        self._data = np.empty((0, *self._shape), dtype)
        self._rows = 0

    def append(self, block: NDArray[Any]) -> None:
        needed = self._rows + len(block)
        if needed > len(self._data):
            # The system moves large arrays without a copy, but numpy zeroes new memory while it
            # holds the GIL. So grow in small steps, which also leave little memory unused.
            room = len(self._data) + max(1, GROWTH_BYTES // (self._data.itemsize * math.prod(self._shape)))
            self._data.resize((max(needed, min(int(len(self._data) * 1.5), room)), *self._shape), refcheck=False)
        self._data[self._rows : needed] = block
        self._rows = needed

    def finish(self) -> NDArray[Any]:
        self._data.resize((self._rows, *self._shape), refcheck=False)
        return self._data


@dataclass
class Odd:
    """Numbers of values that do not match the schema, by column, where there are any."""

    rows: int = 0
    unknown: dict[str, int] = field(default_factory=dict)  # on no list, or no number
    missing: dict[str, int] = field(default_factory=dict)
    beyond: dict[str, int] = field(default_factory=dict)  # outside of the range
    listed: dict[str, set[int]] = field(default_factory=dict)  # places on the list of the column

    def take(self, block: Any, schema: Schema, *, target: bool = False) -> None:
        """Count the values of a block, with or without its target."""
        self.rows += block.num_rows
        for part in schema.parts if target else schema.columns:
            column, beyond = column_of(block, part.name), np.zeros(0, dtype=bool)
            if isinstance(part, Category | ClassTarget):
                listed = part.categories if isinstance(part, Category) else part.classes
                codes = places(column, listed, schema.missing_in(part))
                missing, unknown = codes == MISSING, codes == UNKNOWN
                self.listed.setdefault(part.name, set()).update(np.unique(codes[codes >= 0]).tolist())
            else:
                found = read_numbers(column, part, schema)
                missing = places(column, [], schema.missing_in(part)) == MISSING
                unknown = np.isnan(found) & ~missing
                if part.range is not None:  # None: to be released, or cuts
                    beyond = (found < part.range[0]) | (found > part.range[1])
            for counts, marked in ((self.unknown, unknown), (self.missing, missing), (self.beyond, beyond)):
                if count := int(marked.sum()):
                    counts[part.name] = counts.get(part.name, 0) + count

    def none_known(self, part: Any) -> bool:
        """Whether a column has values, more than a few, and all of them do not match the schema."""
        unknown = self.unknown.get(part.name, 0)
        return unknown >= FEW and unknown == self.rows - self.missing.get(part.name, 0)


class _Part:
    """Collects rows."""

    def __init__(self, encoder: TableEncoder, target_type: Any) -> None:
        self._is_sparse = encoder.is_sparse
        self._sparse: list[Any] = []
        self._dense = _Growing(len(encoder.schema.features), np.float32)
        self._target = _Growing(None, target_type)

    def append(self, X: Any, y: NDArray[Any]) -> None:
        (self._sparse if self._is_sparse else self._dense).append(X)
        self._target.append(y)

    def finish(self) -> EncodedRows:
        X: Any = self._dense.finish()
        if self._is_sparse:
            X = sparse.vstack(self._sparse, format="csr") if self._sparse else sparse.csr_matrix(X)
        return EncodedRows(X, self._target.finish())


def describe_columns(file: TableFile, target: str, schema: pathlib.Path | None, progress: Progress) -> Schema:
    """Read a schema with this target, or without one draft it from the file."""
    if schema is not None:
        return read_schema(schema).with_target(target)
    file.require([target])
    progress.stage(f"drafting a schema from {file.path.name}", file.size)
    return draft_schema(file, target, progress=progress.update)[0]


def target_of(schema: Schema) -> Target:
    """Return the target. Raise InvalidArgument if there is none."""
    if schema.target is None:
        raise InvalidArgument('the schema has no [target]. Add one: column = "income" and classes or range.')
    return schema.target


def read_rows(
    file: TableFile, schema: Schema, progress: Progress, *, hold_out: float = 0.0, seed: int | None = None
) -> tuple[EncodedRows, EncodedRows]:
    """Read and encode a file. Return rows to train on, and rows held out with this probability.

    Rows whose target is missing or not listed are left out. A seed is for simulations.

    Guarantees
    ----------
    Whether a record is left out, held out or kept, and its encoding, depend on that record and on
    randomness of its own.
    """
    import pyarrow as pa

    encoder, target = TableEncoder(schema), target_of(schema)
    rng = np.random.default_rng(seed)
    kept, aside = (_Part(encoder, np.intp if isinstance(target, ClassTarget) else np.float64) for _ in range(2))
    left_out = 0
    for block in _blocks(file, encoder, schema, progress):
        y, known = _targets(block, target, schema)
        left_out += int((~known).sum())
        X = encoder.transform(block)
        if hold_out > 0:
            out = rng.random(len(y)) < hold_out
            aside.append(X[known & out], y[known & out])
            known &= ~out
        kept.append(X if known.all() else X[known], y if known.all() else y[known])
    train, held_out = kept.finish(), aside.finish()
    train.left_out = left_out
    pa.default_memory_pool().release_unused()
    return train, held_out


def bend(rows: EncodedRows, before: Schema, after: Schema) -> EncodedRows:
    """Encode the columns that got knots, in place of their scaled numbers."""
    encoder, parts, start = TableEncoder(after), [], 0
    for plain, column in zip(before.columns, after.columns, strict=True):
        part = rows.X[:, start : start + len(plain.features)]
        start += len(plain.features)
        if isinstance(column, Number) and column is not plain:
            numbers = scaled_back(part[:, [0]], column)
            part = np.hstack([hats(numbers, np.array(column.knots)), _dense(part[:, 1:])])
        parts.append(sparse.csr_matrix(part) if encoder.is_sparse else part)
    X = sparse.hstack(parts, format="csr") if encoder.is_sparse else np.hstack([_dense(part) for part in parts])
    return EncodedRows(X, rows.y, rows.left_out)


def scaled_back(column: Any, number: Number) -> FloatArray:
    """Return an encoded column of scaled numbers in its units; missing ones are the middle."""
    low, high = number.range or (0.0, 1.0)
    return low + (high - low) * np.asarray(_dense(column), dtype=np.float64)[:, 0]


def _dense(part: Any) -> Any:
    return part.toarray() if sparse.issparse(part) else part


def read_columns(file: TableFile, schema: Schema, progress: Progress) -> tuple[FloatArray, int]:
    """Return the columns whose range is to be released, and the number of records without a target."""
    table, known = _Growing(len(schema.to_buy), np.float64), 0
    for block, found in _checked_blocks(file, schema, progress):
        known += found
        columns = ((column_of(block, column.name), column) for column in schema.to_buy)
        table.append(np.column_stack([read_numbers(*pair, schema) for pair in columns]))
    check_some(known, file.path.name)
    return table.finish(), file.tally.read - known


def check_readable(file: TableFile, schema: Schema, progress: Progress) -> int:
    """Read and encode a file to find errors. Return the exact number of records without a target."""
    known = sum(found for _, found in _checked_blocks(file, schema, progress))
    return file.tally.read - known


def _checked_blocks(file: TableFile, schema: Schema, progress: Progress) -> Iterator[tuple[Any, int]]:
    """Check each block as `read_rows` does. Yield it and the number of its rows with a target."""
    # Any range will do: whether a column can be encoded does not depend on it.
    encoder = TableEncoder(schema.with_ranges({column.name: (0.0, 1.0) for column in schema.to_buy}))
    for block in _blocks(file, encoder, schema, progress):
        encoder.transform(block)
        yield block, 0 if schema.target is None else int(_targets(block, schema.target, schema)[1].sum())


def _blocks(file: TableFile, encoder: TableEncoder, schema: Schema, progress: Progress) -> Iterator[Any]:
    """Read the blocks of a file. Check kinds of values and memory by the first."""
    done = 0

    def read(so_far: int) -> None:
        nonlocal done
        done = so_far
        progress.update(so_far)

    progress.stage(f"reading {file.path.name}", file.size)
    for index, block in enumerate(file.blocks(schema.names, progress=read)):
        if index == 0:
            _check_kinds(block, schema, file.path.name)
            _check_memory(file, block.num_rows, done, encoder)
        yield block


def _targets(block: Any, target: Target, schema: Schema) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the targets of a block, and which of them are known."""
    column = column_of(block, target.name)
    if isinstance(target, ClassTarget):
        codes = places(column, sorted(target.classes), schema.missing_in(target)).astype(np.intp)
        return codes, codes >= 0
    values = np.clip(read_numbers(column, target, schema), *target.range)
    return values, ~np.isnan(values)


def check_some(records: int, name: str) -> None:
    """Raise InvalidArgument if there are fewer than two records."""
    if records < 2:
        what = "has fewer than two records with a target: it is missing or not listed in all others"
        raise InvalidArgument(f"file {name!r} {what}. Check the [target] of the schema.")


def _check_kinds(block: Any, schema: Schema, name: str) -> None:
    """Raise InvalidArgument if no value in a column of the first block is as the schema says."""
    odd = Odd()
    odd.take(block, schema, target=True)
    for part in schema.parts:
        beyond, what = odd.beyond.get(part.name, 0), ""
        known = odd.rows - odd.missing.get(part.name, 0) - odd.unknown.get(part.name, 0)
        if odd.none_known(part):
            what = "is on its list" if isinstance(part, Category | ClassTarget) else "is a number"
            what = f"is a date as {part.format or '2024-12-31'}" if isinstance(part, Date) else what
        elif beyond >= FEW and beyond == known:
            ends = (part.first, part.last) if isinstance(part, Date) else map("{:g}".format, getattr(part, "range", ()))
            what = "lies in its range, {} to {}".format(*ends)
        if what:
            where = f"column {part.name!r} of {name!r} does not match the schema"
            raise InvalidArgument(f"{where}: none of its first values {what}. Check the schema or the delimiter.")


def _check_memory(file: TableFile, rows: int, done: int, encoder: TableEncoder) -> None:
    """Raise InvalidArgument if the matrix would not fit, estimated from the first block."""
    available, width = available_memory(), len(encoder.schema.features)
    if not encoder.is_sparse:  # with curves, as long as it is not
        width = min(width + MOST_KNOTS * len(encoder.schema.to_bend), MOST_DENSE_COLUMNS)
    estimate = rows * max(1.0, file.size / max(done, 1))
    needed = estimate * width * 4 * (0.2 if encoder.is_sparse else 1.0)
    if available is not None and needed * 1.3 + 5e8 > available and needed > 1e9:
        size = f"about {estimate:.2g} rows of {width} encoded columns need {needed / 1e9:.1f} GB"
        what = f"file {file.path.name!r} is too large: {size}, and {available / 1e9:.1f} GB are free"
        remedy = "Leave columns out of the schema, or train from Python with privypurse.oracles.ChunkedOracle"
        raise InvalidArgument(f"{what}. {remedy}, which reads from disk.")


def available_memory() -> int | None:
    """Return how many bytes of memory are free by ``/proc/meminfo``, or None without it."""
    try:
        lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None


WHAT = "how many lines are used, and how many are left out"
SHARE = 0.005
UNREADABLE, NO_TARGET = "could not be read by themselves", "have no target of the schema"
SPELLING = "Their target is missing, or on no list of the schema: are its classes spelt as in the file?"
SURE = 3.0  # noise exceeds so many standard deviations once in 370 runs


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A noisy count of the lines left out of a file for one cause. All of it is public."""

    why: str
    count: float
    low: float  # the interval holds the true number in 369 of 370 runs
    high: float
    lines: float  # noisy number of all lines of the file
    remedy: str

    @property
    def remark(self) -> str:
        """The count, with a remedy if it is not zero."""
        return f"{self}. {self.remedy}" if self.low > 0 else f"{self}."

    def __str__(self) -> str:
        if self.low <= 0:
            return f"lines that {self.why}: fewer than about {about(self.high)}"
        count, low, high = map(about, (self.count, self.low, self.high))
        lines = "line" if count == "1" else "lines"
        return f"about {count} {lines} ({low} to {high}) {self.why} and are left out"

    def check(self, file: TableFile, most: float) -> None:
        """Raise InvalidArgument if clearly more than a share of lines cannot be read. A missing target is no cause."""
        lost, name = self.count - most * max(self.lines, 0.0), file.path.name
        if self.why == UNREADABLE and self.low > 0 and lost > self.count - self.low:
            allowed = f"more than {percent(most)} of {name!r}, which is what the schema allows (unreadable)"
            exactly = f"`privypurse schema {name} --check SCHEMA` prints the exact counts and causes"
            raise InvalidArgument(f"{self}: {allowed}. {self.remedy} {exactly}, for those who may see the records.")


def count_left_out(file: TableFile, unused: int, purse: Purse) -> tuple[LeftOut, ...]:
    """Count unreadable lines, and records without a target, in one release for a share of the purse.

    The file has been read to its end. `unused` is the exact number of records without a target:
    private. A file without lines, such as Parquet, has no unreadable ones.
    """
    box, mechanism = file.tally.box(unused=unused), gaussian(purse, SHARE)
    noisy = [float(count) for count in purse.release(box, mechanism, what=WHAT).value]
    half = SURE * mechanism.noise_std(box, purse.neighbouring)
    both = []
    for (why, remedy), count in zip(((UNREADABLE, remedy_for(file)), (NO_TARGET, SPELLING)), noisy[1:], strict=True):
        ends = {"low": max(count - half, 0.0), "high": max(count, 0.0) + half}
        both.append(LeftOut(why=why, count=count, **ends, lines=sum(noisy), remedy=remedy))
    return tuple(both if file.has_lines else both[1:])


def exactly_left_out(file: TableFile, unused: int) -> list[str]:
    """Return the exact counts in words, not covered; empty if nothing is left out."""
    remarks = []
    if unused:
        remarks.append(f"{counted(unused, 'row')} left out: their target is missing, or on no list of the schema.")
    if file.tally.left_out:
        remarks.append(f"{file.tally}. They are left out. {remedy_for(file)}")
    return remarks


def remedy_for(file: TableFile) -> str:
    """Return what to do about lines that cannot be read."""
    if file.format != CSV:
        return "Write each record as one object on one line."
    output = f"the output of `privypurse data convert {file.path.name} OUT.parquet`"
    return f"If records have line breaks inside quotes, use {output}, with the --dataset of these records."
