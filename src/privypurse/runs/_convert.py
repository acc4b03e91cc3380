"""[RAW DATA] Convert CSV files with line breaks inside quotes to Parquet, one row for each record.

A conversion follows quotation marks from line to line (RFC 4180), so where a record ends depends on
the records before it. No guarantee covers that, nor the exact counts it returns.
"""

import csv
import io
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

from privypurse.core._errors import FileUnusable, InvalidArgument
from privypurse.runs._progress import Progress
from privypurse.runs.folder import replacing
from privypurse.tables._files import BLOCK_ROWS, BOUNDARIES, CONVERTED, CSV, UNPACKING, TableFile
from privypurse.tables._lines import not_text


@dataclass
class Converted:
    """Exact numbers of records, of those with line breaks inside quotes, and of blank lines."""

    records: int = 0
    with_line_breaks: int = 0
    blank_lines: int = 0


def convert_file(file: TableFile, out: pathlib.Path, progress: Progress) -> Converted:
    """Write the records of a CSV file to a Parquet file, every column as text. Replace the file."""
    import pyarrow as pa
    from pyarrow import parquet

    if file.format != CSV:
        raise InvalidArgument(f"file {file.path.name!r} is a {file.format} file already. Use it without conversion.")
    found = Converted()
    about = {BOUNDARIES: b"read from the data", CONVERTED: file.path.resolve().name.encode(errors="replace")}
    schema = pa.schema([(name, pa.string()) for name in file.columns], metadata=about)
    with replacing(out) as partial:
        with parquet.ParquetWriter(partial, schema) as writer:
            for block in _blocks(file, found, progress):
                columns = [pa.array(column, pa.string()) for column in zip(*block, strict=True)]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        if not found.records:
            raise InvalidArgument(f"file {file.path.name!r} has a header and no rows. Pass a file with records.")
    return found


def _blocks(file: TableFile, found: Converted, progress: Progress) -> Iterator[list[list[str]]]:
    """Yield the records in lists of at most ``BLOCK_ROWS``."""
    name, begins, block = file.path.name, 2, []
    progress.stage(f"converting {name}", file.size)
    with file.unpacked() as (raw, source):
        lines = io.TextIOWrapper(source, file.encoding, newline="\n")
        try:
            lines.readline()  # the header
            reader = csv.reader(lines, delimiter=file.delimiter, strict=True)
            for record in reader:
                if record and len(record) != len(file.columns):
                    raise _malformed(name, begins, f"has {len(record)} fields where the header has {len(file.columns)}")
                found.records += bool(record)
                found.blank_lines += not record
                found.with_line_breaks += reader.line_num + 1 > begins
                begins = reader.line_num + 2
                block += [record] if record else []
                if len(block) == BLOCK_ROWS:
                    yield block
                    progress.update(raw.tell())
                    block = []
        except csv.Error:
            what = "has a quotation mark that is not closed, text after a closing one, or a stray carriage return"
            raise _malformed(name, begins, what) from None
        except UnicodeError:
            raise not_text(name, file.encoding) from None
        except UNPACKING as error:
            raise FileUnusable(f"file {name!r} cannot be read to its end ({type(error).__name__}). Check it.") from None
    if block:
        yield block


def _malformed(name: str, line: int, what: str) -> InvalidArgument:
    return InvalidArgument(f"the record that begins on line {line} of {name!r} {what}. Repair it and convert again.")
