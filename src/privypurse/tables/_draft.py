"""[RAW DATA] Draft a schema from the records of a table. No guarantee covers that."""

import datetime
import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument
from privypurse.tables._columns import Mixed, as_text, column_of, dates, has_dates, numbers
from privypurse.tables._files import BytesRead, TableFile, ignored
from privypurse.tables._schema import (
    EPOCH,
    MISSING_VALUES,
    Category,
    ClassTarget,
    Column,
    Date,
    Number,
    NumberTarget,
    Schema,
    Source,
)

# Whole numbers of at most so many values are categories; targets of at most so many are classes.
FEW_NUMBERS, FEW_CLASSES = 12, 20
MOST_LISTED, MOST_COUNTED = 60, 5_000
RARE = 10  # records
LARGEST = 1e100
# Decimal sign and thousands separator. Of those that read as many values, the first is taken.
STYLES = ((".", ""), (".", ","), (",", ""), (",", "."), (".", " "), (",", " "), (".", "'"))
_DAYS = (
    "%Y-%m-%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%Y/%m/%d",
    "%d.%m.%y",
    "%d/%m/%y",
    "%m/%d/%y",
)
FORMATS = (None, *(day + time for day, time in itertools.product(_DAYS, ("", " %H:%M", " %H:%M:%S"))))
_DATE = r"^(\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,4}[./-]\d{1,2}[./-]\d{1,4}( .*)?)$"
# A number with another sign than a point: a comma, a space of some width, or an apostrophe.
_SIGNED = r"^[+-]?\d[\d.]*[, '\x{a0}\x{2009}\x{202f}\x{2019}][\d., '\x{a0}\x{2009}\x{202f}\x{2019}]*$"
_IDENTIFIER = re.compile(r"(?i:(^|[_\W])(id|uuid|guid|ssn|iban|e?mail|phone|name|surname|address))$|[a-z]I[dD]$")
_SIGNS = {".": "a point", ",": "a comma", " ": "a space", "'": "an apostrophe"}


@dataclass(frozen=True)
class Remark:
    """What a column was taken for, why, and what to check. Without counts: drafts are kept and shared."""

    taken_for: str
    why: str
    warning: str = ""

    def __str__(self) -> str:
        return f"{self.taken_for}: {self.why}" + (f"\nCHECK: {self.warning}" if self.warning else "")


@dataclass
class _Found:
    """Numbers, or dates, that were read in one way."""

    count: int = 0
    whole: int = 0
    low: float = math.inf
    high: float = -math.inf

    def take(self, found: FloatArray) -> None:
        valid = found[np.isfinite(found)]
        self.count += valid.size
        self.whole += int((valid == np.round(valid)).sum())
        if valid.size:
            self.low, self.high = min(self.low, float(valid.min())), max(self.high, float(valid.max()))


