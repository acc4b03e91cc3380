"""How many noise intervals of coefficients hold what they claim, for each kind of column.

An interval claims to hold the mean, over fresh noise, of the coefficient that the same training
gives on the same records. So every table is trained on again and again, and each interval is
compared with the mean of the other trainings. The tables are made up: numbers (two of them
correlated, one in a small part of its declared range), a category with four common values, and one
with sixty values of very different frequency, eight of which no record has. Then curves of three
numbers correlated at 0.5, between the quantiles of 5 and 95 % of the records, every other time with
three times as many records and a rare class, the first table with
two numbers correlated at 0.95, and the synthetic census. Seeds are fixed: these are simulations.

Run: ``python benchmarks/coefficient_intervals.py`` (200 trainings on tables of the first kind, and of
curves, 50 on the others; a quarter of an hour on an idle core for each budget of ``--epsilon``),
``--quick`` for a look. ``--time`` measures how long the intervals of `privypurse train` take beside
the rest of it, on the synthetic census (a minute). Exits with 1 where fewer than 93 of 100 nominal
95 % intervals of the first table, of curves or of the correlated numbers hold for some kind of column.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time
import warnings

import numpy as np
from scipy import special

from privypurse.datasets import make_census
from privypurse.estimators import PrivateAdditiveClassifier, PrivateLogisticRegression
from privypurse.runs._account import Account
from privypurse.runs._demo import census_schema
from privypurse.runs._progress import Progress
from privypurse.runs._rehearse import noise_intervals
from privypurse.runs._train import TrainSettings, train_file
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._schema import Category, Number, Schema, write_schema

ROWS, VALUES, EMPTY, NUMBERS, FEW = 10_000, 60, 8, 4, 20
KINDS = ("numeric", "common category", "rare category", "empty category", "intercept")
CORRELATED, CURVES = "numeric, correlation 0.95", "curve"
LEAST = 0.93
SCHEMA = Schema(
    (
        *(Number(name=f"number {index}", range=(0, 1)) for index in range(NUMBERS)),
        Category(name="job", categories=tuple("abcd")),
        Category(name="diagnosis", categories=tuple(f"G{index}" for index in range(VALUES))),
    )
)


def made_table(seed, correlation=0.5):
    """Return a schema, encoded rows, labels and the kind of each coefficient, the intercept last."""
    rng = np.random.default_rng(seed)
    frequency = np.arange(1.0, VALUES + 1) ** -1.8
    frequency[-EMPTY:] = 0.0
    X = np.zeros((ROWS, len(SCHEMA.features)), dtype=np.float32)
    shared = rng.standard_normal((ROWS, 1))
    own = rng.standard_normal((ROWS, NUMBERS))
    own[:, 1:3] = np.sqrt(1 - correlation) * own[:, 1:3] + np.sqrt(correlation) * shared
    X[:, :NUMBERS] = np.clip([0.3, 0.5, 0.6, 0.05] + own * [0.1, 0.2, 0.15, 0.02], 0, 1)
    X[np.arange(ROWS), NUMBERS + rng.choice(4, ROWS, p=[0.4, 0.3, 0.2, 0.1])] = 1
    X[np.arange(ROWS), NUMBERS + 4 + rng.choice(VALUES, ROWS, p=frequency / frequency.sum())] = 1
    weights = np.concatenate([[2, -2, 1.5, 3], [0.8, -0.8, 0.3, 0], np.clip(rng.standard_normal(VALUES), -2, 2)])
    y = (rng.random(ROWS) < special.expit(X @ weights - 0.5)).astype(int)
    return SCHEMA, X, y, kinds_of(SCHEMA, X)


def correlated_table(seed):
    """Return a table of which only the two correlated numbers are counted."""
    schema, X, y, kinds = made_table(seed, correlation=0.95)
    kinds[:] = ""
    kinds[1:3] = CORRELATED
    return schema, X, y, kinds


def census_table(seed):
    """Return the synthetic census, with the kinds of its columns."""
    census = make_census(ROWS, seed)
    schema = census_schema(census)
    X = TableEncoder(schema).transform(census.X)
    return schema, X, census.y, np.array([f"census: {kind}" for kind in kinds_of(schema, X)])


def curves_of(table, epsilon, fits):
    """Return the curves of so many trainings at some places, with the half-widths of their bands.

    Every other table has more records than a rehearsal has rows, and a rare class.
    """
    rng = np.random.default_rng(table)
    rows, constant = (ROWS, -0.5) if table % 2 == 0 else (3 * ROWS, -3.0)
    X = rng.multivariate_normal(np.zeros(3), np.full((3, 3), 0.5) + 0.5 * np.eye(3), rows)
    scores = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] ** 2 - X[:, 2] + constant
    y = (rng.random(rows) < special.expit(scores)).astype(int)
    places = np.quantile(X, np.linspace(0.05, 0.95, 7), axis=0).T
    values, halves = [], []
    for seed in range(fits):
        model = PrivateAdditiveClassifier(epsilon, ranges=(-6, 6), classes=[0, 1], random_state=seed).fit(X, y)
        shapes = [part for _, part in model.shapes().groupby("column")]
        at = [(own["at"], own["value"], own["high"] - own["value"]) for own in shapes]
        values.append(
            np.ravel([np.interp(own, knots, curve) for own, (knots, curve, _) in zip(places, at, strict=True)])
        )
        halves.append(np.ravel([np.interp(own, knots, half) for own, (knots, _, half) in zip(places, at, strict=True)]))
    return np.array(values), np.array(halves), np.full(places.size, CURVES)


def kinds_of(schema, X):
    """Return the kind of each coefficient, the intercept last."""
    numbers = {column.name for column in schema.columns if isinstance(column, Number)}
    records = X.sum(axis=0)
    kinds = np.where(records == 0, KINDS[3], np.where(records < FEW, KINDS[2], KINDS[1])).astype(object)
    kinds[[name in numbers for name in schema.features]] = KINDS[0]
    return np.append(kinds, KINDS[4])


def intervals_of(make, table, epsilon, fits):
    """Return the coefficients of so many trainings and the half-widths of their intervals, the intercept last."""
    if make is curves_of:
        return curves_of(table, epsilon, fits)
    schema, X, y, kinds = make(table)
    values, halves = [], []
    for seed in range(fits):
        model = PrivateLogisticRegression(epsilon, classes=[0, 1], random_state=seed)
        model._declared_scales = True  # as `privypurse train` does
        model.fit(X, y)
        values.append(np.append(model.coef_, model.intercept_))
        halves.append(np.concatenate([part.ravel() for part in noise_intervals(model, schema, Progress(), seed=seed)]))
    return np.array(values), np.array(halves), kinds


def coverage(epsilon, tables, fits):
    """Return for each kind how many intervals hold, of how many."""
    found = {}
    for make, number in zip((made_table, curves_of, correlated_table, census_table), tables, strict=True):
        for table in range(number):
            values, halves, kinds = intervals_of(make, table, epsilon, fits)
            others = (values.sum(axis=0) - values) / (fits - 1)
            holds = np.abs(values - others) <= halves
            for kind in dict.fromkeys(kinds):
                held, of = found.get(kind, (0, 0))
                part = holds[:, kinds == kind]
                found[kind] = held + int(part.sum()), of + part.size
    found.pop("", None)
    return found


class Stopwatch(Progress):
    """Measures the CPU seconds of each stage of a job, which other processes do not change."""

    def __init__(self):
        self.seconds, self._now = {}, ("starting", time.process_time())

    def stage(self, what, total=None):
        """End the last stage and begin another."""
        last, since = self._now
        self._now = what, time.process_time()
        self.seconds[last] = self.seconds.get(last, 0.0) + self._now[1] - since


def print_times(sizes=(1_000, 30_000, 300_000)):
    """Print the CPU seconds of the stages of `privypurse train`, on the synthetic census. The first run compiles."""
    print("| rows of the census | reading | preparing and training | noise intervals | measuring and writing |")
    print("|---|---|---|---|---|")
    for rows in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder, census = pathlib.Path(name), make_census(rows, seed=1)
            census.to_csv(folder / "census.csv")
            (folder / "census.toml").write_text(write_schema(census_schema(census)))
            watch = Stopwatch()
            settings = TrainSettings(
                data=folder / "census.csv",
                target=census.target,
                epsilon=1.0,
                out=folder / "model",
                account=Account(dataset="census", ledger=folder / "ledger.db"),
                schema=folder / "census.toml",
            )
            train_file(settings, watch)
            watch.stage("done")
        spent = watch.seconds
        reading = sum(seconds for stage, seconds in spent.items() if stage.startswith("reading"))
        training = sum(seconds for stage, seconds in spent.items() if stage.startswith(("preparing", "training")))
        rest = sum(seconds for stage, seconds in spent.items() if stage.startswith(("measuring", "writing")))
        rehearsing = spent["rehearsing the noise"]
        if rows != sizes[0]:
            cells = (f"{seconds:.2f} s" for seconds in (reading, training, rehearsing, rest))
            print(f"| {rows:,} | {' | '.join(cells)} |")
    return 0


def main():
    warnings.simplefilter("ignore")  # about seeds, which are what these runs are made of
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers here")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0], help="budgets")
    parser.add_argument("--quick", action="store_true", help="one table of each kind")
    parser.add_argument("--time", action="store_true", help="measure the time of intervals instead")
    options = parser.parse_args()
    if options.time:
        return print_times()
    epsilons, tables, fits = options.epsilon, (1, 1, 1, 1) if options.quick else (8, 8, 2, 2), 25
    report, short = {}, False
    print("| kind of column | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |")
    print("|---|" + "---|" * len(epsilons))
    found = {epsilon: coverage(epsilon, tables, fits) for epsilon in epsilons}
    for kind in found[epsilons[0]]:
        cells = []
        for epsilon in epsilons:
            held, of = found[epsilon][kind]
            is_short = held < LEAST * of
            short = short or (is_short and kind in (*KINDS, CURVES, CORRELATED))
            cells.append(f"{held} of {of}, {held / of:.0%}" + (" (short)" if is_short else ""))
        report[kind] = {str(epsilon): found[epsilon][kind] for epsilon in epsilons}
        print(f"| {kind} | " + " | ".join(cells) + " |")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
