"""A first description of a table: what is made of each column, and that all of it is marked as read
from the data.
"""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from privypurse import InvalidArgument
from privypurse.datasets import make_census
from privypurse.tables._draft import FEW_CLASSES, MOST_LISTED, _rounded, draft_schema
from privypurse.tables._files import TableFile
from privypurse.tables._schema import Category, ClassTarget, Number, NumberTarget, Source, parse_schema, write_schema

ROWS = 300


def drafted(tmp_path, target=None, **columns):
    table = pa.table({"x": [index % 3 / 7 for index in range(ROWS)], **columns})
    parquet.write_table(table, tmp_path / "a.parquet")
    schema, remarks = draft_schema(TableFile(tmp_path / "a.parquet"), target)
    return {column.name: column for column in schema.columns}, remarks, schema


def cycled(*values):
    return [values[index % len(values)] for index in range(ROWS)]


def test_numbers_get_a_range_and_few_whole_numbers_a_list(tmp_path):
    columns, remarks, _ = drafted(
        tmp_path,
        age=cycled(*range(17, 91)),
        rooms=cycled(1, 2, 3),
        rate=cycled(0.5, 1.5),
        as_text=cycled("1.5", " 2", "?"),
    )
    assert columns["age"] == Number(name="age", range=(17, 90), source=Source.DATA)
    assert columns["rooms"] == Category(name="rooms", categories=("1", "2", "3"), source=Source.DATA)
    assert columns["rate"] == Number(name="rate", range=(0.5, 1.5), source=Source.DATA)
    assert columns["as_text"] == Number(name="as_text", range=(1.5, 2), missing=True, source=Source.DATA)
    assert {name: remark.taken_for for name, remark in remarks.items()} == {
        "x": "numbers", "age": "numbers", "rooms": "categories", "rate": "numbers", "as_text": "numbers"
    }  # fmt: skip
    assert [name for name, remark in remarks.items() if remark.warning] == ["rooms"]
    assert "If they are a quantity, write a range" in remarks["rooms"].warning


def test_categories_are_listed_and_the_rest_are_others(tmp_path):
    many = [f"v{min(index % 100, index % 90):02d}" for index in range(ROWS)]
    columns, remarks, _ = drafted(tmp_path, few=cycled("b", " a ", None), truth=cycled(True, False), many=many)
    assert columns["few"] == Category(name="few", categories=("a", "b"), missing=True, source=Source.DATA)
    assert columns["truth"].categories == ("false", "true")
    assert len(columns["many"].categories) == MOST_LISTED
    assert columns["many"].other
    assert "most frequent" in remarks["many"].why
    assert "list of categories was cut" in remarks["many"].warning


def test_an_identifier_is_left_out_of_a_file_of_several_blocks(tmp_path):
    with (tmp_path / "long.csv").open("w", encoding="utf-8") as file:
        file.write("id,x\n")
        file.writelines(f"{100_000 + row},{row % 7}.5{'0' * 40}\n" for row in range(60_000))
    file = TableFile(tmp_path / "long.csv")
    assert sum(1 for _ in file.blocks(["id"])) > 1
    schema, remarks = draft_schema(file, None)
    assert [column.name for column in schema.columns] == ["x"]
    assert "identifier" in remarks["id"].why


def test_identifiers_texts_constants_and_odd_types_are_left_out(tmp_path):
    columns, remarks, schema = drafted(
        tmp_path,
        id=list(range(1000, 1000 + ROWS)),
        name=[f"person {index}" for index in range(ROWS)],
        same=cycled("x"),
        none=pa.nulls(ROWS),
        lists=[[1]] * ROWS,
        raw=[b"\xff"] * ROWS,
    )
    assert set(columns) == {"x"}
    assert {name for name, remark in remarks.items() if remark.taken_for == "left out"} == {*remarks} - {"x"}
    assert set(remarks) == {"x", "id", "name", "same", "none", "lists", "raw"}
    assert parse_schema(write_schema(schema, comments=remarks)) == schema


def test_a_draft_warns_of_what_may_have_slipped_in(tmp_path):
    few = 60  # too few records to be sure
    table = {
        "number": list(range(few)),
        "who": [f"p{index}" for index in range(few)],
        "account_id": [index % 30 for index in range(few)],
        "remark": [f"was seen by nurse {index % 5} on her round" for index in range(few)],
        "mostly": [str(index % 9) if index % 4 else "some" for index in range(few)],
        "some_text": [str(index) if index % 100 else "closed" for index in range(few)],
        "kind": ["a", "b"] * 28 + ["c"] * 4,
        "paid": [index % 17 for index in range(few)],
    }
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    _, remarks = draft_schema(TableFile(tmp_path / "a.parquet"), None)
    found = {name: remark.warning for name, remark in remarks.items()}
    assert "identifier" in found["number"]
    assert "identifier" in found["who"]
    assert "identifier" in found["account_id"]
    assert "free text" in found["remark"]
    assert "most values are numbers" in found["mostly"]
    assert "not numbers, and count as missing" in found["some_text"]
    assert "rare" in found["kind"]
    assert found["paid"] == ""
    assert not any(letter.isdigit() for name in ("number", "remark", "kind") for letter in found[name])


