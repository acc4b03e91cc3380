"""[RAW DATA] Where records come from: tensors, or any data set with a length, fetched by row."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data.dataloader import default_collate
from torch.utils.data.sampler import BatchSampler

from privypurse.core.checks import shown
from privypurse.core.errors import InvalidArgument

Indexes = NDArray[np.intp]


class TensorRows:
    """Records as the rows of tensors, which stay on the device they are on.

    Parameters
    ----------
    tensors : sequence of Tensor
        Inputs and targets, all of the same length.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tuple(tensors)
        if not self._tensors or len({len(tensor) for tensor in self._tensors}) != 1:
            lengths = [tuple(tensor.shape) for tensor in self._tensors]
            raise InvalidArgument(f"data must be tensors of one length; got shapes {lengths}. Pass for example (X, y).")

    def __len__(self) -> int:
        return len(self._tensors[0])

    def fetch(self, rows: Indexes) -> tuple[Tensor, ...]:
        """Return the records of some rows."""
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):  # rows are in order, so these are without gaps
            return tuple(tensor[int(rows[0]) : int(rows[-1]) + 1] for tensor in self._tensors)
        index = torch.from_numpy(rows)
        if self._tensors[0].is_cuda:
            index = index.pin_memory()  # so that the copy need not wait for the device
        index = index.to(self._tensors[0].device, non_blocking=True)
        return tuple(tensor[index.to(tensor.device)] for tensor in self._tensors)


class DatasetRows:
    """Records of a data set, fetched one by one and put together as its loader would.

    Parameters
    ----------
    dataset : Dataset
        With a length and an index.
    collate : callable
        Puts records together.
    workers : int
        How many threads fetch.
    """

    def __init__(self, dataset: "Dataset[Any]", collate: Callable[[list[Any]], Any], workers: int = 0) -> None:
        self._dataset, self._collate = dataset, collate
        self._pool = ThreadPoolExecutor(workers) if workers else None
        self._empty: Any = None
        self.collates_by_itself = collate is not default_collate

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def fetch(self, rows: Indexes) -> Any:
        """Return the records of some rows; an empty batch has the shape of others."""
        if len(rows) == 0:
            if self._empty is None:
                self._empty = _emptied(self._collate([self._dataset[0]]))
            return self._empty
        where = rows.tolist()
        items = (
            [self._dataset[k] for k in where]
            if self._pool is None
            else list(self._pool.map(self._dataset.__getitem__, where))
        )
        return self._collate(items)


Rows = TensorRows | DatasetRows


def rows_of(data: Any) -> Rows:
    """Return the records of a loader, a data set or a tuple of tensors; refuses loaders that choose records by their own rule.

    Guarantees
    ----------
    Nothing of the loader's own sampling is used: the engine samples by itself, which is what the accountant prices.
    """
    if isinstance(data, DataLoader):
        _check_sampler(data)
        if isinstance(data.dataset, TensorDataset) and data.collate_fn is default_collate:
            return _some(TensorRows(data.dataset.tensors))
        return _some(DatasetRows(data.dataset, data.collate_fn, data.num_workers))
    if isinstance(data, TensorDataset):
        return _some(TensorRows(data.tensors))
    if isinstance(data, tuple | list) and data and all(isinstance(part, Tensor) for part in data):
        return _some(TensorRows(data))
    wrong = isinstance(data, tuple | list) and any(
        hasattr(part, "shape") or isinstance(part, DataLoader) for part in data
    )
    if wrong or isinstance(data, Mapping):
        raise InvalidArgument(
            f"loader must be a DataLoader, a data set with a length, or a tuple of tensors; got {shown(type(data))} of something "
            "else. Turn arrays into tensors with torch.from_numpy first. Nothing was spent."
        )
    if (
        isinstance(data, IterableDataset)
        or not (hasattr(data, "__len__") and hasattr(data, "__getitem__"))
        or isinstance(data, str)
    ):
        raise InvalidArgument(
            f"loader must be a DataLoader, a data set with a length, or a tuple of tensors; got {shown(data)}. A stream cannot "
            "be sampled: load it first. Nothing was spent."
        )
    return _some(DatasetRows(data, default_collate))


def _check_sampler(loader: "DataLoader[Any]") -> None:
    plain = type(loader.sampler) in (RandomSampler, SequentialSampler) and type(loader.batch_sampler) in (
        BatchSampler,
        type(None),
    )
    if isinstance(loader.dataset, IterableDataset) or not plain or getattr(loader.sampler, "replacement", False):
        kind = type(loader.dataset if isinstance(loader.dataset, IterableDataset) else loader.sampler).__name__
        raise InvalidArgument(
            f"loader has a sampler of its own ({kind}), whose choice of records no price is known for. The engine draws Poisson "
            "samples by itself: pass a loader with shuffle=True or False and no sampler. Nothing was spent."
        )


def _some(rows: Rows) -> Rows:
    if len(rows) == 0:
        raise InvalidArgument("loader has no records. Nothing was spent.")
    return rows


def _emptied(batch: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda x: x[:0] if isinstance(x, Tensor) else x, batch)