@dataclass
class _Seen:
    """Statistics of one column."""

    rows: int = 0
    missing: int = 0
    styles: dict[tuple[str, str], _Found] = field(default_factory=lambda: {style: _Found() for style in STYLES})
    formats: dict[str | None, _Found] = field(default_factory=lambda: {format: _Found() for format in FORMATS})
    looking_like_dates: int = 0
    words: int = 0
    values: Counter[str] = field(default_factory=Counter)
    counted: int = 0  # records whose values were counted
    too_many: bool = False
    unusable: bool = False

    def take(self, column: Any) -> None:
        from pyarrow import compute as pc

        try:
            found = numbers(column, MISSING_VALUES)
            present = _texts(column)
        except InvalidArgument:  # a nested type
            self.unusable = True
            return
        self.rows += len(column)
        self.missing += len(column) - len(present)
        self._take_numbers(column, found, present)
        if has_dates(column):  # which have no format
            self.formats = {None: self.formats[None]}
        if likely := pc.sum(pc.match_substring_regex(present, _DATE)).as_py() or 0:
            self.looking_like_dates += likely
            for format, read in self.formats.items():
                read.take(dates(column, MISSING_VALUES, format))
            most = max(read.count for read in self.formats.values())
            self.formats = {format: read for format, read in self.formats.items() if read.count == most}
        if not self.too_many:
            for entry in pc.value_counts(present).to_pylist():
                self.values[entry["values"]] += entry["counts"]
                self.words += len(entry["values"].split()) * entry["counts"]
            self.counted += len(column)
            self.too_many = len(self.values) > MOST_COUNTED

    def _take_numbers(self, column: Any, found: FloatArray, present: Any) -> None:
        from pyarrow import compute as pc

        signed = pc.any(pc.match_substring_regex(present, _SIGNED)).as_py()
        whole = found[found == np.round(found)]
        for (decimal, thousands), read in self.styles.items():
            if signed:
                read.take(numbers(column, MISSING_VALUES, decimal, thousands))
            else:  # nothing but a point may have been written in these numbers
                read.take(found if decimal == "." else whole)

    @property
    def present(self) -> int:
        return self.rows - self.missing

    @property
    def style(self) -> tuple[str, str]:
        """Decimal sign and thousands separator that read most values."""
        return max(self.styles, key=lambda style: self.styles[style].count)

    @property
    def numbers(self) -> _Found:
        return self.styles[self.style]

    @property
    def is_number(self) -> bool:
        found = self.numbers
        return self.present > 0 and found.count >= 0.98 * self.present and found.low < found.high

    @property
    def signs(self) -> dict[str, Any]:
        """Settings of a column of numbers that are not the default."""
        decimal, thousands = self.style
        signs = {"decimal": "" if decimal == "." else decimal, "thousands": thousands}
        return {key: sign for key, sign in signs.items() if sign}


