"""The published tables, where they are at hand: their sizes, and totals that a wrong reading would
change.
"""

import collections
import os
import pathlib

import numpy as np
import pytest

from privypurse_lab.data import NAMES, load
from privypurse_lab.data.loading import _KNOWN

BUNDLED = ("iris", "breast-cancer", "digits")
IN_FILES = tuple(name for name in NAMES if _KNOWN[name].files)
# Rows, columns, and how many rows each class has.
KNOWN = {
    "adult": (48_841, 123, [37_154, 11_687]),
    "adult-raw": (48_842, 14, [37_155, 11_687]),
    "bank": (45_211, 32, [39_922, 5_289]),
    "ipums-br": (38_000, 52, [18_760, 19_240]),
    "kddcup99": (494_021, 118, [97_278, 396_743]),
    "kddcup99-sf": (73_237, 4, [69_939, 3_298]),
    "mnist": (70_000, 784, [6_903, 7_877, 6_990, 7_141, 6_824, 6_313, 6_876, 7_293, 6_825, 6_958]),
    "iris": (150, 4, [50, 50, 50]),
    "breast-cancer": (569, 30, [212, 357]),
    "digits": (1_797, 64, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]),
}


def needs_files(name):
    folder = pathlib.Path(os.environ.get("PRIVYPURSE_DATA", "nowhere"))
    for files in _KNOWN[name].files.values():
        for file in files:
            if not (folder / file).exists():
                pytest.skip(f"{file} is not in PRIVYPURSE_DATA")


@pytest.mark.parametrize("name", KNOWN)
def test_tables_have_their_known_sizes_and_classes(name):
    needs_files(name)
    table = load(name, download=False)
    rows, columns, sizes = KNOWN[name]
    assert len(table) == len(table.y) == rows
    assert len(table.column_names) == len(set(table.column_names)) == columns
    assert np.bincount(table.y).tolist() == sizes
    assert len(table.classes) == len(sizes)
    assert repr(table) == f"<Table {name}: {rows:,} rows, {columns} columns>"
    assert ("scikit-learn" in table.source) == (name in BUNDLED)
    if table.is_mixed:
        assert {values.shape for values in table.X.values()} == {(rows,)}
    else:
        assert table.X.shape == (rows, columns)
    # What was read off the data is named, for the certificate.
    assert bool(table.uncovered) == (name in ("adult", "bank", "ipums-br", "kddcup99"))


def test_every_table_in_a_file_is_tested_here():
    assert set(KNOWN) == {*IN_FILES, *BUNDLED}


@pytest.mark.parametrize("name", ["adult", "bank", "ipums-br", "mnist"])
def test_matrices_lie_between_zero_and_one(name):
    needs_files(name)
    X = load(name, download=False).X
    assert X.min() == 0
    assert X.max() == 1


@pytest.mark.parametrize("name", ["adult", "adult-raw", "mnist"])
def test_all_is_train_then_test(name):
    needs_files(name)
    whole, train, test = (load(name, part, download=False) for part in ("all", "train", "test"))
    assert np.array_equal(whole.y, np.concatenate([train.y, test.y]))
    assert len(train) == {"adult": 32_560, "adult-raw": 32_561, "mnist": 60_000}[name]
    if name == "adult-raw":
        assert whole.X["fnlwgt"][len(train)] == test.X["fnlwgt"][0] == 226_802
    else:
        assert whole.X[:3].sum() == train.X[:3].sum()
        assert whole.X[-3:].sum() == test.X[-3:].sum()


def test_adult_raw_is_stripped_and_its_missing_values_are_none():
    needs_files("adult-raw")
    table = load("adult-raw", download=False)
    assert [name for name, values in table.X.items() if values.dtype == np.int64] == [
        "age",
        "fnlwgt",
        "education-num",
        "capital-gain",
        "capital-loss",
        "hours-per-week",
    ]
    texts = {name: values for name, values in table.X.items() if values.dtype == object}
    for values in texts.values():
        present = [value for value in values if value is not None]
        assert all(value == value.strip() and value != "?" for value in present)
    # UCI's own counts of the question marks, both parts together.
    missing = {name: sum(value is None for value in values) for name, values in texts.items()}
    assert {name: count for name, count in missing.items() if count} == {
        "workclass": 2_799,
        "occupation": 2_809,
        "native-country": 857,
    }
    assert collections.Counter(table.X["sex"]) == {"Male": 32_650, "Female": 16_192}
    assert table.X["age"].min() == 17
    assert table.X["age"].max() == 90
    assert table.classes == ("<=50K", ">50K")


def test_adult_raw_as_csv_reads_back_the_same(tmp_path):
    import pandas as pd

    needs_files("adult-raw")
    table = load("adult-raw", "test", download=False)
    table.to_csv(tmp_path / "adult.csv")
    back = pd.read_csv(tmp_path / "adult.csv")
    assert list(back.columns) == [*table.column_names, "classification"]
    assert back["fnlwgt"].tolist() == table.X["fnlwgt"].tolist()
    assert back["workclass"].isna().sum() == sum(value is None for value in table.X["workclass"])
    assert (back["classification"] == ">50K").tolist() == (table.y == 1).tolist()
    assert table.frame()["native-country"].isna().sum() == back["native-country"].isna().sum()


def test_the_sf_subset_holds_logarithms_and_services():
    needs_files("kddcup99-sf")
    table = load("kddcup99-sf", download=False)
    assert table.column_names == ("duration", "service", "src_bytes", "dst_bytes")
    assert table.X["duration"].min() == np.log(0.1)
    assert np.exp(table.X["src_bytes"][0]) == pytest.approx(181.1)
    assert np.exp(table.X["dst_bytes"][0]) == pytest.approx(5_450.1)
    assert collections.Counter(table.X["service"]).most_common(1)[0][0] == "http"


def test_mnist_pictures_are_the_right_way_round():
    needs_files("mnist")
    test = load("mnist", "test", download=False)
    assert test.X.dtype == np.float32
    # The first test picture is a seven: ink along the top row of the digit, none in the lower left
    # corner.
    picture = test.X[0].reshape(28, 28)
    assert test.classes[test.y[0]] == "7"
    assert picture[7:10, 6:20].mean() > 0.5
    assert picture[18:, :8].max() == 0


def test_digits_of_scikit_learn_need_nothing(monkeypatch):
    monkeypatch.delenv("PRIVYPURSE_DATA", raising=False)
    table = load("digits", download=False)
    assert table.X.max() == 16
    assert table.classes == tuple("0123456789")
