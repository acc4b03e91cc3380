"""What a job leaves out of a file is said: paid for before a training, exactly where the records
are public.
"""

import dataclasses
import json
import re

import pytest

from privypurse.core._errors import InvalidArgument, SpentInVain
from privypurse.purse._sqlite_ledger import SqliteLedger
from privypurse.runs._account import Account
from privypurse.runs._compare import compare_not_private, compare_paid
from privypurse.runs._convert import convert_file
from privypurse.runs._evaluate import Odd, evaluate_file, predict_blocks
from privypurse.runs._progress import Silent
from privypurse.runs._rows import NO_TARGET, UNREADABLE, WHAT
from privypurse.runs._train import train_file
from privypurse.runs.folder import load_model
from privypurse.tables._files import TableFile
from privypurse.tables._schema import Source
from tests.runs.census import SCHEMA, a_census, charges, settings_for
from tests.runs.quoted import write_quoted


@pytest.fixture(scope="module")
def quoted(tmp_path_factory):
    """20,000 records of which 4,007 go over two lines, and 3,000 of which 645 do."""
    folder = tmp_path_factory.mktemp("quoted")
    write_quoted(folder / "people.csv", 20_000, 4_007)
    write_quoted(folder / "new.csv", 3_000, 645, seed=3)
    for name in ("people", "new"):
        convert_file(TableFile(folder / f"{name}.csv"), folder / f"{name}.parquet", Silent())
    return folder


