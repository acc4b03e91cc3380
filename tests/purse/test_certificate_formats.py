"""A certificate in the formats that others read: a page, the registry of deployments, dp_accounting."""

import dataclasses
import json
import math
import re

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from scipy.stats import norm
from tests.readers import LAYOUT, ROOT, priced, read_entry

from privypurse import (
    ExponentialSelection,
    FixedSchedule,
    Gaussian,
    GaussianCharge,
    InvalidArgument,
    LedgerCorrupt,
    MemoryLedger,
    NoiseSource,
    Norm,
    Purse,
    Sensitive,
)
from privypurse.accounting._filters import GdpFilter, RdpFilter
from privypurse.cli._app import run
from privypurse.core._statement import CHOICES, NOT_STATED, QUESTIONS
from privypurse.core.charges import ObjectivePerturbationCharge, PureCharge, RepeatAndSelectCharge
from privypurse.purse._allowance import Allowance
from privypurse.purse._certificate import Certificate, certify, check_certificate
from privypurse.purse._certificate_formats import complete, dp_events, markdown, registry, trade_off
from privypurse.purse._entries import NOTE
from privypurse.runs._demo import STATEMENT

SCORES = Sensitive([0.0, 1.0], norm=Norm.RANGE, add_remove=1.0, replace_one=2.0)


@pytest.fixture
def purse(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, dataset="adult")
    for k in range(3):
        purse.release(box, Gaussian(20.0 + k), what="gradient")
    purse.release(SCORES, ExponentialSelection(0.05), what="step size")
    return purse


def test_noise_and_sensitivity_stand_apart(purse):
    with purse.reserve(10):
        purse.release(Sensitive([1.0], norm=Norm.L2, add_remove=0.5, replace_one=1.0), Gaussian(30.0), what="gradient")
    gradient, step = complete(purse.certificate())["mechanisms"]
    assert (gradient["sensitivity"], gradient["sensitivity_is"]) == ([0.5, 1.0], "in L2")
    assert (gradient["noise_multiplier"], gradient["noise_std"]) == ([20.0, 30.0], [15.0, 22.0])
    assert (step["epsilon"], step["sensitivity"], step["noise_std"]) == ([0.05, 0.05], [1.0, 1.0], None)
    page = markdown(purse.certificate())
    assert "4 x gradient: Gaussian mechanism, noise multiplier 20 to 30, sensitivity 0.5 to 1 in L2, standard" in page
    issued = purse.certificate()
    assert Certificate.from_json(issued.to_json()) == issued
    assert check_certificate(purse.ledger, issued)


def test_the_sensitivity_is_that_of_the_relation_and_may_be_unknown():
    purse = Purse(1.0, 1e-6, neighbouring="replace-one")
    purse.release(Sensitive([1.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0), Gaussian(20.0))
    assert complete(purse.certificate())["mechanisms"][0]["sensitivity"] == [2.0, 2.0]
    purse.pay_again(GaussianCharge(20.0), what="release")  # as of a ledger of an earlier version
    assert complete(purse.certificate())["mechanisms"][0]["sensitivity"] is None
    assert "sensitivity not recorded" in markdown(purse.certificate())


@pytest.mark.parametrize("wrong", ["1", 0.0, -1.0, True])
def test_a_line_with_a_sensitivity_that_is_none_is_refused(purse, wrong):
    purse._pay(GaussianCharge(20.0), None, "gradient", sensitivity=wrong)
    with pytest.raises(LedgerCorrupt, match="sensitivity that is not a positive number"):
        purse.certificate()


@pytest.mark.parametrize("mu", [0.01, 0.3, 3.0])
def test_the_trade_off_curve_is_that_of_gaussian_dp(mu):
    alarms, missed = np.array(trade_off(1.0, 1e-6, mu)).T
    true = norm.cdf(norm.ppf(1 - alarms) - mu)
    assert (missed <= true + 1e-15).all()
    assert (missed >= true - 2e-6).all()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 1e4])
def test_without_mu_the_trade_off_curve_is_what_epsilon_and_delta_imply(epsilon):
    for alarms, missed in trade_off(epsilon, 1e-3):
        best = max(0, 1 - 1e-3 - alarms * math.exp(min(epsilon, 700)), math.exp(-epsilon) * (1 - 1e-3 - alarms))
        assert best - 2e-6 <= missed <= best


