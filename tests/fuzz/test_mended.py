"""What fuzzing has taught: certificates that were edited, ledgers that would be written over, files
that nobody wrote.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

from privypurse import InvalidArgument, LedgerCorrupt, Purse, SqliteLedger
from privypurse.accounting._filters import GdpFilter, from_terms
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Totals
from privypurse.core._reading import check_fields, read_json
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse.purse._allowance import Allowance
from privypurse.purse._certificate import Certificate, Group, check_certificate, fingerprint
from privypurse.runs.folder import replace_file
from privypurse.training._checkpoint import check_state, write_whole
from tests.cli.commands import EXECUTABLE, environment
from tests.cli.conftest import write_census
from tests.fuzz.seeds import DATASETS, spend, write_ledger


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    path = tmp_path_factory.mktemp("certificates") / "budget.db"
    write_ledger(path)
    return SqliteLedger(path)


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_true_certificate_is_accepted_also_when_the_ledger_has_gone_on(ledger, dataset):
    certificate = Purse.reopen(ledger, dataset).certificate()
    assert check_certificate(ledger, certificate)
    spend(Purse.reopen(ledger, "survey"), 300.0, "later")
    assert check_certificate(ledger, Certificate.from_json(certificate.to_json()))


CHANGES = {
    "epsilon": lambda c: {"epsilon": c.epsilon / 2},
    "delta": lambda c: {"delta": c.delta / 10},
    "recorded epsilon": lambda c: {"recorded_epsilon": c.recorded_epsilon * 0.99},
    "releases": lambda c: {"releases": c.releases - 1},
    "unreleased": lambda c: {"unreleased": c.unreleased + 1},
    "private": lambda c: {"private": not c.private},
    "simulation": lambda c: {"simulation": not c.simulation},
    "relation": lambda c: {"neighbouring": "replace-one"},
    "uncovered": lambda c: {"uncovered": c.uncovered[1:]},
    "people": lambda c: {"people": ("eve",)},
    "groups": lambda c: {"groups": (dataclasses.replace(c.groups[0], smallest=99.0), *c.groups[1:])},
    "under the other relation": lambda c: {
        "relations": c.relations | {"replace-one": dataclasses.replace(c.relations["replace-one"], epsilon=0.1)}
    },
    "an earlier line": lambda c: {"ledger_lines": 2},
    "data set": lambda c: {"dataset": "clinic"},
    "no data set of it": lambda c: {"dataset": "nobody"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_certificate_in_which_something_was_changed_is_refused(ledger, change):
    certificate = Purse.reopen(ledger, "survey").certificate()
    with pytest.raises(LedgerCorrupt):
        check_certificate(ledger, dataclasses.replace(certificate, **CHANGES[change](certificate)))


def test_the_certificate_of_a_part_is_checked_where_it_is_on_record(ledger):
    purse = Purse.reopen(ledger, "survey")
    part = Allowance(purse, GdpFilter(0.1, 1e-6, "add-remove"))
    spend(part, 200.0)
    certificate = part.certificate()
    assert not check_certificate(ledger, certificate), "nobody put it on record"
    purse.note("end of a run", {"certificate": fingerprint(certificate)})
    assert check_certificate(ledger, Certificate.from_json(certificate.to_json()))
    with pytest.raises(LedgerCorrupt, match="changed"):
        check_certificate(ledger, dataclasses.replace(certificate, epsilon=0.05))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a model, made by the executable."""
    folder = tmp_path_factory.mktemp("trained")
    write_census(folder, 300)
    done = privypurse(
        folder,
        "train",
        "census.csv",
        "--target",
        "high_income",
        "--schema",
        "census.toml",
        "--epsilon",
        "0.5",
        "--no-intervals",
    )
    assert done.returncode == 0, done.stderr
    return folder


