"""A synthetic census: a table of mixed columns whose best possible accuracy is known."""

import csv
import functools
import pathlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core._checks import positive_integer, shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted
from privypurse.datasets import _census_population as world

TARGET = "high_income"
CLASSES = ("no", "yes")
_BLOCK = 1 << 16  # rows generated at a time
_DRAWS = 17  # random numbers for each row


@dataclass(frozen=True)
class ColumnFacts:
    """Public facts about a column, declared by the generator."""

    kind: str  # "number" or "category"
    lower: int | None = None  # range of a number, which holds for every row
    upper: int | None = None
    categories: tuple[str, ...] = ()  # all values of a category
    may_be_missing: bool = False  # NaN for a number, None for a category


_number, _category = functools.partial(ColumnFacts, "number"), functools.partial(ColumnFacts, "category", None, None)
FACTS = {
    "age": _number(world.YOUNGEST, world.OLDEST),
    "sex": _category(world.SEX),
    "region": _category(world.REGION),
    "born_abroad": _category(world.BORN_ABROAD),
    "education": _category(world.EDUCATION),
    "school_years": _number(0, world.MOST_SCHOOL),
    "household": _category(world.HOUSEHOLD),
    "job": _category(world.JOB, may_be_missing=True),
    "sector": _category(world.SECTOR, may_be_missing=True),
    "hours_per_week": _number(0, world.MOST_HOURS),
    "capital_income": _number(0, world.MOST_CAPITAL),
    "commute_minutes": _number(0, world.MOST_COMMUTE, may_be_missing=True),
}


