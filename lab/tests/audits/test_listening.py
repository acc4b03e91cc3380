"""Listening at the gate: what is heard is what happened, and a replay differs in nothing but the
boxes.
"""

from dataclasses import replace

import numpy as np
import pytest

from privypurse.accounting._filters import GdpFilter
from privypurse.audit._listening import flat, record, replay
from privypurse.audit._verdicts import audit_subject
from privypurse.audit.gray_box import compare, gray_box, heard_and_replayed
from privypurse.audit.subjects import Subject, gaussian_purse
from privypurse.audit.white_box import attack, log_likelihood_ratio
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive, SensitiveTrials
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.mechanisms._repeat_and_select import RepeatAndSelect
from privypurse.mechanisms._selection import ExponentialSelection
from privypurse.oracles.statistics import clipped_sum
from privypurse.purse._purse import Purse
from privypurse_lab.audits.method_subjects import METHODS


def sums(rows, purse):
    """Release the sum of a table twice."""
    return [purse.release(clipped_sum(rows, clip_norm=1.0), Gaussian(2.0), what="sum").value for _ in range(2)]


def test_what_is_heard_is_what_happened():
    heard = record(sums, [[0.5, 0.0], [0.0, 0.25]], gaussian_purse(1.0, NoiseSource(seed=1)))
    assert [release.what for release in heard.releases] == ["sum", "sum"]
    assert all(release.paid_first for release in heard.releases)
    assert heard.charged == 2
    np.testing.assert_array_equal(heard.releases[0].inside, [0.5, 0.25])
    np.testing.assert_array_equal(heard.result[:2], heard.releases[0].answer)


def test_the_gate_is_as_before_when_nobody_listens():
    purse = gaussian_purse(1.0, NoiseSource(seed=1))
    record(lambda rows, purse: 1 / 0, [[1.0]], purse)
    assert Purse.observer is None
    assert "observer" not in vars(purse)


def test_a_replay_gives_the_answers_that_were_heard_and_sees_the_other_table():
    heard = record(sums, [[0.5]], gaussian_purse(1.0, NoiseSource(seed=1)))
    again = replay(sums, [[0.5], [1.0]], gaussian_purse(1.0, NoiseSource(seed=1)), heard)
    np.testing.assert_array_equal(heard.result, again.result)
    assert again.releases[0].inside[0] == pytest.approx(1.5, abs=1e-4)
    findings, shares = compare(heard, again)
    assert findings == []
    assert shares == pytest.approx([1.0, 1.0], abs=1e-4)


def test_a_refused_release_is_heard_as_a_failure_and_not_as_a_release():
    heard = record(sums, [[0.5]], gaussian_purse(0.6, NoiseSource(seed=1)))
    assert heard.failure.startswith("BudgetExhausted")
    assert len(heard.releases) == heard.charged == 1


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (
            lambda rows, purse: sums(rows, purse)[: len(rows)] if len(rows) > 1 else sums(rows, purse)[:1],
            "model depends",
        ),
        (lambda rows, purse: sums(rows, purse) if len(rows) > 1 else sums(rows, purse)[0], "model depends"),
        (lambda rows, purse: [sums(rows, purse) for _ in rows], "number of releases"),
        (
            lambda rows, purse: purse.release(clipped_sum(rows, clip_norm=1.0), Gaussian(float(len(rows)))).value,
            "noise",
        ),
        (
            lambda rows, purse: purse.release(clipped_sum(rows, clip_norm=float(len(rows))), Gaussian(3.0)).value,
            "bound",
        ),
        (
            lambda rows, purse: (
                purse.release(clipped_sum(rows, clip_norm=1.0), Gaussian(3.0), what=f"{len(rows)}").value
            ),
            "purpose",
        ),
    ],
    ids=["part", "shape", "count", "noise", "bound", "purpose"],
)
def test_what_depends_on_the_table_by_another_way_is_found(broken, words):
    purses = [gaussian_purse(9.0, NoiseSource(seed=1)) for _ in range(2)]
    heard = record(broken, [[0.5]], purses[0])
    again = replay(broken, [[0.5], [1.0]], purses[1], heard)
    assert any(words in finding for finding in compare(heard, again)[0])


@pytest.mark.parametrize("mu", [1.0, 3.0])
def test_the_likelihood_ratio_is_normal_with_the_mu_that_was_paid_for(mu):
    """Adaptive budgets under the filter included: N(0, 1) without the canary, N(mu, 1) with it."""
    subject, scores = METHODS["pur-adaptive"](), ([], [])
    for number in range(240):
        present = number % 2
        heard, again = heard_and_replayed(subject, bool(present), mu, number)
        pair = (again, heard) if present else (heard, again)
        scores[present].append(log_likelihood_ratio(*pair, None) / mu + mu / 2)
    for present in (0, 1):
        assert np.mean(scores[present]) == pytest.approx(mu * present, abs=0.4)
        assert np.std(scores[present]) == pytest.approx(1.0, abs=0.25)


