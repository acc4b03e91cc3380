"""What a ledger says about jobs afterwards: which, by whom, what they cost, whether they came to
their end.
"""

import dataclasses
import pathlib

import pytest

from privypurse import Gaussian, InvalidArgument, NoiseSource, Purse
from privypurse.core._errors import LedgerCorrupt, SpentInVain
from privypurse.oracles.statistics import clipped_sum
from privypurse.purse._allowance import SIMULATED
from privypurse.purse._certificate import check_certificate
from privypurse.purse._opening import part_of
from privypurse.purse._sqlite_ledger import SqliteLedger
from privypurse.runs import _compare as comparing
from privypurse.runs import _evaluate as evaluating
from privypurse.runs import _train as training
from privypurse.runs._account import Account, put_on_record
from privypurse.runs._describe import describe_budget
from privypurse.runs._evaluate import evaluate_file
from privypurse.runs._on_record import counted
from privypurse.runs._progress import Silent
from privypurse.runs._train import train_file
from privypurse.runs.folder import ModelNotSaved, load_model
from privypurse.tables._files import TableFile
from privypurse.tables._schema import read_schema
from tests.runs.census import SCHEMA, a_census, charges, lines, settings_for


def test_each_job_is_listed_with_what_it_cost(tmp_path):
    first = train_file(settings_for(tmp_path, budget=3.0, epsilon=0.5))
    train_file(settings_for(tmp_path, epsilon=0.7, out=tmp_path / "second"))
    runs = describe_budget(first.purse)["runs"]
    assert [run["what"].split(", ")[-1] for run in runs] == ["model model", "model second"]
    assert [run["finished"] for run in runs] == [True, True]
    assert [run["epsilon"] for run in runs] == pytest.approx([0.5, 0.7], rel=1e-6)
    assert runs[1]["spent_epsilon"] > runs[0]["spent_epsilon"]
    assert sum(run["releases"] for run in runs) == first.purse.spent.releases


