"""Ten million rows of a hundred numbers, 4 GB on disk, with less than 1 GB in memory."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

ROWS, COLUMNS = 10_000_000, 100

PROGRAM = """
    import sys, time
    import numpy as np
    from privypurse.core.queries import GradientAt
    from privypurse.losses import Logistic
    from privypurse.oracles.chunks import from_arrays
    from privypurse.oracles._linear import ChunkedOracle

    X = np.load(sys.argv[1], mmap_mode="r")
    y = np.zeros(len(X), dtype=np.int8)
    oracle = ChunkedOracle(from_arrays(X, y), features=X.shape[1], loss=Logistic())
    start = time.perf_counter()
    box = oracle.answer(GradientAt(point=np.zeros(X.shape[1] + 1)))
    seconds = time.perf_counter() - start
    # The highest resident size of this program itself; getrusage would count the process that started it.
    (peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print(int(peak) * 1024, seconds, *box._value)
"""


def test_the_same_program_on_a_small_file(tmp_path):
    assert_streams(tmp_path, rows=200_000)


@pytest.mark.slow
def test_ten_million_rows(tmp_path):
    assert_streams(tmp_path, rows=ROWS)


def assert_streams(folder, rows):
    path = folder / "X.npy"
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, COLUMNS))
    rng = np.random.default_rng(0)
    total = np.zeros(COLUMNS)
    for start in range(0, rows, 100_000):
        block = rng.standard_normal((min(100_000, rows - start), COLUMNS), dtype=np.float32) / 40
        table[start : start + len(block)] = block
        lengths = np.sqrt(1 + (block.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
        total += (block / np.maximum(lengths, 1.0)).sum(axis=0)
    table.flush()
    del table
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(path)]
    shown = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    memory, seconds, gradient = float(shown[0]), float(shown[1]), np.array(shown[2:], dtype=float)
    print(f"{rows:,} rows: {seconds:.1f} s, {memory / 1e6:.0f} MB resident at most")
    # All labels are negative, so the slope is 1/2 at zero.
    assert gradient[:-1] == pytest.approx(total / 2, rel=1e-3, abs=1e-3 * rows**0.5)
    assert memory < 1e9
