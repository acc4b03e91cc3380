"""`privypurse reproduce` as a person runs it: what it lists, what it refuses, and that Ctrl-C loses
nothing that was finished.
"""

import json
import os
import pathlib
import signal
import subprocess

import pytest
from tests.cli.commands import EXECUTABLE, TIMEOUT_S, end, environment, refusal, result, run, start, until

from privypurse_lab.papers.catalogue import NAMES
from privypurse_lab.papers.items import RANKING_WORDS, REACHED_WORDS

WRONG_INPUT, FILE_TROUBLE, INTERRUPTED = 2, 5, 130
FAST = ("reproduce", "lecture", "--figure", "3", "--quick", "--jobs", "1")
LONGER = ("reproduce", "lecture", "--figure", "2", "--quick")


def kept(folder: pathlib.Path) -> list[str]:
    """Return the keys of the cells that are kept, in order."""
    path = folder / ".cells.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["key"] for line in lines if line.endswith("}}")]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One small figure; nobody writes here."""
    folder = tmp_path_factory.mktemp("reproduced")
    return folder, result(folder, *FAST, "-o", "out")


@pytest.mark.parametrize("command", ["reproduce", "audit"])
def test_options_have_the_names_of_other_commands_and_still_their_own(tmp_path, command):
    help_text = run(tmp_path, command, "--help").stdout
    assert "--out " in help_text
    assert "--output" not in help_text
    earlier = {"reproduce": ("--output", "x", "--workers", 1), "audit": ("--output", "x")}[command]
    assert run(tmp_path, command, "--list", *earlier).returncode == 0
    assert run(tmp_path, command, "--list", "--outputs", "x").returncode == WRONG_INPUT


def test_the_list_names_every_table_and_figure(tmp_path):
    shown = run(tmp_path, "reproduce", "--list")
    assert shown.returncode == 0, shown.stderr
    found = result(tmp_path, "reproduce", "--list")["items"]
    assert {entry["paper"] for entry in found} == set(NAMES)
    for entry in found:
        assert entry["item"].split()[0] in ("figure", "table")
        assert entry["title"]
        assert entry["item"] in shown.stdout
    assert {"paper": "lecture", "item": "figure 3"}.items() <= next(
        entry for entry in found if (entry["paper"], entry["item"]) == ("lecture", "figure 3")
    ).items()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ([], "expected a paper"),
        (["lectures"], "paper must be one of pur, "),
        (["lecture", "--figure", "9"], "It has: --figure 1"),
        pytest.param(["lecture", "--also", "nowhere.py:mine"], "nowhere.py", marks=pytest.mark.slow),
        pytest.param(["all", "--figure", "1"], "needs a paper", marks=pytest.mark.slow),
        pytest.param(["lecture", "--figure", "1", "--table", "1"], "Leave one out", marks=pytest.mark.slow),
        pytest.param(["lecture", "--seed", "-1"], "seed must be", marks=pytest.mark.slow),
        pytest.param(["lecture", "--seed", "much"], "seed", marks=pytest.mark.slow),
        pytest.param(["lecture", "--jobs", "0"], "--jobs must be", marks=pytest.mark.slow),
        pytest.param(["lecture", "--also", "mine"], "FILE.py:NAME", marks=pytest.mark.slow),
    ],
)
def test_wrong_input_is_2_and_leaves_nothing_behind(arguments, hint, tmp_path):
    assert hint in refusal(tmp_path, WRONG_INPUT, "reproduce", *arguments)
    assert not list(tmp_path.iterdir())


def test_a_figure_is_made_and_said_as_json(done):
    folder, said = done
    assert (said["output"], said["quick"], said["seed"]) == ("out", True, 0)
    [item] = said["items"]
    assert (item["paper"], item["item"]) == ("lecture", "figure-3")
    assert item["reached"] in REACHED_WORDS
    assert item["ranking"] in RANKING_WORDS
    assert item["why"]
    assert sorted(pathlib.Path(path).suffix for path in item["files"]) == [".csv", ".png", ".svg"]
    assert all((folder / path).stat().st_size > 100 for path in item["files"])
    page = (folder / "out" / "lecture.md").read_text(encoding="utf-8")
    assert f"**Reached: {item['reached']}. Ranking: {item['ranking']}.** {item['why']}" in page
    assert "`privypurse reproduce lecture --figure 3 --quick`" in page


@pytest.mark.slow
def test_a_full_run_does_not_write_over_a_quick_one(done):
    folder, _ = done
    message = refusal(folder, WRONG_INPUT, "reproduce", "lecture", "--figure", "3", "-o", "out")
    assert "holds a quick run" in message


