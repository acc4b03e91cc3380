"""[RAW DATA] Read files of tables in blocks. Messages never quote a record."""

import codecs
import contextlib
import csv
import difflib
import gzip
import io
import itertools
import json
import math
import os
import pathlib
import shlex
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from privypurse.core._errors import FileUnusable, InvalidArgument
from privypurse.tables import _lines as lines
from privypurse.tables._columns import float_or_nan, need_pyarrow
from privypurse.tables._lines import FEW, FIELDS, LONGEST_LINE, NO_OBJECT, Lines, Tally, not_text, not_whole

with contextlib.suppress(ImportError):  # `need_pyarrow` says what to install
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
BLOCK_ROWS = 16_384
# Metadata of Parquet files made by `convert_file`.
BOUNDARIES, CONVERTED = b"privypurse.record_boundaries", b"privypurse.converted_from"
CSV, JSON_LINES, PARQUET, ARROW = "CSV", "JSON lines", "Parquet", "Feather"
JSON_SUFFIXES = (".jsonl", ".ndjson")
MOST_KEYS = 10_000
# Errors of a packed file that is damaged or cut off.
UNPACKING = (OSError, EOFError, zlib.error, zipfile.BadZipFile)
BytesRead = Callable[[int], None]  # receives the number of bytes read so far


def converted_from(path: pathlib.Path) -> str | None:
    """Return the name of the file that a Parquet file was converted from; None if it was not, or is unreadable."""
    with contextlib.suppress(Exception):  # `TableFile` says what is wrong with it
        return str((parquet.read_schema(path).metadata or {})[CONVERTED].decode())
    return None


def ignored(_: int) -> None:
    """Ignore it."""


class Records(dict[str, list[Any]]):
    """Columns of a block of records, each value in a type of its own."""

    @property
    def num_rows(self) -> int:
        return len(next(iter(self.values()), []))


