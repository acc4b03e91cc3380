"""Ledgers, certificates and model folders of earlier code: read as they are, and left as they are."""

import json
import pathlib
import shutil

import pytest

import privypurse
from privypurse import Certificate, Purse, SqliteLedger
from privypurse.accounting._filters import from_terms
from privypurse.core._errors import BudgetFrozen
from privypurse.mechanisms import Gaussian
from privypurse.oracles.statistics import clipped_sum
from privypurse.purse._certificate import check_certificate
from privypurse.purse._replay import replay
from privypurse.runs._describe import describe_budget
from privypurse.runs.folder import load_model, model_files
from tests.cli.commands import run

EARLIER = pathlib.Path(__file__).parent / "data" / "earlier"


@pytest.fixture
def earlier(tmp_path):
    return shutil.copytree(EARLIER, tmp_path / "earlier")


def test_an_earlier_ledger_is_verified_and_replayed_and_not_changed(earlier):
    before = (earlier / "earlier.ledger").read_bytes()
    ledger = SqliteLedger(earlier / "earlier.ledger", must_exist=True)
    assert ledger.verify() == 33
    for dataset in ("census", "gdp", "zcdp", "rdp"):
        assert replay(ledger, dataset, from_terms(ledger.terms(dataset))) == ledger.totals(dataset)
    assert (earlier / "earlier.ledger").read_bytes() == before


@pytest.mark.parametrize("name", ["certificate-gdp", "certificate-zcdp", "certificate-rdp", "model/certificate"])
def test_earlier_certificates_hold(earlier, name):
    certificate = Certificate.from_json((earlier / f"{name}.json").read_text(encoding="utf-8"))
    assert check_certificate(SqliteLedger(earlier / "earlier.ledger"), certificate)


def test_an_earlier_account_goes_on_where_it_was(earlier):
    purse = Purse.reopen(earlier / "earlier.ledger", "rdp")
    spent = purse.spent
    purse.release(clipped_sum([[1.0]], clip_norm=1.0), Gaussian(30.0))
    assert purse.spent.epsilon > spent.epsilon
    assert purse.spent.releases == spent.releases + 1
    with pytest.raises(BudgetFrozen):
        Purse.reopen(earlier / "earlier.ledger", "gdp").release(clipped_sum([[1.0]], clip_norm=1.0), Gaussian(30.0))
    runs = describe_budget(Purse.reopen(earlier / "earlier.ledger", "census"))["runs"]
    assert [one["finished"] for one in runs] == [True, True]


def test_an_earlier_model_predicts_as_it_did_and_is_written_alike(earlier):
    done = run(earlier, "predict", "model", "records.csv", "--out", "now.csv")
    assert done.returncode == 0, done.stderr
    assert (earlier / "now.csv").read_text() == (earlier / "predictions.csv").read_text()
    written = model_files(load_model(earlier / "model"))
    for name in ("model.json", "schema.toml", "certificate.json", "trace.json"):
        before = (earlier / "model" / name).read_text(encoding="utf-8")
        if name == "model.json":  # it names the version that wrote it
            before = before.replace('"version": "0.1.0.dev0"', f'"version": "{privypurse.__version__}"')
        assert written[name] == before, name


def test_earlier_measurements_are_shown_and_added_to(earlier):
    done = run(earlier, "evaluate", "model", "records.csv", "--public")
    assert done.returncode == 0, done.stderr
    measured = json.loads((earlier / "model" / "measurements.json").read_text(encoding="utf-8"))
    assert [len(one.get("estimates", ())) > 0 for one in measured] == [False, False, True]
    page = (earlier / "model" / "report.html").read_text(encoding="utf-8")
    assert "found among &#x27;yes&#x27;" in page
    assert "plot-classes-2" in page
    done = run(earlier, "report", "model", "--overwrite")  # reads what was written
    assert done.returncode == 0, done.stderr
