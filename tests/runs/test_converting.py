"""CSV as RFC 4180 has it, turned into Parquet: every record, cell by cell, or a refusal that says
where and quotes nothing.
"""

import csv
import gzip
import io
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privypurse import InvalidArgument
from privypurse.runs._convert import Converted, convert_file
from privypurse.runs._progress import Silent
from privypurse.tables._files import BLOCK_ROWS, TableFile

SECRET = "SECRETvalue73"


def records(file):
    return [tuple(row.values()) for block in file.blocks(file.columns) for row in block.to_pylist()]


def converted(tmp_path, content, **how):
    """Convert some bytes; return what was said and the records."""
    (tmp_path / "people.csv").write_bytes(content)
    out = tmp_path / "people.parquet"
    out.unlink(missing_ok=True)
    said = convert_file(TableFile(tmp_path / "people.csv", **how), out, Silent())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["people.csv", "people.parquet"]
    return said, records(TableFile(out))


def refusal(tmp_path, content, **how):
    with pytest.raises(InvalidArgument) as refused:
        converted(tmp_path, content, **how)
    assert [path.name for path in tmp_path.iterdir()] == ["people.csv"]
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    assert SECRET not in str(refused.value)
    return str(refused.value)


cells = st.text(string.ascii_letters + string.digits + " ,;\"'é\x00\n", max_size=8)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(cells, cells), min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]), st.sampled_from(",;\t")
)
def test_what_python_writes_comes_back_cell_by_cell(tmp_path, rows, end, sign):
    text = io.StringIO()
    csv.writer(text, lineterminator=end, delimiter=sign).writerows([("a", "b"), *rows])
    content = text.getvalue().encode()
    said, found = converted(tmp_path, content, delimiter=sign)
    broken = sum("\n" in one + other for one, other in rows)
    assert (said, found) == (Converted(len(rows), broken, 0), rows)
    if not broken:
        assert records(TableFile(tmp_path / "people.csv", delimiter=sign)) == rows


def test_compressed_and_other_encodings_and_several_blocks(tmp_path):
    lines = BLOCK_ROWS * 2 + 5
    text = "größe,b\n" + '"é\r\n2",x\n\n' * lines
    expected = Converted(lines, lines, lines), [("é\r\n2", "x")] * lines
    for content, how in (
        (gzip.compress(text.encode()), {}),
        (text.encode("utf-8-sig"), {}),
        (text.encode("utf-16"), {"encoding": "utf-16"}),
        (text.encode("latin-1"), {"encoding": "latin-1"}),
    ):
        assert converted(tmp_path, content, **how) == expected


MALFORMED = {
    "an open quote at the end": (f'a,b\n1,2\n3,"{SECRET}\n4,5\n', "begins on line 3 "),
    "an open quote that takes too much with it": (
        f'a,b\n"x\ny",2\n3,"{SECRET}\n' + "4,5\n" * 99_999,
        "begins on line 4 ",
    ),
    "too many fields": (f"a,b\n1,2\n\n3,4,{SECRET}\n", "line 4 of 'people.csv' has 3 fields where the header has 2"),
    "too few fields": (f"a,b\n{SECRET}\n", "line 2 of 'people.csv' has 1 fields"),
    "text after a closing quote": (f'a,b\n"1"{SECRET},2\n', "begins on line 2 "),
    "a stray carriage return": (f"a,b\n1,2\n3\r{SECRET},4\n", "begins on line 3 "),
    "no rows": ("a,b\n", "no rows"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_record_is_refused_by_the_number_of_its_first_line(tmp_path, case):
    content, word = MALFORMED[case]
    assert word in refusal(tmp_path, content.encode())


def test_bytes_that_are_no_text_are_refused(tmp_path):
    assert "--encoding" in refusal(tmp_path, b"a,b\n1,2\n" * 9 + b"\xff" + SECRET.encode() + b",4\n")


def test_a_parquet_file_is_not_converted(tmp_path):
    converted(tmp_path, b"a,b\n1,2\n")
    with pytest.raises(InvalidArgument, match="Parquet file already"):
        convert_file(TableFile(tmp_path / "people.parquet"), tmp_path / "again.parquet", Silent())


def test_a_converted_file_says_that_boundaries_were_read_from_the_data(tmp_path):
    converted(tmp_path, b'a,b\n"1\n2",2\n')
    (named,) = TableFile(tmp_path / "people.parquet").uncovered
    assert "people.parquet" in named
    assert not TableFile(tmp_path / "people.csv").uncovered
