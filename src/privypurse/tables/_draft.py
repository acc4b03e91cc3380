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
    DECIMALS,
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
    *("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%d.%m.%y", "%d/%m/%y"),
    *("%m/%d/%y", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y"),
)
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
FORMATS = (None, *(day + time for day, time in itertools.product(_DAYS, _TIMES)))
_DATE = (
    r"^(\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,4}[./-]\d{1,2}[./-]\d{1,4}( .*)?|"
    r"(\d{1,2}[ -]\p{L}{3,9}[ -]|\p{L}{3,9} \d{1,2}, )\d{4}( .*)?)$"
)
TRIED = 1_000  # values on which a format is tried first
# A number with another sign than a point: a comma, a space of some width, or an apostrophe. Or with points
# that may separate thousands.
_SPACES = r"\s\x{a0}\x{2009}\x{202f}"
_SIGNED = rf"^[+-]?\d[\d.]*[,'\x{{2019}}{_SPACES}][\d.,'\x{{2019}}{_SPACES}]*$|^[+-]?[1-9]\d{{0,2}}(\.\d{{3}})+$"
# The way that reads 11.956 or 11,956 as another number, where both may be meant.
_OTHER_STYLE = {(".", ""): (",", "."), (".", ","): (",", "")}
# A number with a sign before it, or a sign or letters behind it.
_WITH_UNIT = (
    rf"^[+-]?(?P<before>[%‰\p{{Sc}}]?)[{_SPACES}+-]*\d[\d.,'\x{{2019}}{_SPACES}]*(?P<after>[%‰°\p{{Sc}}\p{{L}}/]*)$"
)
# Lower case. Beside numbers or dates they stand for a missing value.
_STAND_INS = (
    *("-", "--", "---", ".", "?", "??", "#n/a", "#value!", "#div/0!", "#ref!", "n/a", "n.a.", "na", "nan", "nil"),
    *("none", "null", "missing", "unknown", "not known", "not available", "not applicable", "no data", "(blank)"),
    *("k.a.", "unbekannt"),
)
_STAND_IN_NUMBERS = {-99, -999, -9_999, 999, 9_999, 99_999}
_TRUTH = {"y": "yes", "true": "yes", "t": "yes", "1": "yes", "n": "no", "false": "no", "f": "no", "0": "no"}
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
    unit: str | None = None  # None until there was a value
    commas: bool = False  # whether numbers of other columns have decimal commas, and none have points
    looking_like_dates: int = 0
    padded: int = 0  # whole numbers that begin with a zero
    stand_ins: Counter[str] = field(default_factory=Counter)  # values that stand for a missing one
    words: int = 0
    values: Counter[str] = field(default_factory=Counter)
    counted: int = 0  # records whose values were counted
    too_many: bool = False
    unusable: bool = False

    def take(self, column: Any) -> None:
        import pyarrow as pa
        from pyarrow import compute as pc

        try:
            present = _texts(column)
            if self.unit is None and len(present):
                self.unit = _unit(present)
            found = numbers(column, MISSING_VALUES, unit=self.unit or "")
        except InvalidArgument:  # a nested type
            self.unusable = True
            return
        self.rows += len(column)
        self.missing += len(column) - len(present)
        standing_in = pc.is_in(pc.utf8_lower(present), pa.array(_STAND_INS))
        for entry in pc.value_counts(present.filter(standing_in)).to_pylist():
            self.stand_ins[entry["values"]] += entry["counts"]
        self.padded += pc.sum(pc.match_substring_regex(present, r"^0\d+$")).as_py() or 0
        self._take_numbers(column, found, present)
        if has_dates(column):  # which have no format
            self.formats = {None: self.formats[None]}
        if likely := pc.sum(pc.match_substring_regex(present, _DATE)).as_py() or 0:
            self.looking_like_dates += likely
            if len(self.formats) > 1:
                tried = present[:TRIED]
                self._leave_formats({key: int(np.isfinite(dates(tried, (), key)).sum()) for key in self.formats})
            for format, read in self.formats.items():
                read.take(dates(column, MISSING_VALUES, format))
            self._leave_formats({format: read.count for format, read in self.formats.items()})
        if not self.too_many:
            for entry in pc.value_counts(present).to_pylist():
                self.values[entry["values"]] += entry["counts"]
                self.words += len(entry["values"].split()) * entry["counts"]
            self.counted += len(column)
            self.too_many = len(self.values) > MOST_COUNTED

    def _leave_formats(self, counts: dict[str | None, int]) -> None:
        """Leave the formats that read most dates."""
        most = max(counts.values())
        self.formats = {format: read for format, read in self.formats.items() if counts[format] == most}

    def _take_numbers(self, column: Any, found: FloatArray, present: Any) -> None:
        from pyarrow import compute as pc

        signed = self.unit or pc.any(pc.match_substring_regex(present, _SIGNED)).as_py()
        whole = found[found == np.round(found)]
        for (decimal, thousands), read in self.styles.items():
            if signed:
                read.take(numbers(column, MISSING_VALUES, decimal, thousands, self.unit or ""))
            else:  # nothing but a point may have been written in these numbers
                read.take(found if decimal == "." else whole)

    @property
    def present(self) -> int:
        return self.rows - self.missing

    @property
    def valued(self) -> int:
        """Number of values that do not stand for a missing one."""
        return self.present - self.stand_ins.total()

    @property
    def style(self) -> tuple[str, str]:
        """Decimal sign and thousands separator that read most values."""
        return self.other_style if self.other_style and self.commas else self._first_style

    @property
    def _first_style(self) -> tuple[str, str]:
        return max(self.styles, key=lambda style: self.styles[style].count)

    @property
    def other_style(self) -> tuple[str, str] | None:
        """The style that reads as many values, as other numbers, if there is one."""
        first, other = self._first_style, _OTHER_STYLE.get(self._first_style)
        same = other and self.styles[other].count == self.styles[first].count
        return other if same and other and self.styles[other] != self.styles[first] else None

    @property
    def decimal_sign(self) -> str | None:
        """The decimal sign, if the numbers can be read with no other."""
        most = {sign: max(read.count for style, read in self.styles.items() if style[0] == sign) for sign in DECIMALS}
        return max(most, key=most.__getitem__) if self.is_number and most["."] != most[","] else None

    @property
    def numbers(self) -> _Found:
        return self.styles[self.style]

    @property
    def is_number(self) -> bool:
        found = self.numbers
        return self.valued > 0 and found.count >= 0.9 * self.valued and found.low < found.high and not self.is_padded

    @property
    def is_padded(self) -> bool:
        """Whether the values are codes such as 01234."""
        return self.padded > 0.001 * self.valued

    @property
    def signs(self) -> dict[str, Any]:
        """Settings of a column of numbers that are not the default."""
        decimal, thousands = self.style
        signs = {"decimal": "" if decimal == "." else decimal, "thousands": thousands, "unit": self.unit}
        return {key: sign for key, sign in signs.items() if sign}


