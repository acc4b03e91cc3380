"""Downloads by scikit-learn's fetchers: the only use of the network in this library."""

import contextlib
import http.client
import pathlib
import socket
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

TIMEOUT_S = 30.0
FAILURES = (OSError, http.client.HTTPException, ValueError, ImportError)  # raised by fetchers


def openml(number: int) -> tuple[Any, Any]:
    """Fetch a data set of openml.org, as data frame and target. OpenML's checksum is checked."""
    from sklearn.datasets import fetch_openml

    with _passing_folder() as folder:
        found = fetch_openml(
            data_id=number, data_home=str(folder), as_frame=True, parser="auto", n_retries=1, delay=0.5
        )
    return found.data, found.target


def kddcup99_sf() -> tuple[Any, Any]:
    """Fetch the SF subset of KDD Cup '99, ten percent. scikit-learn checks the checksum."""
    from sklearn.datasets import fetch_kddcup99

    with _passing_folder() as folder:
        found = fetch_kddcup99(subset="SF", percent10=True, data_home=str(folder))
    return found.data, found.target


@contextlib.contextmanager
def _passing_folder() -> Iterator[pathlib.Path]:
    """Provide a temporary folder and a time limit, and silence the fetcher's messages."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT_S)  # fetchers have no timeout setting
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield pathlib.Path(folder)
    finally:
        socket.setdefaulttimeout(before)
