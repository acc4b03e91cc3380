"""How fast clipped gradients and line searches are, against memory bandwidth and against numpy.

Ratios within one run, on the threads this process may use:

1. dense float32 gradient well beyond the cache, as a share of the measured streaming-read bandwidth
   (claim: 70 % or more for 64 columns and more; narrower rows are limited by the loss function, not
   by memory);
2. against two-pass numpy (``X @ w``, then ``X.T @ slopes``) over a grid of shapes (claim: never
   slower);
3. Adult's one-hot table, sparse against dense (claim: at least twice as fast);
4. two threads against one (claim: at least 1.7 times);
5. 21 line-search candidates against one gradient (claim: at most twice the time);
6. cost per step over three decades of rows and of non-zeros (claim: linear), with a plot.

Run: ``python benchmarks/kernels.py [--json FILE] [--plot FILE] [--quick]``
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy import sparse, special
from sklearn.datasets import load_svmlight_file
from threadpoolctl import threadpool_limits

from privypurse.core.queries import GradientAt, LossesAlong
from privypurse.losses import Logistic
from privypurse.oracles._linear import DenseOracle, SparseOracle
from privypurse.oracles._partitions import default_threads

LOSS = Logistic(clip_derivative=0.5)
THREADS = default_threads()


def best(work, repeats=7, seconds=0.5):
    """Return the shortest time of at least this many runs and this long, after one to warm up."""
    work()
    times = []
    while len(times) < repeats or sum(times) < seconds:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def side_by_side(works, repeats=7, seconds=2.0):
    """Return the shortest time of each of several functions, run in turns, so that a busy moment falls on all of them."""
    times = [[] for _ in works]
    for work in works:
        work()
    while len(times[0]) < repeats or sum(map(sum, times)) < seconds:
        for work, taken in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def streaming_read(table, pool):
    """Return a function that reads the whole table once, in all threads: the BLAS product of each piece with itself."""
    pieces = [piece for piece in np.array_split(table.reshape(-1), 16 * THREADS) if piece.size]
    return lambda: list(pool.map(lambda piece: np.dot(piece, piece), pieces))


def two_pass_numpy(X, target, w, bias):
    score = X @ w
    score += bias
    slope = -target * special.expit(-target * score)
    np.clip(slope, -0.5, 0.5, out=slope)
    return X.T @ slope, slope.sum()


def made(n, d, rng):
    X = rng.standard_normal((n, d), dtype=np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True) * 1.5
    return X, rng.integers(0, 2, n)


def measure(n, d, rng, pool):
    X, y = made(n, d, rng)
    time.sleep(0.3)  # numpy's threads spin for a while after their last product
    target = np.where(y == 1, 1, -1).astype(np.float32)
    w = rng.standard_normal(d + 1) / np.sqrt(d)
    w32 = w.astype(np.float32)
    oracle, alone = DenseOracle(X, y, loss=LOSS), DenseOracle(X, y, loss=LOSS, threads=1)
    query = GradientAt(point=w)
    search = LossesAlong(point=w, direction=w / np.linalg.norm(w), steps=np.linspace(0, 1, 21))
    with threadpool_limits(1):  # BLAS in our threads, not in its own as well
        gradient, alone_taken, searched, streamed = side_by_side(
            [
                lambda: oracle.answer(query),
                lambda: alone.answer(query),
                lambda: oracle.answer(search),
                streaming_read(X, pool),
            ]
        )
    row = {
        "n": n,
        "d": d,
        "gigabytes": X.nbytes / 1e9,
        "gradient GB/s": X.nbytes / gradient / 1e9,
        "1 thread / all": alone_taken / gradient,
        "21 candidates / gradient": searched / gradient,
        "streaming GB/s": X.nbytes / streamed / 1e9,
        "numpy / ours": best(lambda: two_pass_numpy(X, target, w32[:d], w32[d])) / gradient,
    }
    print(
        f"{n:>10,} x {d:<5} {row['gigabytes']:>5.2f} GB  stream {row['streaming GB/s']:>5.1f}  "
        f"gradient {row['gradient GB/s']:>5.1f} GB/s = {row['gradient GB/s'] / row['streaming GB/s']:>4.0%}  "
        f"numpy/ours {row['numpy / ours']:>5.2f}  1/{THREADS} threads {row['1 thread / all']:>4.2f}  "
        f"21 candidates {row['21 candidates / gradient']:>4.2f}",
        flush=True,
    )
    return row


def one_hot(n, groups, rng):
    """Make a one-hot table with the shape of Adult's: 14 groups of categories, some of them popular, 123 columns."""
    sizes = np.array(groups)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    columns = np.column_stack(
        [s + np.minimum(rng.geometric(0.35, n) - 1, k - 1) for s, k in zip(starts, sizes, strict=True)]
    )
    indptr = np.arange(0, n * len(groups) + 1, len(groups))
    values = np.ones(columns.size, np.float32)
    return sparse.csr_matrix((values, columns.ravel(), indptr), shape=(n, sizes.sum()))


