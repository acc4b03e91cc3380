"""[RAW DATA] Read CSV and Parquet files in blocks. Messages never quote a record."""

import codecs
import contextlib
import csv
import difflib
import gzip
import math
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from privypurse.core._errors import FileUnusable, InvalidArgument
from privypurse.tables import _lines as lines
from privypurse.tables._columns import float_or_nan, need_pyarrow
from privypurse.tables._lines import FIELDS, LONGEST_LINE, Lines, Tally, not_text, not_whole

with contextlib.suppress(ImportError):  # `need_pyarrow` says what to install
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
BLOCK_BYTES = 1 << 20
BLOCK_ROWS = 16_384
BOUNDARIES = b"privypurse.record_boundaries"  # metadata of Parquet files made by `convert_file`
BytesRead = Callable[[int], None]  # receives the number of bytes read so far


def ignored(_: int) -> None:
    """Ignore it."""


class TableFile:
    """A table in a CSV file with a header (also ``.gz``), or in a Parquet file.

    Without a `delimiter` the one of a CSV file is found in its header. Lines with another number of
    fields than the header are left out.

    Guarantees
    ----------
    Each line of a CSV file is one record or none, decided by that line alone; see `Lines`.
    """

    def __init__(self, path: str | os.PathLike[str], *, delimiter: str | None = None, encoding: str = "utf-8") -> None:
        self.path = pathlib.Path(path)
        self.encoding = lines.known_encoding(encoding)
        if not self.path.is_file():
            what = "expected a file, got a folder" if self.path.is_dir() else "no such file"
            raise InvalidArgument(f"{what}: {str(path)!r}. Pass a CSV or Parquet file.")
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n' or not 0 < ord(delimiter) < 128):
            raise InvalidArgument(f"delimiter must be one ASCII character; got {delimiter!r}. Pass for example ';'.")
        need_pyarrow()
        with self.path.open("rb") as file:
            start = file.read(4)
        if not start:
            raise self._refusal("is empty. Pass a file with a header line.")
        self.is_parquet, self.is_gzip = start == b"PAR1", start.startswith(b"\x1f\x8b")
        self.tally = Tally()  # exact numbers of lines in the last call of `blocks`: private
        self.delimiter = ","
        self.uncovered: tuple[str, ...] = ()  # for certificates: what was read from records to make the file
        self.columns = self._parquet_columns() if self.is_parquet else self._header(delimiter)
        if twice := sorted({name for name in self.columns if self.columns.count(name) > 1}):
            if self._looks_headless:
                raise self._refusal("has numbers in its first line: it does not look like a header. Add one.")
            raise self._refusal(f"has several columns named {twice[0]!r}. Rename them, or check the header line.")

    def _refusal(self, why: str) -> InvalidArgument:
        return InvalidArgument(f"file {self.path.name!r} {why}")

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self.path.stat().st_size

    def require(self, names: Sequence[str]) -> None:
        """Raise InvalidArgument if the file lacks a column."""
        if lacking := [name for name in names if name not in self.columns]:
            where = f"column {lacking[0]!r} is not in {self.path.name!r}"
            if self._looks_headless:
                raise InvalidArgument(f"{where}: its first line, of numbers, does not look like a header. Add one.")
            listed = ", ".join(map(repr, self.columns[:12])) + (", ..." if len(self.columns) > 12 else "")
            near = difflib.get_close_matches(lacking[0], self.columns, 1)
            remedy = f"Did you mean {near[0]!r}?" if near else "Check the name, and that the first line is a header."
            only = self.columns[0] if len(self.columns) == 1 and not self.is_parquet else ""
            if others := [word for sign, word in DELIMITERS.items() if sign != self.delimiter and sign in only]:
                remedy = f"The header looks separated by a {others[0]}: pass that as --delimiter, or leave it out."
            raise InvalidArgument(f"{where}, which has {listed}. {remedy}")

    @property
    def _looks_headless(self) -> bool:
        """Whether the first line may be a record, which no message may quote."""
        # "nan" too: that is how pandas may write a missing number.
        numbers = (name.strip().lower() == "nan" or not math.isnan(float_or_nan(name)) for name in self.columns)
        return not self.is_parquet and any(numbers)

    def blocks(
        self, names: Sequence[str], *, strict: bool = False, progress: BytesRead = ignored, may_be_empty: bool = False
    ) -> Iterator[Any]:
        """Yield Arrow tables of some ten thousand rows with the named columns, in order.

        Columns of CSV files are text. `strict` raises InvalidArgument for a line that is not a
        record instead of leaving it out. `may_be_empty` accepts a CSV file without records.
        """
        self.require(names)
        if self.is_parquet:
            return self._parquet_blocks(names, progress)
        return self._csv_blocks(names, strict, progress, may_be_empty)

    def _header(self, delimiter: str | None) -> list[str]:
        try:
            line = self._first_line()
        except UnicodeError:
            raise not_text(self.path.name, self.encoding) from None
        except (OSError, EOFError, zlib.error) as error:
            raise FileUnusable(f"file {self.path.name!r} cannot be read ({type(error).__name__}). Check it.") from None
        if "\r" in line.removesuffix("\r\n").removesuffix("\n"):
            raise self._refusal("ends its lines with carriage returns. Save it with line feeds.")
        try:
            self.delimiter = delimiter or max(DELIMITERS, key=lambda sign: len(_fields(line, sign)))
            names = _fields(line, self.delimiter)
        except csv.Error:
            raise self._refusal("has a first line that cannot be a header. Pass a file with one.") from None
        if not lines.is_whole(line.rstrip("\r\n"), self.delimiter):
            raise self._refusal("has a first line that is too long or has an open quotation mark. Check it.")
        if not any(names):
            raise self._refusal("has no header: its first line is empty. Add one.")
        return names

    def _first_line(self) -> str:
        """Return the header line. Errors in later lines do not matter here."""
        with gzip.open(self.path) if self.is_gzip else self.path.open("rb") as file:
            if not lines.is_wide(self.encoding):
                return bytes(file.readline(LONGEST_LINE + 9)).decode(self.encoding).removeprefix("\ufeff")
            decoder, text = codecs.getincrementaldecoder(self.encoding)("replace"), ""
            while "\n" not in text and len(text) <= LONGEST_LINE and (chunk := file.read(4_096)):
                text += decoder.decode(chunk)
        line, end, _ = text.partition("\n")
        return (line + end).removeprefix("\ufeff")

    def _csv_blocks(self, names: Sequence[str], strict: bool, progress: BytesRead, may_be_empty: bool) -> Iterator[Any]:
        self.tally = tally = Tally()
        name, given = self.path.name, 0

        def skip(row: Any) -> str:
            tally.left_out[FIELDS] += 1
            return "error" if strict else "skip"

        try:
            with self.path.open("rb") as raw:
                unpacked = pa.input_stream(raw, compression="gzip") if self.is_gzip else raw
                kept = Lines(unpacked, self.delimiter, self.encoding, strict=strict, name=name, tally=tally)
                reader = arrow_csv.open_csv(
                    kept,
                    # Threads would read far ahead.
                    read_options=arrow_csv.ReadOptions(
                        column_names=self.columns, skip_rows=1, block_size=BLOCK_BYTES, use_threads=False
                    ),
                    parse_options=arrow_csv.ParseOptions(delimiter=self.delimiter, invalid_row_handler=skip),
                    convert_options=arrow_csv.ConvertOptions(
                        include_columns=list(names),
                        column_types=dict.fromkeys(names, pa.string()),
                        strings_can_be_null=False,
                    ),
                )
                for batch in reader:
                    tally.read += batch.num_rows
                    # The parser reads ahead, so count its output.
                    given = min(given + BLOCK_BYTES, kept.taken)
                    progress(raw.tell() * given // max(kept.taken, 1))
                    yield pa.Table.from_batches([batch])
        except (pa.ArrowException, UnicodeError) as error:
            if tally.read or not str(error).startswith(("Empty CSV", "Could not skip")):
                if "utf8" in str(error).lower() or "codec" in str(error):
                    raise not_text(name, self.encoding) from None
                if strict and tally.left_out[FIELDS]:
                    raise not_whole(name, FIELDS) from None
                why = f"cannot be read as a table separated by {self.delimiter!r}. Check delimiter and quotes."
                raise self._refusal(why) from None
        except (OSError, EOFError) as error:
            raise FileUnusable(f"{name!r} cannot be read to its end ({type(error).__name__}): truncated?") from None
        if tally.read or may_be_empty:
            return
        if not tally.left_out:
            raise self._refusal("has a header and no rows. Pass a file with records.")
        fields = f"{len(self.columns)} fields, like its header"
        raise self._refusal(f"has no line with {fields}, and closed quotes. Check --delimiter and the first line.")

    def _parquet_columns(self) -> list[str]:
        try:
            schema = parquet.read_schema(self.path)
            if BOUNDARIES in (schema.metadata or {}):
                self.uncovered = (
                    f"where each record of {self.path.name} begins and ends, which `privypurse data convert` read from the "
                    "quotation marks of the records before it",
                )
            return [str(name) for name in schema.names]
        except (pa.ArrowException, OSError, UnicodeError):
            raise self._refusal("is not a complete Parquet file. Check it.") from None

    def _parquet_blocks(self, names: Sequence[str], progress: BytesRead) -> Iterator[Any]:
        self.tally = tally = Tally()
        try:
            with parquet.ParquetFile(self.path) as file:
                rows = max(1, file.metadata.num_rows)
                for batch in file.iter_batches(batch_size=BLOCK_ROWS, columns=list(names)):
                    tally.read += batch.num_rows
                    progress(self.size * tally.read // rows)
                    yield pa.Table.from_batches([batch]).select(list(names))
        except (pa.ArrowException, OSError, UnicodeError):
            raise self._refusal("cannot be read to its end. Check it.") from None
        if not tally.read:
            raise self._refusal("has no rows. Pass a file with records.")


def _fields(line: str, delimiter: str) -> list[str]:
    fields = next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, skipinitialspace=True), [])
    return [field.strip() for field in fields]
