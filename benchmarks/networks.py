"""Networks of several kinds by `fit` without choices, beside Adam with one fixed rate in the user's own loop.

Seven tasks: digits with convolutions and with fixed random features (10,000 images of MNIST), two
one-hot tables (Adult, Bank) and two made-up regressions with two layers, one of them skewed, and
made-up sequences with one encoder layer. Numbers are scaled by public knowledge. Adam has rate 0.01,
Poisson samples of 256 expected records, clip norm 1 and five epochs. Scores are those of held-out
records: accuracy in percent, or R² in percent; delta 1e-6, add/remove, and each seed draws the
initial weights and the noise of both.

Claim: `fit` is never worse than Adam, up to twice the standard error of the difference. A row that
misses it says so.

Run: ``PRIVYPURSE_DATA=folder python benchmarks/networks.py [--tasks NAME ...] [--seeds N ...]``
"""

import argparse
import functools
import itertools
import json
import math
import os
import pathlib
import statistics
import time

import numpy as np
import torch
from torch import nn

from privypurse import NoiseSource
from privypurse.pytorch import fit, make_private
from privypurse.training import ProgressBar
from privypurse_lab.data import load

DELTA = 1e-6
WAYS = ("by_fit", "by_adam")


def convolutions():
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def two_layers(columns, outputs, units=32):
    return nn.Sequential(nn.Linear(columns, units), nn.ReLU(), nn.Linear(units, outputs))


class Encoder(nn.Module):
    """Words and their places, one encoder layer, and the mean of its outputs."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 16), nn.Parameter(torch.zeros(12, 16), requires_grad=False)
        nn.init.normal_(self.places)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, words):
        """Return three scores for each sequence."""
        return self.out(self.layer(self.words(words) + self.places).mean(1))


def random_features():
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    module[1].requires_grad_(False)
    return module


@functools.cache
def digits():
    parts = []
    for part in ("train", "test"):
        table = load("mnist", part)
        pixels = torch.from_numpy(table.X[:10_000]).reshape(-1, 1, 28, 28)
        parts.append((2 * pixels - 1, torch.from_numpy(table.y[:10_000])))
    return parts


def split(X, y):
    """Hold out every fifth record."""
    X, held = torch.as_tensor(X), torch.arange(len(y)) % 5 == 0
    y = torch.as_tensor(y)
    return (X[~held], y[~held]), (X[held], y[held])


def dense(table):
    X = table.X.toarray() if hasattr(table.X, "toarray") else table.X
    return X.astype(np.float32)


@functools.cache
def adult():
    tables = [load("adult", part) for part in ("train", "test")]
    return [(torch.from_numpy(dense(table)), torch.as_tensor(table.y).long()) for table in tables]


@functools.cache
def bank():
    table = load("bank")
    order = np.random.default_rng(0).permutation(len(table.y))
    return split(dense(table)[order], table.y[order].astype(np.int64))


@functools.cache
def smooth():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50_000, 10)).astype(np.float32)
    y = X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] / 2 + 0.3 * X[:, 4:].sum(1) / 6**0.5
    return split(X, ((y + 0.2 * rng.standard_normal(len(y))) / 1.5).astype(np.float32)[:, None])


@functools.cache
def skewed():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((50_000, 10)).astype(np.float32)
    y = 0.5 * X[:, 0] + 0.4 * X[:, 1] * (X[:, 2] > 0) + 0.3 * X[:, 3:].sum(1) / 7**0.5
    return split(X, (np.exp(y + 0.2 * rng.standard_normal(len(X))) - 1.3).astype(np.float32)[:, None])


@functools.cache
def sequences():
    rng = np.random.default_rng(3)
    words = rng.integers(0, 20, (25_000, 12))
    # Which of two words is more frequent, or neither.
    more = (words < 4).sum(1) - (words >= 16).sum(1)
    return split(words, np.where(more > 0, 2, np.where(more < 0, 0, 1)))


TASKS = {
    "digits, convolutions": (digits, convolutions, nn.CrossEntropyLoss()),
    "digits, random features": (digits, random_features, nn.CrossEntropyLoss()),
    "adult, two layers": (adult, lambda: two_layers(123, 2), nn.CrossEntropyLoss()),
    "bank, two layers": (bank, lambda: two_layers(32, 2), nn.CrossEntropyLoss()),
    "smooth regression": (smooth, lambda: two_layers(10, 1, 64), nn.MSELoss()),
    "skewed regression": (skewed, lambda: two_layers(10, 1, 64), nn.MSELoss()),
    "sequences, encoder": (sequences, Encoder, nn.CrossEntropyLoss()),
}


def score(module, data):
    """Return accuracy, or R², in percent."""
    inputs, targets = data
    module.eval()
    with torch.no_grad():
        out = torch.cat([module(part) for part in inputs.split(2_000)])
    if targets.is_floating_point():
        return 100 * (1 - float(((out - targets) ** 2).sum() / ((targets - targets.mean()) ** 2).sum()))
    return 100 * float((out.argmax(1) == targets).double().mean())


def by_fit(module, train, loss, epsilon, seed):
    budget = {"records": len(train[1]), "epsilon": epsilon, "delta": DELTA}
    fit(module, train, loss=loss, **budget, noise=NoiseSource(seed=seed), callbacks=[ProgressBar()])


def by_adam(module, train, loss, epsilon, seed):
    budget = {"records": len(train[1]), "epsilon": epsilon, "delta": DELTA}
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    run = {"batch_size": 256, "epochs": 5, "clip_norm": 1.0, "noise": NoiseSource(seed=seed)}
    private = make_private(module, optimizer, train, loss=loss, **budget, **run)
    while not private.engine.stop_reason:
        for inputs, targets in private.loader:
            private.engine.backward(inputs, targets)
            optimizer.step()
    private.engine.detach()


def one_run(way, task, epsilon, seed):
    data, network, loss = TASKS[task]
    train, held = data()
    torch.manual_seed(seed)
    module = network()
    way(module, train, loss, epsilon, seed)
    return score(module, held)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="NAME", help=", ".join(TASKS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 4.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    chosen = parser.parse_args()
    if not os.environ.get("PRIVYPURSE_DATA"):
        print("skipped: PRIVYPURSE_DATA is not set, and the tables are not here")
        return
    figures = []
    print(f"{'task':<26} {'epsilon':>7} {'fit (sd)':>16} {'Adam (sd)':>16} {'seconds':>13}")
    for task, epsilon in itertools.product(chosen.tasks, chosen.epsilons):
        row = {"task": task, "epsilon": epsilon}
        for way in (by_fit, by_adam):
            start = time.perf_counter()
            found = [one_run(way, task, epsilon, seed) for seed in chosen.seeds]
            row |= {way.__name__: found, f"{way.__name__} seconds": (time.perf_counter() - start) / len(found)}
        figures.append(row)
        scores = " ".join(f"{f'{statistics.mean(row[way]):.2f} ({spread(row[way]):.2f})':>16}" for way in WAYS)
        seconds = " / ".join(f"{row[f'{way} seconds']:.0f}" for way in WAYS)
        print(f"{task:<26} {epsilon:>7g} {scores} {seconds:>13} {verdict(row)}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1))


def spread(found):
    return statistics.stdev(found) if len(found) > 1 else 0.0


def verdict(row):
    """Compare by twice the standard error of the difference of means."""
    ours, theirs = (row[way] for way in WAYS)
    error = math.hypot(spread(ours), spread(theirs)) / math.sqrt(len(ours))
    return "ok" if statistics.mean(ours) >= statistics.mean(theirs) - 2 * error else "MISSED"


if __name__ == "__main__":
    main()
