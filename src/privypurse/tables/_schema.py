"""The schema: a public description of the columns of a table, with ranges and categories."""

import datetime
import difflib
import enum
import itertools
import json
import pathlib
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import exact
from privypurse.core._statement import QUESTIONS, check_answer

MISSING_VALUES = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
MOST_CATEGORIES = 10_000
MOST_UNREADABLE = 0.05  # default of `Schema.unreadable`
DECIMALS, THOUSANDS = (".", ","), ("", ".", ",", " ", "'")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
# Parts of a date, and the values of those that are one-hot encoded.
PARTS = {"position": (), "month": _MONTHS, "weekday": _DAYS, "hour": tuple(map(str, range(24)))}
EPOCH = datetime.datetime(1970, 1, 1)


class Source(enum.Enum):
    """Origin of a part of a schema."""

    DECLARED = "declared"  # known without looking at the records
    DATA = "data"  # read from the records: not covered by any guarantee
    BOUGHT = "bought"  # released through a purse in this run
    EARLIER = "bought earlier"  # released in an earlier run, by the file's word


@dataclass(frozen=True, kw_only=True)
class Number:
    """A column of numbers. Missing ones count as the middle of the range."""

    name: str
    range: tuple[float, float] | None = None  # to clip to; None: to be bought, unless there are cuts
    cuts: tuple[float, ...] = ()  # public; the column is one-hot encoded by the intervals between them
    curve: bool = True  # whether a training may release knots for a curve in the range
    knots: tuple[float, ...] = ()  # of a curve, the ends of the range included
    missing: bool | tuple[str, ...] = False  # whether to add an indicator of missing numbers; or more texts for them
    source: Source = Source.DECLARED  # of range and cuts
    decimal: str | None = None  # decimal sign in text; None: that of the schema
    thousands: str = ""  # sign between groups of three digits in text
    unit: str = ""  # text before or after the number

    def __post_init__(self) -> None:
        if self.range is not None:
            _check_range(f"range of column {self.name!r}", self.range)
        _check_increasing(f"cuts of column {self.name!r}", self.cuts)
        if self.knots:
            _check_increasing(f"knots of column {self.name!r}", self.knots)
            if len(self.knots) < 3 or self.cuts or (self.knots[0], self.knots[-1]) != self.range:
                what = f"expected three or more knots from end to end of the range of column {self.name!r}, and no cuts"
                raise InvalidArgument(f"{what}; got {shown(self.knots)}. Write range = [0, 9] and knots = [0, 3, 9].")

    @property
    def features(self) -> list[str]:
        """Names of the encoded columns."""
        if self.cuts:
            ends = [f"{cut:.15g}" for cut in self.cuts]
            inner = [f"{self.name} {low} to {high}" for low, high in itertools.pairwise(ends)]
            names = [f"{self.name} below {ends[0]}", *inner, f"{self.name} {ends[-1]} or more"]
        else:
            names = [self.name, *(f"{self.name} at {knot:.15g}" for knot in self.knots)]
        return [*names, f"{self.name} missing"] if self.missing else names


@dataclass(frozen=True, kw_only=True)
class Category:
    """A column of categories. Values are compared with the public list as stripped text."""

    name: str
    categories: tuple[str, ...]
    other: bool = False  # whether to add a column for values that are not listed, else all zeros
    missing: bool | tuple[str, ...] = False  # whether to add a column for missing values; or more texts for them
    source: Source = Source.DECLARED  # of the list

    def __post_init__(self) -> None:
        _check_texts(f"categories of column {self.name!r}", self.categories, least=1)

    @property
    def features(self) -> list[str]:
        """Names of the encoded columns."""
        extra = ["(other)"] * self.other + ["(missing)"] * bool(self.missing)
        return [f"{self.name} = {value}" for value in [*self.categories, *extra]]


