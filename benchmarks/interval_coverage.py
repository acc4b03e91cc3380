"""How many 95 % intervals of measured figures hold the truth, for every figure that a report shows.

The tables are made up, so that the truth is known: what the same model reaches on a million other
records. Every run draws new records to measure on and new noise, under the share of the budget that
`privypurse train` sets aside for measuring. Seeds are fixed: these are simulations.

Run: ``python benchmarks/interval_coverage.py`` (ten minutes); ``--runs 50`` for a look. Exits with
1 where fewer than 93 of 100 intervals of some figure hold, as for long tails behind many zeros.
"""

import argparse
import math
import sys
import warnings

import numpy as np

from privypurse import NoiseSource, Purse
from privypurse.accounting import convert
from privypurse.estimators import PrivateLogisticRegression, PrivateRidge
from privypurse.estimators._noise_intervals import drawn_classes
from privypurse.runs._measure import MEDIAN, _middle, measure, measure_share
from privypurse.runs._rows import EncodedRows
from privypurse.tables._schema import Category, ClassTarget, Number, NumberTarget, Schema

DELTA, TRUE_RECORDS, LEAST = 1e-6, 1_000_000, 0.93
COLUMNS = (
    *(Number(name=f"number {place}", range=(0, 1)) for place in range(3)),
    Category(name="job", categories=tuple("abcd")),
)
WEIGHTS = np.array([3.0, -2.0, 2.0, 0.8, -0.8, 0.3, 0.0])
# Name, kind, intercept, records to measure on, and epsilon of the whole run.
CASES = (
    ("two classes", "two", -1.0, 3_000, 1.0),
    ("one in ten", "two", -3.0, 2_000, 1.0),
    ("one in ten, many records", "two", -3.0, 20_000, 1.0),
    ("one in ten, large budget", "two", -3.0, 5_000, 8.0),
    ("even classes, small budget", "two", -1.5, 3_000, 0.3),
    ("three classes", "three", 0.0, 4_000, 1.0),
    ("numbers", "numbers", 0.0, 3_000, 1.0),
    ("numbers, large budget", "numbers", 0.0, 3_000, 8.0),
    ("numbers in a wide range", "wide", 0.0, 3_000, 1.0),
    ("one in six far out", "far", 0.0, 3_000, 1.0),
    ("heavy-tailed numbers", "tails", 0.0, 3_000, 1.0),
    ("heavy-tailed numbers, large budget", "tails", 0.0, 3_000, 8.0),
)
# No constant was chosen by these.
HELD_OUT = (
    ("heavy-tailed scores", "heavy scores", -1.5, 3_000, 1.0),
    ("three in a hundred", "two", -4.4, 10_000, 1.0),
    ("five classes, one rare", "five", 0.0, 5_000, 1.0),
    ("many zeros", "zeros", 0.0, 3_000, 1.0),
    ("many zeros, large budget", "zeros", 0.0, 3_000, 8.0),
    ("insurance claims", "claims", 0.0, 3_000, 1.0),
    ("insurance claims, large budget", "claims", 0.0, 3_000, 8.0),
    ("waiting times", "times", 0.0, 3_000, 1.0),
)


def records(rng, rows, kind, intercept):
    """Draw records: two columns depend on each other, one of them on the category."""
    X = np.zeros((rows, 7), dtype=np.float32)
    job = rng.choice(4, rows, p=[0.4, 0.3, 0.2, 0.1])
    shared = rng.standard_normal(rows)
    X[:, 0] = np.clip(0.3 + 0.2 * shared, 0, 1)
    X[:, 1] = np.clip(0.5 + 0.1 * shared + 0.15 * rng.standard_normal(rows), 0, 1)
    X[:, 2] = np.clip(0.2 + 0.1 * job + 0.1 * rng.standard_normal(rows), 0, 1)
    X[np.arange(rows), 3 + job] = 1
    if kind == "heavy scores":
        X[:, :3] = np.minimum(0.02 * rng.pareto(1.5, (rows, 3)), 1)
        X[:, 1] = np.minimum(X[:, 0] + X[:, 1], 1)
        kind = "two"
    scores = X @ WEIGHTS + intercept
    if kind == "two":
        return X, drawn_classes(scores, rng)
    if kind == "three":
        return X, drawn_classes(np.column_stack([scores, -scores, np.full(rows, 0.5)]), rng)
    if kind == "five":
        return X, drawn_classes(np.column_stack([*(scores * k for k in (1, 0.5, 0, -0.5)), np.full(rows, -3)]), rng)
    low, high = RANGES[kind]
    if kind == "far":
        y = scores + rng.laplace(size=rows) + 30 * (rng.random(rows) < 0.16)
    elif kind == "tails":
        y = scores + rng.standard_t(2, size=rows)
    elif kind == "zeros":
        y = np.where(rng.random(rows) < 0.7, 0.0, np.exp(scores + rng.standard_normal(rows)))
    elif kind == "claims":
        y = np.where(rng.random(rows) < 0.85, 0.0, np.exp(scores) * rng.pareto(1.8, rows))
    elif kind == "times":
        y = np.exp(scores / 2) * rng.exponential(size=rows)
    else:
        y = scores + rng.laplace(size=rows)
    return X, np.clip(y, low, high)


