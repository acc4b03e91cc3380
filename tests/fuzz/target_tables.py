"""Schemas, and tables in CSV and Parquet files."""

import collections
import contextlib
import gzip
import json
import math
import pathlib
import tomllib
import zlib
from random import Random
from typing import Any

import numpy as np

from privypurse.core._errors import PrivypurseError
from privypurse.datasets import make_census
from privypurse.runs._demo import census_schema
from privypurse.runs._progress import Silent
from privypurse.runs._rows import read_rows
from privypurse.tables._draft import draft_schema
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._files import TableFile
from privypurse.tables._schema import Category, ClassTarget, Number, Schema, parse_schema, read_schema, write_schema
from privypurse.tables.chunks import from_files
from tests.fuzz.guard import Finding
from tests.fuzz.mutations import TEXTS, TOKENS, nested, spoil_bytes, spoil_text, spoil_tree

# Stands in records only: no message may quote it.
SECRET = "Xanthippe4711"
SCHEMA = Schema(
    (
        Number(name="age", range=(0, 100), missing=("n/a", "0"), unit="%"),
        Number(name="wage", cuts=(10.0, 20.5, 100.0)),
        Category(name="job", categories=("law", 'ca"re', "é", SECRET), other=True),
    ),
    ClassTarget(name="rich", classes=("no", "yes")),
)


class SchemaTarget:
    """Whatever is in a schema file, it is read and can be written and used, or refused."""

    name, seconds = "schema", 5.0

    def prepare(self, folder: pathlib.Path) -> None:
        self._path = folder / "schema.toml"
        census = make_census(200, 1)
        drafted = folder / "census.csv"
        census.to_csv(drafted)
        draft, remarks = draft_schema(TableFile(drafted), census.target)
        texts = (write_schema(SCHEMA), write_schema(census_schema(census)), write_schema(draft, comments=remarks))
        self._texts = (*texts, 'decimal = ","\nmissing_values = ["?"]\n' + texts[0])
        self._trees = tuple(map(tomllib.loads, self._texts))
        for text in self._texts:
            self.check(text.encode())

    def make(self, random: Random) -> bytes:
        kind = random.randrange(12)
        if kind < 7:
            return toml(spoil_tree(random, random.choice(self._trees))).encode("utf-8", "surrogatepass")
        if kind == 7:
            depth = random.choice((30, 900, 20_000))
            makers = (nested(depth), "{a=" * depth + "1" + "}" * depth, "9" * depth, '"' + "x" * depth + '"')
            return f"[columns.age]\nrange = {random.choice(makers)}\n".encode()
        if kind == 8:
            return spoil_text(random, random.choice(self._texts)).encode("utf-8", "surrogatepass")
        return spoil_bytes(random, random.choice(self._texts).encode(), tuple(map(str.encode, self._texts)))

    def check(self, content: bytes) -> None:
        self._path.write_bytes(content)
        schema = read_schema(self._path)
        if parse_schema(write_schema(schema)) != schema:
            raise Finding("a schema is not what it was after it was written and read")
        if schema.to_buy or len(schema.features) > 10_000:
            return
        columns = {column.name: ["0", "x", ""] for column in schema.columns}
        encoded = TableEncoder(schema).transform(columns) if columns else np.zeros((3, 0))
        dense = encoded.toarray() if hasattr(encoded, "toarray") else np.asarray(encoded)
        if dense.shape != (3, len(schema.features)) or not np.isfinite(dense).all():
            raise Finding("a schema encodes a row into something else than finite numbers, one for each feature")


def toml(tree: Any) -> str:
    """Write a tree as TOML, with tables in lines; what is wrong in it stays wrong."""
    if not isinstance(tree, dict):
        return f"value = {_toml_value(tree)}\n"
    lines = [f"{json.dumps(str(key))} = {_toml_value(inner)}" for key, inner in tree.items()]
    return "\n".join(lines) + "\n"


def _toml_value(tree: Any) -> str:
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml_value(inner)}" for key, inner in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(_toml_value, tree)) + "]"
    if isinstance(tree, float) and not math.isfinite(tree):
        return str(tree)
    return '"none"' if tree is None else json.dumps(tree)


