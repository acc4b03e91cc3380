"""[RAW DATA] Records of tensors or data sets, fetched by row, and the parts of their batches."""

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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


class DatasetRows:
    """Records of a data set, fetched one by one and collated as by its loader."""

    def __init__(self, dataset: "Dataset[Any]", collate: Callable[[list[Any]], Any], workers: int = 0) -> None:
        self._dataset, self._collate = dataset, collate
        self._pool = ThreadPoolExecutor(workers) if workers else None
        self.collates_by_itself = collate is not default_collate

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def fetch(self, rows: Indexes) -> Any:
        """Return some rows, at least one."""
        fetch = map if self._pool is None else self._pool.map
        return self._collate(list(fetch(self._dataset.__getitem__, rows.tolist())))


RecordSource = TensorRows | DatasetRows


def rows_of(data: Any) -> RecordSource:
    """Return the records of a loader, a data set or a tuple of tensors.

    The loader's sampling is not used, and custom samplers are refused: the engine's own is priced.
    """
    rows = _source(data)
    if len(rows) == 0:
        raise InvalidArgument("loader has no records. Pass a data set that is not empty.")
    return rows


def _source(data: Any) -> RecordSource:
    if isinstance(data, DataLoader):
        _check_sampler(data)
        if not isinstance(data.dataset, TensorDataset) or data.collate_fn is not default_collate:
            return DatasetRows(data.dataset, data.collate_fn, data.num_workers)
        data = data.dataset
    if isinstance(data, TensorDataset):
        return TensorRows(data.tensors)
    several = isinstance(data, tuple | list)
    if several and data and all(isinstance(part, Tensor) for part in data):
        return TensorRows(data)
    expected = "loader must be a DataLoader, a data set with a length, or a tuple of tensors"
    arrays = several and any(hasattr(part, "shape") or isinstance(part, DataLoader) for part in data)
    if arrays or isinstance(data, Mapping):
        raise InvalidArgument(
            f"{expected}; got {shown(type(data))} of other types. Convert arrays with torch.from_numpy."
        )
    indexed = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if isinstance(data, IterableDataset | str) or not indexed:
        raise InvalidArgument(f"{expected}; got {shown(data)}. Load a stream into memory first.")
    return DatasetRows(data, default_collate)


def _check_sampler(loader: "DataLoader[Any]") -> None:
    streams = isinstance(loader.dataset, IterableDataset)
    plain = type(loader.sampler) in (RandomSampler, SequentialSampler)
    plain = plain and type(loader.batch_sampler) in (BatchSampler, type(None))
    if streams or not plain or getattr(loader.sampler, "replacement", False):
        kind = type(loader.dataset if streams else loader.sampler).__name__
        raise InvalidArgument(
            f"loader has a custom sampler ({kind}), which cannot be priced. The engine draws its own Poisson samples: pass "
            "a loader with shuffle=True or False and no sampler."
        )


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
    if isinstance(batch, MutableMapping):
        for key in batch:
            yield from parts_of(batch[key], f"{name}/{key}")
    elif isinstance(batch, tuple | list):
        for place, part in enumerate(batch):
            yield from parts_of(part, f"{name}/{place}")
    elif isinstance(batch, Tensor):
        yield name, batch
    else:
        for part in torch.utils._pytree.tree_leaves(batch):
            yield name, part


def moved(batch: Any, device: torch.device) -> Any:
    """Return a batch on a device."""
    return each_part(batch, lambda x, _: x.to(device) if isinstance(x, Tensor) else x)


Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments of a module
# Layers whose mode makes no other way of calling a module.
_MODES_ASIDE = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.modules.batchnorm._BatchNorm)


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