def draft_schema(
    file: TableFile, target: str | None, *, progress: BytesRead = ignored
) -> tuple[Schema, dict[str, Remark]]:
    """Read a whole file and draft its schema, marked as read from the data.

    Return also what each column was taken for and why, the columns that are left out included.
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
    commas = {one.decimal_sign for one in seen.values()} - {None} == {","}
    for one in seen.values():
        one.commas = commas
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


def _unit(texts: Any) -> str:
    """Return the unit that numbers have in a column of text, empty if fewer than a tenth of its values have one."""
    from pyarrow import compute as pc

    parts = pc.extract_regex(texts, _WITH_UNIT).drop_null().to_pylist()
    found = Counter(one["before"] or one["after"] for one in parts)
    del found[""]
    unit, count = max(found.items(), key=lambda pair: pair[1], default=("", 0))
    return unit if count > 0.1 * len(texts) else ""


def _describe(name: str, seen: _Seen) -> tuple[Column | None, Remark]:
    if seen.unusable:
        return None, Remark("left out", "its type cannot be used")
    if seen.present == 0:
        return None, Remark("left out", "no values")
    distinct = len(seen.values) - len(seen.stand_ins)
    if seen.is_number and (seen.too_many or distinct > FEW_NUMBERS or seen.numbers.whole < seen.numbers.count):
        return _number(name, seen)
    if seen.looking_like_dates > 0.5 * seen.valued > 0:
        return _date(name, seen)
    if seen.too_many or len(seen.values) > 0.5 * seen.present > 50:
        why = "text with too many different values, as a name or free text has"
        if seen.is_padded:
            why = "whole numbers that begin with zeros, as codes do, with too many different values"
        elif seen.numbers.count > 0.5 * seen.valued:
            why = "many different values. Most are numbers, but others are not. If these are missing, write a range"
        return None, Remark("left out", why)
    if len(seen.values) == 1:
        return None, Remark("left out", "all records have one value")
    return _category(name, seen)


def _number(name: str, seen: _Seen) -> tuple[Column | None, Remark]:
    found = seen.numbers
    plain = found.whole == found.count and not seen.signs
    own_numbers = len(seen.values) / max(seen.counted, 1) if plain else 0.0
    if own_numbers > 0.95 and seen.counted > 100:
        return None, Remark("left out", "almost every record has a number of its own, as an identifier does")
    why, warnings = _written("its values are numbers", seen)
    if own_numbers > 0.8 or _IDENTIFIER.search(name):
        warnings.insert(0, "this may be an identifier. If so, write ignore = true")
    bounds, missing = _rounded(found.low, found.high), _missing(seen, found)
    column = Number(name=name, range=bounds, missing=missing, source=Source.DATA, **seen.signs)
    return column, Remark("numbers", why + _said_missing(seen), "; ".join(warnings))


def _written(why: str, seen: _Seen) -> tuple[str, list[str]]:
    """Add how numbers are written, and return warnings of what else they may be."""
    found, (decimal, thousands), warnings = seen.numbers, seen.style, []
    if found.count < seen.valued:
        warnings.append("some values are not numbers, and count as missing")
    if seen.other_style:
        sign, read, meant = (thousands, "1234", "1.234") if thousands else (decimal, "1.234", "1234")
        other = "," if sign == "." else "."
        remedy = f'a decimal sign, write decimal = "{sign}" and no thousands'
        if not thousands:
            remedy = f'a thousands separator, write decimal = "{other}" and thousands = "{sign}"'
        reason = ", as other columns have decimal commas" * seen.commas
        warnings.append(f"1{sign}234 is read as {read}{reason}, not as {meant}. If the {_SIGNS[sign][2:]} is {remedy}")
    if found.whole == found.count and found.low >= 19_000_101 and found.high <= 21_001_231:
        warnings.append('these may be dates. If so, write dates = [2015-01-01, 2024-12-31] and format = "%Y%m%d"')
    if standing_in := sorted({found.low, found.high} & _STAND_IN_NUMBERS):
        one = f"{standing_in[0]:.0f}"
        warnings.append(f'{one} may stand for a missing value. If so, write missing = ["{one}"] and another range')
    why += f", with {_SIGNS[decimal]} for decimals" if decimal != "." else ""
    why += f", thousands separated by {_SIGNS[thousands]}" if thousands else ""
    return why + (f", with the unit {seen.unit}" if seen.unit else ""), warnings


def _missing(seen: _Seen, found: _Found) -> bool | tuple[str, ...]:
    """Return the setting for missing values of a column of numbers or dates."""
    return tuple(sorted(seen.stand_ins)) or seen.missing > 0 or found.count < seen.valued


def _said_missing(seen: _Seen) -> str:
    listed = " or ".join(map(repr, sorted(seen.stand_ins)))
    return f"; cells that read {listed} are taken as missing" if listed else ""


def _date(name: str, seen: _Seen) -> tuple[Column | None, Remark]:
    format, found = next(iter(seen.formats.items()))
    if found.count < 0.9 * seen.valued:
        why = "it looks like dates, but not in one format that is known. Write dates and a format"
        return None, Remark("left out", why)
    # Whole years hide the first and the last date.
    first, last = ((EPOCH + datetime.timedelta(seconds=end)).year for end in (found.low, found.high))
    years: Any = {"first": datetime.date(first, 1, 1), "last": datetime.date(last, 12, 31)}
    column = Date(name=name, **years, format=format, missing=_missing(seen, found), source=Source.DATA)
    why = "its values are dates, " + ("as in ISO 8601" if format is None else f"as {format}")
    is_one = len({(read.low, read.high) for read in seen.formats.values()}) == 1
    warnings = [] if is_one else ["day and month may be exchanged in this format"]
    warnings += ["some values are not such dates, and count as missing"] if found.count < seen.valued else []
    return column, Remark("dates", why + _said_missing(seen), "; ".join(warnings))


def _category(name: str, seen: _Seen) -> tuple[Column, Remark]:
    values, warnings, missing = seen.values, [], tuple(sorted(seen.stand_ins)) if seen.is_number else ()
    if missing:
        values = Counter({value: count for value, count in values.items() if value not in missing})
    distinct, why = len(values), "few different values"
    if seen.is_padded:
        why = "few different whole numbers that begin with zeros, as codes do"
    elif seen.is_number:
        why = "few different whole numbers, as codes are" + _said_missing(seen)
        if distinct > 2:
            warnings.append("numbers became a list of categories. If they are a quantity, write a range instead")
    elif seen.numbers.count > 0.5 * seen.present:
        why = "few different values, not all of them numbers"
        warnings.append("most values are numbers. If it is a column of numbers, write a range; others count as missing")
    if seen.words > 4 * seen.counted:
        warnings.append("this may be free text. If so, write ignore = true")
    elif distinct > 0.5 * seen.present or _IDENTIFIER.search(name):
        warnings.append("this may be an identifier or a name. If so, write ignore = true")
    warnings += _spellings(values)
    common = values.most_common(MOST_LISTED)
    if distinct > MOST_LISTED:
        why += f": the {MOST_LISTED} most frequent"
        warnings.append("the list of categories was cut; values that are not on it are together in one column")
    if common[-1][1] < RARE < seen.present / len(common):
        warnings.append("some listed values are rare, and tell of few records. Remove them and write other = true")
    listed, other = tuple(sorted(value for value, _ in common)), distinct > MOST_LISTED
    kept = missing or seen.missing > 0
    column = Category(name=name, categories=listed, other=other, missing=kept, source=Source.DATA)
    return column, Remark("categories", why, "; ".join(warnings))


def _spellings(values: Counter[str]) -> list[str]:
    """Warn of values that may mean the same."""
    folded = Counter(_TRUTH.get(value.casefold(), value.casefold()) for value in values)
    return ["some values may be one, spelt in several ways. Write it in one way"] * (len(folded) < len(values))


def _target(name: str, seen: _Seen) -> tuple[ClassTarget | NumberTarget, Remark]:
    said = "; cells without a number are left out with their rows" * (seen.is_number and bool(seen.stand_ins))
    classes = sorted({*seen.values} - {*seen.stand_ins}) if seen.is_number else sorted(seen.values)
    if not seen.unusable and 2 <= len(classes) <= FEW_CLASSES and not seen.too_many:
        warnings = _spellings(seen.values)
        if seen.is_number and len(classes) > 2:
            warnings.append("numbers became classes. To predict a number, write a range")
        elif listed := ", ".join(repr(value) for value in classes if value in seen.stand_ins):
            warnings.append(f"{listed} may stand for a missing value. If so, remove it from the classes")
        described = ClassTarget(name=name, classes=tuple(classes), source=Source.DATA)
        return described, Remark("classes", "few different values" + said, "; ".join(warnings))
    if seen.is_number:
        bounds = _rounded(seen.numbers.low, seen.numbers.high)
        why, warnings = _written("many numbers", seen)
        column = NumberTarget(name=name, range=bounds, source=Source.DATA, **seen.signs)
        return column, Remark("numbers", why + said, "; ".join(warnings))
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