def privypurse(folder, *arguments):
    command = [str(EXECUTABLE), *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def test_verify_checks_what_the_certificate_of_a_model_says(trained):
    done = privypurse(trained, "ledger", "verify", "--certificate", "model/certificate.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["certificate_checked"] is True
    described = json.loads((trained / "model" / "certificate.json").read_text())
    (trained / "edited.json").write_text(json.dumps(described | {"epsilon": 0.1}))
    done = privypurse(trained, "ledger", "verify", "--certificate", "edited.json")
    assert done.returncode == 4
    assert "changed" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["data", "census", "--rows", "9", "--overwrite", "--out"], id="data"),
        pytest.param(["plan", "-n", "100", "-d", "3", "-e", "1", "--no-rehearse", "--plot"], id="plan"),
        pytest.param(["ledger", "export", "--out"], id="export"),
    ],
)
def test_nothing_is_written_over_a_ledger(trained, tmp_path, arguments):
    work = shutil.copytree(trained, tmp_path / "work")
    ledger = work / "privypurse-ledger.db"
    before = ledger.read_bytes()
    done = privypurse(work, *arguments, ledger.name)
    assert done.returncode == 2
    assert "is a ledger" in done.stderr
    assert ledger.read_bytes() == before


def test_terms_that_would_fill_the_memory_are_refused():
    with pytest.raises(InvalidArgument, match="at most"):
        FixedSchedule([RepeatedCharge(GaussianCharge(9.0), 10**12)], 1.0, 1e-6, "add-remove")
    with pytest.raises(InvalidArgument, match="interval must be"):
        FixedSchedule([GaussianCharge(9.0, 0.1)], 1.0, 1e-6, "add-remove", interval=1e-300)
    with pytest.raises(InvalidArgument, match="costs epsilon=inf"):
        FixedSchedule([GaussianCharge(1e-9, 0.1)], 1.0, 1e-6, "add-remove")
    with pytest.raises(InvalidArgument, match="epsilon must be a number between"):
        Purse(1e308, 1e-6, neighbouring="add-remove")
    with pytest.raises(InvalidArgument, match="expected the terms"):
        from_terms({"filter": "gdp"})


def test_json_is_read_strictly():
    for text in ("NaN", "1e999", "-Infinity", "[" * 5_000 + "]" * 5_000, "9" * 5_000, "{"):
        with pytest.raises(ValueError):
            read_json(text)
    assert read_json('{"a": [1, 2.5, null, true, "x"]}') == {"a": [1, 2.5, None, True, "x"]}


@pytest.mark.parametrize(
    "change",
    [
        {"what": 1},
        {"count": 1.5},
        {"count": True},
        {"count": 2**63},
        {"smallest": "x"},
        {"sample_prob": float("nan")},
        {"kind": None},
    ],
    ids=lambda change: f"{next(iter(change))} {type(next(iter(change.values()))).__name__}",
)
def test_fields_of_another_kind_are_noticed(change):
    group = Group("sum", "gaussian", 3, 1.0, None)
    check_fields(group)
    with pytest.raises(TypeError):
        check_fields(dataclasses.replace(group, **change))


def test_a_state_that_does_not_suit_the_optimizer_is_refused():
    fresh = {"point": np.zeros(3), "taken": np.zeros(0), "table": np.zeros((1, 3))}
    check_state({"point": np.ones(3), "taken": np.ones(5), "table": np.ones((4, 3))}, fresh)
    for change in (
        {"point": np.ones(4)},
        {"point": np.full(3, np.nan)},
        {"table": np.ones((1, 4))},
        {"more": np.ones(1)},
    ):
        with pytest.raises(InvalidArgument, match="does not hold the state"):
            check_state(fresh | change, fresh)


def test_a_device_stays_a_device():
    """A report for /dev/null must not take its place, as moving a finished file there would."""
    controller, terminal = os.openpty()
    try:
        path = pathlib.Path(os.ttyname(terminal))
        replace_file(path, "a page")
        assert os.read(controller, 100) == b"a page"
        assert path.is_char_device()
        with pytest.raises(InvalidArgument, match="regular file"):
            write_whole(path, b"a run")
    finally:
        os.close(controller)
        os.close(terminal)


def test_a_ledger_in_another_currency_is_refused(tmp_path):
    path = tmp_path / "budget.db"
    rule = GdpFilter(1.0, 1e-6, "add-remove")
    SqliteLedger(path).open_account("survey", rule.terms(), Totals((0, 0)), who="eve")
    with pytest.raises(LedgerCorrupt, match="do not match its terms"):
        Purse.reopen(path, "survey")
