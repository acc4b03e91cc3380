"""[RAW DATA] Records fetched by row, the parts of their batches, and synthetic records in their shape."""

import copy
import enum
import math
import random
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data.dataloader import default_collate
from torch.utils.data.sampler import BatchSampler

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument

Indexes = NDArray[np.intp]


class TensorRows:
    """Records as rows of tensors, on their device."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tuple(tensors)
        if not self._tensors or len({len(tensor) for tensor in self._tensors}) != 1:
            lengths = [tuple(tensor.shape) for tensor in self._tensors]
            raise InvalidArgument(f"data must be tensors of one length; got shapes {lengths}. Pass for example (X, y).")

    def __len__(self) -> int:
        return len(self._tensors[0])

    def fetch(self, rows: Indexes) -> tuple[Tensor, ...]:
        """Return copies of some rows: a loop or a module may change them in place."""
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):  # sorted rows without gaps
            return tuple(tensor[int(rows[0]) : int(rows[-1]) + 1].clone() for tensor in self._tensors)
        index = torch.from_numpy(rows)
        if self._tensors[0].is_cuda:
            index = index.pin_memory()  # for an asynchronous copy
        index = index.to(self._tensors[0].device, non_blocking=True)
        return tuple(tensor[index.to(tensor.device)] for tensor in self._tensors)

    def stream(self, wanted: Iterator[Indexes]) -> Iterator[Any]:
        """Yield the batch of each item of `wanted`."""
        return map(self.fetch, wanted)


class DatasetRows:
    """Records of a data set, fetched one by one and collated as by its loader."""

    def __init__(
        self, dataset: "Dataset[Any]", collate: Callable[[list[Any]], Any], given: "DataLoader[Any] | None" = None
    ) -> None:
        self._dataset, self._collate = dataset, collate
        self.collates_by_itself = collate is not default_collate
        self._wanted, self._loader, self._pool = _Wanted(), None, None
        if given is not None and (given.num_workers or (given.pin_memory and torch.cuda.is_available())):
            self._loader = DataLoader(dataset, batch_sampler=self._wanted, collate_fn=collate, **loading_of(given))
            # Held until this object is gone: collected along with its queues, it would wait for its workers.
            weakref.finalize(self, id, self._loader)
            self._pool = ThreadPoolExecutor(given.num_workers) if given.num_workers else None

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def fetch(self, rows: Indexes) -> Any:
        """Return some rows, at least one."""
        fetch = map if self._pool is None else self._pool.map
        return self._collate(list(fetch(self._dataset.__getitem__, rows.tolist())))

    def stream(self, wanted: Iterator[Indexes]) -> Iterator[Any]:
        """Yield the batch of each item of `wanted`, fetched ahead by the workers of the user's loader."""
        if self._loader is None:
            yield from map(self.fetch, wanted)
        else:
            self._wanted.rows = wanted
            yield from self._loader


def loading_of(loader: "DataLoader[Any]") -> dict[str, Any]:
    """Return how a loader fetches its batches: the settings of its workers."""
    names = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "timeout", "worker_init_fn")
    return {name: getattr(loader, name) for name in (*names, "multiprocessing_context")}


class _Wanted:
    """Rows of the batches to come, as the batch sampler of a `DataLoader`."""

    rows: Iterator[Indexes] = iter(())

    def __iter__(self) -> Iterator[list[int]]:
        return (rows.tolist() for rows in self.rows)


RecordSource = TensorRows | DatasetRows


def rows_of(data: Any) -> RecordSource:
    """Return the records of a loader, a data set or a tuple of tensors; refuse custom samplers."""
    rows = _source(data)
    if len(rows) == 0:
        raise InvalidArgument("loader has no records. Pass a data set that is not empty.")
    return rows


