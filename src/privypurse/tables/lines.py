"""[RAW DATA] Lines of a CSV file on their way to the parser: one line is one record, whatever is in it.

A parser goes on past the end of a line where a quotation mark is left open, so that one record could swallow others. Such lines
are left out here, one by one, as are lines that are too long; bytes that are no text are replaced within their own line.
"""

import io
import re
from typing import BinaryIO

from privypurse.core.errors import InvalidArgument

CHUNK_BYTES = 1 << 20
LONGEST_LINE = 1 << 18


class Lines(io.RawIOBase):
    """A stream of the lines that can be parsed, as UTF-8.

    Parameters
    ----------
    source : binary file
        What is read.
    delimiter, encoding : str
        Of the file.
    strict : bool
        Refuse the file instead of leaving a line out.
    name : str
        For messages.

    Guarantees
    ----------
    Whether a line is kept, and as what, depends on that line alone, but for the first chunk: if that is not text in `encoding`,
    the file is refused.
    """

    def __init__(self, source: BinaryIO, *, delimiter: str, encoding: str, strict: bool, name: str) -> None:
        self._source, self._encoding, self._strict, self._name = source, encoding, strict, name
        self._whole = _whole_line(delimiter)
        self._rest = b""  # the beginning of a line whose end has not been read
        self._skipping = False  # whether that line was too long
        self._ready = memoryview(b"")
        self._first = True
        self._ended = False
        self.left_out = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        """Fill a buffer; 0 at the end."""
        while not self._ready and not self._ended:
            self._ready = memoryview(self._next())
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _next(self) -> bytes:
        """Return the lines that end in the next chunk."""
        chunk = self._source.read(CHUNK_BYTES)
        self._ended = not chunk
        text = self._rest + chunk
        cut = len(text) if self._ended else text.rfind(b"\n") + 1
        lines, self._rest = text[:cut], text[cut:]
        if self._skipping and lines:
            lines = lines[lines.find(b"\n") + 1 :] if b"\n" in lines else b""
            self._skipping = False
        if len(self._rest) > LONGEST_LINE:
            self._drop()
            self._rest, self._skipping = b"", True
        if not lines:
            return b""
        kept = self._decoded(lines)
        if self._harmless(kept):
            return kept
        return b"".join(line for line in kept.splitlines(keepends=True) if self._is_whole(line))

    def _harmless(self, lines: bytes) -> bool:
        """Whether no line needs to be looked at by itself."""
        return b'"' not in lines and max(map(len, lines.split(b"\n"))) <= LONGEST_LINE

    def _is_whole(self, line: bytes) -> bool:
        if len(line) <= LONGEST_LINE and (b'"' not in line or self._whole.fullmatch(line)):
            return True
        self._drop()
        return False

    def _drop(self) -> None:
        if self._strict:
            raise InvalidArgument(
                f"file {self._name!r} has a line that is too long, or with a quotation mark that is never closed. Check quotes."
            )
        self.left_out += 1

    def _decoded(self, lines: bytes) -> bytes:
        try:
            text = lines.decode(self._encoding)
        except UnicodeDecodeError:
            if self._first:
                raise InvalidArgument(
                    f"file {self._name!r} is not text in {self._encoding}. Pass --encoding latin-1, or its own."
                ) from None
            text = "".join(line.decode(self._encoding, "replace") for line in lines.splitlines(keepends=True))
        self._first = False
        return text.encode("utf-8")


def _whole_line(delimiter: str) -> "re.Pattern[bytes]":
    """Match a line after which no quotation mark is open: a field that begins with one ends with one, doubled ones aside."""
    sign = re.escape(delimiter.encode("utf-8"))
    quoted = rb'"[^"]*+(?:""[^"]*+)*+"(?!")[^' + sign + rb"]*+"
    plain = rb'(?:[^"' + sign + rb"][^" + sign + rb"]*+)?"
    field = rb"(?:" + quoted + rb"|" + plain + rb")"
    return re.compile(field + rb"(?:" + sign + field + rb")*+", re.DOTALL)
