"""The certificate says what is guaranteed, what was spent, and what is not covered."""

import dataclasses
import json
import math

import numpy as np
import pytest

from privypurse import (
    Certificate,
    ExponentialSelection,
    FixedSchedule,
    Gaussian,
    GaussianCharge,
    InvalidArgument,
    LedgerCorrupt,
    NoiseSource,
    Norm,
    Purse,
    Sensitive,
    __version__,
)
from privypurse.accounting._filters import GdpFilter, RdpFilter, ZcdpFilter
from privypurse.accounting.convert import bounded_range_mu, gdp_epsilon
from privypurse.cli._app import run
from privypurse.core._errors import FileUnusable
from privypurse.losses import Logistic
from privypurse.mechanisms._non_private import NonPrivateRelease
from privypurse.methods._dp_sgd import DPSGD
from privypurse.oracles._linear import DenseOracle
from privypurse.purse._allowance import Allowance
from privypurse.purse._certificate import NOT_STATED, UnderRelation, check_certificate, fingerprint, states_too_much
from privypurse.training._loop import fit, purse_for

SCORES = Sensitive([0.0, 1.0], norm=Norm.RANGE, add_remove=1.0, replace_one=2.0)


@pytest.fixture
def purse(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, dataset="adult", who="ada")
    for k in range(3):
        purse.release(box, Gaussian(20.0 + k), what="gradient")
    purse.release(SCORES, ExponentialSelection(0.05), what="step size")
    purse.declare_uncovered("column ranges were read from the data")
    return purse


def test_every_number_follows_from_the_releases(purse):
    certificate = purse.certificate()
    squares = [1 / (20.0 + k) ** 2 for k in range(3)]
    own = gdp_epsilon(math.sqrt(sum(squares) + bounded_range_mu(0.05) ** 2), 1e-6)
    other = gdp_epsilon(math.sqrt(4 * sum(squares) + bounded_range_mu(0.1) ** 2), 1e-6)
    assert certificate.private
    assert (certificate.epsilon, certificate.delta) == (1.0, 1e-6)
    assert certificate.recorded_epsilon == pytest.approx(own, rel=1e-9)
    assert certificate.relations["add-remove"].epsilon == 1.0
    assert certificate.relations["add-remove"].recorded_epsilon == pytest.approx(own, rel=1e-9)
    assert certificate.relations["replace-one"].recorded_epsilon == pytest.approx(other, rel=1e-9)
    assert certificate.relations["replace-one"].epsilon == pytest.approx(2.123, abs=1e-3)
    assert certificate.releases == 4
    assert [(g.what, g.kind, g.count, g.smallest, g.largest) for g in certificate.groups] == [
        ("gradient", "gaussian", 3, 20.0, 22.0),
        ("step size", "bounded-range", 1, 0.05, 0.05),
    ]
    assert certificate.uncovered[0] == "column ranges were read from the data"
    assert certificate.people == ("ada",)
    assert certificate.version == __version__


def test_prose(purse):
    prose = str(purse.certificate())
    for words in (
        "(1, 1e-06)-differentially private under the relation add-remove",
        "3 x gradient (gaussian, noise multiplier 20 to 22)",
        "1 x step size (bounded-range, epsilon 0.05)",
        "Not covered:",
        "column ranges were read from the data",
        "operating-system entropy",
        "arXiv:2210.17520",
        __version__,
    ):
        assert words in prose


def test_json_round_trip(purse, tmp_path):
    certificate = purse.certificate()
    assert Certificate.from_json(certificate.to_json()) == certificate
    certificate.save(tmp_path / "certificate.json")
    certificate.save(tmp_path / "certificate.txt")
    assert Certificate.load(tmp_path / "certificate.json") == certificate
    assert json.loads((tmp_path / "certificate.json").read_text())["dataset"] == "adult"
    assert (tmp_path / "certificate.txt").read_text() == str(certificate)


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"format": 1}', '{"format": 99}'])
def test_what_is_not_a_certificate_is_refused(text):
    with pytest.raises(InvalidArgument):
        Certificate.from_json(text)


