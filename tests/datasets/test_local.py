"""The papers' tables, where they are at hand; and a message that says what is missing where they are not."""

import os
import pathlib

import pytest

from privypurse import InvalidArgument
from privypurse.datasets import NAMES, load

FILES = {"adult": "adult-a9a.train.svm.gz", "bank": "bank.dat.gz", "ipums-br": "ipums-br.dat.gz"}
SHAPES = {"adult": (48_841, 123), "bank": (45_211, 32), "ipums-br": (38_000, 52)}


@pytest.mark.parametrize("name", NAMES)
def test_tables_have_the_shapes_of_the_papers(name):
    file = pathlib.Path(os.environ.get("PRIVYPURSE_DATA", "nowhere")) / FILES[name]
    if not file.exists():
        pytest.skip(f"{FILES[name]} is not in PRIVYPURSE_DATA")
    table = load(name)
    assert table.X.shape == SHAPES[name]
    assert set(table.y.tolist()) == {0, 1}
    assert table.X.min() >= 0
    assert table.X.max() <= 1
    # What was read off the data is named, for the certificate.
    assert bool(table.uncovered) == (name != "adult")
    assert repr(table) == f"<Table {name}: {SHAPES[name][0]:,} rows, {SHAPES[name][1]} columns>"


@pytest.mark.parametrize("folder", ["", "/nowhere"])
def test_a_missing_file_is_named_with_the_remedy(monkeypatch, folder):
    monkeypatch.setenv("PRIVYPURSE_DATA", folder)
    with pytest.raises(FileNotFoundError, match=r"bank\.dat\.gz.*Set PRIVYPURSE_DATA"):
        load("bank")


def test_an_unknown_name_is_refused():
    with pytest.raises(InvalidArgument, match="adult, bank, ipums-br"):
        load("iris")
