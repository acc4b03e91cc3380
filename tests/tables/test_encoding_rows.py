"""From a table to numbers: each row by itself, within bounds, and the same however the table came."""

import decimal
import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from privypurse import InvalidArgument
from privypurse.estimators import PrivateLogisticRegression
from privypurse.tables._columns import MISSING, UNKNOWN, column_of, numbers, places
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._schema import Category, Number, Schema

SCHEMA = Schema(
    (
        Number(name="n", range=(-5, 10), missing=True),
        Number(name="c", cuts=(0, 1.5, 1e6), missing=True),
        Category(name="k", categories=("a", "1", "2.5", "true", "é"), other=True, missing=True),
        Category(name="p", categories=("a", "0", "1")),
    ),
    missing_values=("?", "NA", "-9"),
)
texts = st.one_of(
    st.sampled_from(
        ["", "?", "NA", " a ", "a", "1", "1.0", "+1", "-9", "2.5", "1e3", "1e999", "-1e999", ".5", "5.", "inf", "-Infinity",
         "nan", "NaN", "true", "True", "0", "é", "abc", "0x1F", "1_0", "٣", "--1", "1e", "\x00", "1,5"]
    ),
    st.text(max_size=5),
    st.floats().map(str),
)  # fmt: skip
values = st.one_of(
    texts,
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.binary(max_size=3),
    st.sampled_from([pd.NA, "\ud800"]),
)


def tables(elements, least=1):
    return st.integers(least, 6).flatmap(
        lambda rows: st.fixed_dictionaries(
            {name: st.lists(elements, min_size=rows, max_size=rows) for name in ("n", "c", "k", "p")}
        )
    )


def encode(table):
    return TableEncoder(SCHEMA).transform(table)


def picked(table, order):
    return {name: [column[row] for row in order] for name, column in table.items()}


def as_text(table):
    return pa.table({name: pa.array(column, pa.string()) for name, column in table.items()})


@given(tables(texts), tables(texts))
@settings(max_examples=100)
def test_rows_of_text_depend_on_themselves_only(table, other):
    whole = encode(as_text(table))
    rows = len(table["n"])
    for row in range(rows):
        np.testing.assert_array_equal(encode(as_text(picked(table, [row])))[0], whole[row])
    together = {name: other[name] + table[name] for name in table}
    np.testing.assert_array_equal(encode(as_text(together))[-rows:], whole)
    np.testing.assert_array_equal(encode(as_text(picked(table, range(rows)[::-1]))), whole[::-1])


@given(tables(values), tables(values))
@settings(max_examples=100)
def test_rows_of_anything_depend_on_themselves_only(table, other):
    whole = encode(table)
    assert whole.dtype == np.float32
    assert whole.min() >= 0
    assert whole.max() <= 1
    rows = len(table["n"])
    for row in range(rows):
        np.testing.assert_array_equal(encode(picked(table, [row]))[0], whole[row])
    np.testing.assert_array_equal(encode({name: table[name] + other[name] for name in table})[:rows], whole)


@given(
    st.lists(st.floats(), min_size=1),
    st.tuples(st.floats(-1e100, 1e100), st.floats(-1e100, 1e100)).filter(lambda pair: pair[0] < pair[1]),
)
def test_every_number_lies_between_zero_and_one(column, bounds):
    encoded = TableEncoder(Schema((Number(name="n", range=bounds),))).transform({"n": np.array(column)})
    assert ((encoded >= 0) & (encoded <= 1)).all()
    assert (encoded[np.isnan(column), 0] == 0.5).all()


def test_numbers_are_clipped_and_scaled():
    encoded = encode({"n": [-5, 2.5, 10, -np.inf, 1e308, None, -9], "c": [0] * 7, "k": ["a"] * 7, "p": ["a"] * 7})
    assert encoded[:, 0].tolist() == [0, 0.5, 1, 0, 1, 0.5, 0.5]
    assert encoded[:, 1].tolist() == [0, 0, 0, 0, 0, 1, 1]


