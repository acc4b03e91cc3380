"""Local files, the cache and the network: what is read, what is refused, and what is said when
nothing is there.
"""

import gzip
import hashlib
import pathlib
import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import fetch_kddcup99

from privypurse.core._errors import DataUnavailable, InvalidArgument, UnexpectedFile
from privypurse_lab.data import NAMES, cache, downloads, layouts, load, local

HEADER = ", ".join([*layouts.ADULT_COLUMNS, "classification"])
PERSON = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, ?, "
)
BANK = b"58 0 1 2143 0\n44 1 0 29 1\n30 1 1 1500 0\n"


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty data folder, an empty cache, and a network on which every connection is refused."""
    monkeypatch.setenv("PRIVYPURSE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PRIVYPURSE_CACHE", str(tmp_path / "cache"))
    for proxy in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    return tmp_path / "data"


def put(folder, file, content):
    (folder / file).write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
    return hashlib.sha256(content).hexdigest()


def test_a_file_that_is_not_the_known_one_is_refused_and_read_only_on_purpose(folder):
    digest = put(folder, "bank.dat.gz", BANK)
    with pytest.raises(UnexpectedFile, match=rf"bank\.dat\.gz is not the known file.*{digest}"):
        load("bank")
    with pytest.raises(UnexpectedFile, match="should be 0000"):
        load("bank", checksums={"bank.dat.gz": "0000"})
    table = load("bank", checksums={"bank.dat.gz": digest})
    assert table.y.tolist() == [0, 1, 0]
    assert table.X.toarray()[:, 3].tolist() == pytest.approx([1.0, 0.0, (1500 - 29) / (2143 - 29)])
    assert "scaled" in table.uncovered


def test_an_unpacked_file_does_too(folder):
    digest = put(folder, "bank.dat", BANK)
    assert len(load("bank", checksums={"bank.dat.gz": digest})) == 3


@pytest.mark.parametrize("damage", [lambda packed: packed[:-9], lambda packed: b"not a gzip file", lambda packed: b""])
def test_a_file_that_cannot_be_unpacked_is_named(folder, damage):
    (folder / "bank.dat.gz").write_bytes(damage(gzip.compress(BANK)))
    with pytest.raises(UnexpectedFile, match=r"bank\.dat\.gz is (damaged|not the known file)"):
        load("bank")


def test_one_changed_byte_in_a_known_file_is_seen(folder, monkeypatch):
    monkeypatch.setitem(local.CHECKSUMS, "bank.dat.gz", hashlib.sha256(BANK).hexdigest())
    put(folder, "bank.dat.gz", BANK)
    assert len(load("bank")) == 3
    put(folder, "bank.dat.gz", BANK.replace(b"58", b"59"))
    with pytest.raises(UnexpectedFile):
        load("bank")


def test_checksums_for_other_files_are_refused(folder):
    with pytest.raises(InvalidArgument, match=r"bank\.dat\.gz; got 'bank\.csv'"):
        load("bank", checksums={"bank.csv": "0"})
    with pytest.raises(InvalidArgument, match="no local file"):
        load("iris", checksums={"iris.csv": "0"})


def test_raw_adult_is_read_with_blanks_question_marks_and_full_stops(folder):
    train = put(folder, "adult.train.csv.gz", f"{HEADER}\n{PERSON}<=50K\n\n".encode())
    test = put(folder, "adult.test.csv.gz", f"{HEADER}\n{PERSON}>50K.\n".encode())
    table = load("adult-raw", checksums={"adult.train.csv.gz": train, "adult.test.csv.gz": test})
    assert table.y.tolist() == [0, 1]
    assert table.X["workclass"].tolist() == ["State-gov", "State-gov"]
    assert table.X["native-country"].tolist() == [None, None]
    assert table.X["capital-gain"].tolist() == [2174, 2174]
    assert table.source == "adult.train.csv.gz in PRIVYPURSE_DATA, adult.test.csv.gz in PRIVYPURSE_DATA"


@pytest.mark.parametrize(("text", "said"), [(f"{PERSON}<=50K", "begin with"), (f"{HEADER}\n{PERSON}rich", "labels")])
def test_raw_adult_without_its_header_or_with_other_labels_is_refused(folder, text, said):
    digest = put(folder, "adult.train.csv.gz", text.encode())
    with pytest.raises(UnexpectedFile, match=said):
        load("adult-raw", "train", checksums={"adult.train.csv.gz": digest})


def test_one_hot_adult_takes_both_ways_of_writing_labels(folder):
    digest = put(folder, "adult-a9a.test.svm.gz", b"-1 1:1 4:1\n+1 2:1 122:1\n")
    table = load("adult", "test", checksums={"adult-a9a.test.svm.gz": digest})
    assert table.y.tolist() == [0, 1]
    assert table.X.shape == (2, 123)
    assert table.X.toarray()[1].nonzero()[0].tolist() == [1, 121]


def test_pictures_are_read_from_the_idx_layout(folder):
    pixels = np.arange(2 * 784, dtype=np.int64) % 256
    shape = np.array([2, 28, 28], dtype=">u4").tobytes()
    images = put(folder, "mnist/t10k-images-idx3-ubyte.gz", b"\0\0\x08\x03" + shape + pixels.astype(np.uint8).tobytes())
    answers = put(folder, "mnist/t10k-labels-idx1-ubyte.gz", b"\0\0\x08\x01\0\0\0\x02\x07\x02")
    sums = {"mnist/t10k-images-idx3-ubyte.gz": images, "mnist/t10k-labels-idx1-ubyte.gz": answers}
    table = load("mnist", "test", checksums=sums)
    assert table.y.tolist() == [7, 2]
    assert table.X.ravel() == pytest.approx(pixels / 255)
    swapped = {"mnist/t10k-images-idx3-ubyte.gz": put(folder, "mnist/t10k-images-idx3-ubyte.gz", b"\0\0\x08\x01abc")}
    with pytest.raises(UnexpectedFile, match="IDX"):
        load("mnist", "test", checksums=sums | swapped)


def connections(n):
    """Lines in the layout of KDD Cup '99, some logged in."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(n):
        fields = ["0"] * 42
        fields[0], fields[4], fields[5] = (str(number) for number in rng.integers(0, 3, 3) * rng.integers(0, 5_000, 3))
        fields[1], fields[2], fields[3] = "tcp", str(rng.choice(["http", "smtp", "ftp_data"])), "SF"
        fields[11] = str(rng.integers(0, 2))
        fields[41] = str(rng.choice(["normal.", "neptune.", "warezmaster."]))
        lines.append(",".join(fields))
    return lines


