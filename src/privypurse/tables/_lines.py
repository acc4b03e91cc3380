"""[RAW DATA] Filter the lines of a file before parsing: each line is one record or none.

A parser of CSV files reads past the end of a line with an open quotation mark, so that one record
could swallow others. Such lines are left out, one by one, as are lines that are too long or have a
stray carriage return. JSON is parsed line by line; lines without an object are left out. Invalid
bytes are replaced within their line. Lines left out are counted.
"""

import codecs
import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from privypurse.core._errors import InvalidArgument
from privypurse.core._sensitive import Norm, Sensitive

CHUNK_BYTES = 1 << 20
LONGEST_LINE = 1 << 18
# The encoding is wrong if at least FEW lines, more than one in ODD_LINES, of the first chunk are invalid.
ODD_LINES, FEW = 20, 10
_WIDE = ("utf-16", "utf-32")
_ONE_BYTE = ("iso8859-", "cp125", "cp437", "cp85", "cp86", "koi8", "mac-", "hp-roman8", "tis-620")

# Why a line is not a record by itself.
OPEN_QUOTE, FIELDS = "with a quotation mark that is not closed", "with too many or too few fields"
RETURN, TOO_LONG = "with a stray carriage return", "that are too long"
NO_OBJECT = "without a JSON object"
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # in no text; an escape is, in some encodings


@dataclass
class Tally:
    """Exact counts of the lines of a file. Private."""

    read: int = 0  # lines, or rows of a Parquet or Feather file, read as records
    left_out: Counter[str] = field(default_factory=Counter)  # lines that are no record by themselves, by cause
    blank: int = 0  # neither

    def __str__(self) -> str:
        causes = ", ".join(f"{count:,} {cause}" for cause, count in self.left_out.most_common())
        lost = self.left_out.total()
        return f"{lost:,} of {self.read + lost:,} lines cannot be read by themselves: {causes}"

    def box(self, *, unused: int = 0) -> Sensitive:
        """Return the numbers of lines that are used, unreadable, and read but `unused`.

        Each line is in at most one of the three counts, decided by that line alone.
        """
        counts = [self.read - unused, self.left_out.total(), unused]
        return Sensitive(counts, norm=Norm.L2, add_remove=1.0, replace_one=math.sqrt(2))


def not_whole(name: str, cause: str, *, is_json: bool = False) -> InvalidArgument:
    """Return the error for a line that is not a record by itself."""
    command = f"`privypurse data convert {name} OUT.parquet`"
    remedy = f"If records have line breaks inside quotes, pass the output of {command}. Otherwise check delimiter and quotes."
    remedy = "Write each record as one object on one line." if is_json else remedy
    return InvalidArgument(f"file {name!r} has lines {cause}, which are not records by themselves. {remedy}")


def not_text(name: str, encoding: str, start: bytes = b"") -> InvalidArgument:
    """Return the error for a file that is not text in its encoding, or not text at all by some of its bytes."""
    said = f"file {name!r} is not text in {encoding}"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return InvalidArgument(f"{said}. It looks like UTF-16: pass --encoding utf-16.")
    if is_binary(start):
        said = f"file {name!r} is a binary file of an unknown kind"
        return InvalidArgument(f"{said}. Save it as CSV in UTF-8, or as Parquet.")
    return InvalidArgument(f"{said}. Pass its encoding, for example --encoding latin-1, or a Parquet file.")


def is_binary(start: bytes) -> bool:
    """Whether bytes cannot be from a text in which a character is one byte or more."""
    return _CONTROL.search(start) is not None


def json_object(line: bytes) -> dict[str, Any] | None:
    """Return the object on a line of UTF-8, or None if there is none."""
    try:
        found = json.loads(line.decode("utf-8").removeprefix("\ufeff"))
    except (ValueError, RecursionError):  # also for numbers of many digits and deep nesting
        return None
    return found if isinstance(found, dict) else None


def known_encoding(encoding: str) -> str:
    """Return the usual name of an encoding. Raise InvalidArgument if lines cannot be separated."""
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        raise InvalidArgument(f"encoding {encoding!r} is not known. Pass for example utf-8 or latin-1.") from None
    name = "utf-8" if name == "utf-8-sig" else name
    one_byte = name.startswith(_ONE_BYTE)
    if one_byte:  # quotes and line ends are found in bytes, so exactly those below 128 must be ASCII
        low, high = (bytes(half).decode(name, "replace") for half in (range(128), range(128, 256)))
        one_byte = low.encode("utf-8") == bytes(range(128)) and not any(map(str.isascii, high))
    if name not in ("utf-8", "ascii") and not name.startswith(_WIDE) and not one_byte:
        raise InvalidArgument(f"encoding {encoding!r} cannot be read line by line. Pass utf-8, or convert the file.")
    return name


def is_wide(encoding: str) -> bool:
    """Whether every character takes several bytes."""
    return encoding.startswith(_WIDE)


