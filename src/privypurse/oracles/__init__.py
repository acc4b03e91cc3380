"""[RAW DATA] The only holders of private records. They hand out sealed boxes and nothing else."""

from typing import Any

from privypurse.oracles.linear import LinearOracle
from privypurse.oracles.linear_rows import ChunkedOracle, DenseOracle, SparseOracle
from privypurse.oracles.quadratic import QuadraticOracle
from privypurse.oracles.softmax import SoftmaxOracle

__all__ = [
    "ChunkedOracle",
    "DaskOracle",
    "DenseOracle",
    "LinearOracle",
    "QuadraticOracle",
    "SoftmaxOracle",
    "SparseOracle",
]


def __getattr__(name: str) -> Any:
    # Dask is an extra: imported when it is asked for.
    if name == "DaskOracle":
        from privypurse.oracles.dask_backend import DaskOracle

        return DaskOracle
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
