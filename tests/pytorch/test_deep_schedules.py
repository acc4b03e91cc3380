"""The benchmark of the dynamic-noise paper's deep network runs, compares every schedule, and spends each budget to the end."""

import importlib.util
import json
import math
import os
import pathlib

import pytest

pytest.importorskip("torch")

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "deep_schedules.py"
NEEDED = ("mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz")
EPSILON = 3.0


@pytest.fixture(scope="module")
def benchmark():
    if not SCRIPT.exists():
        pytest.skip("benchmarks/deep_schedules.py is not here")
    spec = importlib.util.spec_from_file_location("deep_schedules", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def mnist():
    folder = pathlib.Path(os.environ.get("PRIVYPURSE_DATA", "nowhere"))
    for file in NEEDED:
        if not (folder / file).exists():
            pytest.skip(f"{file} is not in PRIVYPURSE_DATA")


def table(printed):
    lines = [line.strip("|\n ").split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    return lines[0], lines[1:]


@pytest.mark.usefixtures("mnist")
def test_all_schedules_are_compared_and_spend_all_of_their_budget_and_no_more(benchmark, tmp_path, capsys):
    file = tmp_path / "rows.json"
    benchmark.main(["--quick", "--epsilon", str(EPSILON), "--json", str(file)])
    printed = capsys.readouterr().out
    head, lines = table(printed)
    rows = json.loads(file.read_text())
    scales = [10.0, 25.0]
    wanted = [(scale, name) for scale in scales for name in benchmark.SCHEDULES]
    assert [(row["scale"], row["schedule"]) for row in rows] == wanted
    assert [(float(line[0]), line[1]) for line in lines] == wanted
    assert {len(line) for line in lines} == {len(head)}
    for row in rows:
        assert len(row["losses"]) == len(row["test_losses"]) == len(row["spent"]) == 2
        assert all(math.isfinite(loss) for loss in row["losses"] + row["test_losses"])
        # Never more than the budget, and all of it.
        assert all(EPSILON - 1e-6 < spent <= EPSILON for spent in row["spent"])
        assert all(0 <= left < 1e-9 for left in row["left"])
    noises = {row["schedule"]: row["noise"] for row in rows if row["scale"] == 10}
    shared = [sum((benchmark.CLIP_NORM / noise) ** 2 for noise in each) for each in noises.values()]
    assert shared == pytest.approx([shared[0]] * len(shared), rel=1e-6)  # the same budget, shared out otherwise
    assert len({tuple(each) for each in noises.values()}) == len(benchmark.SCHEDULES)
    assert "Least training loss by data scale: " in printed
    assert printed.count(" the spread; test accuracy ") == len(scales)


@pytest.mark.usefixtures("mnist")
def test_draws_a_picture(benchmark, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    file = tmp_path / "picture.png"
    benchmark.main(["--quick", "--seeds", "3", "--scales", "10", "--plot", str(file)])
    assert file.read_bytes().startswith(b"\x89PNG")
    assert "one seed, no spread" in capsys.readouterr().out


def test_stops_politely_without_the_data(benchmark, monkeypatch, capsys):
    monkeypatch.delenv("PRIVYPURSE_DATA", raising=False)
    benchmark.main(["--quick"])
    assert capsys.readouterr().out.startswith("skipped: PRIVYPURSE_DATA is not set")
