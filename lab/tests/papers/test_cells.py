"""Cells: each is run once, kept at once, and not run again; nothing that a killed run leaves behind
is in the way.
"""

import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from privypurse.core._errors import FileUnusable, InvalidArgument
from privypurse.runs._progress import Silent
from privypurse.training.schedules._base import Weighted
from privypurse_lab.papers import cells
from privypurse_lab.papers.cells import Cell, Results, run_cells

HERE = sys.modules[__name__]


@pytest.fixture(autouse=True)
def sent_by_value():
    """Other processes cannot import this file by its name."""
    cells.pickler().register_pickle_by_value(HERE)
    yield
    cells.pickler().unregister_pickle_by_value(HERE)


def square(number: int, folder: str, fails: bool = False, kept: int = 0) -> dict:
    """Return a square once so many results are kept, and leave a mark for each time it was asked
    for.
    """
    with (pathlib.Path(folder) / f"{number}.ran").open("a") as mark:
        mark.write("x")
    path = pathlib.Path(folder) / "cells.jsonl"  # made with the first result
    while kept and (not path.exists() or len(path.read_text().splitlines()) < kept):
        time.sleep(0.01)
    if fails and not (pathlib.Path(folder) / "mended").exists():
        raise KeyboardInterrupt if number == 99 else ValueError(f"{number} fails")
    return {"square": number * number, "of": [number, 1.5, None]}


def other(number: int, folder: str) -> dict:
    return {"other": number}


def a_list(number: int) -> list:
    return [number]


def asked(entry: object) -> dict:
    return {"says": entry(4)}


def times_run(folder: pathlib.Path) -> dict[int, int]:
    return {int(path.stem): len(path.read_text()) for path in folder.glob("*.ran")}


def squares(folder: pathlib.Path, numbers, **more) -> list[Cell]:
    return [Cell(square, {"number": number, "folder": str(folder), **more}) for number in numbers]


def run(work, path: pathlib.Path, workers: int = 1) -> Results:
    results = Results(path)
    run_cells(work, results, workers=workers, progress=Silent(), what="squares")
    return results


class Noted:
    """A progress that remembers what it was told."""

    def __init__(self) -> None:
        self.total, self.told = 0.0, []

    def stage(self, what, total=None):
        self.total = total

    def update(self, done, note=""):
        self.told.append(done)


# Kept, and not run again.


def test_results_are_kept_and_a_second_run_does_nothing(tmp_path):
    work = squares(tmp_path, range(4))
    first = run(work, tmp_path / "out" / "cells.jsonl")
    second = run(squares(tmp_path, range(4)), tmp_path / "out" / "cells.jsonl")
    assert times_run(tmp_path) == dict.fromkeys(range(4), 1)
    assert [second[cell] for cell in work] == [first[cell] for cell in work]
    assert [second[cell]["square"] for cell in work] == [0, 1, 4, 9]
    assert second.date_of(work) == first.date_of(work)


@pytest.mark.parametrize(("broken", "kind"), [(2, ValueError), (99, KeyboardInterrupt)])
def test_after_a_failure_only_what_is_left_is_run(broken, kind, tmp_path):
    numbers = [0, 1, broken, 4]
    work = squares(tmp_path, numbers, fails=True)
    work[:2] = squares(tmp_path, numbers[:2])
    with pytest.raises(kind):
        run(work, tmp_path / "cells.jsonl")
    assert times_run(tmp_path) == {0: 1, 1: 1, broken: 1}
    (tmp_path / "mended").touch()
    results = run(work, tmp_path / "cells.jsonl")
    assert times_run(tmp_path) == {0: 1, 1: 1, broken: 2, 4: 1}
    assert [results[cell]["square"] for cell in work] == [0, 1, broken * broken, 16]


