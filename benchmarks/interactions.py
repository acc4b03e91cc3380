"""Additive models with and without pairs, on made-up tables with and without interactions.

Run: ``python benchmarks/interactions.py`` (a few minutes). Columns are uniform from 0 to 1, and
ranges are declared twice too wide. A quarter of the rows is set aside. Delta 1e-6; noise is seeded:
simulations.
"""

import argparse
import warnings

import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.metrics import r2_score, roc_auc_score

from privypurse.estimators import PrivateAdditiveClassifier, PrivateAdditiveRegressor

EPSILONS, DELTA = (0.1, 0.5, 1.0, 4.0), 1e-6


def friedman1(rng):
    return (*make_friedman1(26_666, noise=1.0, random_state=int(rng.integers(2**31))), (-15, 45))


def skewed(rng):
    X = rng.uniform(size=(66_666, 8))
    together = 5.6 * (X[:, 3] - 0.5) * (X[:, 4] - 0.5) + 2 * (X[:, 0] > 0.5) * (X[:, 5] - 0.5)
    score = 1.2 * np.sin(3 * X[:, 0]) + 6 * (X[:, 1] - 0.5) ** 2 + X[:, 2] + together
    return X, np.exp(score + 0.3 * rng.standard_normal(len(X))), (0, 200)


def additive(rng):
    X = rng.uniform(size=(26_666, 10))
    score = 10 * np.sin(6 * X[:, 0]) + 20 * (X[:, 1] - 0.5) ** 2 + 10 * X[:, 2] - 5 * X[:, 3]
    return X, score + rng.standard_normal(len(X)), (-40, 60)


def additive_classes(rng):
    X = rng.uniform(size=(40_000, 10))
    score = 2 * np.sin(6 * X[:, 0]) + 6 * (X[:, 1] - 0.5) ** 2 + 2 * X[:, 2] - 1.5 * X[:, 3] - 1
    return X, (rng.random(len(X)) < 1 / (1 + np.exp(-score))).astype(int), None


def measured(table, epsilon, interactions, seed):
    X, y, bounds = table(np.random.default_rng(seed))
    settings = {"ranges": (-0.5, 1.5), "delta": DELTA, "random_state": seed, "interactions": interactions}
    kept = len(y) * 3 // 4
    if bounds is None:
        model = PrivateAdditiveClassifier(epsilon, classes=[0, 1], **settings).fit(X[:kept], y[:kept])
        return 100 * roc_auc_score(y[kept:], model.decision_function(X[kept:]))
    model = PrivateAdditiveRegressor(epsilon, target_bounds=bounds, **settings).fit(X[:kept], y[:kept])
    return r2_score(y[kept:], model.predict(X[kept:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"| table | model | {' | '.join(f'{epsilon:g}' for epsilon in EPSILONS)} |\n|---|---|---|---|---|---|")
    for table in (friedman1, skewed, additive, additive_classes):
        digits = 2 if table is additive_classes else 3
        for label, interactions in (("curves", False), ("pairs", "auto")):
            found = [[measured(table, one, interactions, seed) for seed in range(options.seeds)] for one in EPSILONS]
            cells = [f"{np.mean(own):.{digits}f} ({np.std(own):.{digits}f})" for own in found]
            print(f"| {table.__name__} | {label} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
