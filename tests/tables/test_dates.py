"""Dates and times as columns: read cell by cell, scaled to a declared range or taken apart."""

import datetime
import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privypurse.tables._columns import dates
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._schema import PARTS, Date, Number, Schema

FIRST, LAST = datetime.date(2020, 1, 1), datetime.date(2020, 12, 31)
SCHEMA = Schema(
    (
        Date(name="d", first=FIRST, last=LAST, parts=("position", "weekday", "month", "hour"), missing=True),
        Date(name="g", first=FIRST, last=LAST, format="%d.%m.%Y"),
        Number(name="n", range=(0, 10_000), decimal=",", thousands=".", missing=True),
    ),
    missing_values=("?",),
)
WIDTH = 1 + 7 + 12 + 24 + 1
values = st.one_of(
    st.sampled_from(
        ["", "?", "2020-02-30", "2020-06-15", "2020-06-15T12:30", "2020-06-15 23:59:59.5+02:00", "15.06.2020", "31.04.2020",
         "0001-01-01", "9999-12-31T23:59", "20200615", "2020-W25-1", "1.5.20", "1.234,5", "12.34", "9,5", "\x00", "x"]
    ),
    st.text(max_size=8),
    st.datetimes().map(str),
    st.dates().map(lambda day: f"{day:%d.%m.%Y}"),
    st.dates(),
    st.datetimes(),
    st.none(),
    st.integers(),
    st.floats(),
)  # fmt: skip


def tables(elements):
    rows = st.integers(1, 5).flatmap(lambda rows: st.tuples(*[st.lists(elements, min_size=rows, max_size=rows)] * 3))
    return rows.map(lambda columns: dict(zip("dgn", columns, strict=True)))


def encode(table):
    return TableEncoder(SCHEMA).transform(table)


@given(tables(values), tables(values))
@settings(max_examples=100)
def test_a_row_depends_on_itself_only_and_lies_within_bounds(table, other):
    whole = encode(table)
    assert whole.shape[1] == len(SCHEMA.features) == WIDTH + 3
    assert ((whole >= 0) & (whole <= 1)).all()
    for row in range(len(whole)):
        alone = {name: [column[row]] for name, column in table.items()}
        np.testing.assert_array_equal(encode(alone)[0], whole[row])
    together = {name: other[name] + table[name] for name in table}
    np.testing.assert_array_equal(encode(together)[-len(whole) :], whole)


@given(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
@settings(max_examples=50)
def test_a_column_of_a_type_for_dates_depends_on_its_rows_only(column, unit):
    for kind in (pa.timestamp(unit), pa.timestamp(unit, "Europe/Berlin"), pa.date64()):
        typed = pa.array(column, pa.int64()).view(kind)
        whole = encode({"d": typed, "g": typed, "n": ["1"] * len(column)})
        assert ((whole >= 0) & (whole <= 1)).all()
        for row in range(len(column)):
            one = typed.slice(row, 1)
            np.testing.assert_array_equal(encode({"d": one, "g": one, "n": ["1"]})[0], whole[row])


def parts_of(row):
    ends = [0, *itertools.accumulate([1, 7, 12, 24, 1])]
    return [row[start:end] for start, end in itertools.pairwise(ends)]


def test_a_date_is_scaled_to_the_range_and_taken_apart():
    texts = ["2020-01-01", "2020-12-31 23:59:59", "2020-07-01T17:05", "1999-02-03", "2033-01-01", "?", "soon"]
    encoded = encode({"d": texts, "g": [""] * 7, "n": ["0"] * 7})
    position, weekday, month, hour, missing = zip(*map(parts_of, encoded), strict=True)
    year = 366 * 86_400 - 1
    half = (182 * 86_400 + 17 * 3_600 + 300) / year
    np.testing.assert_allclose(np.ravel(position), [0, 1, half, 0, 1, 0.5, 0.5], atol=1e-6)
    days = [datetime.datetime.fromisoformat(text) for text in texts[:5]]
    assert [int(one.argmax()) for one in weekday[:5]] == [day.weekday() for day in days]
    assert [int(one.argmax()) for one in month[:5]] == [day.month - 1 for day in days]
    assert [int(one.argmax()) for one in hour[:5]] == [day.hour for day in days]
    assert [float(np.sum(one)) for one in (*weekday, *month, *hour)] == [1, 1, 1, 1, 1, 0, 0] * 3
    assert np.ravel(missing).tolist() == [0, 0, 0, 0, 0, 1, 1]
    names = SCHEMA.features
    assert names[:2] == ["d", "d weekday = Monday"]
    assert {"d month = July", "d hour = 17", "d missing", "g"} <= set(names)


def test_text_is_read_in_the_declared_format_and_in_no_other():
    found = dates(pa.array(["15.06.2020", "2020-06-15", "31.04.2020", "6.1.2020"]), [], "%d.%m.%Y")
    assert np.isnan(found).tolist() == [False, True, True, False]
    assert dates(pa.array(["15.06.2020", "2020-06-15"]), [])[1] == found[0]


def test_frames_with_dates_give_the_same_as_text():
    moments = pd.to_datetime(["2020-03-04 05:06:07", "2020-12-24", None], format="ISO8601")
    expected = encode({"d": [str(one) for one in moments[:2]] + [""], "g": [""] * 3, "n": ["1"] * 3})[:, :WIDTH]
    berlin = moments.tz_localize("Europe/Berlin")
    for column in (moments, moments.astype(object), berlin, pa.array(moments).cast(pa.timestamp("ms"))):
        found = encode({"d": column, "g": [""] * 3, "n": ["1"] * 3})[:, :WIDTH]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_a_kind_of_its_own(part):
    schema = Schema((Date(name="d", first=FIRST, last=LAST, parts=(part,)),))
    assert TableEncoder(schema).transform({"d": ["2020-06-15"]}).shape == (1, len(schema.features))
    assert len(schema.features) == (len(PARTS[part]) or 1)
