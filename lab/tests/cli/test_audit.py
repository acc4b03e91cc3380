"""`privypurse audit` as a person runs it: what it prints and writes, what it refuses, how it ends."""

import json
import pathlib
import re
import signal

import pytest
import typer
from tests.cli.commands import end, refusal, result, run, start, until, until_line

from privypurse.audit import Line
from privypurse.cli._app import app
from privypurse.core._errors import InvalidArgument
from privypurse_lab.cli.audit import _checked, _footnotes, _last_line

WRONG_INPUT, FILE_TROUBLE, NOT_PASSED, INTERRUPTED = 2, 5, 7, 130
CHEAP = ("audit", "pur-adaptive", "--quick", "--jobs", "1")


def kept(folder: pathlib.Path) -> list[str]:
    """Return the keys of the pieces that are kept, in order."""
    lines = [line for path in folder.glob(".cells-*.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line)["key"] for line in lines if line.endswith("}}")]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One quick audit; nobody writes here."""
    folder = tmp_path_factory.mktemp("audited")
    return folder, run(folder, *CHEAP, "--out", "out")


def test_a_table_with_claims_bounds_and_verdicts(done):
    folder, shown = done
    assert shown.returncode == 0, shown.stderr
    said = shown.stdout.splitlines()
    assert said[:3] == [
        "Claimed to be private:",
        "  audit         mu claimed  mu >=  at most  eps claimed  eps >=  verdict",
        "pur-adaptive",
    ]
    rows = [[cell.strip() for cell in re.split(r"  +", line.strip())] for line in said[3 : said.index("")]]
    assert [row[0] for row in rows] == ["gray box", "noise", "one run", "white box"]
    assert rows[0][1:] == rows[1][1:] == ["holds"]
    _, claimed, shown_mu, at_most, claimed_epsilon, shown_epsilon, verdict = rows[3]
    assert (claimed, at_most, claimed_epsilon, verdict) == ("3", "3.11", "18.16", "holds")
    assert 1.5 <= float(shown_mu) < 3
    assert 0 < float(shown_epsilon) < 18.16
    assert max(map(len, said)) <= 80
    assert "every audit ended as expected: 4 held" in said
    assert "page: out/audit.html" in shown.stdout
    assert "can refute a claim, and not prove it" in shown.stderr
    assert "in one run it is converted from the bound on mu" in " ".join(shown.stderr.split())
    assert "Not asked to show half" not in shown.stderr
    assert {path.name for path in (folder / "out").iterdir()} == {"audit.json", "audit.md", "audit.html"}


def test_the_pages_say_what_was_done(done):
    folder, _ = done
    said = json.loads((folder / "out" / "audit.json").read_text())
    assert said["command"] == "privypurse audit pur-adaptive --quick"
    assert (said["passed"], said["seed"], said["noise"], said["runs"], said["mus"]) == (True, 0, "secure", [120], [3.0])
    for name in ("audit.md", "audit.html"):
        page = (folder / "out" / name).read_text(encoding="utf-8")
        assert said["command"] in page
        assert said["source"][:16] in page
        assert "does not prove the claim" in page


def test_json_has_the_same_lines(tmp_path, done):
    folder, _ = done
    said = result(tmp_path, *CHEAP)
    assert (said["passed"], said["quick"], said["output"]) == (True, True, None)
    before = json.loads((folder / "out" / "audit.json").read_text())["lines"]
    same = [[line for line in lines if line["audit"] != "noise"] for lines in (said["lines"], before)]
    assert same[0] == same[1]
    assert not list(tmp_path.iterdir())


def test_a_weak_attack_is_7_and_says_so(tmp_path):
    shown = run(tmp_path, *CHEAP, "--mu", "1", "--runs", "32", "--out", "out", "--quiet")
    assert "lower bounds" not in shown.stderr
    assert shown.returncode == NOT_PASSED
    assert "NOT every audit ended as expected: 3 held, 1 weak" in shown.stdout
    assert "not as expected: pur-adaptive, white box: weak" in shown.stderr
    said = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert said["passed"] is False
    assert {line["audit"]: line["verdict"] for line in said["lines"]}["white box"] == "weak"