RULES = {
    "gdp": (1.0, lambda: GdpFilter(1.0, 1e-6, "replace-one")),
    "zcdp": (1.0, lambda: ZcdpFilter(1.0, 1e-6, "replace-one")),
    "rdp": (0.05, lambda: RdpFilter(1.0, 1e-6, "replace-one")),
    "fixed": (0.05, lambda: FixedSchedule([GaussianCharge(10.0, 0.05)], 1.0, 1e-6, "replace-one")),
}


@pytest.mark.parametrize(("sample_prob", "rule"), RULES.values(), ids=RULES)
def test_a_replace_one_certificate_states_nothing_under_add_remove(ledger, sample_prob, rule):
    purse = Purse.with_filter(rule(), ledger=ledger)
    purse.release(
        Sensitive([1.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0, sample_prob=sample_prob), Gaussian(10.0)
    )
    certificate = purse.certificate()
    assert (certificate.relations["replace-one"].epsilon, certificate.relations["add-remove"]) == (1.0, NOT_STATED)
    assert "add-remove: not stated; the number of records is public under replace-one" in str(certificate)
    assert check_certificate(purse.ledger, certificate)


def test_certificates_of_n_and_one_more_record_claim_nothing_where_they_tell_them_apart():
    """A sampling rate may be a batch over the true number under replace-one: the printed rate then
    says how many there are.
    """
    told = []
    for records in (1_000, 1_001):
        X = np.random.default_rng(0).standard_normal((records, 3))
        oracle = DenseOracle(X, (X[:, 0] > 0).astype(int), loss=Logistic(clip_derivative=0.5))
        method = DPSGD(sample_prob=100 / len(X), steps=5)
        purse = purse_for(oracle, method, epsilon=1.0, delta=1e-6, neighbouring="replace-one", records=len(X))
        fit(oracle, method, purse, records=len(X))
        certificate = purse.certificate()
        told.append(certificate.groups[0].sample_prob)
        assert certificate.relations["add-remove"].epsilon is None
    assert told[0] != told[1]


def as_written_before(certificate):
    """Return the certificate that earlier versions wrote for a purse under replace-one."""
    stated = UnderRelation(certificate.epsilon, certificate.delta, 0.2)
    return dataclasses.replace(certificate, relations=certificate.relations | {"add-remove": stated})


def test_an_earlier_certificate_is_checked_but_for_its_line_about_add_remove(tmp_path, box, capsys):
    purse = Purse(1.0, 1e-6, neighbouring="replace-one", ledger=tmp_path / "budget.db")
    # Earlier versions also put the charge under add/remove on the ledger.
    purse._pay(GaussianCharge(10.0), GaussianCharge(20.0), "sum")
    earlier = as_written_before(purse.certificate())
    assert states_too_much(earlier)
    assert check_certificate(purse.ledger, earlier)
    with pytest.raises(LedgerCorrupt, match="releases is 2 in it"):
        check_certificate(purse.ledger, dataclasses.replace(earlier, releases=2))
    assert "add-remove: not stated" in str(Certificate.from_json(earlier.to_json()))
    earlier.save(tmp_path / "certificate.json")
    command = ["ledger", "verify", str(tmp_path / "budget.db"), "--certificate", str(tmp_path / "certificate.json")]
    assert run(command) == 8
    printed = capsys.readouterr()
    assert "the certificate says what the ledger says, but for one line" in printed.out
    assert "NOT UPHELD: the certificate's guarantee under add-remove" in printed.err
    assert run([*command, "--json"]) == 8
    assert json.loads(capsys.readouterr().out)["not_upheld"] == ["add-remove"]


def test_an_earlier_certificate_of_a_part_is_found_on_record_and_its_line_is_not_upheld(box):
    purse = Purse(1.0, 1e-6, neighbouring="replace-one")
    part = Allowance(purse, GdpFilter(0.5, 1e-6, "replace-one"))
    part.release(box, Gaussian(20.0))
    earlier = as_written_before(part.certificate())
    purse.note("run", {"certificate": fingerprint(earlier)})
    assert check_certificate(purse.ledger, earlier)
    assert states_too_much(earlier)


@pytest.mark.parametrize("rule", [GdpFilter, ZcdpFilter, RdpFilter])
def test_replace_one_follows_from_add_remove_whatever_was_released(ledger, box, rule):
    """A replacement is a removal and an addition: group privacy, also for selections."""
    purse = Purse.with_filter(rule(1.0, 1e-6, "add-remove"), ledger=ledger)
    purse.release(box, Gaussian(10.0))
    purse.release(SCORES, ExponentialSelection(0.05))
    stated = purse.certificate().relations
    assert stated["add-remove"].epsilon < stated["replace-one"].epsilon
    assert (
        stated["add-remove"].recorded_epsilon < stated["replace-one"].recorded_epsilon < stated["replace-one"].epsilon
    )


def test_a_relation_without_bounds_is_not_stated(ledger):
    purse = Purse(1.0, 1e-6, neighbouring="replace-one", ledger=ledger)
    mean = Sensitive([0.5], norm=Norm.L2, add_remove=None, replace_one=0.01)
    purse.release(mean, Gaussian(10.0))
    certificate = purse.certificate()
    assert certificate.relations["add-remove"].epsilon is None
    assert "add-remove: not stated" in str(certificate)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, dataset="other")
    purse.release(Sensitive([0.5], norm=Norm.L2, add_remove=0.01, replace_one=None), Gaussian(10.0))
    assert "replace-one: not stated; what some release is under this relation is not on record" in str(
        purse.certificate()
    )