def test_mu_is_stated_where_the_filter_adds_it_up_only(purse, box):
    stated = complete(purse.certificate())["guarantee"]
    assert stated["add-remove"]["mu"] == pytest.approx(0.236704, abs=1e-6)
    assert stated["replace-one"]["mu"] == pytest.approx(2 * stated["add-remove"]["mu"], rel=1e-6)
    other = Purse(1.0, 1e-6, neighbouring="replace-one", filter="zcdp")
    other.release(box, Gaussian(20.0))
    stated = complete(other.certificate())["guarantee"]
    assert stated["replace-one"]["mu"] is None
    assert stated["add-remove"].startswith("not stated: the number of records is public")
    assert complete(other.certificate())["unprotected_quantities"][0].startswith("the number of records")
    assert "mu-Gaussian" not in markdown(other.certificate())


def test_the_checklist_names_what_is_there(purse):
    table = (ROOT / "docs" / "statement.md").read_text(encoding="utf-8").partition("| SP 800-226")[2]
    found, page = complete(purse.certificate()), markdown(purse.certificate())
    rows = [line.split("|")[2] for line in table.partition("\n\n")[0].splitlines()[2:]]
    for key in re.findall(r"`([\w.]+)`", "".join(rows)):
        first, _, second = key.partition(".")
        assert first in found
        assert not second or second in found["statement"]
    titles = {title.split(",")[0] for title in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    named = {
        title for row in rows for title in re.split(r"[:;,] ", row.partition("`")[0].strip(" ;")) if title[0].isupper()
    }
    assert named == titles


def state(purse, **answers):
    purse.note("statement", {"statement": answers})


def test_what_nobody_stated_is_named(purse):
    foreign = {"statement": {"unit": "one patient", "surprise": "is not asked for", "holder": 3}}
    purse._append(NOTE, foreign, "statement")  # as another version may write it
    found = complete(purse.certificate())["statement"]
    assert found == dict.fromkeys(QUESTIONS, NOT_STATED) | {"unit": "one patient"}
    assert "One record: one patient." in markdown(purse.certificate())
    assert f"  - {QUESTIONS['unit']}: one patient\n" in str(purse.certificate())
    state(purse, unit="one visit")
    assert purse.certificate().statement == {"unit": "one visit"}


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({"unit": "one stay"}, "answers by question"),
        ({"statement": {"units": "one stay"}}, "no 'units'. Choose from unit"),
        ({"statement": {"holder_type": "Hospital"}}, "one of 'Government'"),
    ],
)
def test_a_statement_from_python_is_checked(purse, details, message):
    with pytest.raises(InvalidArgument, match=message):
        purse.note("statement", details)


def test_a_statement_that_was_changed_is_refused(purse):
    state(purse, justification="agreed with the board")
    issued = purse.certificate()
    assert check_certificate(purse.ledger, Certificate.from_json(issued.to_json()))
    for statement in ({"justification": "none"}, {}):
        with pytest.raises(LedgerCorrupt, match="statement"):
            check_certificate(purse.ledger, dataclasses.replace(issued, statement=statement))


def test_the_certificate_of_a_part_has_the_statement_of_the_whole(purse):
    state(purse, unit="one patient")
    part = Allowance(purse, GdpFilter(0.1, 1e-6, "add-remove"))
    assert part.certificate().statement == {"unit": "one patient"}


