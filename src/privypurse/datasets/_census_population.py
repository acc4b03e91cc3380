"""The population that `make_census` draws from, and the probability of a high income.

All numbers are integers. A value is looked up in a table of 2^16 equally likely entries, a score is
a sum of hundredths, and a probability is a multiple of 2^-32. So the results are the same on every
machine and with every version of numpy.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

ENTRIES = 1 << 16
CERTAIN = 1 << 32

SEX = ("female", "male")
REGION = ("north", "south", "east", "west", "centre", "coast", "capital")
BORN_ABROAD = ("no", "yes")
EDUCATION = (
    *("no school", "primary", "lower secondary", "upper secondary"),
    *("vocational", "bachelor", "master", "doctorate"),
)
JOB = (
    *("manager", "professional", "technician", "health", "teaching", "office"),
    *("sales", "craft", "transport", "machine operator", "farming", "cleaning and care"),
)
SECTOR = ("private", "public", "self-employed", "own company", "non-profit")
HOUSEHOLD = ("alone", "couple", "couple with children", "single parent", "with parents", "shared")

YOUNGEST, OLDEST = 17, 90
MOST_SCHOOL = 22
MOST_HOURS = 99
MOST_CAPITAL = 200_000
MOST_COMMUTE = 180
COMMUTE_STEP = 5

# First age of each age group but the first.
AGE_GROUPS = (20, 24, 30, 50, 65)


def _choice(weights: Iterable[int]) -> NDArray[np.uint8]:
    """Return a table of entries in which each index occurs in proportion to its weight."""
    totals = np.cumsum(list(weights), dtype=np.int64)
    edges = totals * ENTRIES // totals[-1]
    return np.repeat(np.arange(len(totals), dtype=np.uint8), np.diff(edges, prepend=0))


def _choices(groups: Iterable[Iterable[int]]) -> NDArray[np.uint8]:
    return np.stack(list(map(_choice, groups)))


def _times(*factors: Sequence[int]) -> list[int]:
    return [math.prod(entry) for entry in zip(*factors, strict=True)]


def _long_tail(middle: int, most: int, step: int = 1) -> list[int]:
    """Return ENTRIES values with median `middle` and a tail like 1/x^2, rounded down to steps."""
    # Quantiles of the log-logistic distribution of shape 2: middle * sqrt(q / (1 - q)).
    values = (math.isqrt(middle**2 * (2 * i + 1) // (2 * (ENTRIES - i) - 1)) for i in range(ENTRIES))
    return [min(value // step * step, most) for value in values]


def _ages() -> list[int]:
    """Return the weight of each age: rising to 25, level to 55, falling to 90."""
    ages = np.arange(YOUNGEST, OLDEST + 1)
    old = np.where(ages < 70, 40 - 2 * (ages - 55), np.maximum(1, 8 - (ages - 70) // 2))
    return np.where(ages < 25, 4 * (ages - 15), np.where(ages < 55, 40, old)).tolist()  # type: ignore[no-any-return]


def _band(lowest: int, highest: int, middle: int) -> list[int]:
    """Return weights over years of school that fall on both sides of the middle."""
    inside = range(lowest, highest + 1)
    width = 1 + highest - lowest
    return [max(0, width - 2 * abs(years - middle)) * (years in inside) for years in range(MOST_SCHOOL + 1)]


@functools.cache
def population() -> SimpleNamespace:
    """Return tables of equally likely values, one row for each group of people."""
    by_age_group = [
        (2, 6, 40, 45, 7, 0, 0, 0),
        (1, 2, 12, 50, 18, 17, 0, 0),
        (1, 2, 8, 30, 20, 28, 11, 0),
        (1, 3, 9, 27, 20, 24, 13, 3),
        (2, 7, 14, 30, 22, 16, 7, 2),
        (4, 14, 18, 27, 19, 11, 5, 2),
    ]
    abroad = [(1, 1, 1, 1, 1, 1, 1, 1), (8, 6, 3, 2, 1, 2, 3, 3)]
    # manager, professional, technician, health, teaching, office, sales, craft, transport,
    # machines, farming, cleaning
    by_education = [
        (0, 0, 0, 0, 0, 1, 8, 20, 10, 18, 18, 25),
        (1, 0, 0, 1, 0, 3, 12, 22, 13, 18, 12, 18),
        (2, 0, 2, 2, 0, 8, 18, 22, 12, 14, 6, 14),
        (6, 3, 7, 5, 1, 22, 20, 15, 7, 7, 3, 8),
        (7, 3, 18, 15, 2, 17, 12, 18, 4, 4, 2, 4),
        (17, 24, 14, 10, 15, 12, 8, 3, 1, 1, 1, 1),
        (22, 35, 9, 10, 15, 6, 3, 1, 1, 0, 1, 0),
        (15, 45, 4, 15, 20, 2, 1, 0, 0, 0, 1, 0),
    ]
    by_sex = [(6, 9, 6, 22, 20, 19, 11, 2, 3, 7, 6, 18), (14, 11, 14, 6, 7, 8, 10, 19, 18, 13, 14, 5)]
    by_setting = [(8, 7, 9, 10, 10, 9, 9, 12, 10, 12, 30, 10), (10,) * 12, (13, 17, 12, 10, 9, 11, 11, 7, 9, 6, 1, 11)]
    rhythms = {  # part time, full time, long
        "alone": [(20, 66, 14), (10, 68, 22)],
        "couple": [(28, 61, 11), (8, 70, 22)],
        "couple with children": [(48, 45, 7), (5, 68, 27)],
        "single parent": [(45, 49, 6), (12, 70, 18)],
        "with parents": [(35, 60, 5), (25, 65, 10)],
        "shared": [(30, 62, 8), (22, 66, 12)],
    }
    by_way_of_life = [(2, 4, 2), (2, 2, 6), (12, 2, 1)]  # employed, own boss, under 20 or over 65
    by_job = [
        *[(60, 14, 5, 17, 4), (56, 22, 11, 6, 5), (66, 20, 6, 4, 4), (40, 40, 7, 2, 11)],
        *[(15, 70, 3, 1, 11), (62, 28, 2, 2, 6), (78, 1, 11, 8, 2), (70, 6, 17, 6, 1)],
        *[(68, 15, 12, 4, 1), (94, 3, 1, 1, 1), (40, 2, 46, 11, 1), (62, 20, 8, 1, 9)],
    ]
    households = [  # by age group and sex
        *[(4, 3, 0, 2, 80, 11), (3, 2, 0, 0, 85, 10), (14, 15, 3, 4, 42, 22), (15, 10, 2, 0, 52, 21)],
        *[(20, 32, 14, 6, 13, 15), (25, 28, 9, 1, 20, 17), (14, 18, 49, 14, 2, 3), (22, 20, 48, 3, 4, 3)],
        *[(24, 48, 17, 6, 1, 4), (20, 50, 24, 2, 1, 3), (46, 46, 2, 3, 0, 3), (24, 70, 3, 1, 0, 2)],
    ]
    by_rhythm = [  # hours: weight
        {4: 1, 6: 1, 8: 4, 10: 6, 12: 5, 15: 8, 16: 8, 18: 4, 20: 24, 24: 12, 25: 12, 28: 5, 30: 15, 32: 4},
        {33: 1, 34: 1, 35: 12, 36: 6, 37: 8, 38: 12, 39: 4, 40: 48, 41: 1, 42: 5, 43: 2, 44: 2, 45: 14},
        {46: 2, 48: 13, 50: 38, 52: 3, 54: 2, 55: 13, 60: 22, 65: 4, 70: 6, 75: 2, 80: 3, 90: 1, 99: 1},
    ]
    bands = ((0, 3, 1), (4, 8, 6), (7, 11, 9), (10, 14, 12), (11, 15, 13), (14, 18, 16), (15, 20, 18), (18, 22, 20))
    capitals = [[1 + v for v in _long_tail(m, MOST_CAPITAL - 1)] for m in (150, 300, 800, 1_900, 3_500, 4_500)]
    commutes = [_long_tail(middle, MOST_COMMUTE, COMMUTE_STEP) for middle in (14, 18, 29)]
    return SimpleNamespace(
        region=_choice((18, 15, 14, 13, 16, 9, 15)),
        sex=_choice((48, 52)),
        age=_choice(_ages()) + np.uint8(YOUNGEST),
        age_group=np.searchsorted(AGE_GROUPS, np.arange(OLDEST + 1), side="right").astype(np.uint8),  # by age
        born_abroad=_choices((100 - share, share) for share in (7, 11, 9, 8, 12, 16, 28)),  # by region
        # By age group and born_abroad.
        education=_choices(_times(levels, pull) for levels in by_age_group for pull in abroad),
        school=_choices(_band(*years) for years in bands),  # by education
        setting=np.array([0, 1, 1, 0, 1, 1, 2], dtype=np.uint8),  # by region: 0 country, 1 town, 2 capital
        # By education, sex and setting.
        job=_choices(_times(levels, sex, place) for levels in by_education for sex in by_sex for place in by_setting),
        sector=_choices(by_job),
        household=_choices(households),
        # By sex, household and way of life: part time, full time or long.
        rhythm=_choices(
            _times(rhythms[kind][sex], way) for sex in (0, 1) for kind in HOUSEHOLD for way in by_way_of_life
        ),
        hours=_choices([weights.get(hours, 0) for hours in range(MOST_HOURS + 1)] for weights in by_rhythm),
        any_capital=_choices((100 - share, share) for share in (1, 2, 2, 4, 4, 9, 8, 18, 15, 28, 26, 42)),  # and degree
        capital=np.array(capitals, dtype=np.int32),  # by age group
        commute=np.array(commutes, dtype=np.int16),  # by setting
        unknown_work=_choice((95, 2, 3)),  # 0 all known, 1 sector unknown, 2 sector and job unknown
        unknown_commute=_choice((93, 7)),
    )


LARGEST = 1_200


def _shorts(values: Iterable[int] | Sequence[Sequence[int]]) -> NDArray[np.int16]:
    return np.array(list(values), dtype=np.int16)


@functools.cache
def scores() -> SimpleNamespace:
    """Return the terms of the log-odds of a high income, in hundredths; the last may be "missing".

    They are mostly additive, as in a linear model over one-hot and scaled columns, but not quite:
    income peaks at an age, capital counts in steps, long hours pay less for the self-employed, and
    the effect of a household depends on sex.
    """
    years, week = range(OLDEST + 1), range(MOST_HOURS + 1)
    logistic = [1 / (1 + math.exp(-score / 100)) for score in range(-LARGEST, LARGEST + 1)]
    return SimpleNamespace(
        base=-230,
        age=_shorts(max(60 - (age - 50) ** 2 // 4, -200 if age < 50 else -40) for age in years),
        school_years=_shorts(7 * (school - 12) for school in range(MOST_SCHOOL + 1)),
        hours=_shorts([[max(-260, min(pay * (hours - 39), 170)) for hours in week] for pay in (7, 4)]),
        capital_steps=np.array([1, 1_000, 5_000, 15_000], dtype=np.int32),
        capital=_shorts([0, 30, 110, 240, 380]),
        commute=_shorts([*(min(60, minutes) - 25 for minutes in range(0, MOST_COMMUTE + 1, COMMUTE_STEP)), -10]),
        region=_shorts([-50, -20, 0, -30, 20, 30, 80]),
        job=_shorts([160, 130, 60, 40, 0, -30, -30, -20, -40, -50, -130, -170, -30]),
        education=_shorts([-180, -150, -110, -40, 0, 80, 140, 200]),
        household=_shorts([[-20, 40, 20, -60, -120, -60], [10, 110, 140, 20, -130, -50]]),
        sector=_shorts([0, 10, -60, 120, -50, -20]),
        born_abroad=_shorts([0, -50]),
        # By score, from -LARGEST to LARGEST, in units of 2^-32.
        chance=np.array([round(chance * CERTAIN) for chance in logistic], dtype=np.uint64),
    )
