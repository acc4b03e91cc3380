"""Whatever is wrong with a job is refused before anything is spent, and leaves no folder behind."""

import dataclasses
import gzip

import pytest

from privypurse import InvalidArgument, Purse
from privypurse.core._errors import PrivypurseError, TermsMismatch
from privypurse.runs import _rows as reading
from privypurse.runs._account import Account
from privypurse.runs._evaluate import evaluate_file
from privypurse.runs._progress import Silent
from privypurse.runs._train import train_file
from privypurse.runs.folder import ModelFolder, load_model, save_model
from privypurse.tables._files import TableFile
from privypurse.tables._schema import Category, ClassTarget, Number, Schema
from tests.runs.census import SCHEMA, a_census, a_schema, lines, regression_schema, settings_for


def private_age(schema=SCHEMA):
    """The same schema with a range that is bought, so that there is something to pay before the
    fit.
    """
    columns = tuple(Number(name="age") if column.name == "age" else column for column in schema.columns)
    return Schema(columns, schema.target)


def with_hours(bounds):
    """The same schema with another range of the working hours."""
    columns = (
        dataclasses.replace(one, range=bounds) if one.name == "hours_per_week" else one for one in SCHEMA.columns
    )
    return Schema(tuple(columns), SCHEMA.target)


OPEN = []


def being_written(folder):
    """Begin a run that writes to a folder and does not end."""
    OPEN.append(ModelFolder(folder).__enter__())
    return folder


