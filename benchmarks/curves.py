"""Additive models from declared ranges alone, with and without pairs, beside lines and DP-EBM.

Run: ``PRIVYPURSE_DATA=folder python benchmarks/curves.py`` (about an hour), or as a part of
``benchmarks/utility.py``. Raw Adult: trained on the training part, measured on the test part, five
seeds. Bank and IPUMS-BR: five folds. Columns of two values are lines, and categories to DP-EBM, which
runs where interpret-core is installed and gets the same ranges. The time of a fit stands beside that
of gradient boosting. Delta 1e-6; everything is paid; noise is seeded: simulations.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import KFold

import peers
from privypurse.estimators import PrivateAdditiveClassifier
from privypurse_lab.data import load
from raw_adult import RANGES, SCHEMA

OURS = {"pairs": {"interactions": "auto"}, "curves": {"interactions": False}}
OURS["lines"] = OURS["curves"] | {"curves": False}
EPSILONS, DELTA = (0.1, 0.5, 1.0, 4.0), 1e-6
DATASETS = ["adult-raw", "bank", "ipums-br"]


def adult(seeds):
    """Yield the settings and the parts of raw Adult, once for each seed."""
    listed = {column.name: column.categories for column in SCHEMA.columns if column.name not in RANGES}
    parts = []
    for part in ("train", "test"):
        table = load("adult-raw", part)
        frame = pd.DataFrame({name: np.asarray(table.X[name]) for name in [*RANGES, *listed]})
        parts += [frame.fillna(dict.fromkeys(listed, "missing")), table.y]
    for _ in range(seeds):
        yield {"ranges": RANGES, "categories": listed}, *parts


def one_hot(name):
    """Yield the settings and the parts of a table in one-hot form, once for each of five folds."""
    table = load(name)
    X = table.X.toarray()
    numbers = [place for place in range(X.shape[1]) if len(np.unique(X[:, place])) > 2]
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        yield {"ranges": (0, 1), "curves": numbers}, X[train], table.y[train], X[test], table.y[test]


def ours(name):
    """Return a function from a table and a budget to a fitted model."""

    def fit(settings, X, y, *, epsilon, seed):
        how = {"delta": DELTA, "classes": [0, 1], "random_state": seed, **settings, **OURS[name]}
        return PrivateAdditiveClassifier(epsilon, **how).fit(X, y)

    return fit


def dp_ebm(name):
    """Return the same of DP-EBM."""

    def fit(settings, X, y, *, epsilon, seed):
        if isinstance(X, pd.DataFrame):
            ranges = {place: RANGES[column] for place, column in enumerate(X) if column in RANGES}
        else:
            ranges = dict.fromkeys(settings["curves"], settings["ranges"])
        return peers.fit_dp_ebm(X, y, ranges=ranges, epsilon=epsilon, delta=DELTA, seed=seed, **peers.DP_EBM[name])

    return fit


MODELS = {name: ours(name) for name in OURS} | {name: dp_ebm(name) for name in peers.DP_EBM}


def cell(scores):
    return f"{np.mean(scores):.2f} ({np.std(scores):.2f})"


def compare(datasets, models=MODELS, seeds=5) -> None:
    """Print accuracy, AUC and log loss in percent, and the time of a fit."""
    warnings.simplefilter("ignore")
    print("| table | model | epsilon | accuracy | AUC | log loss | fit, s |\n|---|---|---|---|---|---|---|")
    for name in datasets:
        runs = list(adult(seeds) if name == "adult-raw" else one_hot(name))
        for model in models:
            if model in peers.DP_EBM and (reason := peers.why_not("interpret.privacy")):
                print(f"skipped {model}: {reason}")
                continue
            for epsilon in EPSILONS:
                found = []
                for seed, (settings, X, y, Xt, yt) in enumerate(runs):
                    begin = time.perf_counter()
                    fitted = MODELS[model](settings, X, y, epsilon=epsilon, seed=seed)
                    spent, chances = time.perf_counter() - begin, fitted.predict_proba(Xt)[:, 1]
                    right = 100 * np.mean((chances > 0.5) == yt)
                    found.append((right, 100 * roc_auc_score(yt, chances), 100 * log_loss(yt, chances), spent))
                cells = " | ".join(map(cell, np.transpose(found)[:3]))
                print(f"| {name} | {model} | {epsilon:g} | {cells} | {np.median(found, axis=0)[3]:.2f} |", flush=True)
        _, X, y, *_ = runs[0]
        if name == "adult-raw":
            X = X.assign(**{kind: X[kind].astype("category") for kind in X if kind not in RANGES})
        begin = time.perf_counter()
        HistGradientBoostingClassifier(categorical_features="from_dtype").fit(X, y)
        print(f"| {name} | gradient boosting, NOT PRIVATE | | | | | {time.perf_counter() - begin:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="of raw Adult")
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    options = parser.parse_args()
    compare(options.datasets, options.models, options.seeds)


if __name__ == "__main__":
    main()
