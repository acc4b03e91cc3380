"""Data sets prepared as in the papers, outside of any purse, and cached per process."""

import functools
from collections.abc import Sequence

import numpy as np

from privypurse.core._errors import DataUnavailable
from privypurse_lab.data import Table, load

# On every page: these are not measured.
UNAVAILABLE = {
    "ipums-us": "IPUMS-US is not available: it may not be redistributed, and no loader can fetch it. It was not run."
}


# How tables were scaled by their own records, outside of any purse, as in the papers.
_TO_UNIT = "columns were scaled to [0, 1] by the smallest and largest value in the data"
SCALED = {
    "adult": "numbers were cut at quantiles of the data, by those who made the table",
    "bank": _TO_UNIT,
    "ipums-br": _TO_UNIT,
    "kddcup99": f"{_TO_UNIT}, and kinds of protocol, service and flag were read from them",
}


@functools.lru_cache(maxsize=4)
def table(name: str, part: str = "all") -> Table:
    """Return a data set from `PRIVYPURSE_DATA` or the cache; never from the network."""
    return load(name, part, download=False)


def is_here(name: str) -> bool:
    """Return whether a data set, or "torch", is available."""
    if name == "torch":
        try:
            import torch  # noqa: F401
        except ImportError:
            return False
        return True
    try:
        table(name)
    except DataUnavailable:
        return False
    return True


def here(names: Sequence[str]) -> list[str]:
    """Return the available ones of some data sets."""
    return [name for name in names if is_here(name)]


def standardised(X: np.ndarray) -> np.ndarray:
    """Scale columns to mean zero and variance one by the data; constant columns become zero."""
    spread = X.std(axis=0)
    return np.asarray((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def folds(rows: int, count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split rows into training and test parts, in an order given by the seed."""
    order = np.random.default_rng(seed).permutation(rows)
    cuts = np.array_split(order, count)
    return [(np.sort(np.concatenate([*cuts[:k], *cuts[k + 1 :]])), np.sort(cuts[k])) for k in range(count)]
