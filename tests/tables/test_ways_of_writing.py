"""Numbers and dates as other countries write them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privypurse import InvalidArgument
from privypurse.tables._columns import numbers, places
from privypurse.tables._draft import draft_schema
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._files import TableFile
from privypurse.tables._schema import Number, Schema, parse_schema, write_schema

WORDS = "1|+2.5|-3e2|.5|1e400|1e-400|inf|-Infinity|nan|nan(1)|x||?|1,5|0x1|\x1f7| 8 |1_0"
texts = st.sampled_from(WORDS.split("|"))
columns = st.lists(texts, max_size=6)


@given(columns, columns, st.sampled_from([".", ","]))
def test_a_value_is_read_the_same_whatever_is_beside_it(first, second, decimal):
    def read(listed):
        return numbers(pa.array(listed, pa.string()), ["?"], decimal), places(
            pa.array(listed, pa.string()), ["1", "x"], ["?"]
        )

    together, apart = (
        read(first + second),
        [np.concatenate(pair) for pair in zip(read(first), read(second), strict=True)],
    )
    np.testing.assert_array_equal(together[0], apart[0])
    np.testing.assert_array_equal(together[1], apart[1])


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


def test_a_draft_notices_decimal_commas_and_dates(tmp_path):
    path = tmp_path / "g.csv"
    lines = [
        f"{index % 50},{index % 10};2021-0{index % 9 + 1}-03;0{index % 9 + 1}.03.21;{'jn'[index % 2]}"
        for index in range(400)
    ]
    path.write_text("alter;tag;datum;ja\n" + "\n".join(lines) + "\n", encoding="utf-8")
    schema, remarks = draft_schema(TableFile(path), "ja")
    assert schema.decimal == ","
    assert [(column.name, column.range) for column in schema.columns] == [("alter", (0, 50))]
    assert "dates" in remarks["tag"]
    assert "dates" in remarks["datum"]
