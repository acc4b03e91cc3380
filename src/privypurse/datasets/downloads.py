"""The only place where this library reaches for the network: scikit-learn's own fetchers, and nothing else."""

import contextlib
import http.client
import pathlib
import socket
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

TIMEOUT_S = 30.0
FAILURES = (OSError, http.client.HTTPException, ValueError, ImportError)  # what a fetcher raises when it cannot fetch


def openml(number: int) -> tuple[Any, Any]:
    """Fetch a data set of openml.org by its number, as a data frame and its target. OpenML's own checksum is checked."""
    from sklearn.datasets import fetch_openml

    with _passing_folder() as folder:
        found = fetch_openml(
            data_id=number, data_home=str(folder), as_frame=True, parser="auto", n_retries=1, delay=0.5
        )
    return found.data, found.target


def kddcup99_sf() -> tuple[Any, Any]:
    """Fetch the SF subset of KDD Cup '99, ten percent. scikit-learn checks the file's checksum."""
    from sklearn.datasets import fetch_kddcup99

    with _passing_folder() as folder:
        found = fetch_kddcup99(subset="SF", percent10=True, data_home=str(folder))
    return found.data, found.target


@contextlib.contextmanager
def _passing_folder() -> Iterator[pathlib.Path]:
    """Give the fetcher a folder for its own files, a time limit, and no way to print how often it tried."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT_S)  # the fetchers have no setting for it, and would wait for ever
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield pathlib.Path(folder)
    finally:
        socket.setdefaulttimeout(before)
