"""Files as chunks of an oracle: one line or cell moves an answer by its own bound at most, and no
message quotes a cell.
"""

import traceback

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet
from tests.each import each

from privypurse import InvalidArgument, Neighbouring, Norm, Purse
from privypurse.core.queries import Count, GradientAt
from privypurse.losses import Logistic, Squared
from privypurse.methods._by_name import method_by_name
from privypurse.oracles import ChunkedOracle
from privypurse.oracles.statistics import clipped_sum
from privypurse.tables._columns import column_of, numbers
from privypurse.tables._files import BOUNDARIES, TableFile
from privypurse.tables.chunks import from_files
from privypurse.training._loop import fit

SECRET = "SECRETvalue73"
HEADER = b"a,b,y,note\n"
ROWS = [b"0.1,0.2,%d,x\n" % (index % 2) for index in range(60)]
QUERY = GradientAt(point=np.array([0.3, -0.2, 0.1]))
LOSS = Logistic(clip_derivative=0.5)
COLUMNS = {"a": [0.1, 0.2, 0.3] * 10, "b": [0.5] * 30, "y": [0, 1, 1] * 10}


def oracle(path, format="csv", loss=LOSS, **others):
    chunks = from_files(path, features=["a", "b"], target="y", format=format)
    return ChunkedOracle(chunks, features=2, loss=loss, **others)


def answers(path, **how):
    asked = oracle(path, **how)
    return asked.answer(Count()), asked.answer(QUERY)


def moves(before, after):
    return [float(np.linalg.norm(one._value - other._value)) for one, other in zip(before, after, strict=True)]


def bounds(boxes):
    return [box.bound(Neighbouring.ADD_REMOVE, Norm.L2) for box in boxes]


def told(work):
    """Return all that a traceback would show."""
    with pytest.raises(InvalidArgument) as refused:
        work()
    return "".join(traceback.format_exception(refused.value))


def test_an_open_quote_in_a_csv_file_moves_a_count_by_one_at_most(tmp_path):
    path, lines = tmp_path / "data.csv", [b"0.1,0.2,%d,x\n" % (index % 2) for index in range(50_000)]
    path.write_bytes(HEADER + b"".join(lines))
    before = answers(path)
    path.write_bytes(HEADER + b"".join([*lines[:100], b'0.1,0.2,1,"unclosed\n', *lines[100:]]))
    assert bounds(before) == [1.0, 0.5]
    assert (np.array(moves(before, answers(path))) <= [1.0, 0.5]).all()


odd_bytes = st.lists(
    st.sampled_from([b'"', b",", b"0.1", b"1", b"\r", b"\xff", b"\x00", b" ", b"nan", b"1e999", b"0.1,0.2,1,", b"x"]),
    max_size=9,
).map(b"".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    line=st.one_of(odd_bytes, st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b""))), at=st.integers(0, 60)
)
def test_any_line_inserted_anywhere_moves_each_answer_by_its_bound_at_most(tmp_path, line, at):
    """For the chunks of an oracle and for the table of a job."""
    plain, more = tmp_path / "plain.csv", tmp_path / "more.csv"
    plain.write_bytes(HEADER + b"".join(ROWS))
    more.write_bytes(HEADER + b"".join([*ROWS[:at], line + b"\n", *ROWS[at:]]))
    before = answers(plain)
    assert (np.array(moves(before, answers(more))) <= np.array(bounds(before)) + 1e-9).all()

    def table(path):
        file = TableFile(path)
        blocks = list(file.blocks(["a", "b"]))
        rows = np.vstack([np.column_stack([numbers(column_of(block, name), ()) for name in "ab"]) for block in blocks])
        return clipped_sum(rows, clip_norm=1.0), file.tally.box()

    before = table(plain)
    assert (np.array(moves(before, table(more))) <= np.array(bounds(before)) + 1e-9).all()