def adult(rng):
    """Return Adult's one-hot table (LIBSVM a9a) as it is usually loaded, or a made one of its shape where it is not at hand."""
    folder = os.environ.get("PRIVYPURSE_DATA")
    if folder and (path := pathlib.Path(folder) / "adult-a9a.train.svm.gz").exists():
        matrix, _ = load_svmlight_file(str(path), n_features=123)
        return "a9a", matrix
    return "made like a9a", one_hot(32_560, [5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 3, 3, 5, 39], rng)


def sparse_against_dense(rng):
    name, matrix = adult(rng)
    y = rng.integers(0, 2, matrix.shape[0])
    query = GradientAt(point=rng.standard_normal(matrix.shape[1] + 1))
    result = {"table": name}
    for dtype in (np.float64, np.float32):
        dense = DenseOracle(matrix.toarray().astype(dtype), y, loss=LOSS)
        thin = SparseOracle(matrix.astype(dtype), y, loss=LOSS)
        assert np.allclose(dense.answer(query)._value, thin.answer(query)._value, atol=1e-2)
        time.sleep(0.3)
        times = 1e3 * best(lambda o=dense: o.answer(query)), 1e3 * best(lambda o=thin: o.answer(query))
        kind = np.dtype(dtype).name
        result[kind] = {"dense ms": times[0], "sparse ms": times[1], "dense / sparse": times[0] / times[1]}
        print(
            f"{name} {matrix.shape}, {kind}: dense {times[0]:.2f} ms, sparse {times[1]:.2f} ms, {times[0] / times[1]:.2f} times"
        )
    return result


def seconds_per_gradient(oracle, w):
    query = GradientAt(point=w)
    return best(lambda: oracle.answer(query))


def scaling(rng):
    """Seconds per gradient over three decades of rows, dense and sparse."""
    sizes = [3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000]
    dense, thin = [], []
    for n in sizes:
        X, y = made(n, 32, rng)
        w = rng.standard_normal(33)
        dense.append(seconds_per_gradient(DenseOracle(X, y, loss=LOSS), w))
        matrix = one_hot(n, [8] * 14, rng)
        w = rng.standard_normal(113)
        thin.append(seconds_per_gradient(SparseOracle(matrix, y, loss=LOSS), w))
    return {"rows": sizes, "dense seconds": dense, "sparse seconds": thin}


def exponent(sizes, times):
    """Slope of log time against log size over the larger sizes, where fixed costs are gone."""
    keep = slice(2, None)
    return float(np.polyfit(np.log(sizes[keep]), np.log(times[keep]), 1)[0])


