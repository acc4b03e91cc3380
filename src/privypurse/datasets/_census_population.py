"""The population that `make_census` draws from, and the probability of a high income.

All numbers are integers. A value is looked up in a table of 2^16 equally likely entries, a score is
a sum of hundredths, and a probability is a multiple of 2^-32. So the results are the same on every
machine and with every version of numpy.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ENTRIES = 1 << 16
CERTAIN = 1 << 32

SEX = ("female", "male")
REGION = ("north", "south", "east", "west", "centre", "coast", "capital")
BORN_ABROAD = ("no", "yes")
EDUCATION = (
    "no school",
    "primary",
    "lower secondary",
    "upper secondary",
    "vocational",
    "bachelor",
    "master",
    "doctorate",
)
JOB = (
    "manager",
    "professional",
    "technician",
    "health",
    "teaching",
    "office",
    "sales",
    "craft",
    "transport",
    "machine operator",
    "farming",
    "cleaning and care",
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


@dataclass(frozen=True)
class Population:
    """Tables of equally likely values, one row for each group of people."""

    region: NDArray[np.uint8]
    sex: NDArray[np.uint8]
    age: NDArray[np.uint8]
    age_group: NDArray[np.uint8]  # by age
    born_abroad: NDArray[np.uint8]  # by region
    education: NDArray[np.uint8]  # by age group and born_abroad
    school: NDArray[np.uint8]  # by education
    setting: NDArray[np.uint8]  # by region: 0 country, 1 town, 2 capital
    job: NDArray[np.uint8]  # by education, sex and setting
    sector: NDArray[np.uint8]  # by job
    household: NDArray[np.uint8]  # by age group and sex
    rhythm: NDArray[np.uint8]  # by sex, household and way of life: part time, full time or long
    hours: NDArray[np.uint8]  # by rhythm
    any_capital: NDArray[np.uint8]  # by age group and degree
    capital: NDArray[np.int32]  # by age group
    commute: NDArray[np.int16]  # by setting
    unknown_work: NDArray[np.uint8]  # 0 all known, 1 sector unknown, 2 sector and job unknown
    unknown_commute: NDArray[np.uint8]


def _choice(weights: Iterable[int]) -> NDArray[np.uint8]:
    """Return a table of entries in which each index occurs in proportion to its weight."""
    totals = np.cumsum(list(weights), dtype=np.int64)
    edges = totals * ENTRIES // totals[-1]
    return np.repeat(np.arange(len(totals), dtype=np.uint8), np.diff(edges, prepend=0))


def _choices(groups: Iterable[Iterable[int]]) -> NDArray[np.uint8]:
    return np.stack([_choice(weights) for weights in groups])


def _times(*factors: Sequence[int]) -> list[int]:
    return [math.prod(entry) for entry in zip(*factors, strict=True)]


def _long_tail(middle: int, most: int, step: int = 1) -> list[int]:
    """Return ENTRIES values with median `middle` and a tail like 1/x^2, rounded down to steps."""
    # Quantiles of the log-logistic distribution of shape 2: middle * sqrt(q / (1 - q)).
    values = (math.isqrt(middle**2 * (2 * i + 1) // (2 * (ENTRIES - i) - 1)) for i in range(ENTRIES))
    return [min(value // step * step, most) for value in values]


def _ages() -> list[int]:
    """Return the weight of each age: rising to 25, level to 55, falling to 90."""
    return [
        4 * (age - 15)
        if age < 25
        else 40
        if age < 55
        else 40 - 2 * (age - 55)
        if age < 70
        else max(1, 8 - (age - 70) // 2)
        for age in range(YOUNGEST, OLDEST + 1)
    ]


def _peaks(**at: int) -> list[int]:
    """Return weights over 0 to MOST_HOURS hours, from arguments such as h20=7."""
    weights = [0] * (MOST_HOURS + 1)
    for hours, weight in at.items():
        weights[int(hours.removeprefix("h"))] = weight
    return weights


def _band(lowest: int, highest: int, middle: int) -> list[int]:
    """Return weights over years of school that fall on both sides of the middle."""
    return [
        max(0, 1 + highest - lowest - 2 * abs(years - middle)) if lowest <= years <= highest else 0
        for years in range(MOST_SCHOOL + 1)
    ]


@functools.cache
def population() -> Population:
    """Return the tables of the population."""
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
    return Population(
        region=_choice((18, 15, 14, 13, 16, 9, 15)),
        sex=_choice((48, 52)),
        age=_choice(_ages()) + np.uint8(YOUNGEST),
        age_group=np.searchsorted(AGE_GROUPS, np.arange(OLDEST + 1), side="right").astype(np.uint8),
        born_abroad=_choices((100 - share, share) for share in (7, 11, 9, 8, 12, 16, 28)),
        education=_choices(_times(levels, pull) for levels in by_age_group for pull in abroad),
        school=_choices(
            _band(*years)
            for years in (
                (0, 3, 1),
                (4, 8, 6),
                (7, 11, 9),
                (10, 14, 12),
                (11, 15, 13),
                (14, 18, 16),
                (15, 20, 18),
                (18, 22, 20),
            )
        ),
        setting=np.array([0, 1, 1, 0, 1, 1, 2], dtype=np.uint8),
        job=_choices(
            _times(levels, sexes, settings) for levels in by_education for sexes in by_sex for settings in by_setting
        ),
        sector=_choices(
            [
                (60, 14, 5, 17, 4),
                (56, 22, 11, 6, 5),
                (66, 20, 6, 4, 4),
                (40, 40, 7, 2, 11),
                (15, 70, 3, 1, 11),
                (62, 28, 2, 2, 6),
                (78, 1, 11, 8, 2),
                (70, 6, 17, 6, 1),
                (68, 15, 12, 4, 1),
                (94, 3, 1, 1, 1),
                (40, 2, 46, 11, 1),
                (62, 20, 8, 1, 9),
            ]
        ),
        household=_choices(
            weights
            for pair in (
                [(4, 3, 0, 2, 80, 11), (3, 2, 0, 0, 85, 10)],
                [(14, 15, 3, 4, 42, 22), (15, 10, 2, 0, 52, 21)],
                [(20, 32, 14, 6, 13, 15), (25, 28, 9, 1, 20, 17)],
                [(14, 18, 49, 14, 2, 3), (22, 20, 48, 3, 4, 3)],
                [(24, 48, 17, 6, 1, 4), (20, 50, 24, 2, 1, 3)],
                [(46, 46, 2, 3, 0, 3), (24, 70, 3, 1, 0, 2)],
            )
            for weights in pair
        ),
        rhythm=_choices(
            _times(rhythms[household][sex], way) for sex in (0, 1) for household in HOUSEHOLD for way in by_way_of_life
        ),
        hours=_choices(
            [
                _peaks(
                    h4=1, h6=1, h8=4, h10=6, h12=5, h15=8, h16=8, h18=4, h20=24, h24=12, h25=12, h28=5, h30=15, h32=4
                ),
                _peaks(h33=1, h34=1, h35=12, h36=6, h37=8, h38=12, h39=4, h40=48, h41=1, h42=5, h43=2, h44=2, h45=14),
                _peaks(h46=2, h48=13, h50=38, h52=3, h54=2, h55=13, h60=22, h65=4, h70=6, h75=2, h80=3, h90=1, h99=1),
            ]
        ),
        any_capital=_choices(
            (100 - share, share) for pair in ((1, 2), (2, 4), (4, 9), (8, 18), (15, 28), (26, 42)) for share in pair
        ),
        capital=np.array(
            [[1 + v for v in _long_tail(middle, MOST_CAPITAL - 1)] for middle in (150, 300, 800, 1_900, 3_500, 4_500)],
            dtype=np.int32,
        ),
        commute=np.array([_long_tail(middle, MOST_COMMUTE, COMMUTE_STEP) for middle in (14, 18, 29)], dtype=np.int16),
        unknown_work=_choice((95, 2, 3)),
        unknown_commute=_choice((93, 7)),
    )


@dataclass(frozen=True)
class Scores:
    """Terms of the log-odds of a high income, in hundredths. A list may end with "missing"."""

    base: int
    age: NDArray[np.int16]
    school: NDArray[np.int16]
    hours: NDArray[np.int16]  # by whether the person is their own boss
    capital_steps: NDArray[np.int32]
    capital: NDArray[np.int16]
    commute: NDArray[np.int16]
    region: NDArray[np.int16]
    job: NDArray[np.int16]
    education: NDArray[np.int16]
    household: NDArray[np.int16]  # by sex
    sector: NDArray[np.int16]
    born_abroad: NDArray[np.int16]
    chance: NDArray[np.uint64]  # by score, from -LARGEST to LARGEST, in units of 2^-32


LARGEST = 1_200


def _shorts(values: Iterable[int] | Sequence[Sequence[int]]) -> NDArray[np.int16]:
    return np.array(list(values), dtype=np.int16)


@functools.cache
def scores() -> Scores:
    """Return the terms of the log-odds of a high income.

    They are mostly additive, as in a linear model over one-hot and scaled columns, but not quite:
    income peaks at an age, capital counts in steps, long hours pay less for the self-employed, and
    the effect of a household depends on sex.
    """
    years = range(OLDEST + 1)
    week = range(MOST_HOURS + 1)
    logistic = [1 / (1 + math.exp(-score / 100)) for score in range(-LARGEST, LARGEST + 1)]
    return Scores(
        base=-230,
        age=_shorts(max(60 - (age - 50) ** 2 // 4, -200 if age < 50 else -40) for age in years),
        school=_shorts(7 * (school - 12) for school in range(MOST_SCHOOL + 1)),
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
        chance=np.array([round(chance * CERTAIN) for chance in logistic], dtype=np.uint64),
    )