def is_whole(line: str, delimiter: str) -> bool:
    """Whether a line is short enough and leaves no quotation mark open."""
    raw = line.encode("utf-8", "replace")
    return len(raw) <= LONGEST_LINE and _whole_line(delimiter).fullmatch(raw) is not None


class Lines:
    """The lines of a binary file that can be parsed, as UTF-8, in blocks of whole lines.

    Without a `delimiter` quotes and carriage returns do not matter. The encoding is a result of
    `known_encoding`. `strict` raises InvalidArgument with the name of the file instead of leaving a
    line out.

    Guarantees
    ----------
    Whether a line is kept, and as what, depends on the bytes of that line alone; in UTF-16 and
    UTF-32, on its characters: there an extra byte changes all characters that follow. (If many
    lines of the first chunk are not text in `encoding`, the file is refused.)
    """

    def __init__(
        self, source: Any, delimiter: str | None, encoding: str, *, strict: bool, name: str, tally: Tally
    ) -> None:
        self._source, self._strict, self._name, self._asked = source, strict, name, encoding
        self._tally = tally
        # Decode UTF-16 and UTF-32 before splitting lines.
        wide = is_wide(encoding)
        self._decoder = codecs.getincrementaldecoder(encoding)("replace") if wide else None
        self._encoding = "utf-8" if wide else encoding
        self._whole = None if delimiter is None else _whole_line(delimiter)
        self._first = True

    def __iter__(self) -> Iterator[bytes]:
        """Yield blocks of whole lines."""
        rest, skipping, ended = b"", False, False  # start of an incomplete line, and whether it was too long
        while not ended:
            raw = bytes(self._source.read(CHUNK_BYTES))
            ended = not raw
            if self._decoder is not None:
                raw = self._decoder.decode(raw, final=ended).encode("utf-8", "replace")
            text = rest + raw
            cut = len(text) if ended else text.rfind(b"\n") + 1
            lines, rest = text[:cut], text[cut:]
            if skipping and lines:
                _, _, lines = lines.partition(b"\n")
                skipping = False
            if len(rest) > LONGEST_LINE:
                if not skipping:
                    self.leave_out(TOO_LONG)
                rest, skipping = b"", True
            if lines and (block := self._kept(lines)):
                yield block

    def _kept(self, lines: bytes) -> bytes:
        listed = lines.split(b"\n")
        self._tally.blank += listed.count(b"") + listed.count(b"\r") - (not listed[-1])
        plain = b'"' not in lines and lines.count(b"\r") == lines.count(b"\r\n")
        if (plain or self._whole is None) and max(map(len, listed)) <= LONGEST_LINE:
            with contextlib.suppress(UnicodeDecodeError):
                text = lines.decode(self._encoding)
                self._first = False
                return text.encode("utf-8")
        if self._first:
            self._check_encoding(listed)
            self._first = False
        checked = map(self._checked, listed[: None if listed[-1] else -1])
        return b"".join(line + b"\n" for line in checked if line is not None)

    def _checked(self, line: bytes) -> bytes | None:
        """Return a line as UTF-8, or None if it is left out."""
        content = line.removesuffix(b"\r")
        text = content.decode(self._encoding, "replace").encode("utf-8")
        if len(line) > LONGEST_LINE:
            self.leave_out(TOO_LONG)
        elif self._whole is None:
            return text
        elif b"\r" in content:
            self.leave_out(RETURN)
        elif b'"' in text and not self._whole.fullmatch(text):
            self.leave_out(OPEN_QUOTE)
        else:
            return text
        return None

    def leave_out(self, cause: str) -> None:
        """Count a line that is left out, or raise InvalidArgument if that is not allowed."""
        if self._strict:
            raise not_whole(self._name, cause, is_json=self._whole is None)
        self._tally.left_out[cause] += 1

    def _check_encoding(self, lines: list[bytes]) -> None:
        valid = 0
        for line in lines:
            with contextlib.suppress(UnicodeDecodeError):
                line.decode(self._encoding)
                valid += 1
        if (odd := len(lines) - valid) >= FEW and odd * ODD_LINES > len(lines):
            raise not_text(self._name, self._asked, b"\n".join(lines))


def _whole_line(delimiter: str) -> "re.Pattern[bytes]":
    """Match a line without an open quotation mark: a field that begins with one ends with one."""
    sign = re.escape(delimiter.encode("utf-8"))  # one byte
    other = rb"[^" + sign + rb"]"
    # Without possessive quantifiers, which match too much before Python 3.11.5. Each line can be
    # divided in one way only, so that a failed match takes linear time all the same.
    quoted = rb'"[^"]*(?:""[^"]*)*"(?!")' + other + rb"*"
    plain = rb'(?:(?!")' + other + rb"+)?"
    field = rb"(?:" + quoted + rb"|" + plain + rb")"
    return re.compile(field + rb"(?:" + sign + field + rb")*", re.DOTALL)
