"""[RAW DATA] The bytes of a text file on their way to a parser, in UTF-8, with their lines counted."""

import codecs
from typing import Any


class CountedLines:
    """A stream of bytes that can be read, and knows how many lines that are not empty went by.

    Parameters
    ----------
    stream : file
        Has ``read``.
    encoding : str
        Of its text.
    """

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream = stream
        self._as_it_is = encoding == "utf-8"
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._in_line = False
        self.count = self.taken = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Return some bytes; none at the end."""
        chunk = self._next(size)
        if chunk:
            lines = chunk.splitlines()
            goes_on = self._in_line and bool(lines[0])
            self.count += sum(map(bool, lines)) - goes_on
            self.taken += len(chunk)
            self._in_line = chunk[-1:] not in (b"\n", b"\r")
        return chunk

    def _next(self, size: int) -> bytes:
        if self._as_it_is:
            content = bytes(self._stream.read(size))
            self._decoder.decode(content, final=not content)  # a parser would complain of what is no text on its own
            return content
        # What is longer in UTF-8 than it was must not exceed what was asked for.
        asked = size if size < 0 else max(1, size // 4)
        while True:
            raw = self._stream.read(asked)
            text = self._decoder.decode(raw, final=not raw)
            if text or not raw:
                return text.encode("utf-8")

    def readable(self) -> bool:
        """Yes."""
        return True

    def writable(self) -> bool:
        """No."""
        return False

    def seekable(self) -> bool:
        """No."""
        return False

    def close(self) -> None:
        """Read no more; who opened the stream closes it."""
        self.closed = True