@pytest.mark.slow
def test_what_is_said_to_a_person(done):
    folder, _ = done
    shown = run(folder, *FAST, "-o", "out")
    assert shown.returncode == 0, shown.stderr
    assert "pages: out/lecture.md" in shown.stdout + shown.stderr
    assert "ranking" in shown.stdout
    assert len(kept(folder / "out")) == len(set(kept(folder / "out")))  # nothing was run again


def test_missing_data_is_5_and_says_where_it_could_come_from(tmp_path):
    empty = environment(PRIVYPURSE_DATA=str(tmp_path / "none"), PRIVYPURSE_CACHE=str(tmp_path / "cache"))
    message = refusal(tmp_path, FILE_TROUBLE, "reproduce", "summary", "--quick", "-o", "out", env=empty)
    assert "nothing could be run" in message
    assert "PRIVYPURSE_DATA" in message
    assert "privypurse data adult" in message
    assert "| not run | not run |" in (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_keeps_what_was_finished_and_a_second_run_does_the_rest(workers, tmp_path):
    command = (*LONGER, "--jobs", workers, "-o", "out")
    process = start(tmp_path, *command, "--json")
    until(lambda: len(kept(tmp_path / "out")) >= 3, process)
    code, out, err = end(process, signal.SIGINT)
    assert code == INTERRUPTED
    assert json.loads(out)["error"]["kind"] == "interrupted"
    assert "What was finished is kept" in err
    assert "Traceback" not in err
    before = kept(tmp_path / "out")
    assert len(before) >= 3
    assert not (tmp_path / "out" / "lecture.md").exists()
    said = result(tmp_path, *command)
    assert said["items"][0]["reached"] in REACHED_WORDS
    after = kept(tmp_path / "out")
    assert after[: len(before)] == before
    assert len(after) > len(before)  # it was cut short
    assert len(set(after)) == len(after)  # and nothing was run twice


@pytest.mark.slow
def test_ctrl_c_at_a_terminal_reaches_the_workers_too(tmp_path):
    command = [str(EXECUTABLE), *LONGER, "--jobs", "2", "-o", "out", "--json"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        text=True,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    until(lambda: len(kept(tmp_path / "out")) >= 3, process)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == INTERRUPTED
    assert json.loads(out)["error"]["kind"] == "interrupted"
    before = kept(tmp_path / "out")
    result(tmp_path, *LONGER, "--jobs", "2", "-o", "out")
    after = kept(tmp_path / "out")
    assert after[: len(before)] == before
    assert len(set(after)) == len(after) > len(before)


@pytest.mark.slow
def test_an_entry_from_a_file_takes_part(tmp_path):
    (tmp_path / "mine.py").write_text("def falling(steps):\n    return [1.0 / (k + 1) for k in range(steps)]\n")
    command = ("reproduce", "lecture", "--figure", "1", "--quick", "--jobs", "2", "-o", "out")
    result(tmp_path, *command, "--also", "mine.py:falling")
    assert "falling" in (tmp_path / "out" / "lecture-figure-1.csv").read_text()
    before = kept(tmp_path / "out")
    result(tmp_path, *command, "--also", "mine.py:falling")
    assert kept(tmp_path / "out") == before  # found again by another process
    (tmp_path / "mine.py").write_text("def falling(steps):\n    return [2.0 / (k + 2) for k in range(steps)]\n")
    result(tmp_path, *command, "--also", "mine.py:falling")
    assert len(kept(tmp_path / "out")) > len(before)  # another function is another entry


@pytest.mark.parametrize("paper", ["lecture", pytest.param("all", marks=pytest.mark.slow)])
def test_all_of_a_paper_runs_quickly_and_gets_a_verdict(tmp_path, paper):
    said = result(tmp_path, "reproduce", paper, "--quick", "-o", "out", timeout=1_800)
    listed = [item for item in result(tmp_path, "reproduce", "--list")["items"] if paper in ("all", item["paper"])]
    assert len(said["items"]) == len(listed) > 2
    for item in said["items"]:
        assert item["reached"] in (*REACHED_WORDS, "not run"), item
        assert item["ranking"] in (*RANKING_WORDS, "not run"), item
        assert item["why"]
        if item["reached"] != "not run":
            assert len(item["files"]) == 3
            assert all((tmp_path / path).stat().st_size > 0 for path in item["files"])
    for name in NAMES if paper == "all" else [paper]:
        page = (tmp_path / "out" / f"{name}.md").read_text(encoding="utf-8")
        assert "IPUMS-US is not available" in page
