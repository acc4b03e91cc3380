"""The data sets as the papers prepare them, kept for the life of a process. All of it looks at the data outside any purse."""

import functools
from collections.abc import Sequence

import numpy as np

from privypurse.core.errors import DataUnavailable
from privypurse.datasets import Table, load

# What is said on every page: nobody may think these were measured.
UNAVAILABLE = {
    "ipums-us": "IPUMS-US is not available: it may not be redistributed, and no loader can fetch it. It was not run."
}


# What was done to tables by looking at their own records, outside any purse, as in the papers.
_TO_UNIT = "columns were scaled to [0, 1] by the smallest and largest value in the data"
SCALED = {
    "adult": "numbers were cut at quantiles of the data, by those who made the table",
    "bank": _TO_UNIT,
    "ipums-br": _TO_UNIT,
    "kddcup99": f"{_TO_UNIT}, and kinds of protocol, service and flag were read from them",
}


@functools.lru_cache(maxsize=4)
def table(name: str, part: str = "all") -> Table:
    """Return a data set, from the folder `PRIVYPURSE_DATA` or the cache; never from the network."""
    return load(name, part, download=False)


def is_here(name: str) -> bool:
    """Say whether a data set, or "torch", can be had."""
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
    """Return those of some data sets that can be had."""
    return [name for name in names if is_here(name)]


def standardised(X: np.ndarray) -> np.ndarray:
    """Scale columns to mean zero and variance one, by the data themselves; a column that does not vary becomes zero."""
    spread = X.std(axis=0)
    return np.asarray((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def folds(rows: int, count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Cut rows into training and test parts, in an order given by the seed."""
    order = np.random.default_rng(seed).permutation(rows)
    cuts = np.array_split(order, count)
    return [(np.sort(np.concatenate([*cuts[:k], *cuts[k + 1 :]])), np.sort(cuts[k])) for k in range(count)]
