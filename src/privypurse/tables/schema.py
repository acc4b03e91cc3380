"""The public description of a table: which columns there are, between which numbers they lie, which categories they have."""

import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from privypurse.core.checks import shown
from privypurse.core.errors import InvalidArgument

MISSING_VALUES = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
MOST_CATEGORIES = 10_000


class Source(enum.Enum):
    """Where a part of a description comes from."""

    DECLARED = "declared"  # known without looking at the records
    DATA = "data"  # read from the records without paying: not covered by any guarantee
    BOUGHT = "bought"  # paid for from a purse in this run
    EARLIER = "bought earlier"  # a file says so


@dataclass(frozen=True, kw_only=True)
class Number:
    """A column of numbers.

    Parameters
    ----------
    name : str
        Name of the column.
    range : pair of float or None
        Numbers are clipped to it. None: it is to be bought from the purse, unless there are cuts.
    cuts : tuple of float
        Public cut points. With them the column becomes one column of zeros and ones for each interval between them.
    missing : bool
        Whether there is a column that says that the number is missing. A missing number counts as the middle of the range.
    source : Source
        Where range and cuts come from.
    """

    name: str
    range: tuple[float, float] | None = None
    cuts: tuple[float, ...] = ()
    missing: bool = False
    source: Source = Source.DECLARED

    def __post_init__(self) -> None:
        if self.range is not None:
            _check_range(f"range of column {self.name!r}", self.range)
        steps = itertools.pairwise(self.cuts)
        if not all(_is_number(cut) for cut in self.cuts) or any(low >= high for low, high in steps):
            raise InvalidArgument(
                f"cuts of column {self.name!r} must be numbers in increasing order; got {shown(list(self.cuts))}. "
                "Write for example cuts = [25, 40, 65]."
            )

    @property
    def features(self) -> list[str]:
        """Names of the encoded columns."""
        if self.cuts:
            ends = [f"{cut:.15g}" for cut in self.cuts]
            inner = [f"{self.name} {low} to {high}" for low, high in itertools.pairwise(ends)]
            names = [f"{self.name} below {ends[0]}", *inner, f"{self.name} {ends[-1]} or more"]
        else:
            names = [self.name]
        return [*names, f"{self.name} missing"] if self.missing else names


@dataclass(frozen=True, kw_only=True)
class Category:
    """A column of categories.

    Parameters
    ----------
    name : str
        Name of the column.
    categories : tuple of str
        The public list. Values are compared as text, without blanks around them.
    other : bool
        Whether there is a column for values that are on no list; otherwise all columns are zero then.
    missing : bool
        Whether there is a column that says that the value is missing.
    source : Source
        Where the list comes from.
    """

    name: str
    categories: tuple[str, ...]
    other: bool = False
    missing: bool = False
    source: Source = Source.DECLARED

    def __post_init__(self) -> None:
        _check_texts(f"categories of column {self.name!r}", self.categories, least=1)

    @property
    def features(self) -> list[str]:
        """Names of the encoded columns."""
        extra = ["(other)"] * self.other + ["(missing)"] * self.missing
        return [f"{self.name} = {value}" for value in [*self.categories, *extra]]


@dataclass(frozen=True, kw_only=True)
class ClassTarget:
    """A target of classes. A row whose target is missing or on no list is left out."""

    name: str
    classes: tuple[str, ...]
    source: Source = Source.DECLARED

    def __post_init__(self) -> None:
        _check_texts(f"classes of target {self.name!r}", self.classes, least=2)


@dataclass(frozen=True, kw_only=True)
class NumberTarget:
    """A target of numbers within a public range. A row whose target is missing is left out, one beyond the range clipped."""

    name: str
    range: tuple[float, float]
    source: Source = Source.DECLARED

    def __post_init__(self) -> None:
        _check_range(f"range of target {self.name!r}", self.range)


Column = Number | Category
Target = ClassTarget | NumberTarget


