"""A bar that never stalls, and memory that grows no faster than it should."""

import json
import pathlib

import pytest

from privypurse.tables._schema import read_schema
from tests.cli.commands import leftovers, payments, run, training
from tests.cli.conftest import write_census
from tests.cli.terminal import watch

# Of a command's own work, between two outputs: it stands still no longer than this, however slow or
# busy the machine.
MOST = 0.1


def test_a_bar_moves_all_the_time_on_a_terminal(large, tmp_path):
    seen = watch(large, *training("census.csv", "--out", tmp_path / "model", "--ledger", tmp_path / "budget.db"))
    assert seen.code == 0, seen.output[-2_000:]
    for stage in ("reading census.csv", "preparing", "training", "measuring", "writing"):
        assert stage in seen.output
    assert "100%" in seen.output
    assert seen.longest_gap_s < MOST * seen.seconds, seen.after_gap


def test_a_pipe_gets_a_line_for_each_stage_and_quiet_is_quiet(trained_once, census):
    said = (trained_once / "stderr.txt").read_text()
    assert "reading census.csv ...\n" in said
    assert "\x1b" not in said
    done = run(census, *training("census.csv", "--quiet", "--no-intervals"))
    assert done.returncode == 0
    assert "reading" not in done.stderr


def matrix_bytes(folder: pathlib.Path, rows: int) -> int:
    """Return the size of the encoded matrix, in the four bytes that each number has."""
    return rows * len(read_schema(folder / "census.toml").features) * 4


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["census.toml", None], ids=["declared", "drafted"])
def test_a_million_rows_need_less_than_three_times_their_matrix_and_the_bar_never_stalls(
    schema, tmp_path, record_property
):
    rows = 1_000_000
    peaks = {}
    for count in (1_000, rows):
        folder = tmp_path / str(count)
        folder.mkdir()
        write_census(folder, count)
        seen = watch(folder, *training("census.csv", schema=schema))
        assert seen.code == 0, seen.output[-2_000:]
        peaks[count] = seen.peak_bytes
    matrix = matrix_bytes(folder, rows)
    figures = {
        "peak_mb": peaks[rows] / 1e6,
        "peak_of_a_thousand_rows_mb": peaks[1_000] / 1e6,
        "matrix_mb": matrix / 1e6,
        "longest_gap_s": seen.longest_gap_s,
        "first_output_s": seen.first_s,
        "seconds": seen.seconds,
    }
    print(json.dumps(figures))
    for name, value in figures.items():
        record_property(name, value)
    assert peaks[rows] < 3 * matrix  # of the whole process
    assert seen.longest_gap_s < MOST * seen.seconds, seen.after_gap


@pytest.mark.slow
def test_ten_million_rows_finish_or_are_refused_in_words(tmp_path):
    write_census(tmp_path, 10_000_000)
    seen = watch(tmp_path, *training("census.csv"))
    print(seen.code, seen.seconds, seen.peak_bytes / 1e6, seen.longest_gap_s)
    assert seen.longest_gap_s < MOST * seen.seconds, seen.after_gap
    assert not leftovers(tmp_path)
    if seen.code == 0:
        assert seen.peak_bytes < 3 * matrix_bytes(tmp_path, 10_000_000)
        assert (tmp_path / "model" / "manifest.json").exists()
    else:
        assert seen.code in (2, 5)
        assert "too large" in seen.output or "memory" in seen.output
        assert payments(tmp_path) == 0
