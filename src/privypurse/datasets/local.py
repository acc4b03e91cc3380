"""Data sets read from the folder that the environment variable ``PRIVYPURSE_DATA`` names."""

import gzip
import os
import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privypurse.core.errors import InvalidArgument


@dataclass(frozen=True, eq=False)
class Table:
    """Rows and labels of a data set.

    Parameters
    ----------
    name : str
        What it is called.
    X : sparse matrix of shape (n, d)
        The rows.
    y : ndarray of shape (n,)
        The labels, 0 or 1.
    uncovered : str
        What was done with the data outside any purse, for ``purse.declare_uncovered``; empty if nothing was.
    """

    name: str
    X: Any
    y: NDArray[np.int64]
    uncovered: str = ""

    def __repr__(self) -> str:
        return f"<Table {self.name}: {self.X.shape[0]:,} rows, {self.X.shape[1]} columns>"


def load(name: str) -> Table:
    """Load a data set by name: "adult" (one-hot, a9a), "bank" or "ipums-br".

    Bank and IPUMS-BR are scaled to [0, 1] by their own ranges, as in the papers. That looks at the data, and is named in
    `Table.uncovered`.
    """
    if name not in _LOADERS:
        raise InvalidArgument(f"name must be one of {', '.join(NAMES)}; got {name!r}. Pass for example 'adult'.")
    return _LOADERS[name]()


def _path(file: str) -> pathlib.Path:
    folder = os.environ.get("PRIVYPURSE_DATA", "")
    path = pathlib.Path(folder) / file
    if not folder or not path.exists():
        raise FileNotFoundError(
            f"{file} is needed and was not found in PRIVYPURSE_DATA={folder!r}. Set PRIVYPURSE_DATA to the folder it is in."
        )
    return path


def _adult() -> Table:
    from sklearn.datasets import load_svmlight_file

    parts = [load_svmlight_file(str(_path(f"adult-a9a.{part}.svm.gz")), n_features=123) for part in ("train", "test")]
    labels = np.concatenate([y for _, y in parts])
    return Table("adult", sparse.vstack([X for X, _ in parts]).tocsr(), (labels > 0).astype(np.int64))


def _one_hot_file(name: str) -> Table:
    with gzip.open(_path(f"{name}.dat.gz"), "rt") as file:
        numbers = np.loadtxt(file)
    X, y = numbers[:, :-1], numbers[:, -1]
    low, high = X.min(axis=0), X.max(axis=0)
    scaled = (X - low) / np.where(high > low, high - low, 1.0)
    note = "columns were scaled to [0, 1] by the smallest and largest value in the data"
    return Table(name, sparse.csr_matrix(scaled), y.astype(np.int64), note)


_LOADERS: dict[str, Callable[[], Table]] = {
    "adult": _adult,
    "bank": lambda: _one_hot_file("bank"),
    "ipums-br": lambda: _one_hot_file("ipums-br"),
}
NAMES = tuple(_LOADERS)