@pytest.mark.parametrize("format", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize("regression", [False, True])
@each("column", ["a", "y"])
@each("cell", [SECRET, "", None, "7", "1e999"])
def test_a_cell_that_is_no_number_costs_its_own_record_only(tmp_path, column, cell, format, regression):
    how = {"loss": Squared(clip_derivative=0.5), "target_bounds": (0.0, 1.0)} if regression else {}
    classes = {} if regression or format == "csv" else {"classes": ("0", "1")}

    def written(changed):
        table = {name: [str(value) for value in values] for name, values in COLUMNS.items()}
        if changed:
            table = {name: [*values, table[name][0]] for name, values in table.items()}
            table[column][-1] = cell
        if format == "csv":
            lines = [
                ",".join(table),
                *(",".join(str(cell or "") for cell in row) for row in zip(*table.values(), strict=True)),
            ]
            (tmp_path / "t").write_text("\n".join(lines) + "\n")
        else:
            write = {"parquet": parquet.write_table, "arrow": feather.write_feather}[format]
            write(pa.table(table), str(tmp_path / "t"))
        return answers(tmp_path / "t", format=format, **how, **classes)

    before, after = written(False), written(True)
    assert (np.array(moves(before, after)) <= np.array(bounds(before)) + 1e-9).all()
    assert moves(before, after)[0] == 1.0


def test_text_labels_are_compared_with_classes_that_are_text(tmp_path):
    table = {**COLUMNS, "y": [" no", "yes", SECRET] * 10}
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text(
        "a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in zip(*table.values(), strict=True))
    )
    found = [
        oracle(tmp_path / f"t.{kind}", format=kind, classes=(" no", "yes")).answer(QUERY)._value
        for kind in ("parquet", "csv")
    ]
    np.testing.assert_allclose(*found)
    assert np.abs(found[0]).max() > 0.1
    message = told(lambda: oracle(tmp_path / "t.csv", classes=("no", "YES")).answer(QUERY))
    assert "none of the first labels" in message
    assert SECRET not in message


def test_formats_that_are_read_otherwise_are_refused_by_name(tmp_path):
    for format in ("json", "orc", "CSV", SECRET[:3], None):
        with pytest.raises(InvalidArgument, match="parquet, arrow, csv"):
            from_files(tmp_path, features=["a"], target="y", format=format)


@pytest.mark.parametrize("format", ["parquet", "arrow", "csv"])
def test_a_file_that_is_another_kind_of_file_is_refused_without_quoting_it(tmp_path, format):
    (tmp_path / "t").write_bytes(b"PAR1" + f"{SECRET},{SECRET}\n".encode() * 99)
    assert SECRET not in told(lambda: answers(tmp_path / "t", format=format))
    assert SECRET not in told(lambda: answers(tmp_path / "nowhere", format=format))


def test_a_folder_of_csv_files_is_read_whole(tmp_path):
    for index in range(3):
        (tmp_path / f"{index}.csv").write_bytes(HEADER + b"".join(ROWS))
    assert answers(tmp_path)[0]._value == 180
    with pytest.raises(InvalidArgument, match="'c' is not in"):
        from_files(tmp_path, features=["a", "c"], target="y", format="csv")


@pytest.mark.parametrize("content", [b"", b'0.1,"0.2,1,x\n', b"1\n"])
def test_a_file_of_a_folder_in_which_no_line_is_a_record_yields_no_rows(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(HEADER + b"".join(ROWS))
    (tmp_path / "b.csv").write_bytes(HEADER + ROWS[0])
    before = answers(tmp_path)
    (tmp_path / "b.csv").write_bytes(HEADER + content)
    assert (np.array(moves(before, answers(tmp_path))) <= bounds(before)).all()


def test_checks_that_read_the_records_are_named_on_the_certificate(tmp_path):
    (tmp_path / "a.csv").write_bytes(HEADER + b"".join(ROWS))
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    fit(oracle(tmp_path / "a.csv"), method_by_name("auto"), purse, records=60, radius=1.0)
    said = " ".join(purse.certificate().uncovered)
    assert "read line by line" in said
    assert "first labels" in said


def test_boundaries_of_converted_records_are_named_for_certificates(tmp_path):
    table = pa.table(COLUMNS)
    parquet.write_table(table.replace_schema_metadata({BOUNDARIES: b"quotes"}), tmp_path / "t.parquet")
    for path in (tmp_path, tmp_path / "t.parquet"):
        assert any("quotation marks" in what for what in oracle(path, format="parquet").uncovered)
    parquet.write_table(table, tmp_path / "t.parquet")
    assert from_files(tmp_path, features=["a"], target="y").uncovered == ()
