"""Synthetic records in the shape of a batch, for trials and empty samples."""

import enum
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from privypurse.pytorch._rows import each_part, parts_of

FAR = 1e4  # scale of outlying records, which reveal computations over the batch
IGNORED_INDEX = -100  # label that PyTorch's losses ignore


@dataclass(frozen=True)
class Record:
    """A synthetic record."""

    seed: int
    side: int = 0  # 1 for values far above others, -1 for values far below
    ignored: bool = False  # integers are the label that losses ignore, where the module accepts it
    integers: int | None = None  # value of all its integers
    broken: bool = False  # numbers are NaN


class Integers(NamedTuple):
    """Range of the integers in a part of a batch, and whether the ignored label is accepted."""

    smallest: int = 0
    largest: int = 1
    ignored: bool = False


# Types of batch parts that hold no records.
_PLAIN = (Tensor, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, enum.Enum, type)
Reach = Mapping[str, Integers]  # by name of the part


def made_up(like: Any, count: int, records: Sequence[Record], reach: Reach = MappingProxyType({})) -> Any:
    """Return synthetic records in the shape of a batch, or of the arguments of a call, of `count` records.

    Only shapes and types of per-record parts of `like` are used; other parts are copied. `reach` is
    the range of the integers of each part, 0 and 1 by default.
    """

    def one(x: Tensor, name: str) -> Tensor:
        shape, where = x.shape[1:], x.device
        if "mask" in name and shape:  # masks differ between records, and never hide the first place
            places = torch.ones((len(records), *shape), dtype=x.dtype, device=where)
            places[[bool(record.side) for record in records], ..., 1:] = 0
            return places
        if _has_numbers(x):
            rows = [
                (math.nan if record.broken else FAR * record.side or 1.0)
                * torch.randn(shape, generator=_generator(record, name))
                for record in records
            ]
        else:
            rows = [_integers(record, name, reach.get(name, Integers()), shape, x.dtype) for record in records]
            for column, of_column in enumerate(column_names(name, x.shape[1] if x.dim() == 2 else 0)):
                if of_column in reach:
                    for row, record in zip(rows, records, strict=True):
                        row[column] = _integers(record, of_column, reach[of_column], x.shape[2:], x.dtype)
        return torch.stack(rows).to(where, x.dtype)

    def part(x: Any, name: str) -> Any:
        if _of_records(x, count):
            return one(x, name)
        return x.detach().clone() if isinstance(x, Tensor) else x

    return each_part(like, part)


def integer_parts(like: Any, count: int) -> dict[str, tuple[float, bool]]:
    """Return the per-record integer parts: number of columns, and whether labels may be ignored.

    Parts of one dimension have 0 columns, those of more than two have infinitely many.
    """
    names: dict[str, tuple[float, bool]] = {}
    for name, x in parts_of(like):
        whole_numbers = _of_records(x, count) and not _has_numbers(x) and x.dtype != torch.bool
        if whole_numbers and not ("mask" in name and x.dim() > 1):
            columns = {1: 0, 2: x.shape[-1]}.get(x.dim(), math.inf)
            names[name] = columns, x.dim() > 1 and torch.iinfo(x.dtype).min <= IGNORED_INDEX
    return names


def has_integers(like: Any, count: int) -> bool:
    """Whether some per-record part of a batch holds integers or booleans."""
    return any(_of_records(x, count) and not _has_numbers(x) for x in _tensors(like))


def column_names(name: str, columns: float) -> list[str]:
    """Return a name for each column of a part of a batch."""
    return [f"{name}[{column}]" for column in range(int(columns))]


def records_in(batch: Any) -> int:
    """Return the number of records in a batch, by its first tensor."""
    return next((len(x) for x in _tensors(batch) if x.dim()), 1)


def has_records(batch: Any, count: int) -> bool:
    """Whether the first dimension of some part of a batch has this length."""
    return any(_of_records(x, count) for x in _tensors(batch))


def has_opaque_parts(batch: Any) -> bool:
    """Whether some part of a batch is an object that may hold records and cannot be synthesized."""
    return any(not isinstance(x, _PLAIN) for _, x in parts_of(batch))


def _tensors(batch: Any) -> list[Tensor]:
    return [x for _, x in parts_of(batch) if isinstance(x, Tensor)]


def _of_records(x: Any, count: int) -> bool:
    return isinstance(x, Tensor) and x.dim() > 0 and len(x) == count


def _has_numbers(x: Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def _generator(record: Record, name: str) -> torch.Generator:
    """Return a generator for one part of a record; parts of one shape must differ."""
    return torch.Generator().manual_seed(1_000 * zlib.crc32(name.encode()) + record.seed)


def _integers(record: Record, name: str, reach: Integers, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    if record.ignored and reach.ignored:
        return torch.full(shape, IGNORED_INDEX)
    if record.integers is not None:
        return torch.full(shape, record.integers)
    smallest, largest, generator = reach.smallest, reach.largest, _generator(record, name)
    if dtype != torch.bool:
        limits = torch.iinfo(dtype)
        smallest, largest = max(smallest, limits.min), min(largest, limits.max)
    # One place gets the extreme value, so that a maximum or a presence changes with the record.
    row = torch.zeros(shape.numel(), dtype=torch.long)
    place = torch.randint(0, max(1, len(row)), (1,), generator=generator)[: len(row)]
    if record.side > 0:
        row, furthest = torch.randint((largest + 1) // 2, largest + 1, row.shape, generator=generator), largest
    elif record.side < 0:
        row, furthest = torch.randint(smallest, smallest // 2 + 1, row.shape, generator=generator), smallest
    else:
        furthest = 1
        if largest > 1:  # below the largest, so that records above it change a maximum
            row = torch.randint(0, min(largest - 1, 3) + 1, row.shape, generator=generator)
    row[place] = furthest
    return row.reshape(shape)
