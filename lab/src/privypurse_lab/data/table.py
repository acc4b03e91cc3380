"""Common format of all data sets."""

import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privypurse.core._errors import UnexpectedFile
from privypurse.core._formats import counted
from privypurse.datasets._census import write_csv

_BLOCK = 1 << 13  # rows at a time when a sparse table is written


@dataclass(frozen=True, eq=False)
class Table:
    """Rows and labels of a data set.

    Parameters
    ----------
    name : str
        Name of the data set.
    X : sparse matrix, ndarray or dict
        The rows: a matrix of shape (n, d); or, where `is_mixed` is true, a dict of columns by name,
        which hold numbers, or strings with None for missing values.
    y : ndarray of shape (n,)
        Labels, as indices into `classes`.
    uncovered : str
        Use of the data outside of any purse, for ``purse.declare_uncovered``; empty if none.
    column_names : tuple of str
        Names of the columns of `X`.
    classes : tuple of str
        Names of the labels. Public: part of the definition of the data set.
    source : str
        Source of the rows.
    target : str
        Name of the label.
    """

    name: str
    X: Any
    y: NDArray[np.int64]
    uncovered: str = ""
    column_names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ("0", "1")
    source: str = ""
    target: str = "target"

    def __post_init__(self) -> None:
        if not self.column_names:
            names = tuple(self.X) if self.is_mixed else tuple(f"column_{i + 1}" for i in range(self.X.shape[1]))
            object.__setattr__(self, "column_names", names)

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"<Table {self.name}: {counted(len(self), 'row')}, {counted(len(self.column_names), 'column')}>"

    @property
    def is_mixed(self) -> bool:
        """Whether `X` is a dict of columns, numbers and strings, rather than a matrix."""
        return isinstance(self.X, dict)

    def to_csv(self, path: str | pathlib.Path) -> None:
        """Write a CSV file with a header and the label last; missing values are empty."""
        write_csv(path, self._blocks())

    def frame(self) -> Any:
        """Return a pandas data frame with the label last. Needs pandas."""
        import pandas as pd

        blocks = list(self._blocks())
        return pd.DataFrame({name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]})

    def _blocks(self) -> Iterator[dict[str, NDArray[Any]]]:
        labels = np.array(self.classes, dtype=object)
        for start in range(0, len(self), _BLOCK):
            rows = slice(start, start + _BLOCK)
            yield {**_columns(self, rows), self.target: labels[self.y[rows]]}


def _columns(table: Table, rows: slice) -> dict[str, NDArray[Any]]:
    if table.is_mixed:
        return {name: values[rows] for name, values in table.X.items()}
    block = table.X[rows]
    dense = block.toarray() if sparse.issparse(block) else block
    return dict(zip(table.column_names, np.ascontiguousarray(dense.T), strict=True))


def stacked(tables: Sequence[Table]) -> Table:
    """Return the rows of all tables as one."""
    first = tables[0]
    if len(tables) == 1:
        return first
    X: Any
    if first.is_mixed:
        X = {name: np.concatenate([table.X[name] for table in tables]) for name in first.X}
    elif sparse.issparse(first.X):
        X = sparse.vstack([table.X for table in tables]).tocsr()
    else:
        X = np.concatenate([table.X for table in tables])
    sources = ", ".join(table.source for table in tables)
    return replace(first, X=X, y=np.concatenate([table.y for table in tables]), source=sources)


def some_rows(table: Table, rows: slice) -> Table:
    """Return a slice of rows."""
    X = {name: values[rows] for name, values in table.X.items()} if table.is_mixed else table.X[rows]
    return replace(table, X=X, y=table.y[rows])


def labels(values: Sequence[str], classes: tuple[str, ...], where: str) -> NDArray[np.int64]:
    """Return the index of each label in `classes`."""
    position = {label: i for i, label in enumerate(classes)}
    unknown = set(values) - set(classes)
    if unknown:
        raise UnexpectedFile(
            f"{where}: expected the labels {', '.join(classes)}, got {len(unknown)} others too. "
            "Get the file again from its publisher."
        )
    return np.array([position[value] for value in values], dtype=np.int64)


def texts(values: Sequence[str], missing: str = "?") -> NDArray[Any]:
    """Return stripped strings as an array of objects, with None for the missing mark."""
    column = np.empty(len(values), dtype=object)
    column[:] = [None if (bare := value.strip()) == missing else bare for value in values]
    return column
