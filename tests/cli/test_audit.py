"""`privypurse audit` as a person runs it: what it prints and writes, what it refuses, how it ends."""

import json
import pathlib
import signal

import pytest
import typer

from privypurse.cli.app import app
from tests.cli.commands import end, refusal, result, run, start, until

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
    return folder, run(folder, *CHEAP, "--output", "out")


def test_a_table_with_claims_bounds_and_verdicts(done):
    folder, shown = done
    assert shown.returncode == 0, shown.stderr
    rows = [line for line in shown.stdout.splitlines() if "pur-adaptive" in line]
    assert [row.split("│")[1].strip() for row in rows] == ["gray box", "noise", "one run", "white box", "black box"]
    white = [cell.strip() for cell in rows[3].split("│")]
    assert (white[2], white[4], white[6]) == ("3", "18.16", "holds")
    assert 1.5 <= float(white[3]) < 3
    assert 0 < float(white[5]) < 18.16
    assert "every audit ended as it should" in shown.stdout
    assert "page: out/audit.html" in shown.stdout
    assert "can refute a claim, and not prove it" in shown.stderr
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
        assert "silence is not a proof" in page


def test_json_has_the_same_lines(tmp_path, done):
    folder, _ = done
    said = result(tmp_path, *CHEAP)
    assert (said["passed"], said["quick"], said["output"]) == (True, True, None)
    before = json.loads((folder / "out" / "audit.json").read_text())["lines"]
    same = [[line for line in lines if line["audit"] != "noise"] for lines in (said["lines"], before)]
    assert same[0] == same[1]
    assert not list(tmp_path.iterdir())


def test_a_weak_attack_is_7_and_says_so(tmp_path):
    shown = run(tmp_path, *CHEAP, "--mu", "1", "--runs", "32", "--output", "out")
    assert shown.returncode == NOT_PASSED
    assert "NOT every audit ended as it should" in shown.stdout
    assert "not as it should be: pur-adaptive, white box: weak" in shown.stderr
    said = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert said["passed"] is False
    assert {line["audit"]: line["verdict"] for line in said["lines"]}["white box"] == "weak"


def test_a_caught_bug_is_0_and_says_what_was_found(tmp_path):
    shown = run(tmp_path, "audit", "private-divisor", "--quick")
    assert shown.returncode == 0, shown.stderr
    assert "REFUTED" in shown.stdout
    assert "private-divisor, gray box: " in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--mu", "much"], "numbers with commas"),
        (["--runs", "7"], "runs must be an even number of 32 or more; got 7"),
        (["--noise", "loud"], "plain or secure"),
        pytest.param(["--mu", "-1"], "mu must be", marks=pytest.mark.slow),
        pytest.param(["--jobs", "0"], "jobs must be", marks=pytest.mark.slow),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_input_is_2_and_leaves_nothing_behind(arguments, hint, tmp_path):
    assert hint in refusal(tmp_path, WRONG_INPUT, *CHEAP, "--output", "out", *arguments)
    assert not list(tmp_path.iterdir())


def test_an_unknown_name_is_2_and_the_known_ones_are_named(tmp_path):
    message = refusal(tmp_path, WRONG_INPUT, "audit", "nesterow")
    assert "got 'nesterow'" in message
    for name in ("nesterov", "mutants", "noise-halved", "dp-agd-as-published", "ridge"):
        assert name in message


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_5(tmp_path):
    (tmp_path / "file").write_text("")
    assert "Pass another folder" in refusal(tmp_path, FILE_TROUBLE, *CHEAP, "-o", "file/out")


def test_the_list_names_everything(tmp_path):
    found = {(one["group"], one["name"]) for one in result(tmp_path, "audit", "--list")["subjects"]}
    assert {("methods", "nesterov"), ("mutants", "noise-halved"), ("published", "adp-sgd-as-published")} <= found


def test_help_has_examples(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    typer.main.get_command(app).main(["audit", "--help"], prog_name="privypurse", standalone_mode=False)
    said = capsys.readouterr().out
    assert "privypurse audit mutants" in said[said.index("Examples") :]
    assert "Exit code 7" in said


def test_ctrl_c_keeps_what_was_finished_and_a_second_run_does_the_rest(tmp_path):
    command = (*CHEAP, "--mu", "2,3", "--runs", "80", "--output", "out")
    process = start(tmp_path, *command, "--json")
    until(lambda: len(kept(tmp_path / "out")) >= 4, process)
    code, out, err = end(process, signal.SIGINT)
    assert code == INTERRUPTED
    assert json.loads(out)["error"]["kind"] == "interrupted"
    assert "What was finished is kept" in err
    before = kept(tmp_path / "out")
    assert 4 <= len(before) < 8
    assert not (tmp_path / "out" / "audit.html").exists()
    said = run(tmp_path, *command, "--json")
    assert said.returncode in (0, NOT_PASSED), said.stderr
    assert len(json.loads(said.stdout)["lines"]) == 8
    assert kept(tmp_path / "out") == []
    assert (tmp_path / "out" / "audit.html").exists()