@dataclass(frozen=True, eq=False)
class Census:
    """Rows drawn by `make_census` from a known population.

    `best_accuracy` is the expected accuracy of the best possible rule on these rows: the mean of
    max(p, 1 - p), with p the probability of a high income given the row, missing values included.
    On one draw of the labels the accuracy deviates by about 0.35/sqrt(n).
    """

    seed: int
    best_accuracy: float
    _codes: dict[str, NDArray[Any]]

    target = TARGET
    classes = CLASSES

    def __len__(self) -> int:
        return len(self._codes[TARGET])

    def __repr__(self) -> str:
        return f"<Census: {counted(len(self), 'row')}, {len(FACTS)} columns and {TARGET}, best accuracy {self.best_accuracy:.2%}>"

    @property
    def schema_facts(self) -> dict[str, ColumnFacts]:
        """Public facts about each column. `target` has the two `classes` and is never missing."""
        return dict(FACTS)

    @property
    def majority_accuracy(self) -> float:
        """Accuracy of always predicting the more frequent class of these rows."""
        share = float(self.y.mean())
        return max(share, 1 - share)

    @property
    def y(self) -> NDArray[np.int64]:
        """The target as numbers: 0 for "no", 1 for "yes"."""
        return self._codes[TARGET].astype(np.int64)

    @functools.cached_property
    def columns(self) -> dict[str, NDArray[Any]]:
        """All columns by name, the target last: numbers, or strings and None if missing."""
        return self._decoded(0, len(self))

    @property
    def X(self) -> dict[str, NDArray[Any]]:
        """The columns without the target."""
        return {name: values for name, values in self.columns.items() if name != TARGET}

    def to_csv(self, path: str | pathlib.Path) -> None:
        """Write a CSV file with a header. Missing values are empty fields."""
        write_csv(path, (self._decoded(start, start + _BLOCK) for start in range(0, len(self), _BLOCK)))

    def _decoded(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        decoded: dict[str, NDArray[Any]] = {}
        for name, facts in FACTS.items():
            codes = self._codes[name][start:stop]
            if facts.kind == "category":
                # The code after the last category is a missing value.
                decoded[name] = np.array([*facts.categories, None], dtype=object)[codes]
            elif facts.may_be_missing:
                decoded[name] = np.where(codes < 0, np.nan, codes)
            else:
                decoded[name] = codes.astype(np.int64)
        decoded[TARGET] = np.array(CLASSES, dtype=object)[self._codes[TARGET][start:stop]]
        return decoded


def make_census(n: int = 30_000, seed: int = 0) -> Census:
    """Draw a table of working people: 12 columns of mixed types, and whether income is high.

    The columns depend on each other: education on age, job on education, sex and region, hours on
    household, and so on. About 26 % have a high income, and the best accuracy is about 85 %.

    Parameters
    ----------
    n : int
        Number of rows. A million take about half a second, and 17 MB until `Census.columns` is
        used.
    seed : int
        0 or more. Other seeds are independent samples: draw one to train and one to test.

    Notes
    -----
    The same `n` and `seed` give the same table on every machine, and a smaller `n` gives the first
    rows of a larger one. The stream is the raw output of ``numpy.random.PCG64(seed)``, which numpy
    keeps stable; everything computed from it is an integer.

    Examples
    --------
    >>> from privypurse.datasets import make_census
    >>> train, test = make_census(20_000, seed=1), make_census(5_000, seed=2)
    >>> train
    <Census: 20,000 rows, 12 columns and high_income, best accuracy 85...%>
    >>> train.schema_facts["age"].upper
    90
    """
    n = positive_integer(n=n)
    if n > 10**9:
        raise InvalidArgument(f"expected n to be at most 1,000,000,000, got {shown(n)}. Pass for example 30000.")
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidArgument(f"expected seed to be an integer of 0 or more, got {shown(seed)}. Pass seed=1.")
    stream = np.random.PCG64(int(seed))
    codes: dict[str, NDArray[Any]] = {}
    certainty = 0
    for start in range(0, n, _BLOCK):
        rows = min(_BLOCK, n - start)
        # In row order, so that a longer table begins with a shorter one.
        draws = stream.random_raw(rows * _DRAWS).reshape(rows, _DRAWS)
        people = _people(draws)
        chance = world.scores().chance[_score(people) + world.LARGEST]
        certainty += int(np.maximum(chance, np.uint64(world.CERTAIN) - chance).sum())
        people[TARGET] = (draws[:, -1] >> np.uint64(32) < chance).astype(np.uint8)
        for name, values in people.items():
            codes.setdefault(name, np.empty(n, dtype=values.dtype))[start : start + rows] = values
    return Census(int(seed), certainty / (n * world.CERTAIN), codes)


def _people(draws: NDArray[np.uint64]) -> dict[str, NDArray[Any]]:
    """Return one block of people as codes, in the order of FACTS."""
    tables = world.population()
    entries = iter((draws[:, :-1] >> np.uint64(48)).astype(np.int32).T)
    region = tables.region[next(entries)]
    sex = tables.sex[next(entries)]
    age = tables.age[next(entries)]
    group = tables.age_group[age].astype(np.intp)
    abroad = tables.born_abroad[region, next(entries)]
    education = tables.education[2 * group + abroad, next(entries)]
    school = np.minimum(tables.school[education, next(entries)], age - np.uint8(5))
    setting = tables.setting[region].astype(np.intp)
    job = tables.job[(2 * education.astype(np.intp) + sex) * 3 + setting, next(entries)]
    sector = tables.sector[job, next(entries)]
    household = tables.household[2 * group + sex, next(entries)]
    own_boss = _own_boss(sector)
    life = np.where((group == 0) | (group == len(world.AGE_GROUPS)), 2, own_boss)
    rhythm = tables.rhythm[(sex.astype(np.intp) * len(world.HOUSEHOLD) + household) * 3 + life, next(entries)]
    hours = tables.hours[rhythm, next(entries)]
    has_degree = education >= world.EDUCATION.index("bachelor")
    any_capital = tables.any_capital[2 * group + has_degree, next(entries)]
    capital = tables.capital[group, next(entries)] * any_capital
    commute = tables.commute[setting, next(entries)]
    unknown_work = tables.unknown_work[next(entries)]
    unknown_commute = tables.unknown_commute[next(entries)]
    own = {"age": age, "sex": sex, "region": region, "born_abroad": abroad, "education": education}
    return own | {
        "school_years": school,
        "household": household,
        "job": np.where(unknown_work == 2, np.uint8(len(world.JOB)), job),
        "sector": np.where(unknown_work >= 1, np.uint8(len(world.SECTOR)), sector),
        "hours_per_week": hours,
        "capital_income": capital,
        "commute_minutes": np.where(unknown_commute == 1, np.int16(-1), commute),
    }


def _own_boss(sector: NDArray[np.uint8]) -> NDArray[np.intp]:
    return np.isin(sector, [world.SECTOR.index("self-employed"), world.SECTOR.index("own company")]).astype(np.intp)


def _score(people: dict[str, NDArray[Any]]) -> NDArray[np.intp]:
    """Return the log-odds of a high income in hundredths, given the table."""
    add = world.scores()
    score = np.full(len(people["age"]), add.base, dtype=np.intp)
    for name in ("age", "school_years", "region", "job", "education", "sector", "born_abroad"):
        score += getattr(add, name)[people[name]]
    score += add.hours[_own_boss(people["sector"]), people["hours_per_week"]]
    score += add.capital[np.searchsorted(add.capital_steps, people["capital_income"], side="right")]
    score += add.commute[people["commute_minutes"] // world.COMMUTE_STEP]  # -1, missing, is the last entry
    score += add.household[people["sex"], people["household"]]
    return np.clip(score, -world.LARGEST, world.LARGEST)


def write_csv(path: str | pathlib.Path, blocks: Iterable[dict[str, NDArray[Any]]]) -> None:
    """Write blocks of columns as one CSV file; None and NaN are empty, whole numbers have no point."""
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