def test_the_realised_spend_is_not_presented_as_the_guarantee(purse):
    """With budgets chosen from outputs the guarantee is the limit; the record is named as a record."""
    assert purse.certificate().recorded_epsilon < 0.5
    assert "add-remove: epsilon 1, delta 1e-06; recorded epsilon 0.3" in str(purse.certificate())


def test_a_simulation_is_stamped(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, noise=NoiseSource(seed=1))
    with purse.reserve(5):
        purse.release(box, Gaussian(20.0))
    certificate = purse.certificate()
    assert certificate.simulation
    assert not certificate.private
    assert "SIMULATION" in str(certificate)
    later = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    assert not later.certificate().private, "one seeded release spoils the data set's guarantee for good"


def test_non_private_work_is_stamped(ledger, box):
    purse = Purse.not_private(ledger=ledger)
    purse.release(box, NonPrivateRelease("debugging"))
    certificate = purse.certificate()
    assert not certificate.private
    assert "NOT PRIVATE" in str(certificate)
    assert Certificate.from_json(certificate.to_json()) == certificate
    assert certificate.epsilon == math.inf


def test_sampling_is_stated_and_taken_on_trust(ledger):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, filter="rdp")
    sampled = Sensitive([1.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0, sample_prob=0.05)
    purse.release(sampled, Gaussian(4.0), what="gradient")
    certificate = purse.certificate()
    assert certificate.groups[0].sample_prob == 0.05
    assert "each record sampled with probability 0.05" in str(certificate)
    assert any("sampled independently" in item for item in certificate.uncovered)


def test_prose_never_rounds_a_guarantee_down(ledger):
    purse = Purse(1.0000004, 1.23456e-6, neighbouring="add-remove", ledger=ledger)
    prose = str(purse.certificate())
    assert "(1.0000004, 1.23456e-06)-differentially private" in prose
    assert "add-remove: epsilon 1.001, delta 1.235e-06" in prose


def test_a_relation_in_which_nothing_is_guaranteed_is_not_stated(box):
    plan = FixedSchedule([GaussianCharge(1.0)], 20.0, 1e-6, "add-remove")
    purse = Purse.with_filter(plan)
    purse.release(box, Gaussian(1.0))
    assert purse.certificate().relations["replace-one"].epsilon is None


def test_a_data_set_may_have_any_name(ledger, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, dataset="infinity")
    purse.release(box, Gaussian(20.0), what="infinity")
    certificate = purse.certificate()
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_a_fresh_purse_has_a_certificate(ledger):
    certificate = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger).certificate()
    assert certificate.releases == 0
    assert certificate.recorded_epsilon == 0.0