def _source(data: Any) -> RecordSource:
    if isinstance(data, DataLoader):
        streams, sampler = isinstance(data.dataset, IterableDataset), data.sampler
        plain = type(sampler) in (RandomSampler, SequentialSampler) and not getattr(sampler, "replacement", False)
        if streams or not plain or type(data.batch_sampler) not in (BatchSampler, type(None)):
            if streams:
                what = f"loader reads a stream ({type(data.dataset).__name__}), from which no sample can be drawn"
                raise InvalidArgument(f"{what}. Pass a data set with a length, whose records have numbers.")
            what = f"loader has a custom sampler ({type(sampler).__name__})"
            raise InvalidArgument(f"{what}. Omit it: the engine draws Poisson samples.")
        if not isinstance(data.dataset, TensorDataset) or data.collate_fn is not default_collate:
            return DatasetRows(data.dataset, data.collate_fn, data)
        data = data.dataset
    if isinstance(data, TensorDataset):
        return TensorRows(data.tensors)
    several = isinstance(data, tuple | list)
    if several and data and all(isinstance(part, Tensor) for part in data):
        return TensorRows(data)
    expected = "loader must be a DataLoader, a data set with a length, or a tuple of tensors"
    arrays = several and any(hasattr(part, "shape") or isinstance(part, DataLoader) for part in data)
    if arrays or isinstance(data, Mapping):
        raise InvalidArgument(f"{expected}; got {shown(type(data))} of other types. Convert with torch.from_numpy.")
    indexed = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if isinstance(data, IterableDataset | str) or not indexed:
        raise InvalidArgument(f"{expected}; got {shown(data)}. Load a stream into memory first.")
    return DatasetRows(data, default_collate)


def each_part(batch: Any, change: Callable[[Any, str], Any], name: str = "") -> Any:
    """Return a batch with ``change(part, name)`` applied to each part."""
    if isinstance(batch, Tensor):
        return change(batch, name)
    if isinstance(batch, MutableMapping):
        changed = copy.copy(batch)
        for key in batch:
            changed[key] = each_part(batch[key], change, f"{name}/{key}")
        return changed
    if isinstance(batch, tuple | list):
        parts = [each_part(part, change, f"{name}/{place}") for place, part in enumerate(batch)]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return torch.utils._pytree.tree_map(lambda part: change(part, name), batch)


