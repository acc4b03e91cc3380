"""Schemas as TOML: what is written comes back, and what is wrong is refused by name, with a remedy."""

import dataclasses
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privypurse import InvalidArgument
from privypurse.core._statement import CHOICES, QUESTIONS
from privypurse.tables._draft import STYLES
from privypurse.tables._schema import (
    MISSING_VALUES,
    PARTS,
    Category,
    ClassTarget,
    Date,
    Number,
    NumberTarget,
    Schema,
    Source,
    parse_schema,
    read_schema,
    write_schema,
)

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "adult.toml"
awkward = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ['"', "'", "\\", "a\nb", "a\rb", "\x00", "\x7f", "\u2028", "é", "[columns]", "#", "a.b", "true", "1", "🎉"]
    ),
)
listed = awkward.map(str.strip).filter(lambda text: text and text not in (*MISSING_VALUES, '"'))
# Texts for a missing value that are on no list.
flags = st.one_of(st.booleans(), st.sampled_from([("a word", '"'), ("-999",)]))
sources = st.sampled_from([Source.DECLARED, Source.DATA])
# A range that was bought is written as bought, and read as bought earlier; nothing else can be.
range_sources = st.sampled_from([Source.DECLARED, Source.DATA, Source.EARLIER])
finite = st.one_of(st.integers(-(10**15), 10**15), st.floats(-1e100, 1e100))
ranges = st.tuples(finite, finite).filter(lambda pair: pair[0] < pair[1])
cuts = st.lists(finite, min_size=1, max_size=5, unique_by=float).map(lambda values: tuple(sorted(values)))
numbers = st.builds(
    lambda name, range, missing, source: Number(name=name, range=range, missing=missing, source=source),
    awkward, ranges, flags, range_sources,
)  # fmt: skip
cut_numbers = st.builds(
    lambda name, range, cuts, missing, source: Number(name=name, range=range, cuts=cuts, missing=missing, source=source),
    awkward, ranges, cuts, st.booleans(), sources,
)  # fmt: skip
only_cuts = st.builds(lambda name, cuts: Number(name=name, cuts=cuts), awkward, cuts)
to_buy = st.builds(lambda name, missing: Number(name=name, missing=missing), awkward, st.booleans())
categories = st.builds(
    lambda name, listed, other, missing, source: Category(
        name=name, categories=tuple(listed), other=other, missing=missing, source=source
    ),
    awkward, st.lists(listed, min_size=1, max_size=5, unique=True), st.booleans(), flags, sources,
)  # fmt: skip
days = st.tuples(st.dates(), st.dates()).map(sorted)
moments = st.tuples(st.datetimes(), st.datetimes()).filter(lambda pair: pair[0] != pair[1]).map(sorted)
date_columns = st.builds(
    lambda name, ends, parts, format, missing, source: Date(
        name=name, first=ends[0], last=ends[1], parts=tuple(parts), format=format, missing=missing, source=source
    ),
    awkward, st.one_of(days, moments), st.lists(st.sampled_from(sorted(PARTS)), min_size=1, unique=True),
    st.sampled_from([None, "%d.%m.%Y", "%m/%d/%y %H:%M"]), flags, sources,
)  # fmt: skip
signed = st.builds(
    lambda number, signs, unit: dataclasses.replace(number, decimal=signs[0], thousands=signs[1], unit=unit),
    numbers, st.sampled_from(STYLES), st.sampled_from(["", "%", "per cent"]),
)  # fmt: skip
targets = st.one_of(
    st.none(),
    st.builds(
        lambda name, classes, source: ClassTarget(name=name, classes=tuple(classes), source=source),
        awkward, st.lists(listed, min_size=2, max_size=4, unique=True), sources,
    ),
    st.builds(lambda name, range, source: NumberTarget(name=name, range=range, source=source), awkward, ranges, sources),
)  # fmt: skip


@st.composite
def schemas(draw):
    columns = draw(
        st.lists(
            st.one_of(numbers, cut_numbers, only_cuts, to_buy, categories, date_columns, signed),
            min_size=1,
            max_size=5,
            unique_by=lambda column: column.name,
        )
    )
    target = draw(targets)
    if target is not None and target.name in {column.name for column in columns}:
        target = None
    taken = {"."} if any(getattr(column, "thousands", "") for column in columns) else {".", ","}
    above = {"decimal": draw(st.sampled_from(sorted(taken))), "unreadable": draw(st.floats(0, 1))}
    answers = draw(st.dictionaries(st.sampled_from(sorted(QUESTIONS.keys() - CHOICES)), listed))
    statement = tuple((key, answers[key]) for key in QUESTIONS if key in answers)
    return Schema(tuple(columns), target, kinds=draw(sources), statement=statement, **above)