def test_the_sf_subset_is_scikit_learns(tmp_path):
    lines = connections(300)
    # scikit-learn keeps what it fetched as two arrays of objects; with those in place its own rule
    # runs without a network.
    fields = np.array([line.split(",") for line in lines], dtype=object)
    numeric = [column for column in range(41) if column not in (1, 2, 3)]
    fields[:, numeric] = fields[:, numeric].astype(int)
    for column in (1, 2, 3, 41):
        fields[:, column] = [value.encode() for value in fields[:, column]]
    home = tmp_path / "kddcup99_10-py3"
    home.mkdir()
    joblib.dump(fields[:, :-1], home / "samples")
    joblib.dump(fields[:, -1], home / "targets")
    theirs = fetch_kddcup99(subset="SF", data_home=str(tmp_path), download_if_missing=False)
    ours = layouts.kdd_sf("\n".join(lines).encode(), "here")
    from_theirs = layouts.kdd_from_scikit_learn(theirs.data, theirs.target, "there")
    assert 100 < len(ours) == len(theirs.target) < 200
    assert np.array_equal(ours.y, theirs.target != b"normal.")
    for position, (name, values) in enumerate(ours.X.items()):
        assert theirs.feature_names[position] == name
        expected = [v.decode() if isinstance(v, bytes) else v for v in theirs.data[:, position]]
        assert values.tolist() == (expected if name == "service" else pytest.approx(expected, rel=1e-15))
        assert from_theirs.X[name].tolist() == expected
    assert np.array_equal(ours.y, from_theirs.y)


def test_a_line_of_another_length_is_refused():
    with pytest.raises(UnexpectedFile, match="42 fields"):
        layouts.kdd_sf(b"0,tcp,http", "here")


