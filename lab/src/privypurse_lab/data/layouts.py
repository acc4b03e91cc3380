"""Parsers of the published layouts of data sets; they open no files or connections."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privypurse.core._errors import UnexpectedFile
from privypurse_lab.data.table import Table, labels, texts

ADULT_CLASSES = ("<=50K", ">50K")
ADULT_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
ADULT_COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
)
BANK_CLASSES = ("no", "yes")
BANK_NUMBERS = ("age", "balance", "day", "duration", "campaign", "pdays", "previous")
BANK_COLUMNS = (
    "age",
    "job",
    "marital",
    "education",
    "default",
    "balance",
    "housing",
    "loan",
    "contact",
    "day",
    "month",
    "duration",
    "campaign",
    "pdays",
    "previous",
    "poutcome",
)
KDD_CLASSES = ("normal", "attack")
KDD_COLUMNS = ("duration", "service", "src_bytes", "dst_bytes")
_KDD_FIELDS = 42
_KDD_TEXTS = {1: "protocol", 2: "service", 3: "flag"}
_SCALED_BY_THE_DATA = "columns were scaled to [0, 1] by the smallest and largest value in the data"
DIGITS = tuple("0123456789")
PIXELS = tuple(f"pixel_{i + 1}" for i in range(28 * 28))


def adult_one_hot(content: bytes, where: str) -> Table:
    """Read Adult in LIBSVM's a9a form; labels may be 0/1 or -1/+1."""
    from sklearn.datasets import load_svmlight_file

    # The test part never has the last column, so the number of columns is fixed.
    X, y = load_svmlight_file(io.BytesIO(content), n_features=123, zero_based=False)
    note = "columns of numbers were cut at quantiles of the data, by those who made the table"
    return Table("adult", X, (y > 0).astype(np.int64), note, classes=ADULT_CLASSES, source=where, target="income")


def adult_raw(content: bytes, where: str) -> Table:
    """Read Adult as comma-separated text with a header; the label is called classification."""
    header, *rows = csv.reader(io.StringIO(content.decode()), skipinitialspace=True)
    if [name.strip() for name in header] != [*ADULT_COLUMNS, "classification"]:
        raise UnexpectedFile(
            f"{where} should begin with the line {', '.join(ADULT_COLUMNS)}, classification. Add that line."
        )
    *columns, answers = zip(*(row for row in rows if row), strict=True)
    X = _mixed(dict(zip(ADULT_COLUMNS, columns, strict=True)), ADULT_NUMBERS)
    # In the original test file, a full stop follows the label.
    y = labels([answer.strip().rstrip(".") for answer in answers], ADULT_CLASSES, where)
    return Table("adult-raw", X, y, classes=ADULT_CLASSES, source=where, target="classification")


def adult_from_openml(frame: Any, target: Any, where: str) -> Table:
    """Read Adult from OpenML (data set 1590): the same columns, missing values empty."""
    _check_columns(frame, ADULT_COLUMNS, where)
    X = _mixed({name: _cells(frame[name]) for name in ADULT_COLUMNS}, ADULT_NUMBERS)
    y = labels([answer.strip().rstrip(".") for answer in _cells(target)], ADULT_CLASSES, where)
    return Table("adult-raw", X, y, classes=ADULT_CLASSES, source=where, target="classification")


def bank_from_openml(frame: Any, target: Any, where: str) -> Table:
    """Read Bank marketing from OpenML (data set 1461): V1 to V16 in order, Class 1 or 2."""
    _check_columns(frame, [f"V{i + 1}" for i in range(len(BANK_COLUMNS))], where)
    numbered = {name: _cells(frame[f"V{i + 1}"]) for i, name in enumerate(BANK_COLUMNS)}
    y = labels(_cells(target), ("1", "2"), where)
    return Table("bank-raw", _mixed(numbered, BANK_NUMBERS), y, classes=BANK_CLASSES, source=where, target="subscribed")


def one_hot(name: str, content: bytes, where: str, classes: tuple[str, ...]) -> Table:
    """Read numbers between blanks, the label last, and scale columns to [0, 1] by their ranges."""
    numbers = np.loadtxt(io.StringIO(content.decode()))
    scaled, y = sparse.csr_matrix(_to_unit_range(numbers[:, :-1])), numbers[:, -1]
    return Table(name, scaled, y.astype(np.int64), _SCALED_BY_THE_DATA, classes=classes, source=where)


