"""`privypurse compare`: a simulation that says so, or paid for."""

import json

import pytest

from tests.cli.commands import LEDGER, TARGET, lines, refusal, reopened, result, run

COMPARE = ("compare", "census.csv", "--target", TARGET, "--schema", "census.toml", "--methods", "auto,nesterov")


def test_without_paying_it_is_marked_not_private_and_touches_no_ledger(census):
    done = run(census, *COMPARE, "--epsilons", "1", "--repeats", 1, "--plot", "page.html")
    assert done.returncode == 0, done.stderr
    assert "NOT PRIVATE" in done.stdout
    assert "NOT PRIVATE" in done.stderr
    assert "nesterov" in done.stdout
    assert "NOT PRIVATE" in (census / "page.html").read_text()
    assert not (census / LEDGER).exists()


def test_without_paying_the_json_says_it_is_not_private(census):
    found = result(census, *COMPARE, "--epsilons", "0.5,1", "--repeats", 1)
    assert found["private"] is False
    assert "NOT PRIVATE" in found["note"]
    assert found["budget"] is None
    assert {(entry["method"], entry["epsilon"]) for entry in found["entries"]} >= {("auto", 0.5), ("nesterov", 1.0)}
    assert not (census / LEDGER).exists()


def test_paid_for_it_is_private_and_on_the_ledger(census):
    done = run(census, *COMPARE, "--epsilons", "0.5", "--pay", "--budget", 2, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["private"] is True
    assert "NOT PRIVATE" not in done.stdout + done.stderr
    spent = reopened(census).spent.epsilon
    assert spent == pytest.approx(found["budget"]["spent_epsilon"])
    assert 0.5 < spent < 1
    before = lines(census / LEDGER)
    refusal(census, 3, *COMPARE, "--epsilons", "1,2", "--pay")
    assert lines(census / LEDGER) == before


def test_wrong_choices_are_2(census):
    assert "numbers" in refusal(census, 2, *COMPARE, "--epsilons", "little")
    assert "dp-sgd" in refusal(census, 2, *COMPARE[:-1], "dp-sgd")