def draft_schema(
    file: TableFile, target: str | None, *, progress: BytesRead = ignored
) -> tuple[Schema, dict[str, Remark]]:
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
    dict of str to Remark
        What each column was taken for and why, also for columns that are left out.
    """
    if target is not None:
        file.require([target])
    names = file.keys(progress)
    if target is not None and target not in names:  # JSON lines, whose keys no message quotes
        raise InvalidArgument(f"no record of {file.path.name!r} has {target!r}. Check the name.")
    seen = {name: _Seen() for name in names}
    for block in file.blocks(names, progress=progress):
        for name in names:
            seen[name].take(column_of(block, name))
    found = {name: _describe(name, seen[name]) for name in names if name != target}
    columns = tuple(column for column, _ in found.values() if column is not None)
    remarks = {name: remark for name, (_, remark) in found.items()}
    if target is None:
        return Schema(columns, kinds=Source.DATA), remarks
    described, remark = _target(target, seen[target])
    return Schema(columns, described, kinds=Source.DATA), {target: remark} | remarks


def _texts(column: Any) -> Any:
    """Return the values that are not missing, as text."""
    import pyarrow as pa

    if isinstance(column, Mixed):
        listed = column.gather(lambda part: as_text(part, MISSING_VALUES).to_numpy(zero_copy_only=False), None, object)
        column = pa.array(listed, pa.string())
    return as_text(column, MISSING_VALUES).drop_null()


def _describe(name: str, seen: _Seen) -> tuple[Column | None, Remark]:
    if seen.unusable:
        return None, Remark("left out", "its type cannot be used")
    if seen.present == 0:
        return None, Remark("left out", "no values")
    if seen.is_number and (seen.too_many or len(seen.values) > FEW_NUMBERS or seen.numbers.whole < seen.numbers.count):
        return _number(name, seen)
    if seen.looking_like_dates > 0.5 * seen.present:
        return _date(name, seen)
    if seen.too_many or len(seen.values) > 0.5 * seen.present > 50:
        return None, Remark("left out", "text with too many different values, as a name or free text has")
    if len(seen.values) == 1:
        return None, Remark("left out", "all records have one value")
    return _category(name, seen)


def _number(name: str, seen: _Seen) -> tuple[Column | None, Remark]:
    found, (decimal, thousands), warnings = seen.numbers, seen.style, []
    own_numbers = len(seen.values) / max(seen.counted, 1) if found.whole == found.count else 0.0
    if own_numbers > 0.95 and seen.counted > 100:
        return None, Remark("left out", "almost every record has a number of its own, as an identifier does")
    if own_numbers > 0.8 or _IDENTIFIER.search(name):
        warnings.append("this may be an identifier. If so, write ignore = true")
    if found.count < seen.present:
        warnings.append("some values are not numbers, and count as missing")
    if thousands == "," and seen.styles[",", ""].count == found.count:
        warnings.append('1,234 is read as 1234. If the comma is a decimal sign, write decimal = "," and no thousands')
    why = "its values are numbers" + (f", with {_SIGNS[decimal]} for decimals" if decimal != "." else "")
    why += f", thousands separated by {_SIGNS[thousands]}" if thousands else ""
    missing = seen.missing > 0 or found.count < seen.present
    column = Number(name=name, range=_rounded(found.low, found.high), missing=missing, source=Source.DATA, **seen.signs)
    return column, Remark("numbers", why, "; ".join(warnings))


def _date(name: str, seen: _Seen) -> tuple[Column | None, Remark]:
    format, found = next(iter(seen.formats.items()))
    if found.count < 0.9 * seen.present:
        return None, Remark("left out", "it looks like dates, but not in one format that is known")
    first, last = ((EPOCH + datetime.timedelta(seconds=end)).date() for end in (found.low, found.high))
    missing = seen.missing > 0 or found.count < seen.present
    # Whole years hide the first and the last date.
    column = Date(
        name=name,
        first=first.replace(month=1, day=1),
        last=last.replace(month=12, day=31),
        format=format,
        missing=missing,
        source=Source.DATA,
    )
    why = "its values are dates, " + ("as in ISO 8601" if format is None else f"as {format}")
    is_one = len({(read.low, read.high) for read in seen.formats.values()}) == 1
    warnings = [] if is_one else ["day and month may be exchanged in this format"]
    warnings += ["some values are not such dates, and count as missing"] if found.count < seen.present else []
    return column, Remark("dates", why, "; ".join(warnings))


def _category(name: str, seen: _Seen) -> tuple[Column, Remark]:
    distinct, warnings = len(seen.values), []
    why = "few different values"
    if seen.is_number:
        why = "few different whole numbers, as codes are"
        if distinct > 2:
            warnings.append("numbers became a list of categories. If they are a quantity, write a range instead")
    elif seen.numbers.count > 0.5 * seen.present:
        why = "few different values, not all of them numbers"
        warnings.append("most values are numbers. If it is a column of numbers, write a range; others count as missing")
    if seen.words > 4 * seen.counted:
        warnings.append("this may be free text. If so, write ignore = true")
    elif distinct > 0.5 * seen.present or _IDENTIFIER.search(name):
        warnings.append("this may be an identifier or a name. If so, write ignore = true")
    common = seen.values.most_common(MOST_LISTED)
    if distinct > MOST_LISTED:
        why += f": the {MOST_LISTED} most frequent"
        warnings.append("the list of categories was cut; values that are not on it are together in one column")
    if common[-1][1] < RARE < seen.present / len(common):
        warnings.append("some listed values are rare, and tell of few records. Remove them and write other = true")
    listed = tuple(sorted(value for value, _ in common))
    column = Category(
        name=name, categories=listed, other=distinct > MOST_LISTED, missing=seen.missing > 0, source=Source.DATA
    )
    return column, Remark("categories", why, "; ".join(warnings))


def _target(name: str, seen: _Seen) -> tuple[ClassTarget | NumberTarget, Remark]:
    if not seen.unusable and 2 <= len(seen.values) <= FEW_CLASSES and not seen.too_many:
        warning = "numbers became classes. To predict a number, write a range" * (
            seen.is_number and len(seen.values) > 2
        )
        described = ClassTarget(name=name, classes=tuple(sorted(seen.values)), source=Source.DATA)
        return described, Remark("classes", "few different values", warning)
    if seen.is_number:
        bounds = _rounded(seen.numbers.low, seen.numbers.high)
        return NumberTarget(name=name, range=bounds, source=Source.DATA, **seen.signs), Remark(
            "numbers", "many numbers"
        )
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
