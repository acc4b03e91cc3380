"""Files that are neither CSV nor Parquet: read record by record, or refused by name with the command
that converts them. No message quotes a record.
"""

import datetime
import gzip
import io
import itertools
import json
import shlex
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet
from tests.tables.test_dates import FIRST, LAST
from tests.tables.test_files import SECRET, a_parquet_table, message_of, written

from privypurse import InvalidArgument, Neighbouring, Norm
from privypurse.runs._progress import Silent
from privypurse.runs._rows import read_rows
from privypurse.tables import _files
from privypurse.tables._draft import draft_schema
from privypurse.tables._files import TableFile
from privypurse.tables._lines import LONGEST_LINE, NO_OBJECT, TOO_LONG
from privypurse.tables._schema import Category, ClassTarget, Date, Number, Schema

SCHEMA = Schema(
    (
        Number(name="age", range=(0, 100), missing=True, decimal=","),
        Category(name="job", categories=("law", "1", "true"), other=True, missing=True),
        Date(name="day", first=FIRST, last=LAST, parts=("position", "month"), missing=True),
    ),
    ClassTarget(name="y", classes=("no", "yes")),
)
GOOD = '{"age": 50, "job": "law", "day": "2020-02-03", "y": "yes"}'


def zipped(content, name="people.csv", **members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in {name: content, **members}.items():
            archive.writestr(member, text)
    return packed.getvalue()


def encoded(path):
    rows, _ = read_rows(TableFile(path), SCHEMA, Silent())
    return np.column_stack([rows.X, rows.y])


@pytest.mark.parametrize("packed", ["", ".gz", ".zip"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_json_lines_are_read_with_each_value_in_its_own_type(tmp_path, packed, end):
    lines = [
        '{"age": 25.0, "job": "law", "day": "2020-01-01", "y": "no", "more": [1, {"a": 2}]}',
        '{"y": "yes", "age": "25,0", "job": 1, "day": null}',
        "",
        '{"y": "yes", "job": 1.0, "age": NaN}',
        '{"y": "yes", "job": true, "age": 1e999}',
        '{"y": "yes", "job": {"a": 1}, "age": [2]}',
        '{"y": "?", "age": 1}',
    ]
    content = end.join(lines).encode()
    content = {"": content, ".gz": gzip.compress(content), ".zip": zipped(content, "people.ndjson")}[packed]
    path = written(tmp_path, content, f"people.jsonl{packed}")
    rows = encoded(path)[:, :6]
    # age, age missing, three jobs and others
    assert rows.tolist() == [
        [0.25, 0, 1, 0, 0, 0], [0.25, 0, 0, 1, 0, 0], [0.5, 1, 0, 1, 0, 0], [1, 0, 0, 0, 1, 0], [0.5, 1, 0, 0, 0, 1]
    ]  # fmt: skip
    file = TableFile(path)
    assert sum(block.num_rows for block in file.blocks(["age"])) == file.tally.read == 6
    assert (file.tally.blank, file.tally.left_out.total()) == (1, 0)


bad = st.one_of(
    st.sampled_from(
        ["", "\r", "{", "}", "[]", "null", '{"age": 1', '{"age": 1}}', '{"age": 1} {"age": 2}', '{"y": "\\ud800"}', "\ufeff{}",
         '{"y": "yes", "age": "\u2028"}', '{"age": ' + "9" * 5_000 + "}", "[" * 50_000, '{"a":' * 50_000,
         '{"age": 1, "age": "x", "y": "no"}', '"' + "x" * LONGEST_LINE + '"', '{"y": "no"} #', "{'y': 'no'}", "\x00", "\x0b\x0c"]
    ).map(str.encode),
    st.just(b'{"y": "\xff\xfe"}'),
    st.text(max_size=9).map(lambda text: text.replace("\n", " ").encode()),
    st.dictionaries(
        st.sampled_from(["age", "job", "day", "y"]),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.sampled_from(["yes", "no"])),
    ).map(lambda record: json.dumps(record).encode()),
)  # fmt: skip


@given(st.lists(bad, max_size=4), st.integers(0, 40), bad)
@settings(max_examples=60, deadline=None)
def test_any_line_inserted_anywhere_moves_each_answer_by_its_bound_at_most(tmp_path_factory, lines, place, line):
    """Rows and counts with the line are those without it and at most one row, or one count, more."""
    folder = tmp_path_factory.getbasetemp()
    many = [GOOD.encode()] * 40  # that the file is not doubted
    without = [*many[:20], *lines, *many[20:]]
    rows, boxes = [], []
    for listed in (without, [*without[:place], line, *without[place:]]):
        file = TableFile(written(folder, b"\n".join(listed) + b"\n", "a.jsonl"))
        train, _ = read_rows(file, SCHEMA, Silent())
        rows.append([row.tobytes() for row in np.column_stack([train.X, train.y])])
        boxes.append(file.tally.box(unused=train.left_out))
    before, after = rows
    more = len(after) - len(before)
    assert more in (0, 1)
    kept = [[*after[:at], *after[at + more :]] for at in range(len(after))] if more else [after]
    assert before in kept
    moved = np.linalg.norm(boxes[1]._value - boxes[0]._value)
    assert moved <= boxes[0].bound(Neighbouring.ADD_REMOVE, Norm.L2)


def test_lines_without_an_object_are_counted_by_cause(tmp_path):
    lines = [GOOD] * 12 + ["[1]", "{", '{"a": "' + "x" * LONGEST_LINE + '"}', GOOD]
    path = written(tmp_path, "\n".join(lines), "a.jsonl")
    file = TableFile(path)
    assert sum(block.num_rows for block in file.blocks(["age"])) == 13
    assert dict(file.tally.left_out) == {NO_OBJECT: 2, TOO_LONG: 1}
    message = message_of(lambda: list(TableFile(path).blocks(["age"], strict=True)))
    assert "one object on one line" in message
    assert "convert" not in message


def test_no_message_about_json_lines_quotes_a_record(tmp_path):
    record = f'{{"name": "{SECRET}", "{SECRET}": 3}}\n'
    path = written(tmp_path, record * 20, "people.jsonl")
    assert "none of the first records of 'people.jsonl' has 'age'" in message_of(lambda: encoded(path))
    assert "no record of 'people.jsonl' has 'y'" in message_of(lambda: draft_schema(TableFile(path), "y"))
    other = written(tmp_path, record * 20, "people.csv")
    assert "ends with .jsonl" in message_of(lambda: TableFile(other))
    spoilt = written(tmp_path, f'"name": "{SECRET}", "y": 3}}\n' + record * 20, "people.csv")
    assert "does not look like a header" in message_of(lambda: TableFile(spoilt).require(["y"]))
    broken = written(tmp_path, f"{SECRET}\n" * 20, "broken.jsonl")
    assert "no line with a JSON object" in message_of(lambda: encoded(broken))


def test_a_few_records_may_lack_a_key(tmp_path):
    path = written(tmp_path, '{"y": "yes"}\n{"y": "no"}\n', "few.jsonl")
    assert encoded(path).shape[0] == 2


def test_a_json_document_is_refused_with_a_command_that_works(tmp_path):
    records = [{"age": age, "job": SECRET, "y": "yes"} for age in (3, 4)]
    path = written(tmp_path, json.dumps(records), "my people.json")
    message = message_of(lambda: TableFile(path))
    assert "one JSON document" in message
    command = message.split("`")[1].replace("python -c", f"{shlex.quote(sys.executable)} -c", 1)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert draft_schema(TableFile(tmp_path / "my people.jsonl"), None)[0].names == ["age"]
    indented = written(tmp_path, json.dumps(records, indent=1), "my people.json")
    assert "one JSON document" in message_of(lambda: TableFile(indented))


def test_a_draft_of_json_lines_finds_the_keys_of_all_records(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "BLOCK_ROWS", 50)  # a key may be in later blocks only
    records = [
        {"age": index % 70, "paid": f"{index},5"} | ({"job": "ab"[index % 2]} if index > 90 else {})
        for index in range(200)
    ]
    path = written(tmp_path, "\n".join(map(json.dumps, records)), "a.jsonl")
    schema, remarks = draft_schema(TableFile(path), "job")
    assert [(column.name, getattr(column, "decimal", None)) for column in schema.columns] == [
        ("age", None),
        ("paid", ","),
    ]
    assert schema.target.classes == ("a", "b")
    assert set(remarks) == {"age", "paid", "job"}


def test_a_csv_file_in_a_zip_file_is_read_like_the_file(tmp_path):
    text = "a,b\n1,2\n3,4\n"
    path = written(tmp_path, zipped(text, **{"__MACOSX/._people.csv": "x"}), "people.zip")
    file = TableFile(path)
    (block,) = file.blocks(["b"])
    assert block["b"].to_pylist() == ["2", "4"]


REFUSED = {
    "Excel": (zipped(SECRET, "xl/workbook.xml"), "people.xlsx", "(after pip install openpyxl): `python -c"),
    "Excel named otherwise": (zipped(SECRET, "xl/workbook.xml"), "people.csv", "is a spreadsheet"),
    "binary Excel": (zipped(SECRET, "xl/workbook.bin"), "people.xlsb", "soffice --headless --convert-to csv people.xlsb"),
    "OpenDocument": (zipped(SECRET, "content.xml"), "people.ods", "soffice --headless --convert-to csv people.ods"),
    "old Excel": (bytes.fromhex("d0cf11e0a1b11ae1") + SECRET.encode(), "my people.xls", "--convert-to csv 'my people.xls'"),
    "several in a zip": (zipped(SECRET, "a.csv", **{f"{SECRET}.csv": "b"}), "people.zip", "`unzip people.zip`"),
    "nothing in a zip": (b"PK\x05\x06" + bytes(18), "people.zip", "`unzip people.zip`"),
    "Parquet in a zip": (zipped(b"PAR1" + SECRET.encode(), "a.parquet"), "people.zip", "`unzip people.zip`"),
    "a damaged zip": (zipped(SECRET * 99)[:-30], "people.zip", "not a complete zip file"),
    "a damaged Feather": (b"ARROW1\x00\x00" + SECRET.encode() * 9, "people.feather", "not a complete Feather file"),
    "binary": (bytes(range(256)) * 9 + SECRET.encode(), "people.dat", "binary file"),
    "compressed otherwise": (b"\xfd7zXZ\x00\x00" + SECRET.encode(), "people.csv.xz", "binary file"),
    "UTF-16": (f"a,b\n{SECRET},2\n".encode("utf-16"), "people.csv", "--encoding utf-16"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_other_files_are_refused_by_name_with_a_remedy(tmp_path, case):
    content, name, remedy = REFUSED[case]
    message = message_of(lambda: list(TableFile(written(tmp_path, content, name)).blocks([])))
    assert remedy in message
    assert name in message
    assert "latin-1" not in message


@pytest.mark.parametrize("name", ["it's my people.xlsx", "people.csv"])
def test_the_command_that_converts_a_workbook_works(tmp_path, name):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    rows = [["zip", "age", "day", "note"], ["01234", 3, datetime.date(2020, 1, 2), 'a, "b"'], ["00005", 4.5, None, "ü"]]
    for row in rows:
        book.active.append(row)
    book.create_sheet("other").append([SECRET])
    book.save(tmp_path / "book.xlsx")
    path = (tmp_path / "book.xlsx").rename(tmp_path / name)
    command = message_of(lambda: TableFile(path)).split("`")[1]
    command = command.replace("python -c", f"{shlex.quote(sys.executable)} -c", 1)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True).returncode == 1  # it replaces no file
    file = TableFile(tmp_path / (name.removesuffix(".xlsx") + ".csv"))
    assert file.columns == rows[0]
    (block,) = file.blocks(file.columns)
    assert [list(row.values()) for row in block.to_pylist()] == [
        ["01234", "3", "2020-01-02 00:00:00", 'a, "b"'],
        ["00005", "4.5", "", "ü"],
    ]


def test_a_text_header_before_binary_records_is_not_taken_for_latin_1(tmp_path):
    path = written(tmp_path, b"a,b\n" + bytes(range(11, 256)) * 3 + b"\n" + b"\x80\x01,2\n" * 40)
    assert "binary file" in message_of(lambda: list(TableFile(path).blocks(["a"])))


def test_a_zip_with_a_password_is_refused(tmp_path):
    content = bytearray(zipped("a,b\n1,2\n"))
    for start in (content.index(b"PK\x03\x04") + 6, content.index(b"PK\x01\x02") + 8):
        content[start] |= 1
    assert "password" in message_of(lambda: TableFile(written(tmp_path, bytes(content), "a.zip")))


def test_a_zip_whose_contents_were_changed_is_refused_at_its_end(tmp_path):
    content = zipped("a,b\n" + "".join(f"{index},{SECRET}\n" for index in range(90_000)))
    middle = len(content) // 2
    path = written(tmp_path, content[:middle] + b"\xff" * 20 + content[middle + 20 :], "a.zip")
    assert "a.zip" in message_of(lambda: list(TableFile(path).blocks(["a"])))


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_a_feather_file_is_read_like_a_parquet_file(tmp_path, compression, monkeypatch):
    monkeypatch.setattr(_files, "BLOCK_ROWS", 3)
    table = a_parquet_table()
    feather.write_feather(table, str(tmp_path / "a.feather"), compression=compression, chunksize=4)
    parquet.write_table(table, tmp_path / "a.parquet")
    names, told = ["s", "b", "t"], []
    found = [
        [row for block in TableFile(path).blocks(names, progress=told.append) for row in block.to_pylist()]
        for path in (tmp_path / "a.feather", tmp_path / "a.parquet")
    ]
    assert repr(found[0]) == repr(found[1])
    assert len(found[0]) == 4
    assert told[-1] == TableFile(tmp_path / "a.parquet").size
    assert TableFile(tmp_path / "a.feather").columns == table.column_names


def test_text_that_is_not_utf8_is_no_reason_to_refuse_a_feather_file(tmp_path):
    column = pa.array([b"a", b"\xff", None, b"b"]).view(pa.string())
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), pa.schema([("s", pa.string())])) as sink:
        sink.write(pa.record_batch([column], names=["s"]))
    (block,) = TableFile(tmp_path / "a.arrow").blocks(["s"])
    assert block.num_rows == 4


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_feather_file_is_read_or_refused_and_never_quoted(tmp_path, seed):
    feather.write_feather(
        a_parquet_table().drop_columns("d"), str(tmp_path / "whole.feather"), compression="uncompressed"
    )
    content, rng = bytearray((tmp_path / "whole.feather").read_bytes()), np.random.default_rng(seed)
    for place in rng.integers(8, len(content), 12):
        content[place] = rng.integers(256)
    cut = len(content) if seed % 3 else int(rng.integers(9, len(content)))
    path, message = written(tmp_path, bytes(content[:cut]), "damaged.feather"), ""
    try:
        file = TableFile(path)
        list(itertools.chain(*(block.to_pylist() for block in file.blocks(file.columns[:5]))))
    except InvalidArgument as error:
        message = str(error)
    except (OverflowError, ValueError):  # of a value, by `to_pylist`
        pass
    assert SECRET not in message


def test_no_value_is_a_reason_to_refuse_a_feather_file(tmp_path):
    table = pa.table(
        {
            "day": pa.array([1, 86_400_000], pa.int64()).view(pa.date64()),  # the first is no whole day
            "kind": pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([b"a", b"\xff"]).view(pa.string())),
        }
    )
    feather.write_feather(table, str(tmp_path / "a.feather"))
    (block,) = TableFile(tmp_path / "a.feather").blocks(["day", "kind"])
    assert block.num_rows == 2