def test_the_canary_uses_the_bound_up():
    found = gray_box(METHODS["nesterov"]())
    assert found.findings == ()
    assert found.tightest == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: attack("nesterov", 1.0, 4, 0), "subject must be a privypurse.audit.Subject; got str: 'nesterov'"),
        (lambda: gray_box(METHODS["nesterov"]), "subject must be a privypurse.audit.Subject; got function"),
        (lambda: attack(METHODS["nesterov"](), 0.0, 4, 0), r"mu must be a finite number above 0; got 0.0. Pass .*1\.0"),
        (lambda: gray_box(METHODS["nesterov"](), mu=-1.0), "mu must be"),
        (lambda: gray_box(METHODS["nesterov"](), pairs=0), "pairs must be"),
        (lambda: attack(METHODS["nesterov"](), 1.0, 5, 0), "runs must be even; got 5"),
        (lambda: attack(METHODS["nesterov"](), 1.0, 0, 0), "runs must be"),
    ],
    ids=["name", "maker", "no-mu", "negative-mu", "no-pairs", "odd-runs", "no-runs"],
)
def test_what_cannot_be_audited_is_refused_and_named(call, said):
    with pytest.raises(InvalidArgument, match=said):
        call()


def test_a_run_that_returns_no_numbers_is_told_what_to_return():
    broken = replace(METHODS["nesterov"](), run=lambda data, purse: {"model": "good"})
    (finding,) = gray_box(broken).findings
    assert "a number, an array, or a list of these" in finding


def test_attacks_draw_exact_noise_unless_told_otherwise():
    subject = METHODS["pur-adaptive"]()
    by_default, exact, plain = (attack(subject, 2.0, 2, 0, **how) for how in ({}, {"secure": True}, {"secure": False}))
    assert by_default.absent == exact.absent
    assert by_default.absent != plain.absent


def test_whatever_a_run_returns_is_one_vector():
    assert flat([1.0, [np.ones((2, 2)), 3]]).tolist() == [1.0, 1.0, 1.0, 1.0, 1.0, 3.0]
    assert flat([]).size == 0


@pytest.mark.parametrize("name", ["run", "table", "purse"])
def test_a_subject_is_made_of_functions(name):
    parts = {"run": print, "table": print, "purse": print, name: None}
    with pytest.raises(InvalidArgument, match=f"{name} must be a function {name}"):
        Subject("mine", "mine", **parts)


def test_one_call_gives_the_verdicts_of_the_command():
    subject = replace(METHODS["finite-models"](), name="mine")
    lines = audit_subject(subject, runs=120)
    assert [(line.audit, line.verdict) for line in lines] == [
        ("gray box", "holds"),
        ("noise", "not run"),
        ("white box", "holds"),
        ("black box", "too small"),
    ]
    assert {line.subject for line in lines} == {"mine"}


def test_tables_that_do_not_differ_and_runs_that_fail_do_not_hold():
    subject = METHODS["finite-models"]()
    same = replace(subject, table=lambda present: subject.table(True))
    assert audit_subject(same, runs=120)[2].verdict == "weak"

    def failing(data, purse):
        raise KeyError("boom")

    verdicts = {line.audit: line.verdict for line in audit_subject(replace(subject, run=failing), runs=120)}
    assert verdicts == {"gray box": "REFUTED", "noise": "REFUTED", "white box": "REFUTED"}
    assert audit_subject(subject, runs=40)[2].verdict == "too small"


def a_search(trial, mean=4.0):
    """Return a subject that runs a trial of its own, several times, and twice over."""

    def run(rows, purse):
        handed = []
        box = SensitiveTrials(
            lambda candidate, noise: trial(rows, candidate, noise),
            candidates=3,
            add_remove=0.5,
            replace_one=1.0,
            hand_over=handed.append,
        )
        answers = [purse.release(box, RepeatAndSelect(mean), what="search").value for _ in range(2)]
        return [*answers, [0.0 if one is None else one for one in handed]]

    def purse(mu, noise):
        return Purse(60.0, 1e-6, neighbouring="add-remove", filter="rdp", noise=noise)

    return Subject("search", "mine", run, lambda present: np.ones((3 + present, 1)), purse)


def paid_for(rows, noise, mechanism, box=None):
    purse = Purse.with_filter(GdpFilter(200.0, 1e-6, Neighbouring.ADD_REMOVE), noise=noise)
    return purse.release(clipped_sum(rows, clip_norm=1.0) if box is None else box, mechanism).value


@pytest.mark.parametrize("outcome", [None, 1.0])
def test_trials_that_hand_over_the_same_thing_are_told_apart(outcome):
    def trial(rows, candidate, noise):
        return float(paid_for(rows, noise, Gaussian(2.0 + candidate))[0]), outcome

    assert gray_box(a_search(trial), pairs=8).findings == ()


@pytest.mark.parametrize("epsilon", [0.2, 8.0])
def test_a_trial_that_selects_beyond_its_bound_is_found(epsilon):
    def trial(rows, candidate, noise):
        scores = Sensitive([0.0, float(len(rows))], norm=Norm.RANGE, add_remove=1.0, replace_one=2.0)
        return float(paid_for(rows, noise, ExponentialSelection(epsilon), scores)), None

    findings = gray_box(a_search(trial), pairs=2).findings
    assert bool(findings) is (epsilon > 1)
    assert all("moves by mu" in finding for finding in findings)
