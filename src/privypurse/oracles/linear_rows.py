"""[RAW DATA] Oracles for linear models: the only holders of a table and its targets, which hand out sealed boxes.

Three kinds, which differ in where the rows are and in nothing else: `DenseOracle` and `SparseOracle` in memory,
`ChunkedOracle` for data larger than memory (``chunks`` says where it comes from). A fourth, for a cluster, is in
``dask_backend``. What they answer is in ``linear``.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privypurse.core.checks import shown
from privypurse.core.errors import InvalidArgument
from privypurse.oracles.encoding import check_dense, check_some_rows, check_sparse, encode_targets, stored_by_column
from privypurse.oracles.linear import LinearOracle
from privypurse.oracles.parts import DensePart, Part, SparsePart, make_part


class DenseOracle(LinearOracle):
    """Rows of a float32 or float64 table in memory, by row or by column.

    Parameters
    ----------
    X : array_like of shape (n, d)
        The records. Other number types are converted once; float32 and float64 are not copied.
    y : array_like of shape (n,)
        Labels, or numbers for regression.
    **settings
        As for `LinearOracle`, without `features`.

    Examples
    --------
    >>> from privypurse.core.queries import GradientAt
    >>> from privypurse.losses import Logistic
    >>> oracle = DenseOracle([[0.5, 1.0], [2.0, 0.0]], [0, 1], loss=Logistic(clip_derivative=0.5))
    >>> oracle.answer(GradientAt(point=np.zeros(3)))
    <Sensitive: shape (3,), l2 bound 0.5 (add-remove), 1.0 (replace-one)>
    """

    def __init__(self, X: ArrayLike, y: ArrayLike, **settings: Any) -> None:
        table = check_dense(X)
        check_some_rows(table.shape[0])
        super().__init__(features=table.shape[1], **settings)
        target = encode_targets(y, table.shape[0], table.dtype, self._loss, self._classes, self._target_bounds)
        self._part = DensePart(table, target, self._frame, by_column=stored_by_column(table))

    def _parts(self) -> Iterable[Part]:
        return (self._part,)


class SparseOracle(LinearOracle):
    """Rows of a scipy sparse matrix in memory; CSR is not copied.

    Parameters
    ----------
    X : sparse matrix of shape (n, d)
        The records.
    y : array_like of shape (n,)
        Labels, or numbers for regression.
    **settings
        As for `LinearOracle`, without `features`.
    """

    def __init__(self, X: Any, y: ArrayLike, **settings: Any) -> None:
        matrix = check_sparse(X)
        check_some_rows(matrix.shape[0])
        super().__init__(features=matrix.shape[1], **settings)
        target = encode_targets(y, matrix.shape[0], np.float64, self._loss, self._classes, self._target_bounds)
        self._part = SparsePart(matrix, target, self._frame)

    def _parts(self) -> Iterable[Part]:
        return (self._part,)


class ChunkedOracle(LinearOracle):
    """Rows that come in chunks, one after another, for data larger than memory.

    Parameters
    ----------
    chunks : callable
        Called without arguments at each query; returns an iterable of ``(X, y)`` pairs, dense or sparse. The same rows each time.
        ``oracles.chunks`` makes such callables from arrays on disk, Parquet files and generators.
    features : int
        Number of columns. Public.
    dtype : float32 or float64, optional
        Every dense chunk is converted to this type, so that the precision in which one row is read does not depend on others. By
        default what the source says (``chunks.dtype``), else float64.
    **settings
        As for `LinearOracle`.

    Guarantees
    ----------
    Every bound is enforced on each chunk as it is read, so nothing depends on the chunks being the same each time except the
    meaning of the answer.
    """

    def __init__(
        self, chunks: Callable[[], Iterable[tuple[Any, Any]]], *, features: int, dtype: Any = None, **settings: Any
    ) -> None:
        if not callable(chunks):
            raise InvalidArgument(
                f"chunks must be a callable that returns (X, y) pairs anew each time; got {shown(chunks)}. "
                "Pass for example lambda: iter(pairs), or one from privypurse.oracles.chunks."
            )
        super().__init__(features=features, **settings)
        self._chunks, self._dtype = chunks, np.dtype(getattr(chunks, "dtype", np.float64) if dtype is None else dtype)
        if self._dtype not in (np.float32, np.float64):
            raise InvalidArgument(f"dtype must be float32 or float64; got {dtype!r}. Leave it out for the source's.")
        self._last: Any = None

    def _parts(self) -> Iterable[Part]:
        source = self._chunks()
        if source is self._last and iter(source) is source:
            raise InvalidArgument(
                "chunks returned the same iterator twice, and it is used up. Pass a function that makes a new one each time, "
                "such as the generator function itself: chunks=read_file, not chunks=lambda: generator."
            )
        self._last = source
        for X, y in source:
            yield make_part(X, y, self._dtype, self._frame, self._loss, self._classes, self._target_bounds)
