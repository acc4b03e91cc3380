"""[RAW DATA] The only holders of private records. They return sealed boxes and nothing else."""

from typing import Any

from privypurse.oracles._linear import ChunkedOracle, DenseOracle, SparseOracle
from privypurse.oracles._quadratic import QuadraticOracle
from privypurse.oracles._softmax import SoftmaxOracle

__all__ = ["ChunkedOracle", "DaskOracle", "DenseOracle", "QuadraticOracle", "SoftmaxOracle", "SparseOracle"]


def __getattr__(name: str) -> Any:
    # Dask is an optional dependency, imported on demand.
    if name == "DaskOracle":
        from privypurse.oracles._dask_backend import DaskOracle

        return DaskOracle
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
