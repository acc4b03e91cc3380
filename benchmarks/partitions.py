"""What it costs to have rows on a cluster: a gradient over Dask partitions against the same rows in one process.

Two worker processes on this machine; the difference is messages, not network.

Run: ``python benchmarks/partitions.py [--json FILE]``
"""

import argparse
import json
import pathlib
import statistics
import time

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from privypurse.core.queries import GradientAt
from privypurse.losses import Logistic
from privypurse.oracles._dask_backend import DaskOracle
from privypurse.oracles._linear import DenseOracle

ROWS, COLUMNS = 400_000, 100


def median(work, repeats=15):
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((ROWS, COLUMNS), dtype=np.float32), rng.integers(0, 2, ROWS)
    query, loss = GradientAt(point=rng.standard_normal(COLUMNS + 1)), Logistic(clip_derivative=0.5)
    local = DenseOracle(X, y, loss=loss)
    here = median(lambda: local.answer(query))
    print(f"one process, all threads: {1e3 * here:.1f} ms for {ROWS:,} x {COLUMNS}")
    rows = []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        for partitions in (2, 8, 32):
            size = ROWS // partitions
            there = DaskOracle(
                da.from_array(X, chunks=(size, COLUMNS)), da.from_array(y, chunks=size), client=client, loss=loss
            )
            taken = median(lambda oracle=there: oracle.answer(query))
            each = 1e3 * (taken - here) / partitions
            rows.append({"partitions": partitions, "ms": 1e3 * taken, "overhead ms each": each})
            print(f"{partitions:>3} partitions: {1e3 * taken:.1f} ms, {each:.2f} ms more for each partition")
    if arguments.json:
        arguments.json.write_text(json.dumps({"local ms": 1e3 * here, "partitions": rows}, indent=2))


if __name__ == "__main__":
    main()
