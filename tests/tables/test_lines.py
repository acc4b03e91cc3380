"""Lines on their way to a parser: what becomes of one depends on its own bytes, wherever it stands
and whatever is beside it.
"""

import contextlib
import encodings.aliases
import io
import itertools
import pkgutil
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv

from privypurse import InvalidArgument, Neighbouring, Norm
from privypurse.tables import _lines as reading
from privypurse.tables._lines import FIELDS, LONGEST_LINE, Lines, Tally, is_wide, known_encoding

odd = st.lists(st.sampled_from(['"', ",", "a", "\r", "é", " ", '""']), max_size=9).map("".join).map(str.encode)
bad = st.one_of(
    odd, st.just(b"\xff,2"), st.just(b"x" * (LONGEST_LINE - 2) + b",2"), st.just(b"x" * LONGEST_LINE + b",2")
)


def read(content, encoding="utf-8"):
    return b"".join(Lines(io.BytesIO(content), ",", encoding, strict=False, name="t", tally=Tally()))


@given(st.lists(st.one_of(bad, st.just(b"1,2")), max_size=6), st.lists(st.one_of(bad, st.just(b"3,4")), max_size=6))
def test_lines_do_not_affect_each_other(first, second):
    def kept(listed):
        # So many lines of text that the encoding of the file is not doubted.
        return read(b"a,b\n" * 999 + b"".join(line + b"\n" for line in listed)).removeprefix(b"a,b\n" * 999)

    apart = kept(first) + kept(second)
    assert kept(first + second).replace(b"\r\n", b"\n") == apart.replace(b"\r\n", b"\n")


@given(st.lists(odd, max_size=8))
def test_the_parser_sees_one_record_or_none_for_each_line(listed):
    content = b"a,b\n" * 99 + b"".join(line + b"\n" for line in listed) + b"1,2\n"
    seen = []
    table = arrow_csv.read_csv(
        pa.BufferReader(read(content)),
        arrow_csv.ReadOptions(column_names=["a", "b"]),
        arrow_csv.ParseOptions(invalid_row_handler=lambda row: seen.append(row) or "skip"),
        arrow_csv.ConvertOptions(column_types={"a": pa.string(), "b": pa.string()}),
    )
    assert table.num_rows + len(seen) <= 99 + len(listed) + 1
    assert table.slice(0, 99)["b"].to_pylist() == ["b"] * 99
    assert table["b"][-1].as_py() == "2"


def test_chunks_may_end_anywhere(monkeypatch):
    content = b'a,b\n"x, y",2\r\n' + b"1,2\n" * 5 + b'"open,2\n' + b"z" * 400 + b",1\n3,4"
    monkeypatch.setattr(reading, "LONGEST_LINE", 300)
    whole = read(content)
    for size in range(1, 60):
        monkeypatch.setattr(reading, "CHUNK_BYTES", size)
        assert read(content).rstrip() == whole.rstrip()
    assert whole.replace(b"\r", b"").rstrip() == b'a,b\n"x, y",2\n' + b"1,2\n" * 5 + b"3,4"


def test_wide_and_narrow_encodings_come_out_as_utf8():
    text = "größe,b\n1,é\n"
    for encoding in ("utf-16", "utf-32", "iso8859-1", "cp1252", "utf-8"):
        assert read(text.encode(encoding), encoding).decode().removeprefix("\ufeff") == text


def test_no_encoding_is_admitted_in_which_other_bytes_are_ascii_characters():
    """Quotes and carriage returns are looked for in bytes; in mac-arabic, 0xA2 is a quotation mark
    too.
    """
    modules = {module.name for module in pkgutil.iter_modules(encodings.__path__)}
    admitted = set()
    for name in modules | set(encodings.aliases.aliases.values()) | set(encodings.aliases.aliases):
        with contextlib.suppress(InvalidArgument):
            admitted.add(known_encoding(name))
    narrow = {name for name in admitted if not is_wide(name) and name not in ("utf-8", "ascii")}
    assert {"iso8859-1", "cp1252", "mac-roman", "koi8-r"} <= narrow
    for name in narrow:
        assert bytes(range(128)).decode(name) == bytes(range(128)).decode("ascii"), name
        for byte in range(128, 256):
            found = bytes([byte]).decode(name, "replace")
            assert len(found) == 1, name
            assert not found.isascii(), name
    for name in ("mac-arabic", "mac-farsi"):
        with pytest.raises(InvalidArgument, match=f"{name}.*line by line"):
            known_encoding(name)


def test_the_counts_of_lines_move_by_their_bounds_at_most():
    """One line more is used, cannot be read, is read and not used, or is blank; or becomes another
    of these.
    """
    kinds = [(1, 0, 0), (0, 1, 0), (1, 0, 1), (0, 0, 0)]
    boxes = [Tally(5 + read, Counter({FIELDS: 3 + lost})).box(unused=2 + unused) for read, lost, unused in kinds]
    values = [box._value for box in boxes]
    for value, other in itertools.product(values, values):
        assert np.linalg.norm(value - values[-1]) <= boxes[0].bound(Neighbouring.ADD_REMOVE, Norm.L2)
        assert np.linalg.norm(value - other) <= boxes[0].bound(Neighbouring.REPLACE_ONE, Norm.L2)