def parts_of(batch: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and content of each part of a batch, as `each_part` names them."""
    if isinstance(batch, MutableMapping | tuple | list):
        for key in batch if isinstance(batch, MutableMapping) else range(len(batch)):
            yield from parts_of(batch[key], f"{name}/{key}")
    else:
        for part in [batch] if isinstance(batch, Tensor) else torch.utils._pytree.tree_leaves(batch):
            yield name, part


def moved(batch: Any, device: torch.device) -> Any:
    """Return a batch on a device."""
    return each_part(batch, lambda x, _: x.to(device) if isinstance(x, Tensor) else x)


Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments of a module


def ways_to_call(module: nn.Module, batch: Any) -> list[Callable[[Any], Arguments]]:
    """Return ways of calling a module with a batch, most likely first."""
    if hasattr(module, "silent"):  # a training step: batch and, mostly, batch index
        return [lambda made: ((made, 0), {}), lambda made: ((made,), {})]
    if hasattr(batch, "keys"):
        labels = {"labels", "label", "targets", "target", "y"}
        return [
            lambda made: ((), dict(made)),
            lambda made: ((), {name: x for name, x in made.items() if name not in labels}),
            *(lambda made, name=name: ((made[name],), {}) for name in batch),
        ]
    if isinstance(batch, tuple | list) and len(batch) > 1:
        return [lambda made: (tuple(made[:-1]), {}), lambda made: (tuple(made), {}), lambda made: ((made[0],), {})]
    return [lambda made: (tuple(made) if isinstance(made, tuple | list) else (made,), {})]


# Layers whose mode makes no other way of calling a module.
_MODES_ASIDE = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase, nn.modules.batchnorm._BatchNorm)


class Way(NamedTuple):
    """What distinguishes one way of calling a module from another."""

    kind: tuple[Any, ...]  # names and types of parts, and the modes of layers
    numbers: tuple[int, ...]  # integer arguments, which modules may branch on
    lengths: tuple[tuple[str, int | None], ...]  # of tensors by name, None for per-record tensors


def way_of_calling(module: nn.Module, arguments: Arguments, records: int) -> Way:
    """Return the way in which a module is called with a number of records."""
    found: list[Any] = []
    numbers: list[int] = []
    lengths: list[tuple[str, int | None]] = []
    for name, x in parts_of(arguments):
        if isinstance(x, Tensor):
            found.append((name, x.dtype, x.dim()))
            lengths.append((name, 0 if x.dim() == 0 else None if len(x) == records else len(x)))
        elif isinstance(x, int) and not isinstance(x, bool):
            found.append((name, int))
            numbers.append(x)
        elif isinstance(x, float):
            found.append((name, float, x == 0))  # modules skip a part that has no weight
        else:
            found.append((name, x if isinstance(x, bool | str | None) else type(x)))
    modes = tuple(layer.training for layer in module.modules() if not isinstance(layer, _MODES_ASIDE))
    return Way((tuple(found), modes), tuple(numbers), tuple(lengths))


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

    def one(x: Any, name: str) -> Any:
        if not of_records(x, count):
            return x.detach().clone() if isinstance(x, Tensor) else x
        shape, where = x.shape[1:], x.device
        if "mask" in name and shape:  # masks differ between records, and never hide the first place
            places = torch.ones((len(records), *shape), dtype=x.dtype, device=where)
            places[[bool(record.side) for record in records], ..., 1:] = 0
            return places
        if has_numbers(x):
            scales = [math.nan if record.broken else FAR * record.side or 1.0 for record in records]
            made = [torch.randn(shape, generator=_generator(record, name)) for record in records]
            rows = [scale * row for scale, row in zip(scales, made, strict=True)]
        else:
            rows = [_integers(record, name, reach.get(name, Integers()), shape, x.dtype) for record in records]
            for column, of_column in enumerate(column_names(name, x.shape[1] if x.dim() == 2 else 0)):
                for row, record in zip(rows, records, strict=True) if of_column in reach else ():
                    row[column] = _integers(record, of_column, reach[of_column], x.shape[2:], x.dtype)
        return torch.stack(rows).to(where, x.dtype)

    return each_part(like, one)


def integer_parts(like: Any, count: int) -> dict[str, tuple[float, bool]]:
    """Return the per-record integer parts: number of columns, and whether labels may be ignored."""
    names: dict[str, tuple[float, bool]] = {}
    for name, x in parts_of(like):
        whole_numbers = of_records(x, count) and not has_numbers(x) and x.dtype != torch.bool
        if whole_numbers and not ("mask" in name and x.dim() > 1):
            columns = {1: 0, 2: x.shape[-1]}.get(x.dim(), math.inf)
            names[name] = columns, x.dim() > 1 and torch.iinfo(x.dtype).min <= IGNORED_INDEX
    return names


def column_names(name: str, columns: float) -> list[str]:
    """Return a name for each column of a part of a batch."""
    return [f"{name}[{column}]" for column in range(int(columns))]


def records_in(batch: Any) -> int:
    """Return the number of records in a batch, by its first tensor."""
    return next((len(x) for x in tensors_in(batch) if x.dim()), 1)


def has_opaque_parts(batch: Any) -> bool:
    """Whether some part of a batch is an object that may hold records and cannot be synthesized."""
    return any(not isinstance(x, _PLAIN) for _, x in parts_of(batch))


def tensors_in(batch: Any) -> list[Tensor]:
    """Return the tensors of a batch."""
    return [x for _, x in parts_of(batch) if isinstance(x, Tensor)]


def of_records(x: Any, count: int) -> bool:
    """Whether a part of a batch of `count` records has one row for each."""
    return isinstance(x, Tensor) and x.dim() > 0 and len(x) == count


def has_numbers(x: Tensor) -> bool:
    """Whether a part of a batch holds real or complex numbers, not integers or booleans."""
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
    place = torch.randint(0, max(1, shape.numel()), (1,), generator=generator)[: shape.numel()]
    if record.side > 0:
        low, high, furthest = (largest + 1) // 2, largest, largest
    elif record.side < 0:
        low, high, furthest = smallest, max(smallest, smallest // 2), smallest
    else:  # below the largest, so that records above it change a maximum
        low, high, furthest = 0, min(max(largest - 1, 0), 3), 1
    row = torch.randint(low, high + 1, (shape.numel(),), generator=generator)
    row[place] = furthest
    return row.reshape(shape)


def floats(answer: Any, *, scalar: bool | None = None) -> list[Tensor]:
    """Return the floating-point tensors in a module's output; only losses, or only others."""
    leaves = torch.utils._pytree.tree_leaves(answer)
    found = [x for x in leaves if isinstance(x, Tensor) and x.is_floating_point()]
    return [x for x in found if scalar in (None, x.dim() == 0)]


def seed_all(seed: int) -> None:
    """Seed the generators that modules may draw from."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
