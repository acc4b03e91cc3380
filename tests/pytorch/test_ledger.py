"""Ledgers with sampled runs on them: reopened, shown and verified like any other."""

import contextlib
import sqlite3

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from privypurse import Gaussian, LedgerCorrupt, Purse  # noqa: E402
from privypurse.core._errors import PrivypurseError  # noqa: E402
from privypurse.oracles.statistics import clipped_sum  # noqa: E402
from privypurse.purse._replay import replay  # noqa: E402
from privypurse.pytorch import AdaptiveClip, make_private, open_purse  # noqa: E402
from tests.cli.commands import result, run  # noqa: E402

STEPS = 6
TERMS = {"epsilon": 2.0, "delta": 1e-5, "neighbouring": "add-remove", "steps": STEPS, "sample_prob": 0.2}
BOOK = "budget.db"
KINDS = {
    "uniform": {},
    "exponential": {"schedule": "exponential"},
    "looks": {"clip_norm": AdaptiveClip(every=2), "records": 60},
}


def train(purse, steps, clip_norm=1.0):
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(60, 3, generator=generator)
    module = nn.Linear(3, 2)
    private = make_private(
        module,
        torch.optim.SGD(module.parameters(), 0.1),
        (X, (X[:, 0] > 0).long()),
        records=60,
        batch_size=12,
        purse=purse,
        steps=steps,
        clip_norm=clip_norm,
    )
    for inputs, targets in private.loader:
        F.cross_entropy(module(inputs), targets).backward()
        private.optimizer.step()
    private.engine.close()
    return private


@pytest.fixture(params=KINDS)
def book(request, tmp_path):
    """A ledger with a part of a sampled run, beside a data set of another kind."""
    settings = KINDS[request.param]
    purse = open_purse(**TERMS, **settings, ledger=tmp_path / BOOK, dataset="images")
    private = train(purse, 2, settings.get("clip_norm", 1.0))
    assert private.engine.gradients == 2
    other = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / BOOK, dataset="survey")
    other.release(clipped_sum([[1.0]], clip_norm=1.0), Gaussian(noise_multiplier=30.0))
    return tmp_path, purse, settings


def test_a_sampled_account_is_reopened_under_its_own_terms_and_goes_on(book):
    folder, purse, settings = book
    again = Purse.reopen(folder / BOOK, "images")
    assert again.filter.terms() == purse.filter.terms()
    assert again.filter.schedule == purse.filter.schedule
    assert again.spent == purse.spent
    assert again.remaining == purse.remaining
    assert again.totals == purse.totals
    left = len(purse.filter.schedule) - purse.spent.releases
    if "clip_norm" not in settings:
        private = train(again, None)
        assert (private.engine.stop_reason, private.engine.gradients) == ("steps", left)
        assert 0.998 * 2.0 <= again.spent.epsilon <= 2.0
        noise = [step.charge["noise_multiplier"] for step in private.engine.trace.steps]
        assert noise == [charge.noise_multiplier for charge in purse.filter.schedule[-left:]]
    again.ledger.verify()
    assert replay(again.ledger, "images", again.filter) == again.ledger.totals("images")


def test_a_reopened_account_is_the_one_that_was_opened(book):
    folder, purse, settings = book
    assert open_purse(**TERMS, **settings, ledger=folder / BOOK, dataset="images").spent == purse.spent
    with pytest.raises(PrivypurseError, match="images"):
        open_purse(**TERMS | {"steps": 7}, **settings, ledger=folder / BOOK, dataset="images")
    assert Purse.reopen(folder / BOOK, "survey").filter.name == "gdp"


def test_ledger_show_tells_of_sampled_runs(book):
    folder, purse, _ = book
    shown = {account["dataset"]: account for account in result(folder, "ledger", "show", BOOK)["datasets"]}
    assert set(shown) == {"images", "survey"}
    assert shown["images"]["epsilon"] == 2.0
    assert shown["images"]["spent_epsilon"] == pytest.approx(purse.spent.epsilon)
    assert shown["images"]["remaining_epsilon"] == pytest.approx(purse.remaining.epsilon)
    assert shown["images"]["releases"] == purse.spent.releases
    assert shown["survey"]["releases"] == 1
    done = run(folder, "ledger", "show", BOOK)
    assert done.returncode == 0, done.stderr
    assert "images" in done.stdout + done.stderr
    assert "survey" in done.stdout + done.stderr
    done = run(folder, "ledger", "show", BOOK, "--dataset", "images")
    assert done.returncode == 0, done.stderr


def test_ledger_verify_counts_sampled_runs_again(book):
    folder, purse, _ = book
    certificate = folder / "certificate.json"
    purse.certificate().save(certificate)
    found = result(folder, "ledger", "verify", BOOK, "--certificate", certificate)
    assert found["intact"] is True
    assert found["datasets"] == 2
    assert found["digest"] == purse.ledger.head()[1]
    done = run(folder, "ledger", "verify", BOOK)
    assert done.returncode == 0, done.stderr
    assert "2 data sets, every payment counted again" in done.stdout + done.stderr


def test_a_schedule_that_was_changed_in_the_file_is_noticed(book):
    folder, *_ = book
    with contextlib.closing(sqlite3.connect(folder / BOOK)) as file:
        tables = [name for (name,) in file.execute("select name from sqlite_master where type = 'table'")]
        columns = {t: [row[1] for row in file.execute(f"pragma table_info({t})")] for t in tables}
        ((table, column),) = [(t, "body") for t, names in columns.items() if "body" in names]
        for (trigger,) in list(file.execute("select name from sqlite_master where type = 'trigger'")):
            file.execute(f"drop trigger {trigger}")
        (changed,) = file.execute(f"select count(*) from {table} where {column} like '%schedule_length%'").fetchone()
        assert changed == 1
        file.execute(
            f"update {table} set {column} = replace({column}, '\"epsilon\":2.0', '\"epsilon\":3.0') "
            f"where {column} like '%schedule_length%'"
        )
        file.commit()
    with pytest.raises(LedgerCorrupt):
        Purse.reopen(folder / BOOK, "images").ledger.verify()
    assert run(folder, "ledger", "verify", BOOK).returncode == 4