class TableFile:
    """A table in a file: CSV with a header, JSON lines (either also ``.gz`` or ``.zip``), Parquet or Feather.

    Without a `delimiter` the one of a CSV file is found in its header. Lines with another number of
    fields than the header are left out, and lines of a JSON file without an object. An object need
    not have all keys: those it lacks are missing.

    Guarantees
    ----------
    Each line of a CSV or JSON file is one record or none, decided by that line alone; see `Lines`.
    """

    def __init__(self, path: str | os.PathLike[str], *, delimiter: str | None = None, encoding: str = "utf-8") -> None:
        self.path = pathlib.Path(path)
        self.encoding = lines.known_encoding(encoding)
        if not self.path.is_file():
            what = "expected a file, got a folder" if self.path.is_dir() else "no such file"
            raise InvalidArgument(f"{what}: {str(path)!r}. Pass a CSV, JSON lines, Parquet or Feather file.")
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n' or not 0 < ord(delimiter) < 128):
            raise InvalidArgument(f"delimiter must be one ASCII character; got {delimiter!r}. Pass for example ';'.")
        need_pyarrow()
        with self.path.open("rb") as file:
            start = file.read(8)
        if not start:
            raise self._refusal("is empty. Pass a file with a header line.")
        if start == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1":
            raise self._workbook()
        self.is_gzip = start.startswith(b"\x1f\x8b")
        self.member = self._only_member() if start.startswith((b"PK\x03\x04", b"PK\x05\x06")) else None
        # By its name, as the first line of JSON lines is a record, which decides nothing about others.
        is_json = pathlib.PurePath((self.member or self.path.name).lower().removesuffix(".gz")).suffix in JSON_SUFFIXES
        by_name = JSON_LINES if is_json else CSV
        self.format = PARQUET if start.startswith(b"PAR1") else ARROW if start.startswith(b"ARROW1") else by_name
        self.tally = Tally()  # exact numbers of lines in the last call of `blocks`: private
        self.delimiter = ","
        self.uncovered: tuple[str, ...] = ()  # for certificates: what was read from records to make the file
        # In the order of the file. Empty for JSON lines until `keys` reads them from the records.
        self.columns = []
        if self.format != JSON_LINES:
            self.columns = self._header(delimiter) if self.format == CSV else self._typed_columns()
        if twice := sorted({name for name in self.columns if self.columns.count(name) > 1}):
            if self._looks_headless:
                raise self._refusal("has a first line that does not look like a header. Add one.")
            raise self._refusal(f"has several columns named {twice[0]!r}. Rename them, or check the header line.")

    def _refusal(self, why: str) -> InvalidArgument:
        return InvalidArgument(f"file {self.path.name!r} {why}")

    def _workbook(self, *, is_xlsx: bool = False) -> InvalidArgument:
        name, how = self.path.name, "convert its first sheet"
        command = f"soffice --headless --convert-to csv {shlex.quote(name)}"
        if is_xlsx:
            how += " (after pip install openpyxl)"
            name, out = json.dumps(name), json.dumps(name.removesuffix(".xlsx") + ".csv")
            book = f'openpyxl.load_workbook(open({name}, "rb"), read_only=True, data_only=True)'
            written = f'csv.writer(open({out}, "x", newline="", encoding="utf-8")).writerows'
            command = f"python -c {shlex.quote(f'import csv, openpyxl; {written}({book}.worksheets[0].values)')}"
        return self._refusal(f"is a spreadsheet. Save it as CSV in UTF-8, or {how}: `{command}`.")

    def _only_member(self) -> str:
        """Return the name of the file in a zip file."""
        unzip = f"`unzip {shlex.quote(self.path.name)}`"
        try:
            with zipfile.ZipFile(self.path) as packed:
                listed = packed.infolist()
                files = [one for one in listed if not one.is_dir() and not one.filename.startswith("__MACOSX/")]
                with packed.open(files[0]) if len(files) == 1 and _is_plain(files[0]) else io.BytesIO() as file:
                    start = file.read(8)
        except UNPACKING:
            raise self._refusal("is not a complete zip file. Check it.") from None
        is_xlsx = any(one.filename == "xl/workbook.xml" for one in listed)
        if any(one.filename.startswith("xl/") or one.filename == "content.xml" for one in listed):
            raise self._workbook(is_xlsx=is_xlsx)
        if len(files) != 1:
            raise self._refusal(f"is a zip file of several files or none. Unzip it and pass one of them: {unzip}.")
        if not _is_plain(files[0]):
            raise self._refusal(f"is a zip file with a password, or compressed in a rare way. Unzip it: {unzip}.")
        if start.startswith((b"PAR1", b"ARROW1", b"PK\x03\x04", b"\x1f\x8b", b"\xd0\xcf\x11\xe0")):
            raise self._refusal(f"is a zip file of a file that is not text. Unzip it: {unzip}.")
        return files[0].filename

    @property
    def has_lines(self) -> bool:
        """Whether a record is a line, which may be unreadable."""
        return self.format in (CSV, JSON_LINES)

    @contextlib.contextmanager
    def unpacked(self) -> Iterator[tuple[Any, Any]]:
        """Open a file that has lines. Yield the file on disk, whose position shows the progress, and its contents."""
        with self.path.open("rb") as raw:
            if self.member is not None:
                with zipfile.ZipFile(raw) as packed, packed.open(self.member) as contents:
                    yield raw, contents
            else:
                yield raw, gzip.GzipFile(fileobj=raw) if self.is_gzip else raw

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self.path.stat().st_size

    def require(self, names: Sequence[str]) -> None:
        """Raise InvalidArgument if the file lacks a column. Keys of JSON lines are looked for by `blocks`."""
        if self.format == JSON_LINES:
            return
        if lacking := [name for name in names if name not in self.columns]:
            where = f"column {lacking[0]!r} is not in {self.path.name!r}"
            if self._looks_headless:
                raise InvalidArgument(f"{where}: its first line does not look like a header. Add one.")
            listed = ", ".join(map(repr, self.columns[:12])) + (", ..." if len(self.columns) > 12 else "")
            near = difflib.get_close_matches(lacking[0], self.columns, 1)
            remedy = f"Did you mean {near[0]!r}?" if near else "Check the name, and that the first line is a header."
            only = self.columns[0] if len(self.columns) == 1 and self.format == CSV else ""
            if others := [word for sign, word in DELIMITERS.items() if sign != self.delimiter and sign in only]:
                remedy = f"The header looks separated by a {others[0]}: pass that as --delimiter, or leave it out."
            raise InvalidArgument(f"{where}, which has {listed}. {remedy}")

    @property
    def _looks_headless(self) -> bool:
        """Whether the first line may be a record, which no message may quote."""
        # "nan" too: that is how pandas may write a missing number. Braces: a part of a JSON object.
        odd = (name.strip().lower() == "nan" or not math.isnan(float_or_nan(name)) for name in self.columns)
        return self.format == CSV and (any(odd) or any(sign in name for sign in "{}" for name in self.columns))

    def blocks(
        self, names: Sequence[str], *, strict: bool = False, progress: BytesRead = ignored, may_be_empty: bool = False
    ) -> Iterator[Any]:
        """Yield tables of some ten thousand rows with the named columns, in order.

        Tables are Arrow tables, or `Records` of JSON lines. Columns of CSV files are text. `strict`
        raises InvalidArgument for a line that is not a record instead of leaving it out.
        `may_be_empty` accepts a CSV file without records.
        """
        self.require(names)
        if self.format == CSV:
            return self._csv_blocks(names, strict, progress, may_be_empty)
        return self._json_blocks(names, strict, progress) if self.has_lines else self._typed_blocks(names, progress)

    def keys(self, progress: BytesRead = ignored) -> list[str]:
        """Return the columns; of JSON lines, the keys that occur in any record."""
        if self.format != JSON_LINES or self.columns:
            return self.columns
        found: dict[str, None] = {}
        for record in self._json_records(False, progress):
            found.update(dict.fromkeys(record))
            if len(found) > MOST_KEYS:
                raise self._refusal(f"has records of more than {MOST_KEYS:,} different keys. Pass a schema.")
        self.columns = list(found)
        return self.columns

    def _header(self, delimiter: str | None) -> list[str]:
        start = b""
        try:
            with self.unpacked() as (_, file):
                start = bytes(file.read(4_096))
            line = self._first_line()
        except UnicodeError:
            raise not_text(self.path.name, self.encoding, start) from None
        except UNPACKING as error:
            raise FileUnusable(f"file {self.path.name!r} cannot be read ({type(error).__name__}). Check it.") from None
        if lines.is_binary(line.encode("utf-8", "replace")):  # a record may have such bytes, a header may not
            raise not_text(self.path.name, self.encoding, start + line.encode("utf-8", "replace"))
        self._check_no_json(line)
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
        if names.count("") > 1:  # as from a spreadsheet with empty columns
            names = [name or f"column {place}" for place, name in enumerate(names, 1)]
        return names

    def _check_no_json(self, line: str) -> None:
        """Raise InvalidArgument if a first line is that of a JSON document, or of JSON lines under another name."""
        name, opening = self.path.name, line.strip()
        if opening == "[" or opening.startswith(("[{", "[ {")):
            code = f"import json; [print(json.dumps(one)) for one in json.load(open({name!r}))]"
            out = shlex.quote(str(pathlib.PurePath(name).with_suffix(".jsonl")))
            command = f"`python -c {shlex.quote(code)} > {out}`"
            raise self._refusal(f"is one JSON document. Write its records line by line: {command}.")
        if opening.startswith("{"):
            raise self._refusal("begins like JSON lines. Give it a name that ends with .jsonl.")

    def _first_line(self) -> str:
        """Return the header line. Errors in later lines do not matter here."""
        with self.unpacked() as (_, file):
            if not lines.is_wide(self.encoding):
                return bytes(file.readline(LONGEST_LINE + 9)).decode(self.encoding).removeprefix("\ufeff")
            decoder, text = codecs.getincrementaldecoder(self.encoding)("replace"), ""
            while "\n" not in text and len(text) <= LONGEST_LINE and (chunk := file.read(4_096)):
                text += decoder.decode(chunk)
        line, end, _ = text.partition("\n")
        return (line + end).removeprefix("\ufeff")

    def _csv_blocks(self, names: Sequence[str], strict: bool, progress: BytesRead, may_be_empty: bool) -> Iterator[Any]:
        self.tally = tally = Tally()
        name = self.path.name

        def skip(row: Any) -> str:
            tally.left_out[FIELDS] += 1
            return "error" if strict else "skip"

        parse = arrow_csv.ParseOptions(delimiter=self.delimiter, invalid_row_handler=skip)
        convert = arrow_csv.ConvertOptions(
            include_columns=list(names), column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        )
        try:
            with self.unpacked() as (raw, contents):
                kept = Lines(contents, self.delimiter, self.encoding, strict=strict, name=name, tally=tally)
                for number, text in enumerate(kept):
                    # From memory: a reader of files has threads, which abort the process if it ends before them.
                    # An empty line stands for the header, so that no record is where a byte order mark is removed.
                    block = b"\n" + text if number else text
                    how = {"skip_rows": 1, "block_size": len(block) + 1, "use_threads": False}
                    read = arrow_csv.ReadOptions(column_names=self.columns, **how)
                    found = arrow_csv.read_csv(pa.BufferReader(block), read, parse, convert)
                    tally.read += found.num_rows
                    progress(raw.tell())
                    if found.num_rows:
                        yield found
        except (pa.ArrowException, UnicodeError) as error:
            if tally.read or not str(error).startswith(("Empty CSV", "Could not skip")):
                if "utf8" in str(error).lower() or "codec" in str(error):
                    raise not_text(name, self.encoding) from None
                if strict and tally.left_out[FIELDS]:
                    raise not_whole(name, FIELDS) from None
                why = f"cannot be read as a table separated by {self.delimiter!r}. Check delimiter and quotes."
                raise self._refusal(why) from None
        except UNPACKING as error:
            raise self._cut_off(error) from None
        if tally.read or may_be_empty:
            return
        if not tally.left_out:
            raise self._refusal("has a header and no rows. Pass a file with records.")
        what = f"has no line with {len(self.columns)} fields, like its header, and closed quotes"
        raise self._refusal(f"{what}. Check --delimiter and the first line, which may lack a delimiter at its end.")

    def _cut_off(self, error: BaseException) -> FileUnusable:
        return FileUnusable(f"{self.path.name!r} cannot be read to its end ({type(error).__name__}): truncated?")

    def _json_records(self, strict: bool, progress: BytesRead) -> Iterator[dict[str, Any]]:
        """Yield the objects of the lines. Each is parsed by itself: other records decide no type."""
        self.tally = tally = Tally()
        try:
            with self.unpacked() as (raw, contents):
                kept = Lines(contents, None, self.encoding, strict=strict, name=self.path.name, tally=tally)
                for line in itertools.chain.from_iterable(text.split(b"\n") for text in kept):
                    if line in (b"", b"\r"):
                        continue
                    if (found := lines.json_object(line)) is None:
                        kept.leave_out(NO_OBJECT)
                        continue
                    tally.read += 1
                    if tally.read % BLOCK_ROWS == 0:
                        progress(raw.tell())
                    yield found
                progress(raw.tell())
        except UNPACKING as error:
            raise self._cut_off(error) from None
        if not tally.read:
            raise self._refusal("has no line with a JSON object. Write each record as one object on one line.")

    def _json_blocks(self, names: Sequence[str], strict: bool, progress: BytesRead) -> Iterator[Any]:
        records, is_first = self._json_records(strict, progress), True
        while listed := list(itertools.islice(records, BLOCK_ROWS)):
            for name in names if is_first and len(listed) >= FEW else ():
                if name not in self.columns and not any(name in record for record in listed):
                    remedy = "Check the name, in the schema too."
                    raise InvalidArgument(f"none of the first records of {self.path.name!r} has {name!r}. {remedy}")
            is_first = False
            yield Records({name: [record.get(name) for record in listed] for name in names})

    def _typed_columns(self) -> list[str]:
        try:
            schema = parquet.read_schema(self.path) if self.format == PARQUET else self._arrow_file().schema
            if BOUNDARIES in (schema.metadata or {}):
                read = "which `privypurse data convert` read from the quotation marks of the records before it"
                self.uncovered = (f"where each record of {self.path.name} begins and ends, {read}",)
            return [str(name) for name in schema.names]
        except (pa.ArrowException, OSError, UnicodeError):
            raise self._refusal(f"is not a complete {self.format} file. Check it.") from None

    def _typed_blocks(self, names: Sequence[str], progress: BytesRead) -> Iterator[Any]:
        self.tally = tally = Tally()
        batches = self._parquet_batches(names) if self.format == PARQUET else self._arrow_batches(names)
        try:
            for batch, share in batches:
                tally.read += batch.num_rows
                progress(int(self.size * share))
                yield pa.Table.from_batches([batch]).select(list(names))
        except (pa.ArrowException, OSError, UnicodeError):
            raise self._refusal("cannot be read to its end. Check it.") from None
        if not tally.read:
            raise self._refusal("has no rows. Pass a file with records.")

    def _parquet_batches(self, names: Sequence[str]) -> Iterator[tuple[Any, float]]:
        """Yield batches, and how much of the file has been read."""
        with parquet.ParquetFile(self.path) as file:
            rows, read = max(1, file.metadata.num_rows), 0
            for batch in file.iter_batches(batch_size=BLOCK_ROWS, columns=list(names)):
                read += batch.num_rows
                yield batch, read / rows

    def _arrow_batches(self, names: Sequence[str]) -> Iterator[tuple[Any, float]]:
        file = self._arrow_file([self.columns.index(name) for name in dict.fromkeys(names)])
        for index in range(file.num_record_batches):
            whole = file.get_batch(index)
            for column in whole.columns:
                _check_offsets(column)
            for start in range(0, whole.num_rows, BLOCK_ROWS):
                batch = whole.slice(start, BLOCK_ROWS)
                yield batch, (index + (start + batch.num_rows) / whole.num_rows) / file.num_record_batches

    def _arrow_file(self, places: Sequence[int] | None = None) -> Any:
        """Open a Feather file, to read all columns or those at some places."""
        return pa.ipc.open_file(str(self.path), options=pa.ipc.IpcReadOptions(included_fields=places))


def _is_plain(member: zipfile.ZipInfo) -> bool:
    """Whether a file in a zip file has no password and is compressed as usual."""
    return not member.flag_bits & 1 and member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def _check_offsets(column: Any) -> None:
    """Raise ArrowInvalid if a damaged column would crash. No value is a reason, such as text that is not UTF-8."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        _check_offsets(column.dictionary)
        pa.DictionaryArray.from_arrays(column.indices, column.dictionary)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column.view(pa.binary() if pa.types.is_string(kind) else pa.large_binary()).validate(full=True)
    elif str(kind) == "string_view":
        column.view(pa.binary_view()).validate(full=True)
    else:
        column.validate(full=not pa.types.is_primitive(kind) and not pa.types.is_decimal(kind))


def _fields(line: str, delimiter: str) -> list[str]:
    fields = next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, skipinitialspace=True), [])
    return [field.strip() for field in fields]