@dataclass(frozen=True, kw_only=True)
class Date:
    """A column of dates, or of dates and times. Missing ones count as the middle of the range."""

    name: str
    first: datetime.date  # or a datetime
    last: datetime.date  # or a datetime; a date is meant to its end
    parts: tuple[str, ...] = ("position",)  # in the range, as a number; month, weekday and hour are one-hot encoded
    format: str | None = None  # of text, as in `strptime`; None: ISO 8601
    missing: bool | tuple[str, ...] = False  # whether to add an indicator of missing dates; or more texts for them
    source: Source = Source.DECLARED  # of the range

    def __post_init__(self) -> None:
        what = f"dates of column {self.name!r}"
        days = [day for day in (self.first, self.last) if isinstance(day, datetime.date)]
        if len(days) < 2 or any(getattr(day, "tzinfo", None) for day in days) or not self.range[0] < self.range[1]:
            raise InvalidArgument(f"expected a first and a last day as {what}. Write dates = [2015-01-01, 2024-12-31].")
        if not self.parts or len({*self.parts}) < len(self.parts) or not {*self.parts} <= {*PARTS}:
            known = ", ".join(PARTS)
            why = f"expected some of {known} as parts of column {self.name!r}"
            raise InvalidArgument(f"{why}, got {shown(self.parts)}.")
        if self.format is not None and not _is_format(self.format):
            got = f"expected a format with day, month and year for column {self.name!r}, got {shown(self.format)}"
            raise InvalidArgument(f'{got}. Write for example format = "%d.%m.%Y", or leave it out for 2024-12-31.')

    @property
    def range(self) -> tuple[float, float]:
        """The range in seconds since 1970."""
        return seconds_since_1970(self.first), seconds_since_1970(self.last, end=True)

    @property
    def features(self) -> list[str]:
        """Names of the encoded columns."""
        names = []
        for part in self.parts:
            names += [f"{self.name} {part} = {value}" for value in PARTS[part]] or [self.name]
        return [*names, f"{self.name} missing"] if self.missing else names


def seconds_since_1970(moment: datetime.date, *, end: bool = False) -> float:
    """Return the seconds from 1970 to a date or a datetime without a time zone, or to the `end` of a date."""
    if isinstance(moment, datetime.datetime):
        return (moment - EPOCH).total_seconds()
    return (moment - EPOCH.date()).total_seconds() + (86_399 if end else 0)


@dataclass(frozen=True, kw_only=True)
class ClassTarget:
    """A target of classes. Rows whose target is missing or not listed are left out."""

    name: str
    classes: tuple[str, ...]
    source: Source = Source.DECLARED

    def __post_init__(self) -> None:
        _check_texts(f"classes of target {self.name!r}", self.classes, least=2)


@dataclass(frozen=True, kw_only=True)
class NumberTarget:
    """A target of numbers, clipped to a public range. Rows whose target is missing are left out."""

    name: str
    range: tuple[float, float]
    source: Source = Source.DECLARED
    decimal: str | None = None
    thousands: str = ""
    unit: str = ""

    def __post_init__(self) -> None:
        _check_range(f"range of target {self.name!r}", self.range)


Column = Number | Category | Date
Target = ClassTarget | NumberTarget


