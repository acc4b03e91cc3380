"""Write named columns as plain CSV, a block of rows at a time."""

import csv
import pathlib
from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray


def write_csv(path: str | pathlib.Path, blocks: Iterable[dict[str, NDArray[Any]]]) -> None:
    """Write blocks with the same columns as one CSV file with a header.

    None and NaN are empty fields, and whole numbers have no point.
    """
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, block in enumerate(blocks):
            if number == 0:
                writer.writerow(block)
            writer.writerows(zip(*map(_fields, block.values()), strict=True))


def _fields(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind != "f":
        plain: list[Any] = column.tolist()
        return plain
    # str() of numpy numbers writes a float32 without spurious digits.
    return [None if value != value else int(value) if value == value // 1 else str(value) for value in column]
