"""[RAW DATA] Lines of a CSV file on their way to the parser: one line is one record or none, whatever is in it.

A parser goes on past the end of a line where a quotation mark is left open, so that one record could swallow others. Such lines
are left out here, one by one, as are lines that are too long or have a stray carriage return; bytes that are no text are replaced
within their own line.
"""

import codecs
import io
import re
from typing import Any

from privypurse.core.errors import InvalidArgument

CHUNK_BYTES = 1 << 20
LONGEST_LINE = 1 << 18
# If more than one line in so many of the first chunk is no text, and not only a few, the encoding is another one.
ODD_LINES, FEW = 20, 10
_WIDE = ("utf-16", "utf-32")
_ONE_BYTE = ("iso8859-", "cp125", "cp437", "cp85", "cp86", "koi8", "mac-", "hp-roman8", "tis-620")


def known_encoding(encoding: str) -> str:
    """Return an encoding by its usual name; refuse one in which a line cannot be told by itself."""
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):  # a zero in it, or something that cannot be a name
        raise InvalidArgument(f"encoding {encoding!r} is not known. Pass for example utf-8 or latin-1.") from None
    name = "utf-8" if name == "utf-8-sig" else name
    if name not in ("utf-8", "ascii") and not name.startswith((*_WIDE, *_ONE_BYTE)):
        raise InvalidArgument(
            f"encoding {encoding!r} cannot be read line by line. Pass utf-8, utf-16 or an encoding of one byte such as latin-1, "
            "or convert the file to UTF-8."
        )
    return name


def is_wide(encoding: str) -> bool:
    """Whether every character takes several bytes."""
    return encoding.startswith(_WIDE)


def is_whole(line: str, delimiter: str) -> bool:
    """Whether a line is short enough and leaves no quotation mark open."""
    raw = line.encode("utf-8", "replace")
    return len(raw) <= LONGEST_LINE and _whole_line(delimiter).fullmatch(raw) is not None


class Lines(io.RawIOBase):
    """A stream of the lines that can be parsed, as UTF-8.

    Parameters
    ----------
    source : file
        Has ``read``; bytes.
    delimiter : str
        What separates fields.
    encoding : str
        As `known_encoding` returns it.
    strict : bool
        Refuse the file instead of leaving a line out.
    name : str
        For messages.

    Guarantees
    ----------
    Whether a line is kept, and as what, depends on the bytes of that line alone; in UTF-16 and UTF-32, on its characters: there a
    byte too many makes other characters of all that follow. (If many lines of the first chunk are not text in `encoding`, the
    file is refused.)
    """

    def __init__(self, source: Any, *, delimiter: str, encoding: str, strict: bool, name: str) -> None:
        self._source, self._strict, self._name, self._asked = source, strict, name, encoding
        # Where a character takes several bytes in any case, text is told from bytes before lines are told from each other.
        wide = is_wide(encoding)
        self._decoder = codecs.getincrementaldecoder(encoding)("replace") if wide else None
        self._encoding = "utf-8" if wide else encoding
        self._whole = _whole_line(delimiter)
        self._rest = b""  # the beginning of a line whose end has not been read
        self._skipping = False  # whether that line was too long
        self._ready = memoryview(b"")
        self._first = True
        self._ended = False
        self.taken = 0  # bytes that were handed on

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
        self.taken += count
        return count

    def _chunk(self) -> bytes:
        raw = bytes(self._source.read(CHUNK_BYTES))
        self._ended = not raw
        return raw if self._decoder is None else self._decoder.decode(raw, final=self._ended).encode("utf-8", "replace")

    def _next(self) -> bytes:
        """Return the lines that end in the next chunk."""
        text = self._rest + self._chunk()
        cut = len(text) if self._ended else text.rfind(b"\n") + 1
        lines, self._rest = text[:cut], text[cut:]
        if self._skipping and lines:
            _, _, lines = lines.partition(b"\n")
            self._skipping = False
        if len(self._rest) > LONGEST_LINE:
            if not self._skipping:
                self._leave_out()
            self._rest, self._skipping = b"", True
        return self._kept(lines) if lines else b""

    def _kept(self, lines: bytes) -> bytes:
        listed = lines.split(b"\n")
        plain = b'"' not in lines and lines.count(b"\r") == lines.count(b"\r\n")
        if plain and max(map(len, listed)) <= LONGEST_LINE:
            try:
                text = lines.decode(self._encoding)
                self._first = False
                return text.encode("utf-8")
            except UnicodeDecodeError:
                pass
        self._check_encoding(listed)
        ends_with_line = not listed[-1]
        kept = [
            checked for line in listed[: -1 if ends_with_line else None] if (checked := self._checked(line)) is not None
        ]
        return b"".join(line + b"\n" for line in kept)

    def _checked(self, line: bytes) -> bytes | None:
        """Return a line as UTF-8, or None if it is left out."""
        content = line.removesuffix(b"\r")
        if len(line) <= LONGEST_LINE and b"\r" not in content:
            text = content.decode(self._encoding, "replace").encode("utf-8")
            if b'"' not in text or self._whole.fullmatch(text):
                return text
        self._leave_out()
        return None

    def _leave_out(self) -> None:
        if self._strict:
            raise InvalidArgument(
                f"file {self._name!r} has a line that is too long, has a stray carriage return, or a quotation mark that is "
                "never closed. Check quotes, or pass a Parquet file."
            )

    def _check_encoding(self, lines: list[bytes]) -> None:
        odd = sum(map(self._is_odd, lines)) if self._first else 0
        if odd >= FEW and odd * ODD_LINES > len(lines):
            raise InvalidArgument(
                f"file {self._name!r} is not text in {self._asked}. Pass --encoding latin-1, or its own; or a Parquet file."
            )
        self._first = False

    def _is_odd(self, line: bytes) -> bool:
        try:
            line.decode(self._encoding)
        except UnicodeDecodeError:
            return True
        return False


def _whole_line(delimiter: str) -> "re.Pattern[bytes]":
    """Match a line after which no quotation mark is open: a field that begins with one ends with one, doubled ones aside."""
    raw = delimiter.encode("utf-8")
    sign = re.escape(raw)
    other = rb"[^" + sign + rb"]" if len(raw) == 1 else rb"(?:(?!" + sign + rb").)"
    quoted = rb'"[^"]*+(?:""[^"]*+)*+"(?!")' + other + rb"*+"
    plain = rb'(?:(?!")' + other + rb"++)?+"
    field = rb"(?:" + quoted + rb"|" + plain + rb")"
    return re.compile(field + rb"(?:" + sign + field + rb")*+", re.DOTALL)
