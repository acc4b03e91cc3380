"""Words that stand for a missing value, units of numbers, and points that may separate thousands."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from tests.tables.test_files import written

from privypurse import InvalidArgument
from privypurse.runs._progress import Silent
from privypurse.runs._rows import Odd, read_rows
from privypurse.tables._columns import numbers
from privypurse.tables._draft import draft_schema
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._files import TableFile
from privypurse.tables._schema import Category, ClassTarget, Number, Schema, parse_schema, write_schema

ROWS = 400
DECLARED = parse_schema(
    '[columns.a]\nrange = [0, 100]\nunit = "%"\nmissing = ["n/a", "-999"]\n'
    '[columns.b]\nrange = [0, 2000]\nthousands = ","\nunit = "$"\n'
    '[columns.c]\ncategories = ["x", "none"]\nmissing = ["-"]\n'
    '[columns.d]\ndates = [2020-01-01, 2020-12-31]\nmissing = ["unknown"]\n'
)
texts = st.one_of(
    st.sampled_from(
        ["n/a", "N/A", "-", "unknown", "none", "x", "-999", "50", "50%", "50 %", "%50", "5 0%", "$1,000", "-$5", "$-5", "$",
         "1,000$", "$1,00", "2020-06-15", "%", "50\u00a0%", "", "e%", "\x00"]
    ),
    st.text(max_size=4),
)  # fmt: skip


def drafted(tmp_path, header, rows, target=None, sign=";"):
    lines = [sign.join(header), *(sign.join(map(str, row)) for row in rows)]
    schema, remarks = draft_schema(TableFile(written(tmp_path, "\n".join(lines) + "\n")), target)
    assert parse_schema(write_schema(schema, comments=remarks)) == schema
    return {column.name: column for column in schema.columns}, remarks, schema


@given(st.lists(st.tuples(*[texts] * 4), min_size=1, max_size=5), st.tuples(*[texts] * 4))
def test_a_row_is_read_the_same_whatever_stands_beside_it(rows, other):
    def encode(listed):
        columns = zip("abcd", zip(*listed, strict=True), strict=True)
        return TableEncoder(DECLARED).transform({name: list(column) for name, column in columns})

    whole = encode(rows)
    assert ((whole >= 0) & (whole <= 1)).all()
    np.testing.assert_array_equal(encode([other, *rows])[1:], whole)
    for row, alone in zip(rows, whole, strict=True):
        np.testing.assert_array_equal(encode([row])[0], alone)


def test_declared_words_are_missing_in_their_column_only_and_are_counted():
    listed = {"a": ["n/a", "-", "-999", "25%"], "b": ["n/a", "$1,000", "500", "-$5"], "c": ["-", "none", "n/a", "x"]}
    table = pa.table({**listed, "d": ["unknown", "2020-06-15", "", "-"]})
    encoded = TableEncoder(DECLARED).transform(table)
    assert encoded[:, :2].tolist() == [[0.5, 1], [0.5, 1], [0.5, 1], [0.25, 0]]
    assert encoded[:, 2].tolist() == [0.5, 0.5, 0.25, 0]
    assert encoded[:, 3:6].tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0]]
    odd = Odd()
    odd.take(table, DECLARED)
    assert odd.missing == {"a": 2, "c": 1, "d": 2}
    assert odd.unknown == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert parse_schema(write_schema(DECLARED)) == DECLARED


def test_a_number_that_stands_for_missing_does_so_in_a_column_of_a_type_too():
    encoded = TableEncoder(DECLARED).transform(
        {"a": np.array([-999, 25.0]), "b": ["1"] * 2, "c": ["x"] * 2, "d": [""] * 2}
    )
    assert encoded[:, :2].tolist() == [[0.5, 1], [0.25, 0]]


@pytest.mark.parametrize(
    ("text", "thing"),
    [
        ("range = [0, 1]\nmissing = []", "missing values of column 'a'"),
        ("range = [0, 1]\nmissing = [' - ', '-']", "missing values of column 'a'"),
        ("range = [0, 1]\nmissing = 3", "true or false as missing"),
        ("range = [0, 1]\nother = ['x']", "true or false as other"),
        ("categories = ['x']\nmissing = ['x']", "'x' of 'a' is also a missing value"),
        ("range = [0, 1]\nunit = '5'", "unit of 'a'"),
        ("range = [0, 1]\nunit = 5", "unit of 'a'"),
        ("categories = ['x']\nunit = '%'", "has unit, which is for numbers only"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(text, thing):
    with pytest.raises(InvalidArgument, match=thing):
        parse_schema(f"[columns.a]\n{text}")


def test_a_column_of_numbers_with_words_for_missing_is_drafted_as_numbers(tmp_path):
    words = ["n/a", "Unknown", "-", "#N/A"]
    rows = [
        (
            words[row % 4] if row % 33 == 0 else row * 7 % 80,
            "none" if row % 20 == 0 else row % 3,
            "unknown" if row % 20 == 0 else f"{row % 28 + 1:02d}.{row % 12 + 1:02d}.2020",
            "none" if row % 5 == 0 else "gas",
            "closed" if row % 30 == 0 else row * 3 % 50 / 4,
            "n/a" if row % 40 == 0 else row * 11 % 70 / 2,
        )
        for row in range(ROWS)
    ]
    columns, remarks, schema = drafted(tmp_path, ["age", "rooms", "day", "heating", "rent", "y"], rows, "y")
    assert columns["age"] == Number(name="age", range=(0, 79), missing=tuple(sorted(words)), source=schema.kinds)
    assert "cells that read '#N/A' or '-' or 'Unknown' or 'n/a' are taken as missing" in remarks["age"].why
    assert (columns["rooms"].categories, columns["rooms"].missing) == (("0", "1", "2"), ("none",))
    assert columns["day"].missing == ("unknown",)
    assert (columns["heating"].categories, columns["heating"].missing) == (("gas", "none"), False)
    assert columns["rent"].missing is True
    assert remarks["rent"].warning == "some values are not numbers, and count as missing"
    assert schema.target.range == (0, 35)
    assert "left out with their rows" in remarks["y"].why


def test_a_draft_asks_whether_a_point_separates_thousands(tmp_path):
    rows = [(f"{row % 40 + 11}.{row % 9}56", row % 70, f"0.{row % 90 + 110}") for row in range(ROWS)]
    columns, remarks, _ = drafted(tmp_path, ["pop", "age", "share"], rows)
    assert (columns["pop"].decimal, columns["pop"].thousands) == (None, "")
    assert remarks["pop"].warning == (
        "1.234 is read as 1.234, not as 1234. If the point is a thousands separator, "
        'write decimal = "," and thousands = "."'
    )
    assert remarks["age"].warning == remarks["share"].warning == ""


def test_other_columns_with_decimal_commas_decide_what_a_point_and_a_comma_are(tmp_path):
    rows = [
        (f"{row % 40 + 11}.{row % 9}56", f"{row % 7},5", f"{row % 40 + 11},{row % 9}56", f"1.{row % 40 + 100}.000")
        for row in range(ROWS)
    ]
    columns, remarks, _ = drafted(tmp_path, ["pop", "bmi", "odd", "big"], rows)
    assert [(one.decimal, one.thousands) for one in columns.values() if isinstance(one, Number)] == [
        (",", "."), (",", ""), (",", ""), (",", ".")
    ]  # fmt: skip
    assert columns["pop"].range[0] >= 11_000
    assert columns["odd"].range[1] < 52
    assert "1.234 is read as 1234, as other columns have decimal commas, not as 1.234" in remarks["pop"].warning
    assert "1,234 is read as 1.234, as other columns have decimal commas, not as 1234" in remarks["odd"].warning
    # One column with decimal points, and the others tell nothing.
    rows = [(*row, "0.5" if row[1] > "3" else "0.25") for row in rows]
    columns, remarks, _ = drafted(tmp_path, ["pop", "bmi", "odd", "big", "point"], rows)
    assert columns["pop"].decimal is None
    assert "not as 1234" in remarks["pop"].warning


def test_a_column_of_a_type_leaves_no_question_about_points(tmp_path):
    values = [row % 40 + 11 + 0.956 for row in range(ROWS)]
    parquet.write_table(pa.table({"x": values}), tmp_path / "a.parquet")
    _, remarks = draft_schema(TableFile(tmp_path / "a.parquet"), None)
    assert remarks["x"].warning == ""


def test_units_are_read_and_named(tmp_path):
    rows = [
        (
            f"{row % 90} %",
            f"${row % 70 + 1},{row % 9}00.50",
            f"{row % 60},5\u00a0€",
            f"{row % 70}.5kg",
            f"{row % 40}{'abc'[row % 3]}",
        )
        for row in range(ROWS)
    ]
    columns, remarks, _ = drafted(tmp_path, ["share", "price", "cost", "weight", "house"], rows)
    assert {name: getattr(column, "unit", None) for name, column in columns.items()} == {
        "share": "%", "price": "$", "cost": "€", "weight": "kg", "house": None
    }  # fmt: skip
    assert remarks["price"].why == "its values are numbers, thousands separated by a comma, with the unit $"
    assert columns["price"].range == (1_000, 71_000)
    assert not any(columns[name].missing for name in ("share", "price", "cost", "weight"))
    assert numbers(pa.array(["-$1,200.5", "$ 3", "4$", "$$5"]), [], ".", ",", "$")[:3].tolist() == [-1200.5, 3, 4]


def test_codes_compact_dates_and_spellings_are_not_taken_for_something_else_in_silence(tmp_path):
    rows = [
        (
            f"{row * 7 % 5000:05d}",
            f"{row % 20:03d}",
            f"2020{row % 12 + 1:02d}{row % 28 + 1:02d}",
            -999 if row % 50 == 0 else row % 80,
            ["Yes", "yes", "no", "0"][row % 4],
            f"{row % 28 + 1} Mar 2020 03:15 PM",
            ["no", "yes", "n/a", "yes"][row % 4],
        )
        for row in range(ROWS)
    ]
    columns, remarks, schema = drafted(tmp_path, ["zip", "area", "day", "age", "smoker", "seen", "y"], rows, "y")
    assert "begin with zeros" in remarks["zip"].why
    assert "zip" not in columns
    assert isinstance(columns["area"], Category)
    assert 'format = "%Y%m%d"' in remarks["day"].warning
    assert 'missing = ["-999"]' in remarks["age"].warning
    assert "spelt in several ways" in remarks["smoker"].warning
    assert columns["seen"].format == "%d %b %Y %I:%M %p"
    assert schema.target == ClassTarget(name="y", classes=("n/a", "no", "yes"), source=schema.kinds)
    assert "'n/a' may stand for a missing value" in remarks["y"].warning


def test_columns_without_a_name_do_not_refuse_a_file(tmp_path):
    file = TableFile(written(tmp_path, "a,,b,\n1,,2,\n"))
    assert file.columns == ["a", "column 2", "b", "column 4"]
    (block,) = file.blocks(["b"])
    assert block["b"].to_pylist() == ["2"]
    assert TableFile(written(tmp_path, "a,\n1,\n")).columns == ["a", ""]


@pytest.mark.skipif(not hasattr(pa, "string_view"), reason="this pyarrow has no string_view")
@pytest.mark.parametrize("place", [0, 3, 399])
def test_a_bad_cell_of_a_string_view_costs_no_other_line(tmp_path, place):
    raw = [b"25" if row % 2 else b"a text of more than twelve bytes" for row in range(ROWS)]
    bad = [*raw[:place], b"\xff more than twelve bytes", *raw[place + 1 :]]
    schema = Schema((Category(name="s", categories=("25",), other=True),), ClassTarget(name="y", classes=("0", "1")))
    found = []
    for listed in (raw, bad):
        views = pa.array(listed, pa.binary_view()).view(pa.string_view())
        table = pa.table({"s": views, "n": views, "y": [str(row % 2) for row in range(ROWS)]})
        with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as sink:
            sink.write_table(table)
        file = TableFile(tmp_path / "a.arrow")
        draft_schema(file, "y")
        found.append(read_rows(file, schema, Silent())[0])
    whole, odd = found
    assert len(odd.y) == ROWS
    others = np.arange(ROWS) != place
    np.testing.assert_array_equal(odd.X[others], whole.X[others])
    assert odd.X[place].tolist() == [0, 1]