def _to_unit_range(X: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = X.min(axis=0), X.max(axis=0)
    return np.asarray((X - low) / np.where(high > low, high - low, 1.0))


def kdd_one_hot(content: bytes, where: str) -> Table:
    """Read KDD Cup '99: numbers scaled to [0, 1], texts one-hot, attack or not."""
    lines = content.decode("ascii").splitlines()
    if any(line.count(",") != _KDD_FIELDS - 1 for line in lines):
        raise UnexpectedFile(f"{where} should have {_KDD_FIELDS} fields in every line. Get the file again.")
    places = [place for place in range(_KDD_FIELDS - 1) if place not in _KDD_TEXTS]
    numbers = np.loadtxt(lines, delimiter=",", usecols=places)
    parts, names = [sparse.csr_matrix(_to_unit_range(numbers))], [f"number_{place + 1}" for place in places]
    for place, name in _KDD_TEXTS.items():
        kinds, found = np.unique([line.split(",", place + 1)[place] for line in lines], return_inverse=True)
        ones = (np.ones(len(found)), (np.arange(len(found)), found))
        parts.append(sparse.csr_matrix(ones, shape=(len(found), len(kinds))))
        names += [f"{name}_{kind}" for kind in kinds]
    y = np.array([not line.endswith(",normal.") for line in lines], dtype=np.int64)
    return Table(
        "kddcup99",
        sparse.hstack(parts).tocsr(),
        y,
        f"{_SCALED_BY_THE_DATA}; the kinds of protocol, service and flag were read from the data",
        column_names=tuple(names),
        classes=KDD_CLASSES,
        source=where,
        target="label",
    )


def kdd_sf(content: bytes, where: str) -> Table:
    """Read KDD Cup '99 and keep scikit-learn's SF subset: logged-in connections, four columns.

    As in ``sklearn.datasets.fetch_kddcup99(subset="SF")``, numbers are replaced by log(value +
    0.1).
    """
    duration, service, sent, received, names = [], [], [], [], []
    for line in content.decode("ascii").splitlines():
        fields = line.split(",")
        if len(fields) != _KDD_FIELDS:
            raise UnexpectedFile(f"{where} should have {_KDD_FIELDS} fields in every line. Get the file again.")
        if fields[11] == "1":  # logged_in
            duration.append(int(fields[0]))
            service.append(fields[2])
            sent.append(int(fields[4]))
            received.append(int(fields[5]))
            names.append(fields[41])
    numbers = [np.log(np.array(values) + 0.1) for values in (duration, sent, received)]
    return _kdd(numbers, service, names, where)


def kdd_from_scikit_learn(data: Any, target: Any, where: str) -> Table:
    """Read the result of ``fetch_kddcup99(subset="SF")``: four object columns."""
    numbers = [np.array(data[:, column], dtype=np.float64) for column in (0, 2, 3)]
    return _kdd(numbers, [value.decode() for value in data[:, 1]], [value.decode() for value in target], where)


def mnist(images: bytes, answers: bytes, where: str) -> Table:
    """Read MNIST in the IDX layout; pixels stay integers from 0 to 255."""
    X = _idx(images, 3, where).reshape(-1, len(PIXELS))
    y = _idx(answers, 1, where).astype(np.int64)
    return Table("mnist", X, y, column_names=PIXELS, classes=DIGITS, source=where, target="digit")


def mnist_from_openml(frame: Any, target: Any, where: str) -> Table:
    """Read MNIST from OpenML (mnist_784, data set 554): pixel1 to pixel784, and the digit."""
    names = [f"pixel{i + 1}" for i in range(len(PIXELS))]
    _check_columns(frame, names, where)
    X = frame[names].to_numpy().astype(np.uint8)
    y = labels(_cells(target), DIGITS, where)
    return Table("mnist", X, y, column_names=PIXELS, classes=DIGITS, source=where, target="digit")


def _kdd(numbers: Sequence[Any], service: Sequence[str], names: Sequence[str], where: str) -> Table:
    duration, sent, received = numbers
    X = dict(zip(KDD_COLUMNS, (duration, texts(service), sent, received), strict=True))
    y = np.array([name != "normal." for name in names], dtype=np.int64)
    return Table("kddcup99-sf", X, y, classes=KDD_CLASSES, source=where, target="label")


def _mixed(columns: Mapping[str, Sequence[str]], numbers: Sequence[str]) -> dict[str, NDArray[Any]]:
    return {
        name: np.array([int(float(value)) for value in values], dtype=np.int64) if name in numbers else texts(values)
        for name, values in columns.items()
    }


def _check_columns(frame: Any, names: Sequence[str], where: str) -> None:
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise UnexpectedFile(
            f"{where} should have the columns {', '.join(missing)}. The publisher has changed the layout."
        )


def _cells(series: Any) -> list[str]:
    """Return a pandas series as text, with "?" for missing values."""
    return ["?" if empty else str(value) for value, empty in zip(series, series.isna(), strict=True)]


def _idx(content: bytes, axes: int, where: str) -> NDArray[np.uint8]:
    # Two zero bytes, 8 for unsigned bytes, the number of axes, then the length of each axis.
    if content[:4] != bytes((0, 0, 8, axes)):
        raise UnexpectedFile(f"{where} is not in the IDX layout with {axes} axes. Get the file again.")
    start = 4 + 4 * axes
    return np.frombuffer(content, np.uint8, offset=start).reshape(np.frombuffer(content[4:start], ">u4"))