def test_what_finished_on_other_cores_before_a_failure_is_kept(tmp_path):
    work = [*squares(tmp_path, range(6)), *squares(tmp_path, [7], fails=True, kept=5)]
    with pytest.raises(ValueError, match="7 fails"):
        run(work, tmp_path / "cells.jsonl", workers=2)
    kept = [cell for cell in work if cell in Results(tmp_path / "cells.jsonl")]
    assert len(kept) >= 5  # what the failing one waited for
    (tmp_path / "mended").touch()
    before = times_run(tmp_path)
    results = run(work, tmp_path / "cells.jsonl", workers=2)
    assert all(cell in results for cell in work)
    after = times_run(tmp_path)
    assert {cell.arguments["number"] for cell in kept}.isdisjoint(
        number for number in after if after[number] > before.get(number, 0)
    )


@pytest.mark.parametrize(
    "garbage",
    [
        b'{"key": "abc", "date": "2026-01-01", "resu',
        b"not json\n",
        b'[1, 2]\n5\nnull\n""\n{}\n{"key": ["a"], "date": "2026-01-01", "result": {}}\n',
        b"\xff\xfe\x00\x80",
        b"\n\n\n",
    ],
)
def test_a_broken_file_is_read_as_far_as_it_can_be_and_nothing_is_glued_to_it(garbage, tmp_path):
    path = tmp_path / "cells.jsonl"
    run(squares(tmp_path, [1, 2]), path)
    with path.open("ab") as file:
        file.write(garbage)
    run(squares(tmp_path, [1, 2, 3, 4]), path)
    assert times_run(tmp_path) == dict.fromkeys([1, 2, 3, 4], 1)
    results = run(squares(tmp_path, [1, 2, 3, 4]), path)
    assert times_run(tmp_path) == dict.fromkeys([1, 2, 3, 4], 1)
    assert results[squares(tmp_path, [3])[0]]["square"] == 9
    whole = [line for line in path.read_bytes().split(b"\n") if line.startswith(b'{"key"') and line.endswith(b"}")]
    assert sum(json.loads(line)["result"].get("square") is not None for line in whole) == 4


@pytest.mark.parametrize("kept_bytes", [1, 20, 60, -1])
def test_a_line_cut_anywhere_is_run_again(kept_bytes, tmp_path):
    path = tmp_path / "cells.jsonl"
    run(squares(tmp_path, [1, 2]), path)
    first, second, _ = path.read_bytes().split(b"\n")
    path.write_bytes(first + b"\n" + second[:kept_bytes])
    run(squares(tmp_path, [1, 2]), path)
    assert times_run(tmp_path) == {1: 1, 2: 2}
    run(squares(tmp_path, [1, 2]), path)
    assert times_run(tmp_path) == {1: 1, 2: 2}


def test_equal_cells_are_run_once_and_the_progress_is_whole(tmp_path):
    work = squares(tmp_path, [1, 2, 1, 2, 1])
    progress = Noted()
    results = Results(tmp_path / "cells.jsonl")
    run_cells(work, results, workers=1, progress=progress, what="squares")
    assert times_run(tmp_path) == {1: 1, 2: 1}
    assert progress.told == sorted(progress.told)
    assert progress.told[-1] == progress.total > 0


def test_no_cells_at_all(tmp_path):
    progress = Noted()
    results = Results(tmp_path / "cells.jsonl")
    run_cells([], results, workers=2, progress=progress, what="nothing")
    assert progress.told[-1] == progress.total
    assert results.date_of([]) == ""
    assert not (tmp_path / "cells.jsonl").exists()


def test_packed_results_are_read_again_and_hold_what_was_asked_for(tmp_path):
    (tmp_path / "first").mkdir()
    work = squares(tmp_path, range(3))
    results = run(work, tmp_path / "first" / ".cells.jsonl")
    results.pack([*work[:2], work[0]])
    packed = tmp_path / "first" / "cells.jsonl.xz"
    again = packed.rename(tmp_path / packed.name)
    read = Results(tmp_path / ".cells.jsonl")
    assert [cell in read for cell in work] == [True, True, False]
    assert read[work[0]] == results[work[0]]
    assert read.date_of(work[:1]) == results.date_of(work[:1])
    first = again.read_bytes()
    read.pack(work[:2])
    assert again.read_bytes() == first


