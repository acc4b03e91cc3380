"""What a schema says about itself: what was read from the data, what is bought, and the names of
its columns.
"""

import pytest

from privypurse import InvalidArgument
from privypurse.tables._schema import Category, ClassTarget, Number, NumberTarget, Schema, Source

DATA, BOUGHT = Source.DATA, Source.BOUGHT


def test_nothing_is_uncovered_where_all_is_declared_or_bought():
    schema = Schema(
        (
            Number(name="a", range=(0, 1)),
            Number(name="b", range=(0, 1), source=BOUGHT),
            Category(name="c", categories=("x",)),
        ),
        NumberTarget(name="y", range=(0, 1)),
        kinds=BOUGHT,
    )
    assert schema.uncovered == []
    assert schema.is_declared


def test_each_part_that_was_read_is_named():
    columns = (Number(name="age", range=(0, 1), source=DATA), Category(name="job", categories=("x",), source=DATA))
    lines = Schema(columns, ClassTarget(name="rich", classes=("a", "b"), source=DATA), kinds=DATA).uncovered
    assert len(lines) == 3
    assert "kind" in lines[0]
    assert "missing" in lines[0]
    assert "age, job" in lines[1]
    assert "classes of the target rich" in lines[2]
    assert (
        "range of the target pay" in Schema(columns, NumberTarget(name="pay", range=(0, 1), source=DATA)).uncovered[1]
    )


def test_many_columns_are_named_shortly():
    columns = tuple(Number(name=f"c{index}", range=(0, 1), source=DATA) for index in range(11))
    assert Schema(columns).uncovered[0].endswith("c7 and 3 more")


@pytest.mark.parametrize("part", ["column", "target", "kinds"])
def test_one_part_that_was_read_is_enough_not_to_be_declared(part):
    schema = Schema(
        (Number(name="a", range=(0, 1), source=DATA if part == "column" else BOUGHT),),
        ClassTarget(name="y", classes=("a", "b"), source=DATA if part == "target" else Source.DECLARED),
        kinds=DATA if part == "kinds" else Source.DECLARED,
    )
    assert not schema.is_declared
    assert len(schema.uncovered) == 1


def test_ranges_that_were_read_are_bought_instead_and_others_are_not():
    schema = Schema(
        (
            Number(name="read", range=(0, 1), missing=True, source=DATA),
            Number(name="declared", range=(0, 1)),
            Number(name="cut", cuts=(1, 2), source=DATA),
            Category(name="job", categories=("x",), source=DATA),
        ),
        kinds=DATA,
    )
    buying = schema.buying_ranges()
    assert [column.name for column in buying.to_buy] == ["read"]
    assert "cut, job" in buying.uncovered[1]
    assert buying.uncovered[0] == schema.uncovered[0]
    bought = buying.with_ranges({"read": (-1.0, 2.0)})
    assert bought.columns[0] == Number(name="read", range=(-1.0, 2.0), missing=True, source=BOUGHT)
    assert bought.columns[1:] == schema.columns[1:]
    assert bought.to_buy == []
    assert bought.uncovered == buying.uncovered


def test_cuts_need_no_range():
    assert Schema((Number(name="a", cuts=(1.0,)),)).to_buy == []


def test_encoded_columns_have_names_of_their_own():
    schema = Schema(
        (
            Number(name="n", cuts=(1_000_000, 1_000_001, 1_000_002), missing=True),
            Number(name="m", range=(0, 1)),
            Category(name="c", categories=("x", "z"), other=True, missing=True),
        )
    )
    assert schema.features == [
        "n below 1000000", "n 1000000 to 1000001", "n 1000001 to 1000002", "n 1000002 or more", "n missing",
        "m", "c = x", "c = z", "c = (other)", "c = (missing)",
    ]  # fmt: skip


@pytest.mark.parametrize("categories", [None, "abc", (), ("a", "a"), (1,), (" a",), tuple(map(str, range(10_001)))])
def test_wrong_lists_are_refused_by_name(categories):
    with pytest.raises(InvalidArgument, match="categories of column 'job'"):
        Category(name="job", categories=categories)


def test_a_column_is_described_once():
    twice = Number(name="a", range=(0, 1))
    with pytest.raises(InvalidArgument, match="'a' is described twice"):
        Schema((twice, twice))