def test_a_caught_bug_is_0_and_says_what_was_found(tmp_path):
    shown = run(tmp_path, "audit", "private-divisor", "--quick")
    assert shown.returncode == 0, shown.stderr
    assert "  private-divisor  gray box  caught, silent without it\n" in shown.stdout
    assert "every audit ended as expected: 1 caught\n" in shown.stdout
    assert "private-divisor, gray box: " in shown.stderr
    assert "mu >=" not in shown.stderr  # there is no such column


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--mu", "much"], "--mu must be comma-separated numbers above 0 and at most 8; got 'much'."),
        (["--noise", "loud"], "plain or secure"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_input_is_2_and_leaves_nothing_behind(arguments, hint, tmp_path):
    assert hint in refusal(tmp_path, WRONG_INPUT, *CHEAP, "--out", "out", *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("9", None, None, 0), "--mu must be .* above 0 and at most 8; got '9'. Pass for example --mu 1,2."),
        (("-1", None, None, 0), "--mu must be .*; got '-1'"),
        ((None, 0, None, 0), "--runs must be an even number of 32 or more, .*; got 0. Pass for example --runs=400."),
        ((None, 20, None, 0), "--runs must be an even number of 32 or more, .*; got 20. Pass for example --runs=400."),
        ((None, None, 0, 0), "--jobs must be a whole number of 1 or more; got 0"),
        ((None, None, None, -1), "--seed must be a whole number from 0 to 2147483647; got -1"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(map(str, value)),
)
def test_what_is_refused_is_named_as_on_the_command_line(arguments, hint):
    with pytest.raises(InvalidArgument, match=hint):
        _checked(*arguments)
    assert _checked("1,2,1", 32, 1, 0) == (1.0, 2.0)


def test_footnotes_say_what_is_waived_and_how_many_runs_would_have_done():
    numbers = {"claimed_mu": 4.0, "shown_mu": 0.0, "confidence": 0.95, "trials": 120}
    lines = [Line("range-scaler", "preprocessing", "white box", verdict="too small", **numbers)]
    said = _footnotes(lines, ["range-scaler"])
    assert any("charged for: range-scaler." in text for text in said)
    assert "at least 322 runs in the white box at mu 4." in said[-1]
    assert _footnotes([Line("permute-and-flip", "mechanism", "enumeration", shown_epsilon=1.0, trials=3)], []) == []
    assert _last_line([Line("x", "mutant", "noise")]).endswith(": 1 missed that should be caught")


def test_an_unknown_name_is_2_and_the_nearest_ones_are_named(tmp_path):
    message = refusal(tmp_path, WRONG_INPUT, "audit", "nesterow")
    assert "got 'nesterow'. Did you mean nesterov" in message
    assert "privypurse audit --list" in message
    assert "ridge" not in message


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_5(tmp_path):
    (tmp_path / "file").write_text("")
    assert "Pass another folder" in refusal(tmp_path, FILE_TROUBLE, *CHEAP, "-o", "file/out")


def test_the_list_names_everything(tmp_path):
    found = {(one["group"], one["name"]) for one in result(tmp_path, "audit", "--list")["subjects"]}
    assert {("methods", "nesterov"), ("mutants", "noise-halved"), ("published", "adp-sgd-as-published")} <= found


def test_the_list_of_some_names_is_theirs(tmp_path):
    found = result(tmp_path, "audit", "published", "ridge", "--list")["subjects"]
    assert found == [
        {"group": "estimators", "name": "ridge"},
        {"group": "published", "name": "adp-sgd-as-published"},
        {"group": "published", "name": "dp-agd-as-published"},
    ]


def test_ctrl_c_without_a_folder_says_that_nothing_is_kept(tmp_path):
    process = start(tmp_path, *CHEAP, "--mu", "2,3", "--runs", "80", "--json")
    until_line(process, "pur-adaptive ...")
    code, out, err = end(process, signal.SIGINT)
    assert code == INTERRUPTED
    message = "Interrupted. Nothing was kept: with --out an audit goes on where it ended."
    assert json.loads(out) == {"error": {"kind": "interrupted", "message": message}, "exit_code": INTERRUPTED}
    assert message in err
    assert "is kept" not in err
    assert not list(tmp_path.iterdir())


def test_help_has_examples(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    typer.main.get_command(app).main(["audit", "--help"], prog_name="privypurse", standalone_mode=False)
    said = capsys.readouterr().out
    assert "privypurse audit mutants" in said[said.index("Examples") :]
    assert "Exit code 7" in said
    assert "even, 32 or more" in " ".join(said.replace("│", " ").split())
    assert "at most 8" in " ".join(said.replace("│", " ").split())
    assert "about two hours on two cores" in " ".join(said.split())
    assert "all, in full, by default" in " ".join(said.replace("│", " ").split())


def test_ctrl_c_keeps_what_was_finished_and_a_second_run_does_the_rest(tmp_path):
    command = (*CHEAP, "--mu", "2,3", "--runs", "80", "--out", "out")
    process = start(tmp_path, *command, "--json")
    until(lambda: len(kept(tmp_path / "out")) >= 4, process)
    code, out, err = end(process, signal.SIGINT)
    assert code == INTERRUPTED
    assert json.loads(out)["error"]["kind"] == "interrupted"
    assert "Interrupted. What was finished is kept: run the same command again to go on." in err
    assert "ledger" not in err
    before = kept(tmp_path / "out")
    assert 4 <= len(before) < 7
    assert not (tmp_path / "out" / "audit.html").exists()
    said = run(tmp_path, *command, "--json")
    assert said.returncode in (0, NOT_PASSED), said.stderr
    assert f"{len(before)} of 7 pieces were finished before, and are not run again" in said.stderr
    # Gray box, noise, one run at mu 2, and the white box at both; of so few runs final models say
    # nothing.
    audits = [(line["audit"], line.get("claimed_mu")) for line in json.loads(said.stdout)["lines"]]
    assert audits == [("gray box", None), ("noise", None), ("one run", 2.0), ("white box", 2.0), ("white box", 3.0)]
    assert kept(tmp_path / "out") == []
    assert (tmp_path / "out" / "audit.html").exists()