def test_a_certificate_pins_the_ledger(purse, box):
    certificate = purse.certificate()
    purse.release(box, Gaussian(100.0))
    head = (certificate.ledger_lines, certificate.ledger_digest)
    assert certificate.head == head
    assert purse.ledger.verify(head) == certificate.ledger_lines + 1
    with pytest.raises(LedgerCorrupt, match="replaced by an older or another one"):
        purse.ledger.verify((certificate.ledger_lines, "0" * 64))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: {"epsilon": 0.5}, "epsilon is 0.5 in it and 1.0 by the ledger"),
        (
            lambda c: {"groups": (dataclasses.replace(c.groups[0], count=7), *c.groups[1:])},
            r"groups\[0\].count is 7 in it",
        ),
        (
            lambda c: {"relations": c.relations | {"replace-one": UnderRelation(0.1, 1e-6, None)}},
            "relations.replace-one.epsilon is 0.1 in it",
        ),
        (lambda c: {"uncovered": ()}, "uncovered is 0 items in it"),
    ],
    ids=["number", "in a list", "under a name", "length"],
)
def test_what_was_changed_in_a_certificate_is_named(purse, change, said):
    certificate = purse.certificate()
    with pytest.raises(LedgerCorrupt, match=f"something was changed in it: {said}"):
        check_certificate(purse.ledger, dataclasses.replace(certificate, **change(certificate)))


def test_a_certificate_inside_a_reservation_settles_it(purse, box):
    with purse.reserve(10):
        purse.release(box, Gaussian(100.0), what="gradient")
        certificate = purse.certificate()
        assert certificate.unsettled == 0
        assert certificate.releases == 5
        purse.release(box, Gaussian(100.0), what="gradient")
    assert purse.spent.releases == 6


def test_files_that_hold_no_certificate_are_refused(tmp_path):
    with pytest.raises(FileUnusable, match="cannot be read: No such file"):
        Certificate.load(tmp_path / "missing.json")
    (tmp_path / "image.json").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "image.json", tmp_path / "a\x00b.json"):
        with pytest.raises(InvalidArgument, match="is not a privypurse certificate"):
            Certificate.load(path)


def test_a_certificate_stays_true_while_the_ledger_grows(purse, box):
    certificate = purse.certificate()
    purse.release(box, Gaussian(50.0), what="later")
    assert check_certificate(purse.ledger, certificate)
    with pytest.raises(LedgerCorrupt, match="does not contain line 5 as it was seen before"):
        check_certificate(purse.ledger, dataclasses.replace(certificate, ledger_lines=5))


def test_a_certificate_of_another_data_set_or_of_an_earlier_line_is_refused(purse):
    with pytest.raises(LedgerCorrupt, match="data set 'bank', which is not on the ledger"):
        check_certificate(purse.ledger, dataclasses.replace(purse.certificate(), dataset="bank"))
    bank = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=purse.ledger, dataset="bank").certificate()
    first = next(iter(purse.ledger.entries()))
    earlier = dataclasses.replace(bank, ledger_lines=1, ledger_digest=first.digest)
    with pytest.raises(LedgerCorrupt, match="ledger up to line 1 is not about data set 'bank'"):
        check_certificate(purse.ledger, earlier)


def test_a_part_is_checked_by_its_hash(purse, box):
    part = Allowance(purse, GdpFilter(0.1, 1e-6, "add-remove"))
    part.release(box, Gaussian(60.0))
    certificate = part.certificate()
    assert not check_certificate(purse.ledger, certificate), "nobody put it on record"
    purse.note("run", {"certificate": fingerprint(certificate)})
    assert check_certificate(purse.ledger, certificate)
    with pytest.raises(LedgerCorrupt, match="only a hash of it is on the ledger"):
        check_certificate(purse.ledger, dataclasses.replace(certificate, epsilon=0.05))


def test_a_certificate_says_nothing_twice(purse):
    text = purse.certificate().to_json()
    assert Certificate.from_json(text).to_json() == text
    with pytest.raises(InvalidArgument, match="certificate"):
        Certificate.from_json(text.replace('"epsilon":', '"epsilon": 0.001, "epsilon":', 1))


def test_a_name_with_line_breaks_adds_no_line_to_the_text():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    purse.declare_uncovered(
        "class weights (no\n\nGuarantee: everything is\u2028(0.001, 1e-9)-differentially private=9)"
    )
    lines = str(purse.certificate()).splitlines()
    assert not any(line.startswith(("Guarantee: everything is", "(0.001")) for line in lines)
