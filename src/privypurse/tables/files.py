"""[RAW DATA] Tables in files, read in blocks: CSV (plain or compressed) and Parquet. Messages never quote a record."""

import codecs
import csv
import difflib
import gzip
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from privypurse.core.errors import FileUnusable, InvalidArgument
from privypurse.tables.lines import LONGEST_LINE, Lines, is_whole, is_wide, known_encoding

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
BLOCK_BYTES = 1 << 20
BLOCK_ROWS = 16_384

# Told how many bytes of the file have been read.
Progress = Callable[[int], None]


def _no_progress(_: int) -> None:
    pass


class TableFile:
    """A table in a file.

    Parameters
    ----------
    path : str or path
        A CSV file with a header (also ``.gz``), or a Parquet file.
    delimiter : str, optional
        What separates fields of a CSV file; by default read off its header.
    encoding : str, default "utf-8"
        Of a CSV file.

    Notes
    -----
    Lines of a CSV file that do not have as many fields as the header are left out, one by one; `strict` reading refuses them.

    Guarantees
    ----------
    Each line of a CSV file is one record or none, decided by that line alone; see `Lines`.
    """

    def __init__(self, path: str | os.PathLike[str], *, delimiter: str | None = None, encoding: str = "utf-8") -> None:
        self.path = pathlib.Path(path)
        self.encoding = known_encoding(encoding)
        if not self.path.is_file():
            what = "a folder" if self.path.is_dir() else "not there"
            raise InvalidArgument(f"file {str(path)!r} is {what}. Pass a CSV or Parquet file.")
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n' or not 0 < ord(delimiter) < 128):
            raise InvalidArgument(f"delimiter must be one ASCII character; got {delimiter!r}. Pass for example ';'.")
        _need_pyarrow()
        with self.path.open("rb") as file:
            start = file.read(4)
        if not start:
            raise InvalidArgument(f"file {self.path.name!r} is empty. Pass a table with a header line.")
        self.is_parquet = start == b"PAR1"
        self._delimiter = ","
        self.columns = self._parquet_columns() if self.is_parquet else self._header(delimiter)
        twice = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if twice and self._looks_headless:
            raise InvalidArgument(
                f"the first line of file {self.path.name!r} holds numbers: it does not look like a header. Add one."
            )
        if twice:
            raise InvalidArgument(
                f"file {self.path.name!r} has several columns named {twice[0]!r}. Rename them, or check the header line."
            )

    @property
    def size(self) -> int:
        """Bytes of the file, as progress counts them."""
        return self.path.stat().st_size

    def require(self, names: Sequence[str]) -> None:
        """Refuse a file that lacks a column."""
        for name in names:
            if name not in self.columns:
                raise InvalidArgument(self._lacks(name))

    @property
    def _looks_headless(self) -> bool:
        """Whether the first line may be a record: then no message quotes it."""
        return not self.is_parquet and any(_is_number(name) for name in self.columns)

    def _lacks(self, name: str) -> str:
        if self._looks_headless:
            return (
                f"column {name!r} is not in {self.path.name!r}, whose first line holds numbers: it does not look like a header. "
                "Add one."
            )
        listed = ", ".join(map(repr, self.columns[:12])) + (", ..." if len(self.columns) > 12 else "")
        near = difflib.get_close_matches(name, self.columns, 1)
        remedy = f"Did you mean {near[0]!r}?" if near else "Check the name, and that the first line is a header."
        if len(self.columns) == 1 and not self.is_parquet:
            others = [word for sign, word in DELIMITERS.items() if sign != self._delimiter and sign in self.columns[0]]
            if others:
                remedy = (
                    f"The header looks separated by a {others[0]}: pass --delimiter for another one, or leave it out."
                )
        return f"column {name!r} is not in {self.path.name!r}, which has {listed}. {remedy}"

    def blocks(self, names: Sequence[str], *, strict: bool = False, progress: Progress = _no_progress) -> Iterator[Any]:
        """Go over the file in Arrow tables of some ten thousand rows with the named columns, in order.

        Parameters
        ----------
        names : sequence of str
            Which columns. Those of CSV files come as text.
        strict : bool, default False
            Refuse a CSV file that has a line with too many or too few fields, instead of leaving the line out.
        progress : callable
            Told how many bytes have been read.
        """
        self.require(names)
        return self._parquet_blocks(names, progress) if self.is_parquet else self._csv_blocks(names, strict, progress)

    def _header(self, delimiter: str | None) -> list[str]:
        try:
            line = self._first_line()
        except UnicodeError:
            raise InvalidArgument(
                f"file {self.path.name!r} is not text in {self.encoding}. Pass --encoding latin-1, or its own; or a Parquet file."
            ) from None
        except (OSError, EOFError, zlib.error) as error:
            raise FileUnusable(f"file {self.path.name!r} cannot be read ({type(error).__name__}). Check it.") from None
        if "\r" in line.removesuffix("\r\n").removesuffix("\n"):
            raise InvalidArgument(
                f"file {self.path.name!r} ends its lines with carriage returns alone, as old Macintoshes did. Save it anew."
            )
        try:
            self._delimiter = delimiter or max(DELIMITERS, key=lambda sign: len(_fields(line, sign)))
            names = _fields(line, self._delimiter)
        except csv.Error:
            raise InvalidArgument(
                f"file {self.path.name!r} has a first line that cannot be a header. Pass a table with a header line."
            ) from None
        if not is_whole(line.rstrip("\r\n"), self._delimiter):
            raise InvalidArgument(
                f"file {self.path.name!r} has a first line that is too long for a header, or with a quotation mark that is never "
                "closed. Check it."
            )
        if not any(names):
            raise InvalidArgument(f"file {self.path.name!r} has no header: its first line is empty. Add one.")
        return names

    def _first_line(self) -> str:
        """Return the header line, and nothing of what follows it: what is odd there is its own affair."""
        with gzip.open(self.path) if self._is_gzip else self.path.open("rb") as file:
            if not is_wide(self.encoding):
                return bytes(file.readline(LONGEST_LINE + 9)).decode(self.encoding).removeprefix("\ufeff")
            decoder, text = codecs.getincrementaldecoder(self.encoding)("replace"), ""
            while "\n" not in text and len(text) <= LONGEST_LINE and (chunk := file.read(4_096)):
                text += decoder.decode(chunk)
        line, end, _ = text.partition("\n")
        return (line + end).removeprefix("\ufeff")

    @property
    def _is_gzip(self) -> bool:
        with self.path.open("rb") as file:
            return file.read(2) == b"\x1f\x8b"

    def _csv_blocks(self, names: Sequence[str], strict: bool, progress: Progress) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        bad, seen, given = 0, 0, 0

        def skip(row: Any) -> str:
            nonlocal bad
            bad += 1
            return "error" if strict else "skip"

        try:
            with self.path.open("rb") as raw:
                unpacked = pa.input_stream(raw, compression="gzip") if self._is_gzip else raw
                lines = Lines(
                    unpacked, delimiter=self._delimiter, encoding=self.encoding, strict=strict, name=self.path.name
                )
                reader = arrow_csv.open_csv(
                    lines,
                    read_options=arrow_csv.ReadOptions(
                        column_names=self.columns,
                        skip_rows=1,
                        block_size=BLOCK_BYTES,
                        use_threads=False,  # which would read far ahead, into memory
                    ),
                    parse_options=arrow_csv.ParseOptions(delimiter=self._delimiter, invalid_row_handler=skip),
                    convert_options=arrow_csv.ConvertOptions(
                        include_columns=list(names),
                        column_types=dict.fromkeys(names, pa.string()),
                        strings_can_be_null=False,
                    ),
                )
                for batch in reader:
                    seen += batch.num_rows
                    # The parser reads ahead: what it has given is counted, not what it has taken.
                    given = min(given + BLOCK_BYTES, lines.taken)
                    progress(raw.tell() * given // max(lines.taken, 1))
                    yield pa.Table.from_batches([batch])
        except (pa.ArrowException, UnicodeError) as error:
            raise InvalidArgument(self._unreadable(str(error), bad)) from None
        except (OSError, EOFError) as error:
            raise FileUnusable(
                f"file {self.path.name!r} cannot be read to its end ({type(error).__name__}); it may be cut off. Check it."
            ) from None
        if not seen and not bad:
            raise InvalidArgument(f"file {self.path.name!r} has a header and no rows. Pass a table with records.")
        if not seen:
            raise InvalidArgument(
                f"file {self.path.name!r} has no line with as many fields as its header, {len(self.columns)}. "
                "Check the delimiter (--delimiter) and the first line."
            )

    def _unreadable(self, message: str, bad: int) -> str:
        if "UTF8" in message or "utf8" in message or "codec" in message:
            return f"file {self.path.name!r} is not text in {self.encoding}. Pass --encoding latin-1, or its own."
        if bad:
            return (
                f"file {self.path.name!r} has a line with too many or too few fields for its header of {len(self.columns)}. "
                "Check the delimiter and quotes."
            )
        if "Empty CSV" in message or "Could not skip" in message:
            return f"file {self.path.name!r} has a header and no rows. Pass a table with records."
        return f"file {self.path.name!r} cannot be read as a table separated by {self._delimiter!r}. Check delimiter and quotes."

    def _parquet_columns(self) -> list[str]:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            return [str(name) for name in parquet.read_schema(self.path).names]
        except (pa.ArrowException, OSError, UnicodeError):
            raise InvalidArgument(f"file {self.path.name!r} is not a whole Parquet file. Check it.") from None

    def _parquet_blocks(self, names: Sequence[str], progress: Progress) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(self.path) as file:
                rows, done = max(1, file.metadata.num_rows), 0
                for batch in file.iter_batches(batch_size=BLOCK_ROWS, columns=list(names)):
                    done += batch.num_rows
                    progress(self.size * done // rows)
                    yield pa.Table.from_batches([batch]).select(list(names))
        except (pa.ArrowException, OSError, UnicodeError):
            raise InvalidArgument(f"file {self.path.name!r} cannot be read to its end. Check it.") from None
        if not done:
            raise InvalidArgument(f"file {self.path.name!r} has no rows. Pass a table with records.")


def _fields(line: str, delimiter: str) -> list[str]:
    fields = next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, skipinitialspace=True), [])
    return [field.strip() for field in fields]


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def release_memory() -> None:
    """Give back what reading has left over."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def _need_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InvalidArgument("reading files needs pyarrow. Install it: pip install 'privypurse[cli]'.") from error