def test_two_workers_give_what_one_gives(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = run(squares(tmp_path / "one", range(7)), tmp_path / "one.jsonl")
    two = run(squares(tmp_path / "two", range(7)), tmp_path / "two.jsonl", workers=2)
    assert times_run(tmp_path / "two") == dict.fromkeys(range(7), 1)
    for a, b in zip(squares(tmp_path / "one", range(7)), squares(tmp_path / "two", range(7)), strict=True):
        assert one[a] == two[b]


def timed(number: int) -> dict:
    begun = time.time()
    time.sleep(0.1)
    return {"process": os.getpid(), "begun": begun, "ended": time.time()}


def test_what_measures_time_runs_alone(tmp_path):
    work = [Cell(timed, {"number": number}, alone=number % 2 == 0) for number in range(8)]
    results = run(work, tmp_path / "cells.jsonl", workers=2)
    for cell in work:
        if cell.alone:
            mine = results[cell]
            assert mine["process"] == os.getpid()
            others = [results[other] for other in work if other is not cell]
            assert all(other["ended"] <= mine["begun"] or other["begun"] >= mine["ended"] for other in others)


def test_forgotten_cells_are_run_again_but_only_once(tmp_path):
    """Two figures of one paper may be made of the same cells."""
    run(squares(tmp_path, [1, 2]), tmp_path / "cells.jsonl")
    results = Results(tmp_path / "cells.jsonl")
    for _figure in range(2):
        results.forget(squares(tmp_path, [1, 2]))
        run_cells(squares(tmp_path, [1, 2]), results, workers=1, progress=Silent(), what="again")
    assert times_run(tmp_path) == {1: 2, 2: 2}
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == 4


def test_the_newest_of_two_lines_counts(tmp_path):
    [cell] = squares(tmp_path, [3])
    results = Results(tmp_path / "cells.jsonl")
    results.keep(cell, {"square": "old"})
    results.keep(cell, {"square": "new"})
    assert Results(tmp_path / "cells.jsonl")[cell] == {"square": "new"}


def test_what_was_just_made_looks_like_what_is_read_back(tmp_path):
    cell = Cell(other, {"number": 1})
    results = Results(tmp_path / "cells.jsonl")
    results.keep(cell, {"pair": (1, 2), 3: float("inf")})
    assert results[cell] == Results(tmp_path / "cells.jsonl")[cell] == {"pair": [1, 2], "3": float("inf")}


# Refusals.


def test_a_cell_must_return_a_dict(tmp_path):
    with pytest.raises(InvalidArgument, match=r"a cell must return a dict; a_list returned .*list"):
        run([Cell(a_list, {"number": 1})], tmp_path / "cells.jsonl")
    assert not (tmp_path / "cells.jsonl").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    place = tmp_path / "file" / "cells.jsonl"
    with pytest.raises(FileUnusable, match="cannot be written") as caught:
        run(squares(tmp_path, [1]), place)
    assert str(place) in str(caught.value)
    assert "another folder" in str(caught.value)


# Keys.


def test_keys_tell_cells_apart_by_function_and_arguments():
    same = [Cell(square, {"number": 1, "folder": "f"}), Cell(square, {"folder": "f", "number": 1})]
    assert same[0].key == same[1].key
    different = [
        same[0],
        Cell(square, {"number": 2, "folder": "f"}),
        Cell(square, {"number": "1", "folder": "f"}),
        Cell(square, {"number": 1, "folder": "f", "fails": False}),
        Cell(other, {"number": 1, "folder": "f"}),
    ]
    assert len({cell.key for cell in different}) == len(different)


def test_keys_change_with_the_version_of_the_library(monkeypatch):
    before = Cell(square, {"number": 1}).key
    monkeypatch.setattr(cells, "__version__", "999.0")
    assert Cell(square, {"number": 1}).key != before


def test_keys_tell_the_users_own_code_apart():
    rising = [lambda steps: [1.0] * steps, lambda steps: [2.0] * steps]
    assert Cell(asked, {"entry": rising[0]}).key == Cell(asked, {"entry": rising[0]}).key
    assert Cell(asked, {"entry": rising[0]}).key != Cell(asked, {"entry": rising[1]}).key

    def power(exponent):
        return lambda steps: [float((step + 1) ** exponent) for step in range(steps)]

    assert Cell(asked, {"entry": power(2)}).key == Cell(asked, {"entry": power(2)}).key
    assert Cell(asked, {"entry": power(2)}).key != Cell(asked, {"entry": power(3)}).key


@dataclasses.dataclass(frozen=True)
class Falling:
    """A schedule with values."""

    power: float
    table: np.ndarray

    def __call__(self, steps: int) -> list[float]:
        return [shrunk(step + 1, self.power) for step in range(steps)]


def shrunk(step: int, power: float) -> float:
    return step**-power


def test_keys_tell_objects_apart_by_values_and_by_what_their_code_refers_to(monkeypatch):
    def key(power=1.0, table=(1.0, 2.0)):
        return Cell(asked, {"entry": Falling(power, np.array(table))}).key

    assert key() == key()
    assert len({key(), key(power=2.0), key(table=(1.0, 2.5)), key(table=(1.0, 2.0, 3.0))}) == 4
    partial = Cell(asked, {"entry": functools.partial(shrunk, power=2.0)}).key
    assert partial == Cell(asked, {"entry": functools.partial(shrunk, power=2.0)}).key
    assert partial != Cell(asked, {"entry": functools.partial(shrunk, power=3.0)}).key
    assert Cell(asked, {"entry": Weighted((1, 2))}).key != Cell(asked, {"entry": Weighted((1, 3))}).key
    before = key()
    monkeypatch.setattr(HERE, "shrunk", lambda step, power: 1.0)
    assert key() != before


def test_the_key_of_the_users_code_is_the_same_in_another_process(tmp_path):
    """Or a run with an entry of the user's could not be gone on with."""
    (tmp_path / "mine.py").write_text(
        "import math\nSETS = {'a', 'b', 'c'}\nSCALE = 3.0\n\n"
        "def helper(x):\n    return math.exp(x) if str(x) not in SETS else SCALE\n\n"
        "class Mine:\n    def __init__(self):\n        self.table = {'a': (1, 2)}\n\n"
        "    def __call__(self, steps):\n        return [helper(k / steps) * SCALE for k in range(steps)]\n\n"
        "mine = Mine()\n"
    )
    (tmp_path / "key.py").write_text(
        "from privypurse_lab.papers.cells import Cell\nfrom privypurse_lab.papers.entries import load_entry\n"
        "name, entry = load_entry('mine.py:mine')\nprint(Cell(load_entry, {'entry': entry}).key)\n"
    )
    source = str(pathlib.Path(cells.__file__).parents[2])
    keys = {
        subprocess.run(
            [sys.executable, "key.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(keys) == 1
    assert len(keys.pop().strip()) == 24


class Remembers:
    """An object of the user's that changes while it is used."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, steps: int) -> list[float]:
        self.asked += 1
        return [1.0] * steps


def test_an_object_that_remembers_things_is_found_again(tmp_path):
    entry = Remembers()
    work = [Cell(asked, {"entry": entry})]
    results = run(work, tmp_path / "cells.jsonl")
    assert results[Cell(asked, {"entry": entry})] == {"says": [1.0] * 4}
    assert entry.asked == 0  # a copy was used, as on other cores


def test_cells_with_functions_of_no_module_run_on_other_cores(tmp_path):
    """A function typed into a notebook, or made by another one."""
    made = types.FunctionType(compile("lambda steps: [0.5] * steps", "cell", "eval").co_consts[0], {})
    work = [Cell(asked, {"entry": made}), Cell(asked, {"entry": lambda steps: [steps]})]
    results = run(work, tmp_path / "cells.jsonl", workers=2)
    assert [results[cell]["says"] for cell in work] == [[0.5] * 4, [4]]
