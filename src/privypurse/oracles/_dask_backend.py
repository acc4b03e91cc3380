"""[RAW DATA] The oracle for rows on a cluster: partitions stay on their workers."""

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import distributed
import numpy as np

from privypurse.core._errors import InvalidArgument, PrivypurseError
from privypurse.core._randomness import NoiseSource
from privypurse.oracles._linear import LinearOracle
from privypurse.oracles._partitions import Partition, make_partition
from privypurse.oracles._sampling import poisson_rows


class DaskOracle(LinearOracle):
    """Rows of Dask arrays or dataframes on a ``distributed`` cluster.

    Parameters
    ----------
    X : dask array of shape (n, d), or dask dataframe
        The records, partitioned by rows.
    y : dask array of shape (n,), or series
        Labels or numbers, with the partitions of X.
    client : distributed.Client
        The cluster.
    retries : int, default 3
        How often a partition is retried when its worker is lost.
    **settings
        As for `LinearOracle`, without `features`. `threads` is for each partition, 1 by default.

    Guarantees
    ----------
    * Every partition runs the kernels of the other oracles and sends back one vector. These are
      added in the order of the partitions, so the answer does not depend on timing.
    * A lost worker costs a retry of its partitions, before the box exists and hence before any
      charge.
    """

    def __init__(self, X: Any, y: Any, *, client: Any, retries: int = 3, **settings: Any) -> None:
        blocks_x, blocks_y = _row_blocks(X, "X"), _row_blocks(y, "y")
        if len(blocks_x) != len(blocks_y):
            raise InvalidArgument(f"y must have the {len(blocks_x)} partitions of X; got {len(blocks_y)}. Rechunk y.")
        super().__init__(features=int(X.shape[1]), **{"threads": 1} | settings)
        self._client, self._retries = client, retries
        # One type for all partitions, declared by Dask, not taken from what a partition holds.
        dtype = np.dtype(np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64)
        checks = (dtype, self._frame, *self._labels)
        # Checked and kept on the workers; recomputed from the graph of X and y if a worker is lost.
        self._kept = [
            client.submit(make_partition, x, labels, *checks, pure=False)  # no retries
            for x, labels in zip(client.compute(blocks_x), client.compute(blocks_y), strict=True)
        ]
        distributed.wait(self._kept)
        for part in self._kept:
            if part.status == "error":
                _result(part)  # raises, before anything is spent

    def _each(self, call: Callable[[Partition], Any], sample_prob: float, noise: NoiseSource | None) -> list[Any]:
        # Samples are drawn here, where the secret coins are; None stands for all rows.
        samples: list[Any] = [None] * len(self._kept)
        if sample_prob < 1 and noise is not None:
            tallies = self._on_workers(methodcaller("tally"), samples)
            samples = [poisson_rows(int(tally[2]), sample_prob, noise) for tally in tallies]
        return self._on_workers(call, samples)

    def _on_workers(self, call: Callable[[Partition], Any], samples: list[Any]) -> list[Any]:
        settings = {"retries": self._retries, "pure": False}
        pairs = zip(self._kept, samples, strict=True)
        futures = [self._client.submit(_on_rows, part, rows, call, **settings) for part, rows in pairs]
        return [_result(future) for future in futures]


def _row_blocks(data: Any, name: str) -> list[Any]:
    """Return the partitions of a Dask collection as delayed values."""
    if not hasattr(data, "to_delayed"):
        raise InvalidArgument(f"{name} must be a Dask array or dataframe, not {type(data).__name__}. Use from_array.")
    if hasattr(data, "chunks") and data.ndim == 2 and len(data.chunks[1]) > 1:
        raise InvalidArgument(f"{name} must be split by rows only; got {data.chunks[1]!r}. Use X.rechunk({{1: -1}}).")
    return list(np.ravel(data.to_delayed()))


def _result(future: Any) -> Any:
    """Return a worker's result. Show only the type of other errors, which may quote a record."""
    try:
        return future.result()
    except (PrivypurseError, distributed.scheduler.KilledWorker, distributed.CancelledError):
        raise
    except Exception as error:
        what = f"a partition of X or y cannot be computed ({type(error).__name__})"
        raise InvalidArgument(f"{what}. Compute X and y on their own to see why.") from None


def _on_rows(part: Partition, rows: Any, call: Callable[[Partition], Any]) -> Any:
    return call(part if rows is None else part.take(rows))