@dataclass(frozen=True)
class Schema:
    """The description of a table: its features, in order, and the column to predict.

    Examples
    --------
    >>> schema = Schema((Number(name="age", range=(18, 90)), Category(name="job", categories=("law", "care"))),
    ...                 ClassTarget(name="moved", classes=("no", "yes")))
    >>> schema.features
    ['age', 'job = law', 'job = care']
    """

    columns: tuple[Column, ...]
    target: Target | None = None
    missing_values: tuple[str, ...] = MISSING_VALUES  # besides an empty field
    kinds: Source = Source.DECLARED  # of the choice of columns and their kinds
    decimal: str = "."  # decimal sign in text
    unreadable: float = MOST_UNREADABLE  # largest share of lines that may be left out, as they cannot be read
    statement: tuple[tuple[str, str], ...] = ()  # what people state for the certificate

    def __post_init__(self) -> None:
        if self.decimal not in DECIMALS:
            raise InvalidArgument(f"expected '.' or ',' as decimal, got {shown(self.decimal)}. Leave it out for '.'.")
        if not _is_number(self.unreadable) or not 0 <= self.unreadable <= 1:
            raise InvalidArgument(f"expected unreadable from 0 to 1, got {shown(self.unreadable)}. Omit it for 0.05.")
        if not self.columns:
            raise InvalidArgument("expected at least one column in the schema, got none. Add a table [columns.NAME].")
        if twice := sorted(name for name, times in Counter(self.names).items() if times > 1):
            raise InvalidArgument(f"column {twice[0]!r} is described twice, or is the target too. Describe it once.")
        for part in self.parts:
            if isinstance(part, Number | NumberTarget):
                _check_signs(part.name, *self.signs_of(part))
            if not isinstance(own := getattr(part, "missing", False), bool):
                _check_texts(f"missing values of column {part.name!r}", own, least=1)
            listed = part.categories if isinstance(part, Category) else getattr(part, "classes", ())
            for value in sorted({*listed} & {"", *self.missing_in(part)}):
                what = f"{value!r} of {part.name!r} is also a missing value. Remove it from the list"
                raise InvalidArgument(f'{what}, or write for example missing_values = ["?"].')

    def signs_of(self, part: Number | NumberTarget) -> tuple[str, str, str]:
        """Return the decimal sign, the thousands separator and the unit of a column of numbers."""
        return self.decimal if part.decimal is None else part.decimal, part.thousands, part.unit

    def missing_in(self, part: "Column | Target") -> tuple[str, ...]:
        """Return the texts for a missing value in a column, besides an empty field."""
        own = getattr(part, "missing", False)
        return self.missing_values if isinstance(own, bool) else (*self.missing_values, *own)

    @property
    def features(self) -> list[str]:
        """Names of the encoded columns, in order."""
        return [feature for column in self.columns for feature in column.features]

    @property
    def names(self) -> list[str]:
        """Names of the columns to read, the target last."""
        return [part.name for part in self.parts]

    @property
    def numbers(self) -> list[Number]:
        """The columns of numbers."""
        return [column for column in self.columns if isinstance(column, Number)]

    @property
    def to_buy(self) -> list[Number]:
        """Columns whose range is to be bought. Those with cuts need none."""
        return [column for column in self.numbers if column.range is None and not column.cuts]

    @property
    def is_declared(self) -> bool:
        """Whether all of it was declared, or bought in this run."""
        return {self.kinds, *(part.source for part in self.parts)} <= {Source.DECLARED, Source.BOUGHT}

    @property
    def uncovered(self) -> list[str]:
        """What was read from the data without paying, in words for a certificate."""
        read = [part.name for part in self.columns if part.source is Source.DATA]
        earlier = [part.name for part in self.columns if part.source is Source.EARLIER]
        lines = []
        if self.kinds is Source.DATA:
            what = "which columns are used, of which kind they are and where values are missing"
            lines.append(f"{what}, read from the data")
        if read:
            shortened = ", ".join(read[:8]) + (f" and {len(read) - 8} more" if len(read) > 8 else "")
            lines.append(f"ranges and categories of columns, read from the data without paying: {shortened}")
        if earlier:
            lines.append(
                f"ranges and knots of columns that the schema says were bought in an earlier run: {', '.join(earlier)}"
            )
        if self.target is not None and self.target.source is Source.DATA:
            what = "classes" if isinstance(self.target, ClassTarget) else "range"
            lines.append(f"{what} of the target {self.target.name}, read from the data without paying")
        return lines

    @property
    def parts(self) -> tuple[Column | Target, ...]:
        """The columns, and the target if any."""
        return self.columns if self.target is None else (*self.columns, self.target)

    @property
    def to_bend(self) -> list[Number]:
        """Columns whose knots a training may release."""
        plain = [column for column in self.numbers if column.range and not (column.cuts or column.knots)]
        return [column for column in plain if column.curve]

    def with_knots(self, bought: Mapping[str, Sequence[float]], source: Source = Source.BOUGHT) -> "Schema":
        """Return the schema with the given knots; two are the ends of a line."""
        bent = {}
        for column in self.numbers:
            if len(knots := tuple(bought.get(column.name, ()))) > 2:
                kept = next((one for one in (Source.DATA, Source.EARLIER) if one in (column.source, source)), source)
                bent[column.name] = replace(column, knots=knots, source=kept)
        return self._with(bent)

    def buying_ranges(self) -> "Schema":
        """Return the schema without ranges that were read from the data: they will be bought."""
        read = [column.name for column in self.numbers if column.source is Source.DATA and not column.cuts]
        return self.with_ranges(dict.fromkeys(read), Source.DECLARED)

    def with_ranges(self, bought: Mapping[str, tuple[float, float] | None], source: Source = Source.BOUGHT) -> "Schema":
        """Return the schema with the given ranges of columns of numbers."""
        named = [column for column in self.numbers if column.name in bought]
        return self._with({one.name: replace(one, range=bought[one.name], knots=(), source=source) for one in named})

    def _with(self, columns: Mapping[str, Number]) -> "Schema":
        return replace(self, columns=tuple(columns.get(column.name, column) for column in self.columns))

    def with_target(self, name: str) -> "Schema":
        """Return the schema. Raise InvalidArgument unless its target has this name."""
        if self.target is None:
            own = f'column = {name!r} and classes = ["no", "yes"] or range = [0, 100]'
            raise InvalidArgument(f"the schema has no [target], which --target {name} needs. Add [target] with {own}.")
        if (own := self.target.name) != name:
            raise InvalidArgument(f"expected the target of the schema, {own!r}, got {name!r}. Change one of them.")
        return self


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e100