class CsvTarget:
    """Whatever is in a table, it is read line by line or refused, no message quotes a record, and
    no line touches another.
    """

    name, seconds = "csv", 5.0

    def prepare(self, folder: pathlib.Path) -> None:
        self._path, self._less = folder / "table.csv", folder / "less.csv"
        rows = [
            ["age", "wage", "job", "rich"],
            *[[str(20 + k), f"{k}.5", ("law", 'ca"re', "é", SECRET)[k % 4], ("no", "yes")[k % 2]] for k in range(30)],
        ]
        self._tables = (rows, [["age", "job", "rich", "wage"], *[[row[0], row[2], row[3], row[1]] for row in rows[1:]]])
        self.check(b"\x00" + _csv(rows, ",", "\n"))

    def make(self, random: Random) -> bytes:
        """Return the number of the line that is left out for comparison, in the first byte, and the
        file.
        """
        rows = [list(row) for row in random.choice(self._tables)]
        for _ in range(random.choice((0, 1, 2, 5))):
            row = random.choice(rows if random.random() < 0.3 else rows[1:])
            at = random.randrange(len(row)) if row else 0
            kind = random.randrange(5)
            if kind < 2 and row:
                row[at] = random.choice((random.choice(TEXTS), spoil_text(random, row[at]), SECRET))
            elif kind == 2:
                row.insert(at, random.choice(TEXTS))
            elif kind == 3 and row:
                del row[at]
            else:
                rows.insert(random.randrange(1, len(rows)), row)
        content = _csv(rows, random.choice(",,,;\t|"), random.choice(("\n", "\n", "\r\n", "\r")))
        kind = random.randrange(10)
        if kind < 4:
            content = spoil_bytes(random, content)
        elif kind == 4:
            lines = content.split(b"\n")
            at = random.randrange(len(lines))
            piece = random.choice((*TOKENS, b'"' * 3, b'"a\nb"', b"x" * 300_000, b"," * 5_000))
            lines[at] = random.choice((piece + lines[at], lines[at] + piece, piece))
            content = b"\n".join(lines)
        elif kind == 5:
            packed = gzip.compress(content, mtime=0)
            content = packed if random.random() < 0.3 else spoil_bytes(random, packed)
        elif kind == 6:
            content = content.decode("utf-8", "replace").encode(random.choice(("utf-16", "utf-32", "utf-8-sig")))
        return bytes([random.randrange(256)]) + content

    def check(self, content: bytes) -> None:
        number, content = content[0] if content else 0, content[1:]
        self._path.write_bytes(content)
        lines = content.split(b"\n")
        try:
            found = self._rows(self._path), self._chunks(self._path)
            if not content.startswith(b"\x1f\x8b") and len(lines) > 3:
                del lines[1 + number % (len(lines) - 2)]
                self._less.write_bytes(b"\n".join(lines))
                self._compare(found)
            draft_schema(TableFile(self._path), None)
        except PrivypurseError as error:
            if SECRET in str(error) and SECRET.encode() not in _first_line(content):
                raise Finding("a message quotes a record") from error
            raise

    def _rows(self, path: pathlib.Path) -> "collections.Counter[bytes]":
        file = TableFile(path)
        file.require(SCHEMA.names)
        rows, _ = read_rows(file, SCHEMA, Silent())
        matrix = rows.X.toarray() if hasattr(rows.X, "toarray") else rows.X
        if not np.isfinite(matrix).all():
            raise Finding("a row was read that is not finite")
        return collections.Counter(row.tobytes() for row in np.column_stack([matrix, rows.y]))

    def _chunks(self, path: pathlib.Path) -> "collections.Counter[bytes]":
        """Read the file as an oracle larger than memory does."""
        chunks = from_files(path, features=["age", "wage"], target="rich", format="csv")
        return collections.Counter(
            row.tobytes() + str(label).encode("utf-8", "replace")
            for table, labels in chunks()
            for row, label in zip(table, labels, strict=True)
        )

    def _compare(self, found: "tuple[collections.Counter[bytes], ...]") -> None:
        """One line more or less is one record more or less, or none."""
        try:
            fewer = self._rows(self._less), self._chunks(self._less)
        except PrivypurseError:
            return  # too few lines are left, or too many of them are odd
        for all_of_them, others in zip(found, fewer, strict=True):
            gained, lost = (others - all_of_them).total(), (all_of_them - others).total()
            if gained or lost > 1:
                raise Finding(f"a line taken out of a table removes {lost} records and adds {gained}")


def _first_line(content: bytes) -> bytes:
    """Return the header, which is not a record."""
    if content.startswith(b"\x1f\x8b"):
        with contextlib.suppress(zlib.error):
            content = zlib.decompressobj(31).decompress(content, 1 << 20)
    return content.replace(b"\x00", b"").partition(b"\n")[0]


def _csv(rows: list[list[str]], delimiter: str, end: str) -> bytes:
    def field(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in (delimiter, '"')) else text

    return (end.join(delimiter.join(map(field, row)) for row in rows) + end).encode("utf-8", "surrogatepass")


class ParquetTarget:
    """A damaged Parquet file is refused."""

    name, seconds = "parquet", 5.0

    def prepare(self, folder: pathlib.Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self._path = folder / "table.parquet"
        count = 40
        columns = {
            "age": [20 + k for k in range(count)],
            "wage": [k / 2 for k in range(count)],
            "job": [("law", "é", SECRET)[k % 3] for k in range(count)],
            "rich": [("no", "yes")[k % 2] for k in range(count)],
        }
        odd = columns | {"age": [None, *columns["age"][1:]], "wage": [[1.0]] * count, "job": [b"\xff"] * count}
        self._seeds = []
        for table in (pa.table(columns), pa.table(odd)):
            for compression in ("none", "snappy"):
                parquet.write_table(table, self._path, compression=compression)
                self._seeds.append(self._path.read_bytes())
        self.check(self._seeds[0])

    def make(self, random: Random) -> bytes:
        return spoil_bytes(random, random.choice(self._seeds), tuple(self._seeds))

    def check(self, content: bytes) -> None:
        self._path.write_bytes(content)
        file = TableFile(self._path)
        try:
            file.require(SCHEMA.names)
            rows, _ = read_rows(file, SCHEMA, Silent())
        except PrivypurseError as error:
            if SECRET in str(error):
                raise Finding("a message quotes a record") from error
            raise
        if not np.isfinite(np.asarray(rows.X.toarray() if hasattr(rows.X, "toarray") else rows.X)).all():
            raise Finding("a row was read that is not finite")