def test_cuts_belong_to_the_interval_above_them():
    column = [-1e300, -0.1, 0, 1.4, 1.5, 1e6, np.inf, None]
    encoded = encode({"n": [0] * 8, "c": column, "k": ["a"] * 8, "p": ["a"] * 8})[:, 2:7]
    assert encoded.argmax(axis=1).tolist() == [0, 0, 1, 1, 2, 3, 3, 4]
    assert (encoded.sum(axis=1) == 1).all()


def test_unknown_and_missing_values_have_their_places_or_none():
    encoded = encode({"n": [0] * 4, "c": [0] * 4, "k": ["é", "zz", "NA", ""], "p": ["1", "zz", None, "?"]})[:, 7:]
    assert encoded[:, :7].argmax(axis=1).tolist() == [4, 5, 6, 6]
    assert encoded[:, 7:].tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("column", "listed", "expected"),
    [
        (pa.array([1, 2, 3, None]), ["1", "2.0", "x"], [0, 1, UNKNOWN, MISSING]),
        (pa.array([1.0, 2.5, float("nan")]), ["1", "2.50"], [0, 1, MISSING]),
        (pa.array([True, False, None]), ["False", "true"], [1, 0, MISSING]),
        (pa.array([True, False]), ["0", "1"], [1, 0]),
        (pa.array([True, False]), ["no", "yes"], [UNKNOWN, UNKNOWN]),
        (pa.array(["01", "1", " 1 "]), ["1"], [UNKNOWN, 0, 0]),
        (pa.array([decimal.Decimal("1.50")]), ["1.5"], [0]),
        (pa.array([b"a", b"\xff"]), ["a"], [0, UNKNOWN]),
        (pa.nulls(2), ["a"], [MISSING, MISSING]),
        (pa.array(["a", None]).dictionary_encode(), ["a"], [0, MISSING]),
    ],
)
def test_categories_are_found_in_columns_of_every_type(column, listed, expected):
    assert places(column_of({"k": column}, "k"), listed, ["?"]).tolist() == expected


def test_text_that_is_a_number_is_read_as_one():
    column = pa.array(["+1.5", "-2e3", " .5", "7.", "1e999", "0x1", "1 2", "?", "-inf"])
    np.testing.assert_array_equal(numbers(column, ["?"]), [1.5, -2000, 0.5, 7, np.inf, np.nan, np.nan, np.nan, -np.inf])


def test_numbers_that_stand_for_missing_do_so_in_columns_of_numbers_too():
    assert np.isnan(numbers(pa.array([999, 1]), ["999"])).tolist() == [True, False]
    assert places(pa.array([999, 1]), ["999", "1"], ["999"]).tolist() == [MISSING, 1]


def test_data_frames_of_all_makes_give_the_same_matrix():
    n, c, k, p = [1.5, None, 99.0], [0.0, 1.5, None], ["a", None, "zz"], [True, False, None]
    table = {"n": n, "c": c, "k": k, "p": p}
    frame = pd.DataFrame({"n": n, "c": c, "k": pd.Categorical(k), "p": pd.array(p, dtype="boolean")})
    polars = pl.DataFrame(table).with_columns(pl.col("k").cast(pl.Categorical))
    expected = encode(table)
    for other in (frame, pl.DataFrame(table), polars, pa.table(table)):
        np.testing.assert_array_equal(encode(other), expected)
    np.testing.assert_array_equal(encode(frame.set_index(pd.Index([7, 7, 1]))), expected)
    chunks = pa.concat_tables([pa.table(table), pa.table(table)])
    np.testing.assert_array_equal(encode(chunks), np.vstack([expected, expected]))


def test_types_may_be_mixed_in_a_column():
    mixed = pd.DataFrame({"k": pd.Series(["a", 1, 1.0, True, pd.NA, None, float("nan"), 2**80, "zz"], dtype=object)})
    codes = places(column_of(mixed, "k"), SCHEMA.columns[2].categories, [])
    assert codes.tolist() == [0, 1, 1, 3, MISSING, MISSING, MISSING, UNKNOWN, UNKNOWN]
    assert numbers(column_of({"k": [2**80, -(10**400), "3", True]}, "k"), []).tolist() == [2.0**80, -np.inf, 3, 1]