def _check_increasing(what: str, values: Sequence[Any]) -> None:
    if not all(map(_is_number, values)) or any(low >= high for low, high in itertools.pairwise(values)):
        example = f"Write for example {what.split()[0]} = [25, 40, 65]"
        raise InvalidArgument(f"expected increasing numbers in {what}, got {shown(values)}. {example}.")


def _check_signs(name: str, decimal: Any, thousands: Any, unit: Any) -> None:
    for what, sign, known in (("decimal", decimal, DECIMALS), ("thousands", thousands, THOUSANDS)):
        if sign not in known:
            listed = ", ".join(map(repr, filter(None, known)))
            raise InvalidArgument(f"expected one of {listed} as {what} of {name!r}, got {shown(sign)}.")
    if decimal == thousands:
        both = f"expected different signs as decimal and thousands of {name!r}, got {decimal!r} twice"
        raise InvalidArgument(f'{both}. Write for example decimal = "," and thousands = ".".')
    if not isinstance(unit, str) or unit != unit.strip() or re.search(r"[\d.,+\-']", unit):
        what = f"expected a text without digits and signs of numbers as unit of {name!r}, got {shown(unit)}"
        raise InvalidArgument(f'{what}. Write for example unit = "kg".')


def _is_format(format: Any) -> bool:
    """Whether a text is a format for strptime that holds a whole date."""
    day = datetime.datetime(2020, 11, 25)
    try:
        return datetime.datetime.strptime(day.strftime(format), format).date() == day.date()
    except (TypeError, ValueError, re.error):
        return False


def _check_range(what: str, pair: Any) -> None:
    if not (isinstance(pair, Sequence) and len(pair) == 2 and all(map(_is_number, pair)) and pair[0] < pair[1]):
        raise InvalidArgument(f"expected two increasing numbers as {what}, got {shown(pair)}. Write range = [0, 100].")


def _check_texts(what: str, values: Sequence[Any], *, least: int) -> None:
    texts = isinstance(values, Sequence) and not isinstance(values, str) and all(isinstance(v, str) for v in values)
    if not texts or not least <= len(set(values)) == len(values) <= MOST_CATEGORIES:
        needed = f"expected {least} to {MOST_CATEGORIES:,} different texts as {what}"
        raise InvalidArgument(f'{needed}, got {shown(values)}. Write for example ["no", "yes"].')
    for value in values:
        if (bare := value.strip()) != value:
            raise InvalidArgument(f"expected {what} without spaces around, got {shown(value)}. Write {shown(bare)}.")


# What a file calls bought was bought in an earlier run.
_SOURCES = {"declared": Source.DECLARED, "data": Source.DATA, "bought": Source.EARLIER}
_WRITTEN = {Source.DECLARED: "declared", Source.DATA: "data", Source.BOUGHT: "bought", Source.EARLIER: "bought"}
_FLAGS, _BENDS = ("ignore", "missing", "other"), ("curve", "knots")
_SIGNS = ("decimal", "thousands", "unit")
_COLUMN_KEYS = ("range", "cuts", "categories", "dates", "parts", "format", *_SIGNS, *_BENDS, "source", *_FLAGS)
_TARGET_KEYS = ("column", "classes", "range", *_SIGNS, "source")
_KEYS = ("source", "missing_values", "decimal", "unreadable", "curves", "statement", "target", "columns")