def openml_adult(rows):
    """A frame in the layout of OpenML's data set 1590: categories with nothing where a value is
    missing.
    """
    words = PERSON.replace("?", "United-States").strip(", ").split(", ")
    frame = pd.DataFrame([dict(zip(layouts.ADULT_COLUMNS, words, strict=True))] * rows)
    frame[list(layouts.ADULT_NUMBERS)] = frame[list(layouts.ADULT_NUMBERS)].astype("int64")
    frame.loc[frame.index[::2], "workclass"] = None
    for name in set(layouts.ADULT_COLUMNS) - set(layouts.ADULT_NUMBERS):
        frame[name] = frame[name].astype("category")
    answers = pd.Series((["<=50K", "<=50K", ">50K"] * rows)[:rows], dtype="category", name="class")
    return frame, answers


def test_adult_from_openml():
    table = layouts.adult_from_openml(*openml_adult(6), "openml.org")
    assert table.X["workclass"].tolist() == [None, "State-gov"] * 3
    assert table.X["age"].dtype == np.int64
    assert table.y.tolist() == [0, 0, 1, 0, 0, 1]
    assert table.column_names == layouts.ADULT_COLUMNS


def test_bank_from_openml_gets_its_names_back():
    cells = [
        58,
        "management",
        "married",
        "tertiary",
        "no",
        2143,
        "yes",
        "no",
        "unknown",
        5,
        "may",
        261,
        1,
        -1,
        0,
        "unknown",
    ]
    frame = pd.DataFrame([cells] * 2, columns=[f"V{i}" for i in range(1, 17)]).astype(
        {"V1": "float64", "V2": "category"}
    )
    table = layouts.bank_from_openml(frame, pd.Series(["1", "2"], dtype="category"), "openml.org")
    assert {name: values[0] for name, values in table.X.items()} == dict(zip(layouts.BANK_COLUMNS, cells, strict=True))
    assert [table.classes[i] for i in table.y] == ["no", "yes"]
    with pytest.raises(UnexpectedFile, match="columns V3"):
        layouts.bank_from_openml(frame.drop(columns="V3"), pd.Series(["1", "2"]), "openml.org")


def test_mnist_from_openml():
    frame = pd.DataFrame([np.arange(784) % 256, np.zeros(784)], columns=[f"pixel{i}" for i in range(1, 785)])
    table = layouts.mnist_from_openml(frame, pd.Series(["7", "0"], dtype="category"), "openml.org")
    assert table.y.tolist() == [7, 0]
    assert table.X[0].tolist() == [i % 256 for i in range(784)]


@pytest.fixture
def openml(folder, monkeypatch):
    """OpenML as it would answer; the list says what it was asked."""
    asked = []
    monkeypatch.setattr(downloads, "openml", lambda number: asked.append(number) or openml_adult(48_842))
    return asked


def test_what_was_fetched_is_kept_and_read_from_the_cache(openml, tmp_path):
    first, second = load("adult-raw"), load("adult-raw", download=False)
    assert openml == [1590]
    assert first.source == second.source == "openml.org, data set 1590"
    assert (second.name, second.classes, second.target) == (first.name, first.classes, first.target)
    assert np.array_equal(first.y, second.y)
    for name, values in first.X.items():
        assert second.X[name].dtype == values.dtype
        assert second.X[name].tolist() == values.tolist()
    beside = tmp_path / "cache" / "adult-raw.npz.sha256"
    digest = hashlib.sha256((tmp_path / "cache" / "adult-raw.npz").read_bytes()).hexdigest()
    assert beside.read_text() == f"{digest}  adult-raw.npz\n"  # as sha256sum --check reads it
    assert {path.name for path in beside.parent.iterdir()} == {"adult-raw.npz", "adult-raw.npz.sha256"}


def test_a_damaged_cache_is_refused_until_it_is_deleted(openml, tmp_path):
    load("adult-raw")
    file = tmp_path / "cache" / "adult-raw.npz"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(UnexpectedFile, match=r"adult-raw\.npz was changed after it was fetched.*Delete the file"):
        load("adult-raw")
    file.unlink()
    assert len(load("adult-raw")) == 48_842
    (tmp_path / "cache" / "adult-raw.npz.sha256").unlink()
    with pytest.raises(UnexpectedFile, match="not recorded"):
        load("adult-raw")
    assert openml == [1590, 1590]


