"""Load a data set by name: from a folder, scikit-learn, a cache or the network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privypurse.core._checks import shown
from privypurse.core._errors import DataUnavailable, InvalidArgument, UnexpectedFile
from privypurse_lab.data import cache, downloads, layouts, local
from privypurse_lab.data.table import Table, some_rows, stacked

Reader = Callable[..., Table]


@dataclass(frozen=True)
class _Known:
    """Sources of a data set: files of each part with their reader, a fetcher, or instructions."""

    how: str
    rows: int
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    read: Reader | None = None
    fetch: Callable[[], Table] | None = None
    # Rows of the official parts in what is fetched, where the publisher defines them.
    fetched_parts: dict[str, slice] = field(default_factory=dict)
    bundled: Callable[[], Table] | None = None
    finish: Callable[[Table], Table] = lambda table: table


def load(name: str, part: str = "all", *, checksums: Mapping[str, str] | None = None, download: bool = True) -> Table:
    """Load a data set by name.

    It is searched in the folder ``PRIVYPURSE_DATA``; in scikit-learn, which includes Iris, breast
    cancer and digits; in the cache (``PRIVYPURSE_CACHE``, else the user's cache folder); and on the
    network, from OpenML or with scikit-learn's fetcher, to be cached. If it is not found, the error
    says how to get it.

    Parameters
    ----------
    name : str
        "adult" (census income, one-hot: LIBSVM's a9a), "adult-raw" (the same people, mixed
        columns), "bank" (marketing, one-hot, as in the papers), "bank-raw" (the same calls from
        OpenML, mixed columns), "ipums-br" (census of Brazil, one-hot), "kddcup99" (network
        connections, one-hot), "kddcup99-sf" (logged-in connections, four mixed columns), "mnist",
        "iris", "breast-cancer" or "digits".
    part : str
        "all"; or "train" or "test", where the data set has official parts: Adult and MNIST. "all"
        is train, then test.
    checksums : mapping of str to str, optional
        SHA-256 of the decompressed content of local files, by name, to use instead of the known
        files.
    download : bool
        Whether the network may be used.

    Notes
    -----
    Bank and IPUMS-BR are scaled to [0, 1] by their own ranges, as in the papers. That uses the
    data, and is named in `Table.uncovered`. MNIST is divided by 255, which does not.

    Examples
    --------
    >>> from privypurse_lab.data import load
    >>> iris = load("iris")
    >>> iris, iris.classes
    (<Table iris: 150 rows, 4 columns>, ('setosa', 'versicolor', 'virginica'))
    """
    if name not in NAMES:
        raise InvalidArgument(
            f"name must be one of {', '.join(NAMES)}; got {shown(name)}. Pass for example name='adult'."
        )
    known = _KNOWN[name]
    parts = ("all", *(key for key in known.files if key != "all"))
    if part not in parts:
        raise InvalidArgument(
            f"part of {name!r} must be one of {', '.join(parts)}; got {shown(part)}. Pass part='all'"
            + ("." if len(parts) > 1 else ", and split the rows yourself: it has no official test part.")
        )
    given = _checked(name, known, checksums)
    table = known.bundled() if known.bundled else _from_folder(known, part, given)
    if table is None:
        table = _from_cache_or_network(name, known, part, download)
        table = table if part == "all" else some_rows(table, known.fetched_parts[part])
    return known.finish(table)


def _checked(name: str, known: _Known, checksums: Mapping[str, str] | None) -> Mapping[str, str]:
    files = [file for files in known.files.values() for file in files]
    for file in checksums or {}:
        if file not in files:
            allowed = f"names among {', '.join(files)}" if files else "nothing, because no local file is read"
            raise InvalidArgument(f"checksums for {name!r} must hold {allowed}; got {shown(file)}. Leave it out.")
    return checksums or {}


def _needed(known: _Known, part: str) -> list[tuple[str, ...]]:
    """Return the groups of files of a part."""
    return [files for key, files in known.files.items() if part in ("all", key)]


def _from_folder(known: _Known, part: str, checksums: Mapping[str, str]) -> Table | None:
    groups = _needed(known, part)
    found = {file: local.find(file) for files in groups for file in files}
    paths = {file: path for file, path in found.items() if path is not None}
    if known.read is None or not groups or len(paths) < len(found):
        return None
    tables = []
    for files in groups:
        contents = [local.read(file, paths[file], checksums) for file in files]
        tables.append(known.read(*contents, where=f"{' and '.join(files)} in {local.FOLDER}"))
    return stacked(tables)


def _from_cache_or_network(name: str, known: _Known, part: str, download: bool) -> Table:
    if known.fetch is None:
        raise DataUnavailable(_missing(name, known, part, "it cannot be fetched by this library"))
    if part != "all" and part not in known.fetched_parts:
        why = (
            "the table that can be fetched does not mark the official parts, so that only part='all' can be had from it"
        )
        raise DataUnavailable(_missing(name, known, part, why))
    kept = cache.read(name)
    if kept is not None:
        return kept
    if not download:
        raise DataUnavailable(_missing(name, known, part, "the network was not to be used"))
    try:
        table = known.fetch()
    except UnexpectedFile:
        raise  # fetched, with unexpected content
    except downloads.FAILURES as error:
        why = f"it could not be fetched ({type(error).__name__}: {error})"
        raise DataUnavailable(_missing(name, known, part, why)) from error
    if len(table) != known.rows:
        raise UnexpectedFile(
            f"{table.source} gave {len(table):,} rows of {name!r}, which should have {known.rows:,}. {_by_hand(known)}"
        )
    cache.save(table)
    return table


def _missing(name: str, known: _Known, part: str, why: str) -> str:
    absent = [file for files in _needed(known, part) for file in files if local.find(file) is None]
    if not absent:
        return f"{name!r} is not in the cache {str(cache.folder())!r}, and {why}. {_by_hand(known)}"
    return f"{' and '.join(absent)} for {name!r}: not found in {local.FOLDER}={local.folder()!r}, and {why}. {_by_hand(known)}"


def _by_hand(known: _Known) -> str:
    folder = f"Set {local.FOLDER} to the folder the files are in. " if known.files else ""
    return f"{folder}How to get it: {known.how}"


def _scaled_pixels(table: Table) -> Table:
    return replace(table, X=table.X.astype(np.float32) / np.float32(255))


def _openml(number: int, read: Reader) -> Table:
    return read(*downloads.openml(number), where=f"openml.org, data set {number}")


def _kdd() -> Table:
    where = "scikit-learn's fetch_kddcup99(subset='SF', percent10=True)"
    return layouts.kdd_from_scikit_learn(*downloads.kddcup99_sf(), where=where)


def _scikit_learn(name: str, loader: str) -> Table:
    from sklearn import datasets

    found: Any = getattr(datasets, loader)()
    return Table(
        name,
        found.data,
        found.target.astype(np.int64),
        column_names=tuple(str(column) for column in found.feature_names),
        classes=tuple(str(label) for label in found.target_names),
        source=f"scikit-learn's {loader}",
    )


_DP_AGD = "https://github.com/ppmlguy/DP-AGD"
_KNOWN = {
    "adult": _Known(
        "gzip the files a9a and a9a.t of https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html#a9a under the "
        "names above, and pass the checksums that the next error shows: the training file there has one row more than the "
        "known one, and labels -1 and 1. The table of OpenML is another: see 'adult-raw'.",
        rows=48_841,
        files={"train": ("adult-a9a.train.svm.gz",), "test": ("adult-a9a.test.svm.gz",)},
        read=layouts.adult_one_hot,
    ),
    "adult-raw": _Known(
        "the files adult.data and adult.test of https://archive.ics.uci.edu/dataset/2/adult, with a line of column names "
        "in front (in adult.test, instead of its first line), gzipped under the names above; or data set 1590 of "
        "https://www.openml.org/d/1590, by this function.",
        rows=48_842,
        files={"train": ("adult.train.csv.gz",), "test": ("adult.test.csv.gz",)},
        read=layouts.adult_raw,
        fetch=lambda: _openml(1590, layouts.adult_from_openml),
    ),
    "bank": _Known(
        f"gzip the file dataset/BANK.dat of {_DP_AGD} under the name above. The table at "
        "https://www.openml.org/d/1461 has the same calls and is not one-hot; a one-hot of it would not be the papers' "
        "table, and is not passed off as one: see 'bank-raw'.",
        rows=45_211,
        files={"all": ("bank.dat.gz",)},
        read=lambda content, where: layouts.one_hot("bank", content, where, layouts.BANK_CLASSES),
    ),
    "bank-raw": _Known(
        "data set 1461 of https://www.openml.org/d/1461, by this function on a machine with a network; then copy the cache "
        "folder, which PRIVYPURSE_CACHE names.",
        rows=45_211,
        fetch=lambda: _openml(1461, layouts.bank_from_openml),
    ),
    "ipums-br": _Known(
        f"gzip the file dataset/IPUMS-BR.dat of {_DP_AGD} under the name above. The census it was drawn from is at "
        "https://international.ipums.org; it is not on OpenML.",
        rows=38_000,
        files={"all": ("ipums-br.dat.gz",)},
        read=lambda content, where: layouts.one_hot("ipums-br", content, where, ("0", "1")),
    ),
    "kddcup99": _Known(
        "the file kddcup.data_10_percent.gz of https://archive.ics.uci.edu/dataset/130/kdd+cup+1999+data, under the name "
        "above.",
        rows=494_021,
        files={"all": ("kddcup99-10percent.csv.gz",)},
        read=layouts.kdd_one_hot,
    ),
    "kddcup99-sf": _Known(
        "the file kddcup.data_10_percent.gz of https://archive.ics.uci.edu/dataset/130/kdd+cup+1999+data, under the name "
        "above.",
        rows=73_237,
        files={"all": ("kddcup99-10percent.csv.gz",)},
        read=layouts.kdd_sf,
        fetch=_kdd,
    ),
    "mnist": _Known(
        "the four files of http://yann.lecun.com/exdb/mnist/, also at https://storage.googleapis.com/cvdf-datasets/mnist/, "
        "in a folder mnist; or data set 554 of https://www.openml.org/d/554, by this function.",
        rows=70_000,
        files={
            "train": ("mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz"),
            "test": ("mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz"),
        },
        read=layouts.mnist,
        fetch=lambda: _openml(554, layouts.mnist_from_openml),
        fetched_parts={"train": slice(0, 60_000), "test": slice(60_000, 70_000)},
        finish=_scaled_pixels,
    ),
    "iris": _Known("comes with scikit-learn.", 150, bundled=lambda: _scikit_learn("iris", "load_iris")),
    "breast-cancer": _Known(
        "comes with scikit-learn.", 569, bundled=lambda: _scikit_learn("breast-cancer", "load_breast_cancer")
    ),
    "digits": _Known("comes with scikit-learn.", 1_797, bundled=lambda: _scikit_learn("digits", "load_digits")),
}
NAMES = tuple(_KNOWN)