@pytest.fixture(scope="module")
def trained(quoted, tmp_path_factory):
    """A model of the converted file."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, train_file(settings_for(folder, data=quoted / "people.parquet"))


def test_train_refuses_a_csv_file_of_which_many_records_would_be_lost(quoted, tmp_path):
    with pytest.raises(SpentInVain, match=r"data convert people\.csv") as refused:
        train_file(settings_for(tmp_path, data=quoted / "people.csv"))
    message = str(refused.value)
    assert "could not be read by themselves" in message
    assert "spent epsilon 0.058" in message
    assert len(charges(tmp_path)) == 1
    assert not (tmp_path / "model").exists()


def test_train_says_before_training_how_many_lines_are_left_out(tmp_path):
    data, told = write_quoted(tmp_path / "people.csv", 20_000, 300), []

    def counted_lines(left_out):
        told.append((left_out, len(charges(tmp_path)), (tmp_path / "model" / "model.json").exists()))

    result = train_file(settings_for(tmp_path, data=data), counted_lines=counted_lines)
    assert [(paid, is_there) for _, paid, is_there in told] == [(1, False)] * 2
    assert tuple(left_out for left_out, _, _ in told) == result.left_out
    left_out, without_target = result.left_out
    assert (without_target.why, without_target.low) == (NO_TARGET, 0)
    assert left_out.low <= 600 <= left_out.high < 900
    assert left_out.low > 0
    assert str(left_out).startswith("about ")
    assert str(left_out) in (tmp_path / "model" / "report.html").read_text()
    assert WHAT in (tmp_path / "model" / "certificate.txt").read_text()
    assert WHAT in (tmp_path / "model" / "certificate.json").read_text()
    # Half a percent in squares of mu, so that a model loses nothing that could be seen.
    first = SqliteLedger(tmp_path / "ledger.db").entries("census")
    assert result.purse.spent.epsilon <= 1
    assert any(line.what == WHAT for line in first)


def test_train_says_so_where_nothing_is_left_out(tmp_path):
    result = train_file(settings_for(tmp_path))
    for left_out, why in zip(result.left_out, (UNREADABLE, NO_TARGET), strict=True):
        assert str(left_out).startswith(f"lines that {why}: fewer than about ")
        assert left_out.low == 0
        assert left_out.high < 600


def test_all_records_are_used_after_a_conversion(quoted, trained):
    _, result = trained
    assert [left_out.why for left_out in result.left_out] == [NO_TARGET]
    assert result.pipeline[-1].preparation_.records == pytest.approx(18_000, abs=400)
    assert any("data convert" in item for item in result.pipeline[-1].certificate_.uncovered)


def test_a_model_of_a_plain_file_names_no_conversion(tmp_path):
    result = train_file(settings_for(tmp_path))
    assert not any("convert" in item for item in result.pipeline[-1].certificate_.uncovered)


def test_evaluate_says_exactly_what_it_leaves_out_of_public_records(quoted, trained):
    _, model = trained
    lost = evaluate_file(model.folder, TableFile(quoted / "new.csv"), Silent(), public=True)
    assert "1,290 of 3,645 lines cannot be read by themselves" in " ".join(lost.remarks)
    assert "data convert" in " ".join(lost.remarks)
    whole = evaluate_file(model.folder, TableFile(quoted / "new.parquet"), Silent(), public=True)
    assert whole.measured.on == "new.parquet (3,000 records)"
    assert not whole.remarks


def test_evaluate_pays_for_the_count_of_what_it_leaves_out_of_private_records(quoted, trained, tmp_path):
    _, model = trained
    account = Account(dataset="new", ledger=tmp_path / "ledger.db", budget=2.0)
    lost = evaluate_file(model.folder, TableFile(quoted / "new.csv"), Silent(), epsilon=1.0, account=account)
    assert lost.remarks[0].startswith("about 1,")
    assert UNREADABLE in lost.remarks[0]
    assert lost.remarks[1].startswith(f"lines that {NO_TARGET}: fewer than about ")
    assert lost.purse.spent.epsilon <= 1.0
    assert lost.purse.spent.releases == 3  # the count, and two for measuring
    whole = evaluate_file(model.folder, TableFile(quoted / "new.parquet"), Silent(), epsilon=0.5, account=account)
    assert NO_TARGET in whole.remarks[0]


def test_predict_names_the_cause_and_a_remedy_that_works(quoted, trained):
    pipeline = load_model(trained[1].folder)
    with pytest.raises(InvalidArgument, match=r"quotation mark that is not closed.*data convert new\.csv"):
        list(predict_blocks(pipeline, TableFile(quoted / "new.csv"), Odd(), Silent()))
    odd = Odd()
    found = list(predict_blocks(pipeline, TableFile(quoted / "new.parquet"), odd, Silent()))
    assert sum(len(answers) for answers, _, _ in found) == odd.rows == 3_000


def test_a_comparison_says_what_it_leaves_out(tmp_path):
    file = TableFile(write_quoted(tmp_path / "people.csv", 20_000, 200))
    simulated = compare_not_private(file, SCHEMA, ["auto"], [1.0], 1, Silent())
    assert "400 of 20,200 lines cannot be read by themselves" in simulated.note
    account = Account(dataset="people", ledger=tmp_path / "ledger.db", budget=2.0)
    purse, _ = account.open(2.0)
    paid = compare_paid(file, SCHEMA, ["auto"], [0.5, 1.0], lambda: purse, Silent())
    assert "could not be read by themselves" in paid.note
    assert len(paid.entries) == 2
    many = TableFile(write_quoted(tmp_path / "many.csv", 5_000, 2_500))
    with pytest.raises(SpentInVain, match="data convert"):
        compare_paid(many, SCHEMA, ["auto"], [0.5], lambda: account.open(2.0)[0], Silent())


def test_a_test_file_with_lines_left_out_is_remarked_on(quoted, tmp_path):
    settings = settings_for(tmp_path, data=quoted / "people.parquet", test=quoted / "new.csv", test_public=True)
    remarks = train_file(settings).remarks
    assert any("1,290 of 3,645 lines cannot be read by themselves" in remark for remark in remarks)
    written = json.loads((tmp_path / "model" / "measurements.json").read_text())
    assert written[0]["on"] == "new.csv (2,355 records)"


LOST = 800


@pytest.fixture(scope="module")
def misspelt(tmp_path_factory):
    """5,000 records, 800 of which have a target that is on no list: as CSV and as Parquet."""
    folder = tmp_path_factory.mktemp("misspelt")
    header, *records = a_census(folder).read_text(encoding="utf-8").splitlines()
    place = header.split(",").index("high_income")
    cells = [record.split(",") for record in records]
    for record in cells[:LOST]:
        record[place] = "Yes?"
    (folder / "odd.csv").write_text("\n".join([header, *map(",".join, cells), ""]), encoding="utf-8")
    convert_file(TableFile(folder / "odd.csv"), folder / "odd.parquet", Silent())
    return folder


@pytest.mark.parametrize("name", ["odd.csv", "odd.parquet"])
@pytest.mark.parametrize("buying", [False, True])
def test_train_says_how_many_records_have_no_target(misspelt, tmp_path, name, buying):
    schema = SCHEMA
    if buying:
        ages = [
            dataclasses.replace(c, range=None, source=Source.BOUGHT) if c.name == "age" else c for c in SCHEMA.columns
        ]
        schema = dataclasses.replace(SCHEMA, columns=tuple(ages))
    told = []
    settings = settings_for(tmp_path, data=misspelt / name, schema=schema)
    result = train_file(settings, counted_lines=told.append)
    without_target = result.left_out[-1]
    assert told[-1] == without_target
    assert without_target.why == NO_TARGET
    assert 0 < without_target.low < without_target.high < 2 * LOST
    assert abs(without_target.count - LOST) < without_target.high - without_target.low  # six standard deviations
    assert NO_TARGET in (tmp_path / "model" / "report.html").read_text()
    assert sum(line.what == WHAT for line in charges(tmp_path)) == 1


@pytest.mark.parametrize("name", ["odd.csv", "odd.parquet"])
def test_a_comparison_says_how_many_records_have_no_target(misspelt, tmp_path, name):
    file = TableFile(misspelt / name)
    simulated = compare_not_private(file, SCHEMA, ["auto"], [1.0], 1, Silent())
    assert f"{name}: {LOST} rows left out: their target is missing, or on no list" in simulated.note
    purse, _ = Account(dataset="people", ledger=tmp_path / "ledger.db", budget=2.0).open(2.0)
    paid = compare_paid(file, SCHEMA, ["auto"], [2.0], lambda: purse, Silent())
    assert f") {NO_TARGET} and are left out" in paid.note
    assert re.search(r"about [\d,]+ lines \([\d,]+ to [\d,]+\)", paid.note)  # a noisy count, which may be the true one
    assert "rows left out" not in paid.note
    assert sum(line.what == WHAT for line in charges(tmp_path)) == 1


def test_a_test_file_with_targets_on_no_list_is_remarked_on(misspelt, tmp_path):
    remarks = train_file(settings_for(tmp_path, test=misspelt / "odd.parquet", test_public=True)).remarks
    assert f"odd.parquet: {LOST} rows left out: their target is missing, or on no list of the schema." in remarks


def test_records_without_a_target_are_not_taken_for_lines_that_cannot_be_read(misspelt, tmp_path):
    assert train_file(settings_for(tmp_path, data=misspelt / "odd.csv")).left_out[0].low == 0