class Loud(str):
    def __str__(self):
        return self.upper()


@pytest.mark.parametrize(
    "value", [bytearray(b"25"), memoryview(b"25"), b"25", Loud("25"), pa.scalar(None, pa.string())]
)
def test_a_value_is_read_the_same_beside_a_number(value):
    alone = [
        numbers(column_of({"k": [value, "30"]}, "k"), [])[0],
        places(column_of({"k": [value, "30"]}, "k"), ["25"], [])[0],
    ]
    beside = [
        numbers(column_of({"k": [value, 30]}, "k"), [])[0],
        places(column_of({"k": [value, 30]}, "k"), ["25"], [])[0],
    ]
    np.testing.assert_array_equal(alone, beside)


def test_a_length_of_time_is_no_number_and_no_error():
    assert np.isnan(numbers(column_of({"k": [np.timedelta64(1, "D"), 3]}, "k"), [])[0])


def test_tables_without_the_columns_are_refused_by_name():
    for table in (
        {"n": [1]},
        pd.DataFrame({"n": [1]}),
        pl.DataFrame({"n": [1]}),
        pa.table({"n": [1]}),
        np.zeros((2, 4)),
    ):
        with pytest.raises(InvalidArgument, match=r"column '[nc]'"):
            TableEncoder(SCHEMA).fit(table)
    with pytest.raises(InvalidArgument, match="expected columns of one length"):
        encode({"n": [1], "c": [1, 2], "k": ["a"], "p": ["a"]})
    with pytest.raises(InvalidArgument, match="expected schema to be a Schema"):
        TableEncoder("people.toml").fit({})
    with pytest.raises(InvalidArgument, match="'n' has no range yet"):
        TableEncoder(Schema((Number(name="n"),))).transform({"n": [1]})
    with pytest.raises(InvalidArgument, match="ignore = true"):
        encode(pa.table({"n": [[1]], "c": [1], "k": ["a"], "p": ["a"]}))


def test_wide_tables_are_sparse_and_the_same():
    wide = Category(name="k", categories=tuple(f"v{index}" for index in range(513)))
    encoder = TableEncoder(Schema((wide,)))
    values = ["v0", "v512", "no", None]
    encoded = encoder.transform({"k": values})
    assert sparse.issparse(encoded)
    assert encoded.format == "csr"
    expected = np.zeros((4, 513))
    expected[0, 0] = expected[1, 512] = 1
    np.testing.assert_array_equal(encoded.toarray(), expected)
    narrow = Category(name="k", categories=wide.categories[:512])
    assert isinstance(TableEncoder(Schema((narrow,))).transform({"k": values}), np.ndarray)


def test_it_is_a_step_of_a_pipeline():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.uniform(-5, 10, 400) for name in ("n", "c", "k", "p")})
    y = (table["n"] > 2).astype(int)
    model = PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0)
    pipeline = clone(Pipeline([("columns", TableEncoder(SCHEMA)), ("model", model)])).fit(table, y)
    assert pipeline[0].n_features_in_ == 4
    assert pipeline[0].get_feature_names_out().tolist() == SCHEMA.features
    assert len(SCHEMA.features) == pipeline[-1].coef_.size == encode(table).shape[1]
    np.testing.assert_array_equal(pipeline.predict(table), pipeline[-1].predict(encode(table)))
    # Nothing was learnt: a fresh copy does the same.
    np.testing.assert_array_equal(clone(pipeline[0]).transform(table), encode(table))


def test_no_column_reaches_into_another():
    base = {"n": [0], "c": [0], "k": ["a"], "p": ["a"]}
    widths = [len(column.features) for column in SCHEMA.columns]
    starts = [0, *itertools.accumulate(widths)]
    for index, name in enumerate(base):
        changed = encode({**base, name: ["zz" if name in "kp" else 7]})
        outside = np.ones(starts[-1], dtype=bool)
        outside[starts[index] : starts[index + 1]] = False
        np.testing.assert_array_equal(changed[:, outside], encode(base)[:, outside])