RANGES = {"numbers": (-10.0, 10.0), **dict.fromkeys(("wide", "far", "tails"), (-54.0, 54.0))}
RANGES |= {"zeros": (0.0, 200.0), "claims": (0.0, 500.0), "times": (0.0, 60.0)}


def trained(kind, intercept, epsilon):
    """Return a private model and its schema, trained on 20,000 records."""
    X, y = records(np.random.default_rng(7), 20_000, kind, intercept)
    if kind in RANGES:
        target, model = NumberTarget(name="y", range=RANGES[kind]), PrivateRidge(epsilon, target_bounds=RANGES[kind])
    else:
        number = {"three": 3, "five": 5}.get(kind, 2)
        target = ClassTarget(name="y", classes=tuple("abcde"[:number]))
        model = PrivateLogisticRegression(epsilon, classes=list(range(number)))
    model._declared_scales = True  # as `privypurse train` does
    return model.set_params(random_state=7).fit(X, y), Schema(COLUMNS, target)


def figures(measured):
    """Return all figures of a measurement that have intervals, by name."""
    found = {measured.metric: (measured.value, measured.low, measured.high)}
    for one in measured.estimates:
        if one.kind != "calibration":  # the cells of an exact measurement are others
            found["lead" if one.kind == "lead" else f"{one.kind} {one.of}".strip()] = (one.value, one.low, one.high)
    return found


def coverage(case, runs):
    """Return for each figure the share of intervals that hold, their mean width, and the truth."""
    _, kind, intercept, rows, epsilon = case
    model, schema = trained(kind, intercept, epsilon)
    many = EncodedRows(*records(np.random.default_rng(8), TRUE_RECORDS, kind, intercept))
    truth = figures(measure(model, many, schema.target, on="all"))
    mu = convert.gdp_mu(epsilon, DELTA)
    share = convert.gdp_epsilon(mu * math.sqrt(measure_share(1 / mu, rows)), DELTA)
    held = {}
    if kind in RANGES:
        sizes = {
            measured_error: np.abs(many.y - said)
            for measured_error, said in (("mean absolute error", np.clip(model.predict(many.X), *RANGES[kind])),
                                         (MEDIAN, _middle(model)))
        }  # fmt: skip
    for seed in range(runs):
        few = EncodedRows(*records(np.random.default_rng([9, seed]), rows, kind, intercept))
        purse = Purse(share, DELTA, neighbouring="add-remove", noise=NoiseSource(seed=seed))
        measured = measure(model, few, schema.target, on="few", purse=purse, schema=schema)
        for name, (value, low, high) in figures(measured).items():
            held.setdefault(name, []).append((truth[name][0], low <= truth[name][0] <= high, high - low, value))
            if kind in RANGES and name in sizes:
                cut = float(np.minimum(sizes[name], measured.limit).mean())
                held.setdefault(f"{name}, as cut", []).append((cut, low <= cut <= high, high - low, value))
    return {name: np.mean(found, axis=0) for name, found in held.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--only", default="", help="tables whose names begin so")
    arguments = parser.parse_args()
    runs = arguments.runs
    warnings.simplefilter("ignore")  # about seeds
    print(f"{runs} runs; nominal 95 %\n")
    print(
        "| table | records | epsilon | figure | truth | mean value | mean width | held |\n| --- " + "| --- " * 7 + "|"
    )
    worst = 1.0
    for case in (one for one in CASES + HELD_OUT if one[0].startswith(arguments.only)):
        for name, (truth, held, width, value) in coverage(case, runs).items():
            worst = min(worst, held)
            numbers = f"{truth:.3f} | {value:.3f} | {width:.3f} | {100 * held:.1f} %"
            print(f"| {case[0]} | {case[3]:,} | {case[4]:g} | {name} | {numbers} |", flush=True)
    print(f"\nleast: {100 * worst:.1f} %")
    sys.exit(int(worst < LEAST))


if __name__ == "__main__":
    main()