@given(schemas())
def test_what_is_written_comes_back(schema):
    assert parse_schema(write_schema(schema)) == schema


@given(schemas(), st.dictionaries(awkward, awkward.map(lambda text: text.replace("\x00", " ").replace("\x7f", " "))))
def test_a_column_that_is_only_remarked_on_is_written_as_ignored(schema, remarks):
    others = {name: "left out" for name in remarks if name not in schema.names}
    assert parse_schema(write_schema(schema, comments=others)) == schema


def test_a_statement_is_read_in_the_order_of_the_questions():
    text = '[statement]\nproduct = "Dataset"\nunit = " one patient "\n[columns.age]\nrange = [0, 9]\n'
    assert parse_schema(text).statement == (("unit", "one patient"), ("product", "Dataset"))


def test_a_file_comes_back_with_a_mark_at_its_beginning_too(tmp_path):
    schema = Schema((Number(name="größe", range=(0, 2.5)),), missing_values=("-",))
    (tmp_path / "a.toml").write_text(write_schema(schema), encoding="utf-8-sig")
    assert read_schema(tmp_path / "a.toml") == schema


def test_the_example_is_declared_throughout():
    schema = read_schema(EXAMPLE)
    assert schema.is_declared
    assert schema.uncovered == []
    assert schema.to_buy == []
    assert schema.target.classes == ("<=50K", ">50K")


def test_a_draft_is_marked_and_a_declared_one_is_not():
    drafted = Schema((Number(name="age", range=(0, 9), source=Source.DATA),), kinds=Source.DATA)
    assert write_schema(drafted).startswith("# DRAFT")
    assert "READ FROM THE DATA" in write_schema(drafted)
    assert "DRAFT" not in write_schema(Schema((Number(name="age", range=(0, 9)),)))
    # One part that was read is enough.
    partly = Schema((Number(name="age", range=(0, 9), source=Source.DATA),))
    assert write_schema(partly).startswith("# DRAFT")


def test_a_source_above_holds_for_all_parts_that_do_not_say_otherwise():
    schema = parse_schema(
        'source = "data"\n[target]\ncolumn = "y"\nclasses = ["a", "b"]\nsource = "declared"\n'
        '[columns.p]\nrange = [0, 1]\n[columns.q]\nrange = [0, 1]\nsource = "bought"'
    )
    assert [column.source for column in schema.columns] == [Source.DATA, Source.EARLIER]
    assert (schema.target.source, schema.kinds) == (Source.DECLARED, Source.DATA)


def test_only_ranges_can_have_been_bought():
    schema = parse_schema(
        'source = "bought"\n[target]\ncolumn = "y"\nclasses = ["a", "b"]\n'
        '[columns.p]\nrange = [0, 1]\nsource = "bought"\n[columns.q]\ncategories = ["x"]\nsource = "bought"\n'
        '[columns.r]\ncuts = [1]\nsource = "bought"'
    )
    assert [part.source for part in schema.parts] == [Source.EARLIER, Source.DATA, Source.DATA, Source.DATA]
    assert not schema.is_declared
    assert len(schema.uncovered) == 4
    assert not parse_schema('[columns.p]\nrange = [0, 1]\nsource = "bought"').is_declared


def test_a_private_range_is_to_be_bought_even_in_a_draft():
    schema = parse_schema('source = "data"\n[columns.age]\nrange = "private"\n[columns.n]\nrange = [0, 1]')
    assert [column.name for column in schema.to_buy] == ["age"]
    assert "age" not in schema.uncovered[1]
    assert 'range = "private"' in write_schema(schema)


def test_ignored_columns_are_left_out_and_simple_values_become_text():
    schema = parse_schema("[columns.a]\nignore = true\n[columns.b]\ncategories = [1, 2.5, true, ' x ']")
    assert schema.columns == (Category(name="b", categories=("1", "2.5", "true", "x")),)