@dataclass(frozen=True)
class Schema:
    """The description of a table.

    Parameters
    ----------
    columns : tuple of Number or Category
        What a model is trained on, in order. Other columns of a file are left out.
    target : ClassTarget, NumberTarget or None
        What it is to predict.
    missing_values : tuple of str
        Texts that stand for a missing value, besides an empty field.
    decimal : str
        What separates decimals of numbers that are text: "." or ",".
    kinds : Source
        Where the choice of columns and their kinds comes from.

    Examples
    --------
    >>> schema = Schema((Number(name="age", range=(18, 90)), Category(name="job", categories=("law", "care"))),
    ...                 ClassTarget(name="moved", classes=("no", "yes")))
    >>> schema.features
    ['age', 'job = law', 'job = care']
    """

    columns: tuple[Column, ...]
    target: Target | None = None
    missing_values: tuple[str, ...] = MISSING_VALUES
    kinds: Source = Source.DECLARED
    decimal: str = "."

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise InvalidArgument(f"decimal must be '.' or ','; got {shown(self.decimal)}. Leave it out for a point.")
        if not self.columns:
            raise InvalidArgument("a schema must describe at least one column; got none. Add a table [columns.NAME].")
        names = [column.name for column in self.columns]
        target = () if self.target is None else (self.target.name,)
        twice = sorted({name for name in (*names, *target) if [*names, *target].count(name) > 1})
        if twice:
            raise InvalidArgument(
                f"column {twice[0]!r} is described twice, or is both a column and the target. Describe it once."
            )
        for part in self.parts:
            listed = part.categories if isinstance(part, Category) else getattr(part, "classes", ())
            for value in sorted({*listed} & {"", *self.missing_values}):
                raise InvalidArgument(
                    f"{value!r} of {part.name!r} stands for a missing value too. Take it off the list, or out of missing_values: "
                    'write for example missing_values = ["?"].'
                )

    @property
    def features(self) -> list[str]:
        """Names of the encoded columns, in order."""
        return [feature for column in self.columns for feature in column.features]

    @property
    def names(self) -> list[str]:
        """Names of the columns of a file that are read, the target's last."""
        return [column.name for column in self.columns] + ([] if self.target is None else [self.target.name])

    @property
    def to_buy(self) -> list[Number]:
        """Columns whose range is to be bought; those with cuts need none."""
        numbers = [column for column in self.columns if isinstance(column, Number)]
        return [column for column in numbers if column.range is None and not column.cuts]

    @property
    def is_declared(self) -> bool:
        """Whether nothing in it was read from the data without paying."""
        paid_or_declared = (Source.DECLARED, Source.BOUGHT)
        return self.kinds in paid_or_declared and all(part.source in paid_or_declared for part in self.parts)

    @property
    def uncovered(self) -> list[str]:
        """What was read from the data without paying, for a certificate."""
        columns = [part.name for part in self.columns if part.source is Source.DATA]
        lines = []
        if self.kinds is Source.DATA:
            lines.append(
                "which columns are used, of which kind they are and where values are missing, read from the data"
            )
        if columns:
            shortened = ", ".join(columns[:8]) + (f" and {len(columns) - 8} more" if len(columns) > 8 else "")
            lines.append(f"ranges and categories of columns, read from the data without paying: {shortened}")
        earlier = [part.name for part in self.columns if part.source is Source.EARLIER]
        if earlier:
            lines.append(f"ranges of columns that the schema says were bought in an earlier run: {', '.join(earlier)}")
        if self.target is not None and self.target.source is Source.DATA:
            what = "classes" if isinstance(self.target, ClassTarget) else "range"
            lines.append(f"{what} of the target {self.target.name}, read from the data without paying")
        return lines

    @property
    def parts(self) -> tuple[Column | Target, ...]:
        """The columns, and the target if there is one."""
        return (*self.columns, *(() if self.target is None else (self.target,)))

    def buying_ranges(self) -> "Schema":
        """Return the schema with every range that was read from the data to be bought instead."""
        return replace(
            self,
            columns=tuple(
                replace(column, range=None, source=Source.DECLARED)
                if isinstance(column, Number) and column.source is Source.DATA and not column.cuts
                else column
                for column in self.columns
            ),
        )

    def with_ranges(self, bought: dict[str, tuple[float, float]], source: Source = Source.BOUGHT) -> "Schema":
        """Return the schema with ranges that were bought, or come from elsewhere."""
        return replace(
            self,
            columns=tuple(
                replace(column, range=bought[column.name], source=source)
                if isinstance(column, Number) and column.name in bought
                else column
                for column in self.columns
            ),
        )

    def with_target(self, name: str) -> "Schema":
        """Check that the target is the one that is asked for."""
        if self.target is None:
            raise InvalidArgument(
                f"the schema has no [target]; --target {name} needs one. Add [target] with column = {name!r} and "
                'classes = ["no", "yes"] or range = [0, 100].'
            )
        if self.target.name != name:
            raise InvalidArgument(
                f"target must be the one the schema describes, {self.target.name!r}; got {name!r}. Change one of them."
            )
        return self


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e100


def _check_range(what: str, pair: Any) -> None:
    ordered = isinstance(pair, Sequence) and len(pair) == 2 and all(map(_is_number, pair)) and pair[0] < pair[1]
    if not ordered:
        raise InvalidArgument(
            f"{what} must be two numbers, the smaller one first; got {shown(pair)}. Write for example range = [0, 100]."
        )


def _check_texts(what: str, values: Sequence[Any], *, least: int) -> None:
    texts = isinstance(values, Sequence) and not isinstance(values, str) and all(isinstance(v, str) for v in values)
    if not texts or not least <= len(set(values)) == len(values) <= MOST_CATEGORIES:
        raise InvalidArgument(
            f"{what} must be {least} to {MOST_CATEGORIES:,} different texts; got {shown(values)}. "
            'Write for example ["no", "yes"].'
        )
    for value in values:
        if value != value.strip():
            raise InvalidArgument(
                f"{what} must have no blanks around them, as values are compared without; got {shown(value)}. Write "
                f"{shown(value.strip())}."
            )
