"""Censuses with line breaks inside quotes, which RFC 4180 allows."""

import csv
import pathlib

from privypurse.datasets import make_census


def write_quoted(path: pathlib.Path, rows: int, odd: int, seed: int = 0) -> pathlib.Path:
    """Write a made-up census with a column of notes, `odd` of which go over two lines."""
    make_census(rows, seed).to_csv(path)
    with path.open(newline="") as file:
        header, *records = csv.reader(file)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*header, "note"])
        for index, record in enumerate(records):
            writer.writerow([*record, 'two\nlines, "here"' if index * odd % rows < odd else "one"])
    return path