def test_a_matrix_survives_the_cache(folder):
    frame = pd.DataFrame([np.arange(784) % 256] * 2, columns=[f"pixel{i}" for i in range(1, 785)])
    table = layouts.mnist_from_openml(frame, pd.Series(["7", "0"]), "openml.org")
    cache.save(table)
    back = cache.read("mnist")
    assert back.X.dtype == np.uint8
    assert np.array_equal(back.X, table.X)
    assert back.column_names == table.column_names


def test_a_cache_that_cannot_be_written_is_only_warned_of(openml, tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("PRIVYPURSE_CACHE", str(tmp_path / "a file" / "cache"))
    with pytest.warns(UserWarning, match="Set PRIVYPURSE_CACHE"):
        assert len(load("adult-raw")) == 48_842


def test_a_table_of_another_length_is_refused_and_not_kept(folder, monkeypatch):
    monkeypatch.setattr(downloads, "openml", lambda number: openml_adult(10))
    with pytest.raises(UnexpectedFile, match="gave 10 rows of 'adult-raw', which should have 48,842"):
        load("adult-raw")
    assert cache.read("adult-raw") is None


def test_parts_are_not_guessed_where_the_publisher_does_not_mark_them(openml):
    with pytest.raises(DataUnavailable, match=r"adult\.train\.csv\.gz.*only part='all'"):
        load("adult-raw", "train")
    assert openml == []


def test_the_cache_folder_follows_the_rules(monkeypatch, tmp_path):
    monkeypatch.delenv("PRIVYPURSE_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder() == tmp_path / "xdg" / "privypurse"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.folder() == tmp_path / ".cache" / "privypurse"
    monkeypatch.setenv("PRIVYPURSE_CACHE", str(tmp_path / "mine"))
    assert cache.folder() == pathlib.Path(tmp_path / "mine")


PAGES = {
    "adult": ("adult-a9a.train.svm.gz", "csie.ntu.edu.tw"),
    "adult-raw": ("adult.test.csv.gz", "archive.ics.uci.edu"),
    "bank": ("bank.dat.gz", "DP-AGD"),
    "ipums-br": ("ipums-br.dat.gz", "international.ipums.org"),
    "kddcup99": ("kddcup99-10percent.csv.gz", "archive.ics.uci.edu"),
    "kddcup99-sf": ("kddcup99-10percent.csv.gz", "archive.ics.uci.edu"),
    "mnist": ("mnist/train-images-idx3-ubyte.gz", "openml.org/d/554"),
}


@pytest.mark.parametrize("name", PAGES)
def test_without_file_and_network_the_error_says_how_to_get_it(folder, name):
    """The fetchers themselves run here, against a network that refuses."""
    with pytest.raises(FileNotFoundError) as caught:
        load(name)
    file, page = PAGES[name]
    for words in (file, "Set PRIVYPURSE_DATA", str(folder), page):
        assert words in str(caught.value)
    assert isinstance(caught.value, DataUnavailable)
    assert ("could not be fetched" in str(caught.value)) == (name in ("adult-raw", "kddcup99-sf", "mnist"))
    assert not (folder.parent / "cache").exists()


def test_what_is_only_on_openml_says_so(folder):
    with pytest.raises(DataUnavailable, match=r"bank-raw.*openml\.org/d/1461.*PRIVYPURSE_CACHE"):
        load("bank-raw", download=False)


def test_no_network_is_touched_where_it_is_not_to_be_used(folder, monkeypatch):
    monkeypatch.setattr(downloads, "openml", lambda number: pytest.fail("asked"))
    with pytest.raises(DataUnavailable, match="not to be used"):
        load("mnist", download=False)


def test_an_unknown_name_is_refused():
    with pytest.raises(InvalidArgument, match=r"adult, adult-raw, bank.*got 'cifar'"):
        load("cifar")


@pytest.mark.parametrize(("name", "part"), [("bank", "test"), ("iris", "train"), ("adult", "valid"), ("mnist", None)])
def test_a_part_that_does_not_exist_is_refused(name, part):
    with pytest.raises(InvalidArgument, match=f"part of '{name}' must be one of all.*Pass part='all'"):
        load(name, part)


def test_importing_the_room_loads_nothing_heavy():
    code = "import sys, privypurse.datasets; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pandas", "pyarrow", "sklearn"} & {module.split(".")[0] for module in loaded}
    assert "census" not in NAMES