def test_releases_outside_of_jobs_and_jobs_without_an_end_are_listed_too(tmp_path, monkeypatch):
    purse, _ = settings_for(tmp_path, budget=3.0).account.open(3.0, seed=1)
    purse.release(clipped_sum([[1.0]], clip_norm=1.0), Gaussian(50.0))
    monkeypatch.setattr(training, "measure", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train_file(settings_for(tmp_path, budget=3.0, epsilon=0.5))
    monkeypatch.undo()
    runs = describe_budget(purse)["runs"]
    assert [(run["what"][:6], run["finished"]) for run in runs] == [("from P", True), ("train ", False)]
    assert runs[0]["releases"] == 1
    assert sum(run["releases"] for run in runs) == purse.spent.releases


def test_a_job_that_fails_after_paying_says_what_it_spent(tmp_path, monkeypatch):
    schema = read_schema(settings_for(tmp_path).schema)
    bought = dataclasses.replace(
        schema, columns=(dataclasses.replace(schema.columns[0], range=None), *schema.columns[1:])
    )
    settings = settings_for(tmp_path, schema=bought)
    monkeypatch.setattr(training.reading, "read_rows", lambda *_, **__: (_ for _ in ()).throw(InvalidArgument("gone.")))
    with pytest.raises(
        SpentInVain, match=r"gone\. By then this run had spent epsilon 0\.\d+ .* no model was made"
    ) as failed:
        train_file(settings)
    assert "Nothing was spent" not in str(failed.value)
    assert not settings.out.exists()


def test_a_run_whose_model_is_saved_elsewhere_is_on_record_with_its_certificate(tmp_path):
    settings = settings_for(tmp_path)
    with pytest.raises(ModelNotSaved, match="something else is there now") as failed:
        train_file(settings, opened=lambda purse, is_new: settings.out.mkdir())
    saved = load_model(str(failed.value).split("It is in '")[1].split("'")[0])
    purse = Purse.reopen(tmp_path / "ledger.db", "census", noise=NoiseSource(seed=1))
    (run,) = describe_budget(purse)["runs"]
    assert run["finished"]
    assert run["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert run["releases"] == purse.spent.releases
    assert check_certificate(purse.ledger, saved[-1].certificate_)


def test_a_model_is_kept_when_its_report_cannot_be_made(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "report_of", lambda *_: (_ for _ in ()).throw(ZeroDivisionError))
    with pytest.warns(UserWarning, match="report could not be made"):
        train_file(settings_for(tmp_path))
    assert (tmp_path / "model" / "model.json").exists()


def test_a_real_run_beside_simulations_says_so(tmp_path):
    account = Account(dataset="census", ledger=tmp_path / "ledger.db", budget=3.0)
    train_file(settings_for(tmp_path, account=account, epsilon=0.5))  # with a seed
    real = train_file(settings_for(tmp_path, account=account, epsilon=0.5, seed=None, out=tmp_path / "real"))
    certificate = real.pipeline[-1].certificate_
    assert certificate.private
    assert SIMULATED in certificate.uncovered
    assert describe_budget(real.purse)["simulation"]


def test_a_part_of_a_part_freezes_the_account(tmp_path):
    purse = Purse(
        1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "l.db", dataset="d", noise=NoiseSource(seed=1)
    )
    part_of(part_of(purse, 0.5), 0.2).freeze("enough")
    assert Purse.reopen(tmp_path / "l.db", "d").ledger.is_frozen("d")


def test_lines_of_a_kind_that_is_not_known_are_refused(tmp_path):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "l.db", dataset="d")
    purse.ledger.append("d", "note", {}, who="a", what="b", decide=lambda totals: totals)
    with pytest.raises(LedgerCorrupt, match="of an unknown kind"):
        purse.ledger.append("d", "lower the limit", {}, who="a", what="b", decide=lambda totals: totals)
    with pytest.raises(LedgerCorrupt, match="kind"):
        Purse.reopen(tmp_path / "l.db", "d")


def test_the_ledger_lies_beside_the_data_unless_it_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("PRIVYPURSE_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    assert Account(dataset="d", beside=tmp_path / "data").path == tmp_path / "data" / "privypurse-ledger.db"
    assert Account(dataset="d", ledger=tmp_path / "a.db", beside=tmp_path / "data").path == tmp_path / "a.db"
    monkeypatch.setenv("PRIVYPURSE_LEDGER", str(tmp_path / "b.db"))
    assert Account(dataset="d", beside=tmp_path / "data").path == tmp_path / "b.db"


def test_ranges_from_a_simulation_are_not_taken_for_bought(tmp_path):
    train_file(settings_for(tmp_path, schema=None, buy_ranges=True))  # with a seed
    schema = read_schema(tmp_path / "model" / "schema.toml")
    assert any("read from the data" in line for line in schema.uncovered)


def test_a_class_that_is_not_in_the_file_is_remarked_on(tmp_path):
    schema = read_schema(settings_for(tmp_path).schema)
    target = dataclasses.replace(schema.target, classes=("no", "yes", "perhaps"))
    # Enough to tell a small class from none.
    found = train_file(settings_for(tmp_path, schema=dataclasses.replace(schema, target=target), epsilon=4.0))
    assert any("'perhaps' has few or no records" in remark for remark in found.remarks)
    (measured,) = found.measurements
    assert measured.estimated("recall", "perhaps")[0].says_little
    assert "perhaps" in measured.classes
    assert not any("'no'" in remark for remark in found.remarks)


def test_a_measurement_that_says_little_says_so(tmp_path):
    a_census(tmp_path, 300)
    (measured,) = train_file(settings_for(tmp_path, epsilon=0.3)).measurements
    assert measured.says_little
    assert 0 <= measured.value <= 1
    assert all(0 <= value <= 1 for _, value in measured.compared_with)
    assert "too noisy to report at this budget" in (tmp_path / "model" / "report.html").read_text(encoding="utf-8")
    assert lines(tmp_path)


def test_notes_of_any_kind_do_no_harm(tmp_path):
    purse, _ = settings_for(tmp_path, budget=3.0).account.open(3.0, seed=1)
    purse.note("my remark", {"event": "begin"})
    purse.note("another", {"job": "a", "event": "end"})
    found = train_file(settings_for(tmp_path, budget=3.0, epsilon=0.5))
    assert [run["finished"] for run in describe_budget(found.purse)["runs"]] == [True]


def test_a_test_file_that_disappears_does_not_cost_the_model(tmp_path):
    others = tmp_path / "others.csv"
    others.write_bytes(a_census(tmp_path).read_bytes())
    found = train_file(settings_for(tmp_path, test=others), opened=lambda *_: others.unlink())
    assert found.measurements == []
    assert "could not be measured" in found.remarks[0]
    assert (tmp_path / "model" / "model.json").exists()


def test_an_account_without_a_limit_is_refused_before_anything_is_spent(tmp_path):
    Purse.not_private(ledger=tmp_path / "ledger.db", dataset="census")
    with pytest.raises(InvalidArgument, match="declared not private"):
        train_file(settings_for(tmp_path))
    assert charges(tmp_path) == []


def test_an_exact_score_on_the_training_records_is_on_their_account(tmp_path):
    train_file(settings_for(tmp_path))
    evaluate_file(tmp_path / "model", TableFile(a_census(tmp_path)), Silent())
    named = [entry for entry in SqliteLedger(tmp_path / "ledger.db").entries("census") if entry.kind == "uncovered"]
    assert "measured exactly" in named[-1].what


def test_a_paid_comparison_keeps_what_it_has_when_others_spend_the_rest(tmp_path, monkeypatch):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=1))
    real, calls = comparing.measure, []

    def then_spend_the_rest(*arguments, **options):
        found = real(*arguments, **options)
        purse.release(clipped_sum([[1.0]], clip_norm=1.0), Gaussian.spending(purse.remaining))
        calls.append(found)
        return found

    monkeypatch.setattr(comparing, "measure", then_spend_the_rest)
    file = TableFile(a_census(tmp_path, 2_000))
    compared = comparing.compare_paid(file, SCHEMA, ["auto", "nesterov"], [0.3], lambda: purse, Silent())
    assert len(compared.entries) == len(calls) == 1
    assert "not complete" in compared.note
    with pytest.raises(InvalidArgument, match="method"):
        comparing.compare_paid(file, SCHEMA, ["auto", "pur"], [0.3], lambda: purse, Silent())