def test_an_entry_of_the_registry_is_in_its_layout(purse):
    state(purse, holder_type="Industry", product="Summary statistics")
    least = read_entry(registry(purse.certificate()))["deployment"]
    assert least["basic"]["data_curators"] == [{"data_curator_name": NOT_STATED, "data_curator_type": "Industry"}]
    assert least["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-6}
    assert "release_type" not in least["deployment_model"]
    assert least["administrative"]["tier"] == 2
    state(purse, **STATEMENT)
    most = read_entry(registry(purse.certificate()))["deployment"]
    assert "mu-Gaussian DP with mu 0.2368" in most["privacy_loss"]["privacy_parameters_details"]
    model = most["deployment_model"]
    assert (model["release_type"], model["data_source_type"]) == ("One release", "Static")
    assert model["access_type"] == "Non-interactive"
    assert (most["administrative"]["tier"], most["implementation"]["justification"]) == (3, STATEMENT["justification"])
    assert NOT_STATED not in registry(purse.certificate())


def test_lists_of_the_statement_are_those_of_the_registry():
    fields = LAYOUT["properties"]["deployment"]["properties"]["basic"]["properties"]
    assert {*CHOICES["product"]} <= {*fields["data_product_type"]["enum"]}
    curator = fields["data_curators"]["items"]["properties"]["data_curator_type"]
    assert {*CHOICES["holder_type"]} == {*curator["enum"]}


@pytest.mark.parametrize(
    "text", ["é \U0001f600 'x' \"y\" \\n: #", "two\nlines\t", "\x7f\x85\u2028\ufeff", "no", "1e-6", "- a"]
)
def test_texts_of_the_registry_are_read_back(purse, text):
    state(purse, holder_type="Industry", product="Dataset", intended_use=text)
    assert read_entry(registry(purse.certificate()))["deployment"]["basic"]["intended_use"] == text


def test_the_registry_takes_no_entry_without_a_guarantee_or_what_it_lists(purse, box):
    with pytest.raises(
        InvalidArgument, match=r'holder_type and product from a list, .* holder_type = "Government", product = '
    ):
        registry(purse.certificate())
    for seeded in (
        Purse.not_private(),
        Purse(1.0, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=1)),
    ):
        seeded.release(box, Gaussian(20.0))
        state(seeded, **STATEMENT)
        with pytest.raises(InvalidArgument, match="NOT PRIVATE"):
            registry(seeded.certificate())
        assert "- NOT PRIVATE: there is no guarantee" in markdown(seeded.certificate())