_DRAFT = """\
# DRAFT: kinds, ranges and categories below were READ FROM THE DATA. No guarantee covers that: a
# rare category or an extreme number tells of a single record. Go through it; replace what you see
# by what you know without looking (an age lies between 0 and 120; the list of jobs is in the
# questionnaire), and then write source = "declared". Or write range = "private" for a column of
# numbers, and its range is bought from the budget. A column of numbers that is skewed, or whose
# effect bends, does better with cuts = [10, 100, 1000] of your own in place of its range. A date is
# its position in the range; parts = ["position", "month", "weekday", "hour"] adds what you choose.
"""
_DECLARED = '# The public description of a table. source = "declared": known without looking at the records.\n'


def read_schema(path: "str | pathlib.Path") -> Schema:
    """Read a schema from a TOML file."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidArgument(f"schema {str(path)!r}: {error.strerror}. `privypurse schema DATA` drafts it.") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"schema {str(path)!r} is not a text file in UTF-8. Save it as one.") from error
    try:
        return parse_schema(text)
    except InvalidArgument as error:
        raise InvalidArgument(f"schema {str(path)!r}: {error}") from error


def parse_schema(text: str) -> Schema:
    """Read a schema from TOML text."""
    try:
        fields = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for long numbers and deep nesting
        raise InvalidArgument(f"this is not TOML: {error}. `privypurse schema data.csv` drafts one.") from error
    _check_keys(fields, _KEYS, "the schema")
    default = _unless_bought(_source(fields.get("source"), "the schema", Source.DECLARED))
    described = fields.get("columns", {})
    if not isinstance(described, dict):
        raise InvalidArgument("expected a table for each column: write [columns.age] and below it range = [0, 120].")
    bends = _flag(fields, "curves", "the schema", True)
    columns = [_column(name, settings, default, bends) for name, settings in described.items()]
    missing = fields.get("missing_values", list(MISSING_VALUES))
    if not isinstance(missing, list) or not all(isinstance(value, str) for value in missing):
        raise InvalidArgument(f'expected a list of texts as missing_values, got {shown(missing)}. Write ["?", "NA"].')
    target = None if fields.get("target") is None else _target(fields["target"], default)
    used = tuple(column for column in columns if column is not None)
    above = {key: fields[key] for key in ("decimal", "unreadable") if key in fields}
    return Schema(used, target, tuple(missing), default, **above, statement=_statement(fields.get("statement", {})))


def _statement(settings: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(settings, dict):
        raise InvalidArgument(
            f"expected a table as statement, got {shown(settings)}. Write [statement] above its settings."
        )
    _check_keys(settings, tuple(QUESTIONS), "[statement]")
    return tuple((key, check_answer(key, settings[key])) for key in QUESTIONS if key in settings)


def _column(name: str, settings: Any, default: Source, bends: bool) -> Column | None:
    what = f"column {name!r}"
    if not isinstance(settings, dict):
        raise InvalidArgument(f"expected a table for {what}, got {shown(settings)}. Write [columns.{_key(name)}].")
    _check_keys(settings, _COLUMN_KEYS, what)
    source = _source(settings.get("source"), what, default)
    texts = settings.get("missing")
    missing = _each(_as_text, texts, "missing") if isinstance(texts, list) else _flag(settings, "missing", what)
    ignore, other = (_flag(settings, key, what) for key in ("ignore", "other"))
    if ignore:
        return None
    own = _unless_bought(source)
    is_number, is_date = "range" in settings or "cuts" in settings, "dates" in settings
    if is_number + is_date + ("categories" in settings) != 1:
        needed = f"{what} needs either range (numbers), dates or categories"
        raise InvalidArgument(f"{needed}. To leave it out: ignore = true.")
    for keys, fits, kind in (((*_SIGNS, *_BENDS), is_number, "numbers"), (("parts", "format"), is_date, "dates")):
        if not fits and (wrong := [key for key in keys if key in settings]):
            raise InvalidArgument(f"{what} has {wrong[0]}, which is for {kind} only. Leave it out.")
    if is_date:
        days, texts = settings["dates"], settings.get("parts", ["position"])
        first, last = map(_as_date, days) if isinstance(days, list) and len(days) == 2 else (None, None)
        parts = _each(_as_text, texts, f"parts of {what}")
        described: Any = {"first": first, "last": last, "parts": parts, "format": settings.get("format")}
        return Date(name=name, **described, missing=missing, source=own)
    if "categories" in settings:
        texts = _each(_as_text, settings["categories"], f"categories of {what}")
        return Category(name=name, categories=texts, other=other, missing=missing, source=own)
    signs = {key: settings[key] for key in _SIGNS if key in settings}
    signs["curve"] = _flag(settings, "curve", what, bends)
    knots = _each(_as_number, settings.get("knots", []), f"knots of {what}")
    cuts, pair = _each(_as_number, settings.get("cuts", []), f"cuts of {what}"), settings.get("range")
    if pair == "private":
        if cuts or knots:
            raise InvalidArgument(f'{what} has cuts or knots, which need no range. Leave out range = "private".')
        kept = Source.DECLARED if source is Source.DATA else source
        return Number(name=name, missing=missing, source=kept, **signs)
    if pair is None and not cuts:
        raise InvalidArgument(f"cuts of {what} are empty. Write for example cuts = [25, 40, 65], or a range.")
    own = own if cuts else source
    bounds: Any = None if pair is None else _each(_as_number, pair, f'range of {what}, or "private" to buy it')
    return Number(name=name, range=bounds, cuts=cuts, knots=knots, missing=missing, source=own, **signs)


def _flag(settings: Mapping[str, Any], key: str, what: str, default: bool = False) -> bool:
    if not isinstance(flag := settings.get(key, default), bool):
        raise InvalidArgument(f"expected true or false as {key} of {what}, got {shown(flag)}. Leave it out.")
    return flag


def _target(settings: Any, default: Source) -> Target:
    if not isinstance(settings, dict) or not isinstance(settings.get("column"), str):
        raise InvalidArgument('[target] has no column. Write column = "income" below it.')
    name = settings["column"]
    _check_keys(settings, _TARGET_KEYS, "[target]")
    source = _unless_bought(_source(settings.get("source"), "[target]", default))
    if ("classes" in settings) == ("range" in settings):
        raise InvalidArgument('[target] needs either classes = ["no", "yes"] or, for a number, range = [low, high].')
    if "classes" in settings:
        return ClassTarget(name=name, classes=_each(_as_text, settings["classes"], "classes"), source=source)
    bounds: Any = _each(_as_number, settings["range"], f"range of target {name!r}, such as range = [0, 100]")
    signs = {key: settings[key] for key in _SIGNS if key in settings}
    return NumberTarget(name=name, range=bounds, source=source, **signs)


def _each(convert: Callable[[Any], Any], values: Any, what: str) -> tuple[Any, ...]:
    """Convert the items of a list. The schema checks the rest."""
    if not isinstance(values, list):
        raise InvalidArgument(f"expected a list as {what}, got {shown(values)}. Write it in square brackets.")
    return tuple(map(convert, values))


def _as_number(value: Any) -> Any:
    """Convert a large whole number to a float."""
    return float(value) if type(value) is int and 2**53 < abs(value) <= 10**100 else value


def _as_date(value: Any) -> Any:
    """Convert a date in quotes."""
    kind = datetime.date if isinstance(value, str) and len(value) <= 10 else datetime.datetime
    try:
        return kind.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return None


def _as_text(value: Any) -> Any:
    """Convert a category in TOML to text as in a file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value.strip() if isinstance(value, str) else value


