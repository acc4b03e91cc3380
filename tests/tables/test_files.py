"""Tables in files: each way of writing one, each way of breaking one, and no message that quotes a
record.
"""

import datetime
import decimal
import gzip

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from privypurse import InvalidArgument
from privypurse.tables._columns import column_of, numbers
from privypurse.tables._files import TableFile
from privypurse.tables._lines import CHUNK_BYTES

SECRET = "SECRETvalue73"


def written(tmp_path, content, name="people.csv"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(file, names=None, **settings):
    names = file.columns if names is None else names
    listed = [block.to_pylist() for block in file.blocks(names, **settings)]
    return [tuple(row[name] for name in names) for block in listed for row in block]


def message_of(work):
    with pytest.raises(InvalidArgument) as refused:
        work()
    told, error = "", refused.value
    while error is not None:  # what a traceback would show
        told += f"{error} {error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert SECRET not in told
    return str(refused.value)


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_every_delimiter_and_end_of_line_is_read(tmp_path, sign, end, packed):
    text = end.join([f"a{sign}b c", f'1{sign}"x{sign}y"', f"2{sign} z "]) + end
    content = gzip.compress(text.encode()) if packed else text
    file = TableFile(written(tmp_path, content))
    assert file.columns == ["a", "b c"]
    assert rows(file) == [("1", f"x{sign}y"), ("2", " z ")]
    assert rows(file, ["b c"]) == [(f"x{sign}y",), (" z ",)]


def test_a_last_line_need_not_be_ended_and_blank_lines_are_no_records(tmp_path):
    assert rows(TableFile(written(tmp_path, "a,b\n1,2\n\n3,4"))) == [("1", "2"), ("3", "4")]
    assert rows(TableFile(written(tmp_path, "a,b\n1,2\n\n3,4\n\n")), strict=True) == [("1", "2"), ("3", "4")]


def test_headers_may_have_blanks_quotes_and_a_mark_before_them(tmp_path):
    for encoding in ("utf-8", "UTF-8", "utf8", "utf-8-sig"):
        file = TableFile(written(tmp_path, '\ufeffage, "the, job" ,x\n1,2,3\n'), encoding=encoding)
        assert file.columns == ["age", "the, job", "x"]
        assert rows(file) == [("1", "2", "3")]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16"])
def test_other_encodings_are_read_on_request(tmp_path, encoding):
    many = "Zoë;é\n" * 50_000
    path = written(tmp_path, ("größe;b\n" + many).encode(encoding))
    file = TableFile(path, encoding=encoding)
    assert file.columns == ["größe", "b"]
    found = rows(file)
    assert len(found) == 50_000
    assert set(found) == {("Zoë", "é")}


def test_files_of_several_blocks_are_read_whole(tmp_path):
    lines = CHUNK_BYTES // 8
    content = "a,b\n" + "".join(f"{index},x{index % 7}\n" for index in range(lines))
    told = []
    file = TableFile(written(tmp_path, content))
    found = rows(file, progress=told.append)
    assert found == [(str(index), f"x{index % 7}") for index in range(lines)]
    assert told[-1] == file.size


def test_lines_with_too_many_or_too_few_fields_are_left_out_one_by_one(tmp_path):
    path = written(tmp_path, f"a,b\n1,2\n{SECRET}\n3,4\n5,6,{SECRET}\n7,8\n")
    assert rows(TableFile(path)) == [("1", "2"), ("3", "4"), ("7", "8")]
    assert "too many or too few" in message_of(lambda: rows(TableFile(path), strict=True))


@pytest.mark.parametrize("odd", ['"%s,2', 'x,"%s', '"%s', 'a"b,"%s', '"%s"",b', "x\r%s,2"])
@pytest.mark.parametrize("quoted_later", [False, True])
def test_one_record_with_an_open_quote_is_left_out_and_swallows_nobody(tmp_path, odd, quoted_later):
    after = '"1","2"\n' if quoted_later else "1,2\n"
    path = written(tmp_path, "a,b\n" + "1,2\n" * 50 + odd % SECRET + "\n" + after * 50)
    assert rows(TableFile(path)) == [("1", "2")] * 100
    assert rows(TableFile(path), ["b"]) == [("2",)] * 100
    assert "data convert" in message_of(lambda: rows(TableFile(path), strict=True))
    assert len(rows(TableFile(written(tmp_path, "a,b\n" + "1,2\n" * 50 + 'x"y,2\n' + after * 50)))) == 101


def test_the_lines_of_a_field_over_several_are_taken_one_by_one(tmp_path):
    path = written(tmp_path, "a,b\n" + "1,2\n" * 50 + f'"{SECRET}\n1,2\n3",4\n' + "1,2\n" * 50)
    assert rows(TableFile(path)) == [*[("1", "2")] * 51, ('3"', "4"), *[("1", "2")] * 50]


def test_an_open_quote_in_a_large_file_swallows_nobody(tmp_path):
    part, lines = "1,2\n" * (CHUNK_BYTES // 3), CHUNK_BYTES // 3
    for later in ("", '"x",3\n'):
        path = written(tmp_path, "a,b\n" + part + f'"{SECRET},2\n' + part + later)
        assert len(rows(TableFile(path))) == 2 * lines + bool(later)


def test_the_header_is_read_by_itself(tmp_path):
    for odd in (b"\xff", b'"'):
        file = TableFile(written(tmp_path, b"a,b\n1,2\n" + odd + b"3,4\n5,6\n"))
        assert rows(file)[0] == ("1", "2")
        assert rows(file)[-1] == ("5", "6")
    wide = TableFile(written(tmp_path, "a,b\n1,2\n".encode("utf-16") + b"\x00\xd8"), encoding="utf-16")
    assert rows(wide)[0] == ("1", "2")
    assert "open quotation mark" in message_of(lambda: TableFile(written(tmp_path, 'a,"b\n1,2\n')))
    assert "header" in message_of(
        lambda: TableFile(written(tmp_path, ",".join(f"c{i}" for i in range(99_999)) + "\n1\n"))
    )
    assert "ASCII" in message_of(lambda: TableFile(written(tmp_path, "a§b\n1§2\n"), delimiter="§"))


def test_old_line_ends_are_refused(tmp_path):
    assert "carriage returns" in message_of(lambda: TableFile(written(tmp_path, f"a,b\r1,2\r{SECRET},3\r")))


@pytest.mark.parametrize("encoding", ["utf-7", "hz", "iso2022_jp", "raw_unicode_escape", "idna", "gb18030"])
def test_encodings_whose_lines_depend_on_each_other_are_refused(tmp_path, encoding):
    path = written(tmp_path, "a,b\n1,2\n")
    assert "line by line" in message_of(lambda: TableFile(path, encoding=encoding))


BROKEN = {
    "empty": (b"", "is empty"),
    "header only": (b"a,b\n", "no rows"),
    "header without an end": (b"a,b", "no rows"),
    "blank header": (b"\n" + SECRET.encode() + b",2\n", "no header"),
    "only ragged lines": (b"a,b\n" + SECRET.encode() + b"\n", "no line with 2 fields"),
    "columns twice": (b"a,b,a\n1,2," + SECRET.encode() + b"\n", "several columns named 'a'"),
    "not in UTF-8": (b"a,b\n1,2\n" + (b"\xe9" + SECRET.encode() + b",2\n") * 20, "--encoding latin-1"),
    "binary": (bytes(range(256)) * 40 + SECRET.encode(), "people.csv"),
    "one endless line": (b"x" * 200_000 + SECRET.encode() + b"\n", "header"),
    "cut off gz": (gzip.compress(np.random.default_rng(0).bytes(9_999).hex().encode() + b"\n")[:5_000], "people.csv"),
    "damaged gz": (gzip.compress(b"a,b\n" + b"1,2\n" * 999)[:14] + b"\xff" * 40, "cannot be read"),
    "gz of nothing": (b"\x1f\x8b", "cannot be read"),
    "cut off Parquet": (b"PAR1" + SECRET.encode() * 9, "not a complete Parquet file"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused_without_quoting_them(tmp_path, case):
    content, word = BROKEN[case]
    path = written(tmp_path, content)
    assert word in message_of(lambda: rows(TableFile(path)))


def test_a_gz_file_cut_off_in_the_middle_is_refused_at_its_end(tmp_path):
    lines = "".join(f"{index},{SECRET}{index * 7919}\n" for index in range(300_000))
    path = written(tmp_path, gzip.compress(f"a,b\n{lines}".encode())[:-5_000])
    assert "truncated" in message_of(lambda: rows(TableFile(path)))


def test_a_byte_that_is_no_text_costs_its_own_line_at_most(tmp_path):
    path = written(tmp_path, b"a,b\n" + b"1,2\n" * 99_999 + b"\xe9x,2\n" + b"3,4\n")
    found = rows(TableFile(path))
    assert found[:99_999] == [("1", "2")] * 99_999
    assert found[99_999:] == [("\ufffdx", "2"), ("3", "4")]
    many = written(tmp_path, b"a,b\n" + (b"\xe9" + SECRET.encode() + b",2\n1,2\n") * 999)
    message = message_of(lambda: rows(TableFile(many)))
    assert "--encoding latin-1" in message
    assert "0x" not in message


def test_places_that_are_no_files_are_refused(tmp_path):
    assert "a folder" in message_of(lambda: TableFile(tmp_path))
    assert "no such file" in message_of(lambda: TableFile(tmp_path / "nowhere.csv"))
    path = written(tmp_path, "a,b\n1,2\n")
    assert "delimiter" in message_of(lambda: TableFile(path, delimiter=";;"))
    assert "delimiter" in message_of(lambda: TableFile(path, delimiter='"'))
    assert "latin-99" in message_of(lambda: TableFile(path, encoding="latin-99"))


def test_a_column_that_is_not_there_gets_a_guess(tmp_path):
    file = TableFile(written(tmp_path, f"income,b\n{SECRET},2\n"))
    assert "Did you mean 'income'?" in message_of(lambda: file.require(["incme"]))
    assert "first line is a header" in message_of(lambda: rows(file, ["zzz"]))


def test_a_wrong_delimiter_is_guessed(tmp_path):
    file = TableFile(written(tmp_path, f"income;b\n{SECRET};2\n"), delimiter=",")
    assert "separated by a semicolon" in message_of(lambda: file.require(["b"]))


@pytest.mark.parametrize("number", ["42", "nan", " NaN"])
def test_a_record_in_place_of_the_header_is_not_quoted(tmp_path, number):
    file = TableFile(written(tmp_path, f"{SECRET},{number},x\nbob,43,y\n"))
    assert "does not look like a header" in message_of(lambda: file.require(["income"]))
    assert "does not look like a header" in message_of(lambda: file.require(["SECRETvalue"]))
    twice = written(tmp_path, f"{SECRET},{SECRET},{number}\n")
    assert "header" in message_of(lambda: TableFile(twice))


def a_parquet_table():
    return pa.table(
        {
            "d": pa.array(["x", None, "y", "x"]).dictionary_encode(),
            "b": pa.array([True, None, False, True]),
            "i": pa.array([1, None, -3, 2**62]),
            "f": pa.array([0.5, None, float("inf"), float("nan")]),
            "m": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-2.50"), decimal.Decimal(0)]),
            "t": pa.array([datetime.date(2020, 1, 2), None, None, None]),
            "s": pa.array([" +1e2 ", None, SECRET, "?"]),
            "z": pa.nulls(4),
        }
    )


def test_parquet_types_become_numbers_or_nothing(tmp_path):
    parquet.write_table(a_parquet_table(), tmp_path / "a.parquet")
    file = TableFile(tmp_path / "a.parquet")
    assert file.format == "Parquet"
    (block,) = file.blocks(["s", "b", "i", "f", "m", "t", "z", "d"])
    found = {name: numbers(column_of(block, name), ["?"]) for name in block.column_names}
    nan = np.nan
    np.testing.assert_array_equal(found["b"], [1, nan, 0, 1])
    np.testing.assert_array_equal(found["i"], [1, nan, -3, 2.0**62])
    np.testing.assert_array_equal(found["f"], [0.5, nan, np.inf, nan])
    np.testing.assert_array_equal(found["m"], [1.25, nan, -2.5, 0])
    np.testing.assert_array_equal(found["s"], [100, nan, nan, nan])
    for name in "tzd":
        assert np.isnan(found[name]).all()


def test_parquet_files_are_read_in_blocks_with_progress(tmp_path):
    parquet.write_table(pa.table({"a": np.arange(200_000), "b": ["x"] * 200_000}), tmp_path / "a.parquet")
    file, told = TableFile(tmp_path / "a.parquet"), []
    blocks = list(file.blocks(["a"], progress=told.append))
    assert len(blocks) > 1
    assert np.concatenate([block["a"].to_numpy() for block in blocks]).tolist() == list(range(200_000))
    assert told[-1] == file.size


def test_an_empty_parquet_file_is_refused(tmp_path):
    parquet.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    assert "no rows" in message_of(lambda: rows(TableFile(tmp_path / "a.parquet")))


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_parquet_file_is_read_or_refused_and_never_quoted(tmp_path, seed):
    parquet.write_table(a_parquet_table(), tmp_path / "whole.parquet", compression="none")
    content = bytearray((tmp_path / "whole.parquet").read_bytes())
    rng = np.random.default_rng(seed)
    for place in rng.integers(4, len(content), 12):
        content[place] = rng.integers(256)
    cut = len(content) if seed % 3 else int(rng.integers(5, len(content)))
    path = written(tmp_path, bytes(content[:cut]), "damaged.parquet")
    message = ""
    try:
        rows(TableFile(path))
    except InvalidArgument as error:
        message = str(error)
    assert SECRET not in message


def test_a_byte_order_mark_within_a_file_belongs_to_its_record(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"\xef\xbb\xbf1,2\n" * 40)
    monkeypatch.setattr("privypurse.tables._lines.CHUNK_BYTES", 16)  # blocks begin at many records
    cells = [cell for block in TableFile(path).blocks(["a"]) for cell in block["a"].to_pylist()]
    assert cells == ["\ufeff1"] * 40