def test_dp_accounting_prices_the_events_as_the_certificate_does(purse):
    certificate = purse.certificate()
    found = priced(dp_events(certificate, purse.ledger), pld.PLDAccountant)
    assert found == pytest.approx(certificate.recorded_epsilon, rel=2e-3)
    assert found >= certificate.recorded_epsilon * (1 - 1e-9)
    # Releases that were made later are not in it.
    purse.release(Sensitive([1.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0), Gaussian(10.0))
    assert priced(dp_events(certificate, purse.ledger), pld.PLDAccountant) == found


def test_a_block_that_was_not_settled_counts_in_full(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    with purse.reserve(8):
        purse.release(box, Gaussian(30.0))
        certificate = certify(ledger, "default", purse.filter)
        found = priced(dp_events(certificate, ledger), pld.PLDAccountant)
    assert certificate.unsettled == 1
    assert found == pytest.approx(certificate.recorded_epsilon, rel=2e-3)


def test_a_block_of_a_schedule_that_was_not_settled_is_unsupported(ledger, box):
    """Its first charge says nothing of the others."""
    schedule = FixedSchedule([GaussianCharge(40.0), GaussianCharge(10.0)], 1.0, 1e-6, "add-remove")
    purse = Purse.with_filter(schedule, ledger=ledger)
    with purse.reserve(2):
        purse.release(box, Gaussian(40.0))
        events = dp_events(certify(ledger, "default", purse.filter), ledger)
    with pytest.raises(dp_accounting.UnsupportedEventError):
        priced(events, pld.PLDAccountant)


def test_sampled_releases_are_priced_by_both_accountants():
    charge = GaussianCharge(2.0, 0.01)
    rule = RdpFilter(1.0, 1e-6, "add-remove", reference=charge)
    purse = Purse.with_filter(rule)
    for _ in range(20):
        purse._pay(charge, None, "gradient")
    certificate = purse.certificate()
    events = dp_events(certificate, purse.ledger)
    assert priced(events, rdp.RdpAccountant) <= certificate.recorded_epsilon * (1 + 1e-9)  # at its best order
    assert 0 < priced(events, pld.PLDAccountant) <= certificate.recorded_epsilon
    assert "sensitivity not recorded, each record sampled with probability 0.01" in markdown(certificate)


def test_sampled_releases_under_replace_one_need_its_relation():
    charges = [GaussianCharge(2.0, 0.05)] * 5 + [GaussianCharge(40.0)]
    purse = Purse.with_filter(FixedSchedule(charges, 1.0, 1e-6, "replace-one"))
    for charge in charges:
        purse._pay(charge, None, "gradient")
    certificate = purse.certificate()
    events = dp_events(certificate, purse.ledger)
    assert events["neighboring_relation"] == "REPLACE_ONE"
    assert priced(events, pld.PLDAccountant) == pytest.approx(certificate.recorded_epsilon, rel=5e-3)
    with pytest.raises(dp_accounting.UnsupportedEventError):  # it would price them as under add/remove
        priced(events, rdp.RdpAccountant)


def test_what_has_no_price_is_refused_by_dp_accounting():
    ledger = MemoryLedger()
    purse = Purse.with_filter(RdpFilter(8.0, 1e-6, "add-remove"), ledger=ledger)
    purse._pay(RepeatAndSelectCharge(20.0, mean=10.0, shape=1.0), None, "search")
    certificate = purse.certificate()
    assert priced(dp_events(certificate, ledger), rdp.RdpAccountant) <= 1.05 * certificate.recorded_epsilon
    purse._pay(ObjectivePerturbationCharge(20.0, 0.5, 20.0), None, "model")
    with pytest.raises(dp_accounting.UnsupportedEventError):
        priced(dp_events(purse.certificate(), ledger), rdp.RdpAccountant)
    free = Purse.not_private(ledger=ledger, dataset="free")
    free._pay(PureCharge(0.1), None, "count")
    assert priced(dp_events(free.certificate(), ledger), pld.PLDAccountant) > 0


@pytest.fixture
def command(tmp_path, box, capsys, monkeypatch):
    """Return a function that runs `ledger certificate` and returns its exit code and outputs."""
    monkeypatch.chdir(tmp_path)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger="budget.db", dataset="survey")
    purse.release(box, Gaussian(20.0))

    def called(*arguments):
        code = run(["ledger", "certificate", "--ledger", "budget.db", "--dataset", "survey", *arguments])
        return code, *capsys.readouterr()

    return called


def test_the_command_writes_every_format(command, tmp_path):
    schema = 'source = "declared"\n[statement]\nunit = "one patient"\nholder_type = "Government"\n'
    (tmp_path / "survey.toml").write_text(schema + 'product = "Dataset"\n[columns.age]\nrange = [0, 99]\n')
    assert "# Privacy statement for the data set survey" in command("--format", "markdown")[1]
    assert command("--format", "registry")[0] == 2
    code, written, _ = command("--format", "registry", "--schema", "survey.toml")
    assert (code, read_entry(written)["deployment"]["privacy_loss"]["privacy_unit"]) == (0, "one patient")
    found = json.loads(command("--format", "json")[1])
    assert found["statement"]["unit"] == found["certificate"]["statement"]["unit"] == "one patient"
    Purse.reopen("budget.db", "survey").freeze("the study ended")
    (tmp_path / "survey.toml").write_text(schema.replace("patient", "visit") + "[columns.age]\nrange = [0, 99]\n")
    assert "One record: one visit." in command("--format", "markdown", "--schema", "survey.toml")[1]
    assert command("--format", "events", "--out", "events.json")[1] == "certificate: events.json\n"
    assert priced(json.loads((tmp_path / "events.json").read_text()), pld.PLDAccountant) == pytest.approx(
        0.19, abs=0.01
    )


def test_the_command_refuses_other_formats_and_schemas(command, tmp_path):
    (tmp_path / "survey.toml").write_text('source = "declared"\n[columns.age]\nrange = [0, 99]\n')
    lines = Purse.reopen("budget.db", "survey").ledger.head()
    for arguments, said in (
        (["--format", "yaml"], "json, markdown, registry, events, got 'yaml'"),
        (["--format", "json", "--json"], "got --json too"),
        (["--schema", "survey.toml"], "[statement]"),
    ):
        code, out, err = command(*arguments)
        assert (code, said in " ".join((out + err).split())) == (2, True), out + err
    assert Purse.reopen("budget.db", "survey").ledger.head() == lines
