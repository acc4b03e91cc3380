"""Lines on their way to a parser: nothing is changed, and each is counted once, however the bytes are cut."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privypurse.tables.lines import CountedLines

pieces = st.lists(st.sampled_from(["\r", "\n", "\r\n", "a", "é,", '"', "🎉"]), max_size=30).map("".join)


def read_all(stream, sizes):
    found = b""
    for size in sizes:
        chunk = stream.read(size)
        found += chunk
    while chunk := stream.read(7):
        found += chunk
    return found


@given(pieces, st.lists(st.integers(4, 9), max_size=9), st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_lines_are_counted_however_the_bytes_are_cut(text, sizes, encoding):
    stream = CountedLines(io.BytesIO(text.encode(encoding)), encoding)
    assert read_all(stream, sizes) == text.encode("utf-8")
    expected = re.split("\r\n|\r|\n", text)
    assert stream.count == sum(map(bool, expected))


@given(st.integers(1, 64))
def test_no_more_is_returned_than_was_asked_for(size):
    stream = CountedLines(io.BytesIO("🎉é".encode("utf-16") * 99), "utf-16")
    while chunk := stream.read(max(size, 4)):
        assert len(chunk) <= max(size, 4)


def test_text_that_is_cut_off_is_an_error():
    stream = CountedLines(io.BytesIO("aé".encode("utf-16")[:-1]), "utf-16")
    with pytest.raises(UnicodeError):
        read_all(stream, [])
