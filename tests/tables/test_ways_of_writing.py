"""Numbers and dates as other countries write them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privypurse import InvalidArgument
from privypurse.tables._columns import dates, numbers, places
from privypurse.tables._draft import STYLES
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._schema import Number, Schema, parse_schema, write_schema

WORDS = (
    "1|+2.5|-3e2|.5|1e400|1e-400|inf|-Infinity|nan|nan(1)|x||?|1,5|0x1|\x1f7| 8 |1_0|1.234|1,234.5|1 234|2021-03-04|"
    "2021-02-31|04.03.2021|20210304T10"
)
texts = st.sampled_from(WORDS.split("|"))
columns = st.lists(texts, max_size=6)


@given(columns, columns, st.sampled_from(STYLES), st.sampled_from([None, "%d.%m.%Y"]))
def test_a_value_is_read_the_same_whatever_is_beside_it(first, second, signs, format):
    def read(listed):
        column = pa.array(listed, pa.string())
        return numbers(column, ["?"], *signs), places(column, ["1", "x"], ["?"]), dates(column, ["?"], format)

    together, apart = (
        read(first + second),
        [np.concatenate(pair) for pair in zip(read(first), read(second), strict=True)],
    )
    np.testing.assert_array_equal(together[0], apart[0])
    np.testing.assert_array_equal(together[1], apart[1])
    np.testing.assert_array_equal(together[2], apart[2])


@given(
    st.lists(st.sampled_from([1, 1.0, True, "1", "true", None, 2**70, "x", b"y", float("nan"), -0.5])), st.booleans()
)
def test_nor_does_its_type_depend_on_others(listed, text_too):
    together = places(TableColumn(listed).column, ["1", "true"], [])
    alone = [places(TableColumn([value]).column, ["1", "true"], [])[0] for value in listed]
    assert together.tolist() == alone


class TableColumn:
    """A column of a dict of lists, as the encoder sees it."""

    def __init__(self, values):
        from privypurse.tables._columns import column_of

        self.column = column_of({"a": values}, "a")


def test_a_comma_may_separate_decimals():
    found = numbers(pa.array(["80,5", "-1,0", "7", "1.000", "x"]), [], ",")
    np.testing.assert_array_equal(found, [80.5, -1.0, 7.0, np.nan, np.nan])
    schema = Schema((Number(name="a", range=(0, 100)),), decimal=",")
    assert parse_schema(write_schema(schema)) == schema
    assert TableEncoder(schema).transform({"a": ["50,0", "25"]}).ravel().tolist() == [0.5, 0.25]
    with pytest.raises(InvalidArgument, match="decimal"):
        Schema((Number(name="a", range=(0, 1)),), decimal=";")


def test_thousands_are_separated_between_groups_of_three_digits_only():
    texts = ["1.234,5", "12.345.678", "-1.000", "999", "1234,5", "1.23", "12.34,5", "0.125", ".5", "1.2345"]
    found = numbers(pa.array(texts), [], ",", ".")
    nan = np.nan
    np.testing.assert_array_equal(found, [1234.5, 12345678, -1000, 999, 1234.5, nan, nan, nan, nan, nan])
    for space in " \u00a0\u2009\u202f":
        assert numbers(pa.array([f"1{space}234.5"]), [], ".", " ").tolist() == [1234.5]


def test_each_column_has_signs_of_its_own():
    schema = parse_schema(
        'decimal = ","\n[target]\ncolumn = "y"\nrange = [0, 9000]\ndecimal = "."\nthousands = ","\n'
        '[columns.a]\nrange = [0, 100]\n[columns.b]\nrange = [0, 100]\ndecimal = "."\n'
        '[columns.c]\nrange = [0, 2000]\nthousands = "."'
    )
    assert [schema.signs_of(part) for part in schema.parts] == [
        (",", "", ""), (".", "", ""), (",", ".", ""), (".", ",", "")
    ]  # fmt: skip
    encoded = TableEncoder(schema).transform({"a": ["50,0", "50.0"], "b": ["25.0", "25,0"], "c": ["1.000,0", "1000"]})
    assert encoded.tolist() == [[0.5, 0.25, 0.5], [0.5, 0.5, 0.5]]  # what cannot be read is in the middle
    assert parse_schema(write_schema(schema)) == schema