def plot(result, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for name, label in (("dense seconds", "dense, 32 columns"), ("sparse seconds", "sparse, 14 non-zeros a row")):
        axes.loglog(
            result["rows"], result[name], "o-", label=f"{label}: slope {exponent(result['rows'], result[name]):.2f}"
        )
    reference = np.array(result["rows"], dtype=float)
    axes.loglog(reference, reference * result["dense seconds"][-1] / reference[-1], ":", color="grey", label="linear")
    axes.set(
        xlabel="rows", ylabel="seconds per clipped gradient", title="Cost per step is linear in the number of rows"
    )
    axes.legend()
    figure.savefig(path, dpi=150)


def start_up():
    """Seconds from starting Python to the first gradient: with nothing compiled yet, and with the compiled code on disk."""
    program = (
        "import numpy as np; from privypurse.core.queries import GradientAt; from privypurse.losses import Logistic; "
        "from privypurse.oracles._linear import DenseOracle; "
        "DenseOracle(np.eye(3, dtype=np.float32), [0, 1, 0], loss=Logistic()).answer(GradientAt(point=np.zeros(4)))"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        times = []
        for _ in range(3):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], env=environment, check=True)
            times.append(time.perf_counter() - start)
    return {"first start": times[0], "later starts": min(times[1:])}


def verdict(name, value, good):
    print(f"{name}: {value} {'ok' if good else 'MISSED'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--plot", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="smaller tables")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    shrink = 8 if arguments.quick else 1
    shapes = [(20_000_000, 2), (10_000_000, 4), (6_000_000, 8), (3_000_000, 16), (2_000_000, 32), (1_500_000, 64)]
    shapes += [(1_000_000, 124), (400_000, 256), (250_000, 500), (120_000, 1_000), (60_000, 2_000)]
    with ThreadPoolExecutor(THREADS) as pool:
        rows = [measure(n // shrink, d, rng, pool) for n, d in shapes]
        print("in cache:")
        in_cache = [(2_000, 2), (39_072, 14), (39_072, 124), (5_000, 124), (1_000, 2_000)]
        rows += [measure(n, d, rng, pool) for n, d in in_cache]
    thin = sparse_against_dense(rng)
    linear = scaling(rng)
    starts = start_up()
    print(f"to the first gradient: {starts['first start']:.1f} s once, {starts['later starts']:.1f} s afterwards")

    large = [row for row in rows[: len(shapes)] if row["d"] >= 64]
    shares = [row["gradient GB/s"] / row["streaming GB/s"] for row in large]
    verdict("share of streaming bandwidth, d >= 64", f"{min(shares):.0%} to {max(shares):.0%}", min(shares) >= 0.7)
    beyond = [row["numpy / ours"] for row in rows[: len(shapes)]]
    verdict("two-pass numpy / ours, beyond the cache, least", f"{min(beyond):.2f}", min(beyond) >= 1)
    small = [row["numpy / ours"] for row in rows[len(shapes) :]]
    print(
        f"two-pass numpy / ours, in the cache (fixed costs of checks and boxes count): {min(small):.2f} to {max(small):.2f}"
    )
    times = [thin[kind]["dense / sparse"] for kind in ("float64", "float32")]
    verdict(
        "sparse faster than dense, float64 as loaded / float32", f"{times[0]:.2f} / {times[1]:.2f} times", times[0] >= 2
    )
    threads = [row["1 thread / all"] for row in large]
    verdict(f"{THREADS} threads against 1, times", f"{min(threads):.2f} to {max(threads):.2f}", max(threads) >= 1.7)
    searches = [row["21 candidates / gradient"] for row in large if row["d"] >= 124]
    verdict("21 candidates / gradient, d >= 124", f"{min(searches):.2f} to {max(searches):.2f}", max(searches) <= 2)
    slopes = [exponent(linear["rows"], linear[name]) for name in ("dense seconds", "sparse seconds")]
    verdict(
        "exponent of cost in rows", f"{slopes[0]:.2f} dense, {slopes[1]:.2f} sparse", all(0.9 < s < 1.1 for s in slopes)
    )
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"dense": rows, "sparse": thin, "scaling": linear, "start": starts}, indent=2)
        )
    if arguments.plot:
        plot(linear, arguments.plot)


if __name__ == "__main__":
    main()