DAYS = "dates = [2015-01-01, 2024-12-31]\n"
ONE = "[columns.a]\nrange = [0, 1]\n"
REFUSED = {
    "not TOML": ("[columns", "TOML", "privypurse schema"),
    "an unknown key above": ("colums = 1", "colums", "Did you mean columns?"),
    "an unknown key of a column": ("[columns.a]\nrnge = [0, 1]", "column 'a'", "Did you mean range?"),
    "an unknown key with no guess": ("[columns.a]\nzzz = [0, 1]", "'zzz'", "Known settings: range"),
    "an unknown key of the target": (ONE + '[target]\ncolumn = "y"\nclases = ["a", "b"]', "[target]", "classes?"),
    "columns that are no tables": ("columns = 3", "columns", "[columns.age]"),
    "a column that is no table": ("[columns]\nage = 3", "'age'", "[columns.age]"),
    "an empty schema": ("", "at least one column", "[columns.NAME]"),
    "all ignored": ("[columns.a]\nignore = true", "at least one column", "Add"),
    "neither range nor list": ("[columns.a]\nmissing = true", "'a'", "ignore = true"),
    "both range and list": ('[columns.a]\nrange = [0, 1]\ncategories = ["x"]', "'a'", "either"),
    "range upside down": ("[columns.a]\nrange = [1, 0]", "range of column 'a'", "range = [0, 100]"),
    "range without width": ("[columns.a]\nrange = [1, 1]", "range of column 'a'", "range = [0, 100]"),
    "range of one": ("[columns.a]\nrange = [1]", "range of column 'a'", "range = [0, 100]"),
    "range as a word": ('[columns.a]\nrange = "secret"', "'secret'", "private"),
    "range of texts": ('[columns.a]\nrange = ["0", "1"]', "range of column 'a'", "range = [0, 100]"),
    "range with no number": ("[columns.a]\nrange = [0, nan]", "range of column 'a'", "range = [0, 100]"),
    "endless range": ("[columns.a]\nrange = [0, inf]", "range of column 'a'", "range = [0, 100]"),
    "huge range": ("[columns.a]\nrange = [0, 1e101]", "range of column 'a'", "range = [0, 100]"),
    "range of truth": ("[columns.a]\nrange = [false, true]", "range of column 'a'", "range = [0, 100]"),
    "no cuts": ("[columns.a]\ncuts = []", "cuts of column 'a'", "cuts = [25, 40, 65]"),
    "cuts out of order": ("[columns.a]\ncuts = [2, 1]", "cuts of column 'a'", "cuts = [25, 40, 65]"),
    "cuts as text": ('[columns.a]\ncuts = ["2"]', "cuts of column 'a'", "cuts = [25, 40, 65]"),
    "cuts as one number": ("[columns.a]\ncuts = 3", "cuts of column 'a'", "square brackets"),
    "cuts and private": ('[columns.a]\nrange = "private"\ncuts = [1]', "'a'", "Leave out"),
    "no categories": ("[columns.a]\ncategories = []", "categories of column 'a'", '["no", "yes"]'),
    "categories twice": ('[columns.a]\ncategories = ["x", " x"]', "categories of column 'a'", '["no", "yes"]'),
    "categories as one text": ('[columns.a]\ncategories = "x"', "categories of column 'a'", "square brackets"),
    "a list as category": ("[columns.a]\ncategories = [[1]]", "categories of column 'a'", '["no", "yes"]'),
    "a category that is missing": ('[columns.a]\ncategories = ["NA", "x"]', "'NA'", "missing_values"),
    "an empty category": ('[columns.a]\ncategories = ["", "x"]', "''", "missing_values"),
    "a flag as text": ('[columns.a]\nrange = [0, 1]\nmissing = "yes"', "missing of column 'a'", "true or false"),
    "an unknown source": ('source = "guessed"\n' + ONE, "source of the schema", '"declared"'),
    "missing values as text": ('missing_values = "NA"\n' + ONE, "missing_values", '["?", "NA"]'),
    "a target without a column": (ONE + '[target]\nclasses = ["a", "b"]', "[target]", 'column = "income"'),
    "a target of neither kind": (ONE + '[target]\ncolumn = "y"', "[target]", "range = [low, high]"),
    "a target of one class": (ONE + '[target]\ncolumn = "y"\nclasses = ["a"]', "classes of target 'y'", '["no", "yes"]'),
    "a missing class": (ONE + '[target]\ncolumn = "y"\nclasses = ["None", "a"]', "'None'", "missing_values"),
    "a target that is a column": (ONE + '[target]\ncolumn = "a"\nclasses = ["x", "z"]', "'a'", "once"),
    "dates of one day": ("[columns.a]\ndates = [2020-01-01]", "dates of column 'a'", "2024-12-31"),
    "dates upside down": ("[columns.a]\ndates = [2020-01-02, 2020-01-01]", "dates of column 'a'", "2024-12-31"),
    "dates that are none": ('[columns.a]\ndates = ["2020-13-01", "2021"]', "dates of column 'a'", "2024-12-31"),
    "dates in a time zone": (
        "[columns.a]\ndates = [2020-01-02T00:00:00Z, 2021-01-01T00:00:00Z]", "dates of column 'a'", "2024-12-31"
    ),
    "unknown parts": (f"[columns.a]\n{DAYS}parts = ['moon']", "parts of column 'a'", "month, weekday"),
    "no parts": (f"[columns.a]\n{DAYS}parts = []", "parts of column 'a'", "month, weekday"),
    "half a format": (f"[columns.a]\n{DAYS}format = '%d.%m.'", "'%d.%m.'", '"%d.%m.%Y"'),
    "a format as number": (f"[columns.a]\n{DAYS}format = 3", "column 'a'", '"%d.%m.%Y"'),
    "a format of numbers": ("[columns.a]\nrange = [0, 1]\nformat = '%d'", "has format", "dates only"),
    "a decimal of dates": (f"[columns.a]\n{DAYS}decimal = ','", "has decimal", "numbers only"),
    "dates and a range": (f"[columns.a]\n{DAYS}range = [0, 1]", "'a'", "either"),
    "an unknown decimal": ("[columns.a]\nrange = [0, 1]\ndecimal = ';'", "decimal of 'a'", "','"),
    "unknown thousands": ("[columns.a]\nrange = [0, 1]\nthousands = '_'", "thousands of 'a'", "','"),
    "one sign for both": ("[columns.a]\nrange = [0, 1]\nthousands = '.'", "'a'", 'decimal = ","'),
    "a share of unreadable lines": ("unreadable = 5\n" + ONE, "unreadable from 0 to 1", "0.05"),
    "a statement that is no table": ("statement = 3\n" + ONE, "statement", "[statement]"),
    "an unknown key of the statement": (ONE + '[statement]\nunits = "x"', "[statement]", "Did you mean unit?"),
    "an empty answer": (ONE + '[statement]\nunit = " "', "unit of [statement]", "State what one record is"),
    "an answer on no list": (ONE + '[statement]\ndata = "dynamic"', "data of [statement]", "'static', 'growing'"),
    "a private target": (ONE + '[target]\ncolumn = "y"\nrange = "private"', "target 'y'", "range = [0, 100]"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_thing_and_the_remedy(case, tmp_path):
    text, thing, remedy = REFUSED[case]
    (tmp_path / "my.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgument) as refused:
        read_schema(tmp_path / "my.toml")
    message = str(refused.value)
    assert "my.toml" in message
    assert thing in message
    assert remedy in message


def test_files_that_are_no_text_or_not_there_are_refused(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe\x00")
    for path, word in (
        (tmp_path / "a.toml", "UTF-8"),
        (tmp_path / "b.toml", "No such file.*privypurse schema DATA"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(InvalidArgument, match=word) as refused:
            read_schema(path)
        assert repr(str(path)) in str(refused.value)


def test_a_target_must_be_the_one_that_is_asked_for():
    schema = Schema((Number(name="a", range=(0, 1)),), ClassTarget(name="y", classes=("a", "b")))
    assert schema.with_target("y") is schema
    with pytest.raises(InvalidArgument, match="'y', got 'z'"):
        schema.with_target("z")
    with pytest.raises(InvalidArgument, match=r"no \[target\]"):
        Schema(schema.columns).with_target("y")


def test_buying_knots_does_not_declare_a_range_that_was_not():
    for source in (Source.DATA, Source.EARLIER):
        schema = Schema((Number(name="age", range=(0, 90), source=source),)).with_knots({"age": (0, 40, 90)})
        assert schema.columns[0].knots == (0, 40, 90)
        assert schema.columns[0].source is source
    bought = Schema((Number(name="age", range=(0, 90), source=Source.EARLIER),))
    assert bought.with_knots({"age": (0, 40, 90)}, Source.DATA).columns[0].source is Source.DATA  # of a simulation
    assert schema.with_ranges({"age": (0, 80)}).columns[0].knots == ()