def test_a_figure_that_was_paid_for_is_told_even_if_it_cannot_be_written(tmp_path, monkeypatch):
    train_file(settings_for(tmp_path))
    monkeypatch.setattr(
        evaluating, "replace_file", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    account = Account(dataset="other", ledger=tmp_path / "ledger.db")
    found = evaluate_file(tmp_path / "model", TableFile(a_census(tmp_path)), Silent(), epsilon=1.0, account=account)
    assert found.measured.paid
    assert any("No space left" in remark for remark in found.remarks)


def test_exact_figures_go_on_the_record_of_a_ledger_in_the_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PRIVYPURSE_LEDGER", "~/l.db")
    account = Account(dataset="people")
    purse, is_new = account.open(1.0)
    assert (is_new, purse.ledger.path) == (True, tmp_path / "l.db")
    put_on_record([account], "exact figures")
    assert "exact figures" in str(purse.certificate())
    assert not account.open(1.0)[1]


def test_the_folder_of_a_user_who_is_not_known_is_refused():
    for named in ("~nobody-of-that-name/l.db", pathlib.Path("~nobody-of-that-name/l.db")):
        with pytest.raises(InvalidArgument, match="the home of an unknown user"):
            Account(dataset="people", ledger=named).open(1.0)
        with pytest.raises(InvalidArgument, match="the home of an unknown user"):
            SqliteLedger(named)


def test_an_interrupt_after_payment_says_how_much_was_spent():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", dataset="people")
    with pytest.raises(KeyboardInterrupt) as early, counted(part_of(purse, 0.5), "no model was made"):
        raise KeyboardInterrupt
    assert str(early.value) == ""
    run = part_of(purse, 0.5)
    run.release(clipped_sum([[1.0]], clip_norm=1.0), Gaussian(20.0))
    said = r"had spent epsilon 0\.\d+ on data set 'people'; no model was made"
    with pytest.raises(KeyboardInterrupt, match=said), counted(run, "no model was made"):
        raise KeyboardInterrupt


def test_the_statement_of_a_schema_is_on_the_ledger_and_on_the_certificates(tmp_path):
    stated = {"unit": "one person", "holder": "the census office"}
    trained = train_file(settings_for(tmp_path, schema=dataclasses.replace(SCHEMA, statement=tuple(stated.items()))))
    part = load_model(tmp_path / "model")[-1].certificate_
    assert part.statement == trained.purse.certificate().statement == stated
    assert check_certificate(trained.purse.ledger, part)
    with pytest.raises(LedgerCorrupt, match="something was changed"):
        check_certificate(trained.purse.ledger, dataclasses.replace(part, statement=stated | {"unit": "one household"}))