def test_one_column_with_decimal_commas_leaves_the_others_as_they_are(tmp_path):
    written = {
        "bmi": "{a},{b}", "cost": "{b}.{c},5", "pay": "{b},{c}", "swiss": "{b}'{c}.5", "french": "{a}\u00a0{c},6",
        "point": "{a}.{b}", "age": "{a}",
    }  # fmt: skip
    parts = [{"a": 10 + index % 40, "b": 1 + index % 7, "c": 100 + index % 70} for index in range(ROWS)]
    rows = [[text.format(**part) for text in written.values()] for part in parts]
    path = tmp_path / "a.csv"
    header = ";".join(written)
    path.write_text("\n".join([header, *map(";".join, rows)]) + "\n", encoding="utf-8")
    schema, remarks = draft_schema(TableFile(path), None)
    assert schema.decimal == "."
    assert {column.name: (column.decimal, column.thousands) for column in schema.columns} == {
        "bmi": (",", ""), "cost": (",", "."), "pay": (None, ","), "swiss": (None, "'"), "french": (",", " "),
        "point": (None, ""), "age": (None, ""),
    }  # fmt: skip
    assert "1,234 is read as 1234" in remarks["pay"].warning
    assert "comma for decimals, thousands separated by a point" in remarks["cost"].why
    assert schema.columns[2].range == (1_100, 7_200)
    assert parse_schema(write_schema(schema, comments=remarks)) == schema


def test_dates_are_drafted_in_their_format_with_whole_years(tmp_path):
    days = [datetime.date(2020, 1, 15) + datetime.timedelta(days=3 * index) for index in range(ROWS)]
    columns, remarks, schema = drafted(
        tmp_path,
        iso=[day.isoformat() for day in days],
        german=[day.strftime("%d.%m.%Y") if day.day % 9 else "" for day in days],
        american=[day.strftime("%m/%d/%y") for day in days],
        timed=[day.strftime("%Y-%m-%d 10:%M") for day in days],
        either=[f"0{index % 9 + 1}/0{index % 8 + 1}/2020" for index in range(ROWS)],
        typed=days,
        odd=[day.strftime("%d.%m.%Y") if index % 3 else day.isoformat() for index, day in enumerate(days)],
    )
    formats = {
        "iso": None,
        "german": "%d.%m.%Y",
        "american": "%m/%d/%y",
        "timed": None,
        "either": "%d/%m/%Y",
        "typed": None,
    }
    assert {name: column.format for name, column in columns.items() if name != "x"} == formats
    assert {(column.first.isoformat(), column.last.isoformat()) for name, column in columns.items() if name != "x"} == {
        ("2020-01-01", "2022-12-31"), ("2020-01-01", "2020-12-31")
    }  # fmt: skip
    assert columns["german"].missing
    assert [name for name, remark in remarks.items() if remark.warning] == ["either"]
    assert "exchanged" in remarks["either"].warning
    assert "not in one format" in remarks["odd"].why
    assert parse_schema(write_schema(schema, comments=remarks)) == schema


def test_targets_are_classes_or_numbers(tmp_path):
    _, _, schema = drafted(tmp_path, "y", y=cycled("no", "yes", None))
    assert schema.target == ClassTarget(name="y", classes=("no", "yes"), source=Source.DATA)
    assert "y" not in [column.name for column in schema.columns]
    _, remarks, schema = drafted(tmp_path, "y", y=cycled(*range(FEW_CLASSES)))
    assert len(schema.target.classes) == FEW_CLASSES
    assert "To predict a number" in remarks["y"].warning
    _, _, schema = drafted(tmp_path, "y", y=cycled(*range(FEW_CLASSES + 1)))
    assert schema.target == NumberTarget(name="y", range=(0, 20), source=Source.DATA)


@pytest.mark.parametrize("values", [cycled("SECRET73"), [f"SECRET{index}" for index in range(ROWS)]])
def test_a_target_of_neither_kind_is_refused_without_a_value(tmp_path, values):
    with pytest.raises(InvalidArgument, match="target 'y'") as refused:
        drafted(tmp_path, "y", y=values)
    assert "SECRET" not in str(refused.value)
    with pytest.raises(InvalidArgument, match="'zzz' is not in"):
        drafted(tmp_path, "zzz")


def test_everything_in_a_draft_is_marked(tmp_path):
    make_census(3_000, 0).to_csv(tmp_path / "census.csv")
    schema, _ = draft_schema(TableFile(tmp_path / "census.csv"), "high_income")
    assert {part.source for part in (*schema.columns, schema.target)} == {Source.DATA} == {schema.kinds}
    assert not schema.is_declared
    assert len(schema.uncovered) == 3
    assert write_schema(schema).startswith("# DRAFT")
    assert len(schema.columns) == 12


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_ranges_are_rounded_outwards_whatever_the_numbers(first, second):
    low, high = sorted((first, second))
    if low == high:
        return
    rounded = _rounded(low, high)
    Number(name="n", range=rounded)  # a range that is accepted
    clipped = np.clip([low, high], -1e100, 1e100)
    assert rounded[0] <= clipped[0]
    assert rounded[1] >= clipped[1]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_rounding_adds_little(low, width):
    rounded = _rounded(low, low + width)
    assert rounded[1] - rounded[0] <= 1.25 * width + 1e-9


def test_the_last_digits_of_extremes_are_hidden():
    assert _rounded(17.031, 89.97) == (17, 90)
    assert _rounded(-123_456, 9_876_543) == (-200_000, 9_900_000)
    assert _rounded(0.01234, 0.09876) == (0.012, 0.099)


def test_an_extreme_number_is_in_no_message(tmp_path):
    columns, _, _ = drafted(tmp_path, n=[1.5e200 if index == 7 else index / 3 for index in range(ROWS)])
    assert columns["n"].range == (0, 1e100)
