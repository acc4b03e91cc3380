"""[RAW DATA] Draft a schema from the records of a table. No guarantee covers that."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privypurse.core._errors import InvalidArgument
from privypurse.tables._columns import as_text, column_of, numbers
from privypurse.tables._files import BytesRead, TableFile, ignored
from privypurse.tables._schema import MISSING_VALUES, Category, ClassTarget, Number, NumberTarget, Schema, Source

# Whole numbers of at most so many values are categories; targets of at most so many are classes.
FEW_NUMBERS, FEW_CLASSES = 12, 20
MOST_LISTED, MOST_COUNTED = 60, 5_000
LARGEST = 1e100
_DATE = r"^(\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4})$"
_COMMA = r"^[+-]?\d+,\d+$"


@dataclass
class _Seen:
    """Statistics of one column."""

    decimal: str
    rows: int = 0
    missing: int = 0
    numbers: int = 0
    whole: int = 0
    low: float = math.inf
    high: float = -math.inf
    dates: int = 0
    commas: int = 0
    values: Counter[str] = field(default_factory=Counter)
    counted: int = 0  # records whose values were counted
    too_many: bool = False
    unusable: bool = False

    def take(self, column: Any) -> None:
        from pyarrow import compute as pc

        try:
            found = numbers(column, MISSING_VALUES, self.decimal)
        except InvalidArgument:  # a nested type
            self.unusable = True
            return
        valid = found[np.isfinite(found)]
        present = as_text(column, MISSING_VALUES).drop_null()
        self.rows += len(column)
        self.missing += len(column) - len(present)
        self.numbers += valid.size
        self.whole += int((valid == np.round(valid)).sum())
        self.dates += pc.sum(pc.match_substring_regex(present, _DATE)).as_py() or 0
        self.commas += pc.sum(pc.match_substring_regex(present, _COMMA)).as_py() or 0
        if valid.size:
            self.low, self.high = min(self.low, float(valid.min())), max(self.high, float(valid.max()))
        if not self.too_many:
            for entry in pc.value_counts(present).to_pylist():
                self.values[entry["values"]] += entry["counts"]
            self.counted += len(column)
            self.too_many = len(self.values) > MOST_COUNTED

    @property
    def present(self) -> int:
        return self.rows - self.missing

    @property
    def is_number(self) -> bool:
        return self.present > 0 and self.numbers >= 0.98 * self.present and self.low < self.high


def draft_schema(
    file: TableFile, target: str | None, *, progress: BytesRead = ignored
) -> tuple[Schema, dict[str, str]]:
    """Read a whole file and draft its schema.

    Parameters
    ----------
    file : TableFile
        The table.
    target : str or None
        Name of the column to predict.
    progress : callable
        Receives the number of bytes read.

    Returns
    -------
    Schema
        The schema, marked as read from the data.
    dict of str to str
        Remarks by column, also for columns that are left out.
    """
    if target is not None:
        file.require([target])
    seen, decimal = _look(file, ".", progress), "."
    # One column of numbers such as 80,5 decides for all.
    if any(one.commas > 0.5 * one.present > 0 for one in seen.values()):
        seen, decimal = _look(file, ",", progress), ","
    found = {name: _describe(name, seen[name]) for name in file.columns if name != target}
    columns = tuple(column for column, _ in found.values() if column is not None)
    remarks = {name: remark for name, (_, remark) in found.items() if remark}
    described = None if target is None else _target(target, seen[target])
    return Schema(columns, described, kinds=Source.DATA, decimal=decimal), remarks


def _look(file: TableFile, decimal: str, progress: BytesRead) -> dict[str, _Seen]:
    seen = {name: _Seen(decimal) for name in file.columns}
    for block in file.blocks(file.columns, progress=progress):
        for name in file.columns:
            seen[name].take(column_of(block, name))
    return seen


def _describe(name: str, seen: _Seen) -> tuple[Number | Category | None, str]:
    missing, distinct = seen.missing > 0, len(seen.values)
    if seen.unusable:
        return None, "left out: its type cannot be used"
    if seen.present == 0:
        return None, "left out: no values"
    few = not seen.too_many and distinct <= FEW_NUMBERS and seen.whole == seen.numbers
    if seen.is_number and not few:
        if seen.whole == seen.numbers and distinct > 0.95 * seen.counted > 100:
            return None, "left out: almost every record has a number of its own, as an identifier does"
        return Number(name=name, range=_rounded(seen.low, seen.high), missing=missing, source=Source.DATA), ""
    if seen.dates > 0.5 * seen.present:
        return None, "left out: it looks like dates; make numbers of them first, such as days since some day"
    if seen.too_many or distinct > 0.5 * seen.present > 50:
        return None, "left out: text with too many different values"
    if distinct == 1:
        return None, "left out: all records have one value"
    listed = tuple(sorted(value for value, _ in seen.values.most_common(MOST_LISTED)))
    other = distinct > MOST_LISTED
    remark = f"the {MOST_LISTED} most frequent of {distinct} values" if other else ""
    return Category(name=name, categories=listed, other=other, missing=missing, source=Source.DATA), remark


def _target(name: str, seen: _Seen) -> ClassTarget | NumberTarget:
    if 2 <= len(seen.values) <= FEW_CLASSES and not seen.too_many:
        return ClassTarget(name=name, classes=tuple(sorted(seen.values)), source=Source.DATA)
    if seen.is_number:
        return NumberTarget(name=name, range=_rounded(seen.low, seen.high), source=Source.DATA)
    raise InvalidArgument(f"target {name!r} has neither numbers nor 2 to {FEW_CLASSES} classes. Describe it yourself.")


def _rounded(low: float, high: float) -> tuple[float, float]:
    """Round a range outwards to about a hundredth of its width. That hides only the last digits."""
    low, high = max(low, -LARGEST), min(high, LARGEST)
    if not high - low > 1e-12 * max(abs(low), abs(high), 1e-100):  # too narrow
        room = max(abs(low), abs(high), 1.0)
        return max(low - room, -LARGEST), min(high + room, LARGEST)
    unit = 10.0 ** math.floor(math.log10(high - low) - 1)
    digits = max(0, -math.floor(math.log10(unit)))
    below, above = round(math.floor(low / unit) * unit, digits), round(math.ceil(high / unit) * unit, digits)
    return max(min(below, low), -LARGEST), min(max(above, high), LARGEST)
