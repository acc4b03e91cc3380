"""[RAW DATA] The only holders of private records. They return sealed boxes and nothing else."""

from typing import Any

from privypurse.oracles.linear import ChunkedOracle, DenseOracle, LinearOracle, SparseOracle
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
    # Dask is an optional dependency, imported on demand.
    if name == "DaskOracle":
        from privypurse.oracles.dask_backend import DaskOracle

        return DaskOracle
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