def _unless_bought(source: Source) -> Source:
    """Treat what cannot be bought, but is declared as bought, as read from the data."""
    return Source.DATA if source is Source.EARLIER else source


def _source(value: Any, what: str, default: Source) -> Source:
    if value is None:
        return default
    if not isinstance(value, str) or value not in _SOURCES:
        raise InvalidArgument(f'expected "declared", "data" or "bought" as source of {what}, got {shown(value)}.')
    return _SOURCES[value]


def _check_keys(settings: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    if unknown := [key for key in settings if key not in known]:
        near = difflib.get_close_matches(unknown[0], known, 1)
        guess = f" Did you mean {near[0]}?" if near else f" Known settings: {', '.join(known)}."
        raise InvalidArgument(f"{what} has an unknown setting {unknown[0]!r}.{guess}")


def write_schema(schema: Schema, *, comments: Mapping[str, object] | None = None) -> str:
    """Write a schema as TOML, with remarks by column. Columns that are not in it are written as ignored."""
    remarks, default = dict(comments or {}), schema.kinds
    read = Source.DATA in {schema.kinds, *(part.source for part in schema.parts)}
    lines = [_DRAFT if read else _DECLARED, f"source = {_text(_WRITTEN[default])}"]
    if schema.missing_values != MISSING_VALUES:
        lines.append(f"missing_values = {_texts(schema.missing_values)}")
    if schema.decimal != ".":
        lines.append(f"decimal = {_text(schema.decimal)}")
    if schema.unreadable != MOST_UNREADABLE:
        lines.append(f"unreadable = {exact(schema.unreadable)}")
    if schema.statement:
        lines += ["", "[statement]", *(f"{key} = {_text(answer)}" for key, answer in schema.statement)]
    if (target := schema.target) is not None:
        lines += ["", *_commented("target", remarks.pop(target.name, "")), f"column = {_text(target.name)}"]
        if isinstance(target, ClassTarget):
            lines.append(f"classes = {_texts(target.classes)}")
        else:
            lines += [f"range = {_numbers(target.range)}", *_written_signs(target)]
        lines += [f"source = {_text(_WRITTEN[target.source])}"] * (target.source is not default)
    for column in schema.columns:
        lines += ["", *_commented(f"columns.{_key(column.name)}", remarks.pop(column.name, ""))]
        if isinstance(column, Category):
            lines.append(f"categories = {_texts(column.categories)}")
            lines += ["other = true"] * column.other
        elif isinstance(column, Date):
            lines.append(f"dates = [{column.first.isoformat()}, {column.last.isoformat()}]")
            lines += [f"parts = {_texts(column.parts)}"] * (column.parts != ("position",))
            lines += [] if column.format is None else [f"format = {_text(column.format)}"]
        else:
            if column.range is not None:
                lines.append(f"range = {_numbers(column.range)}")
            elif not column.cuts:
                lines.append('range = "private"')
            lines += [f"cuts = {_numbers(column.cuts)}"] * bool(column.cuts)
            lines += [f"knots = {_numbers(column.knots)}"] * bool(column.knots)
            lines += ["curve = false"] * (not column.curve)
            lines += _written_signs(column)
        if column.missing:
            lines.append("missing = " + ("true" if isinstance(column.missing, bool) else _texts(column.missing)))
        lines += [f"source = {_text(_WRITTEN[column.source])}"] * (column.source is not default)
    for name, remark in remarks.items():
        lines += ["", *_commented(f"columns.{_key(name)}", remark), "ignore = true"]
    return "\n".join(lines) + "\n"


def _commented(name: str, remark: object) -> list[str]:
    lines = [" ".join(line.split()) for line in str(remark).splitlines()]
    return [f"[{name}]" + "".join(f"  # {line}" for line in lines[:1]), *(f"# {line}" for line in lines[1:])]


def _written_signs(part: Number | NumberTarget) -> list[str]:
    signs = {"decimal": part.decimal, "thousands": part.thousands or None, "unit": part.unit or None}
    return [f"{key} = {_text(sign)}" for key, sign in signs.items() if sign is not None]


def _text(value: str) -> str:
    # Quoted text is the same in TOML and JSON, except for the delete character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _texts(values: Sequence[str]) -> str:
    listed = "[" + ", ".join(map(_text, values)) + "]"
    return listed if len(listed) <= 100 else "[\n" + "".join(f"    {_text(value)},\n" for value in values) + "]"


def _numbers(values: Sequence[float]) -> str:
    return "[" + ", ".join(map(exact, values)) + "]"


def _key(name: str) -> str:
    bare = name.isascii() and name and all(letter.isalnum() or letter in "-_" for letter in name)
    return name if bare else _text(name)