def spoiled(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    return tmp_path / name


MISTAKES = {
    "epsilon": lambda t: {"epsilon": 0.0},
    "an epsilon that is no number": lambda t: {"epsilon": float("nan")},
    "hold_out": lambda t: {"hold_out": 0.6},
    "a hold_out that is no number": lambda t: {"hold_out": float("nan")},
    "a negative hold_out": lambda t: {"hold_out": -0.1},
    "model": lambda t: {"model": "forest"},
    "a model for numbers": lambda t: {"model": "ridge"},
    "method": lambda t: {"method": "magic"},
    "dp-sgd": lambda t: {"method": "dp-sgd"},
    "no file": lambda t: {"data": t / "nowhere.csv"},
    "a range that misses the data": lambda t: {"schema": a_schema(t, with_hours((1_000, 2_000)), "far.toml")},
    "a folder that another run writes": lambda t: {"out": being_written(t / "other")},
    "another target": lambda t: {"target": "income"},
    "no schema": lambda t: {"schema": t / "nowhere.toml"},
    "a folder that is not there": lambda t: {"out": t / "no" / "model"},
    "a folder that is no model": lambda t: {"out": t, "overwrite": True},
    "no test file": lambda t: {"test": t / "nowhere.csv"},
    "a test file without the columns": lambda t: {"test": spoiled(t, "t.csv", b"a,b\n1,2\n")},
    "a test file that is cut off": lambda t: {
        "test": spoiled(t, "t.csv.gz", gzip.compress(a_census(t).read_bytes())[:-2_000])
    },
    "a test file of another kind": lambda t: {
        "test": spoiled(t, "t.csv", a_census(t).read_bytes().replace(b"yes", b"ja").replace(b"no", b"nein"))
    },
    "a file that is cut off": lambda t: {"data": spoiled(t, "d.csv.gz", gzip.compress(a_census(t).read_bytes())[:-2_000])},
    "another encoding": lambda t: {"data": spoiled(t, "d.csv", a_census(t).read_bytes().replace(b"yes", b"\xe9"))},
    "the training file as a test": lambda t: {"test": a_census(t)},
    "a budget below epsilon": lambda t: {"account": Account(dataset="new", ledger=t / "ledger.db", budget=0.5)},
    "a delta that promises nothing": lambda t: {"account": Account(dataset="new", ledger=t / "ledger.db", delta=0.01)},
    "another budget": lambda t: {"account": Account(dataset="census", ledger=t / "ledger.db", budget=9.0)},
    "another delta": lambda t: {"account": Account(dataset="census", ledger=t / "ledger.db", delta=1e-7)},
    "another relation": lambda t: {"account": Account(dataset="census", ledger=t / "ledger.db", neighbouring="replace-one")},
    "too little left": lambda t: {"epsilon": 5.0},
}  # fmt: skip


@pytest.mark.parametrize("ranges", ["declared", "bought"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_cost_nothing(tmp_path, mistake, ranges):
    settings = settings_for(tmp_path, schema=SCHEMA if ranges == "declared" else private_age())
    changes = MISTAKES[mistake](tmp_path)
    settings.account.open(4.0)
    before, files = lines(tmp_path), sorted(tmp_path.rglob("*"))
    with pytest.raises(PrivypurseError):
        train_file(dataclasses.replace(settings, **changes))
    assert lines(tmp_path) == before
    assert sorted(tmp_path.rglob("*")) == files
    while OPEN:
        OPEN.pop().__exit__(None, None, None)


@pytest.mark.parametrize("ranges", ["declared", "bought"])
def test_a_schema_that_does_not_fit_the_file_costs_nothing(tmp_path, ranges):
    first = SCHEMA.columns[0] if ranges == "declared" else Number(name="age")
    wrong = {
        "a list that fits nothing": (Category(name="job", categories=("pilot",)), SCHEMA.target, "'job'"),
        "numbers that are none": (Number(name="job", range=(0, 1)), SCHEMA.target, "'job'"),
        "classes that fit nothing": (SCHEMA.columns[1], ClassTarget(name="high_income", classes=("ja", "nein")), "'high_income'"),
        "a column that is not there": (Number(name="jobb", range=(0, 1)), SCHEMA.target, "Did you mean 'job'"),
    }  # fmt: skip
    for column, target, word in wrong.values():
        with pytest.raises(InvalidArgument, match=word):
            train_file(settings_for(tmp_path, schema=Schema((first, column), target)))
    assert lines(tmp_path) == []


@pytest.mark.parametrize("ranges", ["declared", "bought"])
def test_a_table_larger_than_memory_costs_nothing(tmp_path, ranges, monkeypatch):
    monkeypatch.setattr(reading, "available_memory", lambda: 10**6)
    wide = Category(name="job", categories=("manager", *map(str, range(9_999))))
    schema = Schema((SCHEMA.columns[0] if ranges == "declared" else Number(name="age"), wide), SCHEMA.target)
    settings = settings_for(tmp_path, schema=schema)
    header, *records = settings.data.read_text(encoding="utf-8").splitlines(keepends=True)
    settings.data.write_text(header + "".join(records) * 40, encoding="utf-8")
    with pytest.raises(InvalidArgument, match=r"GB are free.*ChunkedOracle.*Nothing was spent"):
        train_file(settings)
    assert lines(tmp_path) == []


def test_an_account_with_a_delta_that_promises_nothing_costs_nothing(tmp_path):
    Purse(4.0, 0.01, neighbouring="add-remove", ledger=tmp_path / "ledger.db", dataset="census")
    before = lines(tmp_path)
    with pytest.raises(InvalidArgument, match="delta"):
        train_file(settings_for(tmp_path, schema=private_age()))
    assert lines(tmp_path) == before


def test_an_evaluation_that_pays_needs_an_account_and_a_model_with_a_report(tmp_path):
    train_file(settings_for(tmp_path, schema=regression_schema()))
    before, file = lines(tmp_path), TableFile(a_census(tmp_path))
    with pytest.raises(InvalidArgument, match="expected an account"):
        evaluate_file(tmp_path / "model", file, Silent(), epsilon=0.5)
    with pytest.raises(InvalidArgument, match="public"):
        evaluate_file(tmp_path / "model", file, Silent(), epsilon=0.5, account=Account(dataset="x"), public=True)
    save_model(load_model(tmp_path / "model"), tmp_path / "plain")
    with pytest.raises(InvalidArgument, match=r"run\.json"):
        evaluate_file(tmp_path / "plain", file, Silent())
    assert lines(tmp_path) == before


def test_an_evaluation_is_paid_in_full_or_exact(tmp_path):
    train_file(settings_for(tmp_path))
    account, file = Account(dataset="test", ledger=tmp_path / "ledger.db"), TableFile(a_census(tmp_path))
    first = evaluate_file(tmp_path / "model", file, Silent(), epsilon=0.5, account=account)
    paid, purse = first.measured, first.purse
    assert paid.paid
    assert purse.spent.epsilon == pytest.approx(0.5, rel=1e-6)
    assert purse.spent.epsilon <= 0.5
    assert purse.spent.releases == 3  # what is left out, and two for the measurement
    second = evaluate_file(tmp_path / "model", file, Silent(), account=account)
    exact = second.measured
    assert second.purse is None
    assert "trained on" in second.remarks[0]
    assert "measured exactly" in lines(tmp_path)[-1].what
    assert not exact.paid
    assert paid.low <= exact.value <= paid.high
    assert load_model(tmp_path / "model")  # the report may change, the model does not


def test_accounts_are_opened_once_and_found_again(tmp_path):
    ledger = tmp_path / "l.db"
    purse, is_new = Account(dataset="a", ledger=ledger, budget=3.0, delta=1e-7, neighbouring="replace_one").open(1.0)
    assert (is_new, purse.epsilon, purse.delta, purse.neighbouring.value) == (True, 3.0, 1e-7, "replace-one")
    again, is_new = Account(dataset="a", ledger=ledger).open(1.0)
    assert (is_new, again.epsilon, again.delta) == (False, 3.0, 1e-7)
    assert not Account(dataset="a", ledger=ledger, budget=3.0, delta=1e-7, neighbouring="replace-one").open(None)[1]
    other, is_new = Account(dataset="b", ledger=ledger).open(0.5)
    assert (is_new, other.epsilon, other.delta) == (True, 0.5, 1e-6)
    for wrong in ({"budget": 4.0}, {"delta": 1e-6}, {"neighbouring": "add-remove"}):
        with pytest.raises(TermsMismatch, match=next(iter(wrong))):
            Account(dataset="a", ledger=ledger, **wrong).open(1.0)
    with pytest.raises(InvalidArgument, match="budget is needed"):
        Account(dataset="c", ledger=ledger).open(None)
    with pytest.raises(InvalidArgument, match="budget must be at least 1"):
        Account(dataset="c", ledger=ledger, budget=0.5).open(1.0)


def test_the_ledger_may_be_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVYPURSE_LEDGER", str(tmp_path / "env.db"))
    assert Account(dataset="a").path == tmp_path / "env.db"
    monkeypatch.delenv("PRIVYPURSE_LEDGER")
    assert Account(dataset="a").path.name == "privypurse-ledger.db"
    assert a_schema(tmp_path).exists()
