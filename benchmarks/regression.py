"""R2 and mean absolute error of the regressors with defaults, beside least squares, AdaSSP and DP-EBM.

Run: ``PRIVYPURSE_DATA=folder python benchmarks/regression.py`` (about half an hour), or as a part of
``benchmarks/utility.py``. Five seeds, each with its own test part of a quarter; delta 1e-6;
add/remove; everything is paid, but AdaSSP knows the number of records. Ranges of columns are
declared, twice too wide for the made-up tables, and so is the range of the target. Additive models
and DP-EBM, which runs where interpret-core is installed, get raw columns; the others get numbers
scaled by their ranges and one column for each category. Numbers in brackets are standard deviations
over seeds. Noise is seeded: these are simulations. On "pareto" and "correlated" nothing was chosen.
Tables with targets of 0 or more are also fitted with a log link and with a logarithm of the target,
beside the same models of scikit-learn.
"""

import argparse
import warnings

import numpy as np
import pandas as pd
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.linear_model import GammaRegressor, LinearRegression, PoissonRegressor
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.model_selection import train_test_split

import peers
import raw_adult
from privypurse.estimators import (
    PrivateAdditiveRegressor,
    PrivateGammaRegressor,
    PrivateHuberRegressor,
    PrivatePoissonRegressor,
    PrivateRidge,
)
from privypurse_lab.data import load

DELTA, EPSILONS = 1e-6, (0.1, 0.5, 1.0, 4.0)
RANGES = {"age": raw_adult.RANGES["age"], "fnlwgt": (10_000, 1_500_000)} | raw_adult.RANGES


def adult(target):
    """Raw Adult: its columns, a number as the target."""
    parts = [pd.DataFrame(dict(load("adult-raw", part).X)) for part in ("train", "test")]
    frame = pd.concat(parts, ignore_index=True)
    kinds = {name: frame[name].fillna("missing").astype(str) for name in frame if name not in RANGES}
    frame = frame.assign(**kinds)
    return frame.drop(columns=target), frame[target].to_numpy(float), RANGES[target]


def encoded(X):
    """Scale numbers by their ranges, and make one column for each category."""
    if not isinstance(X, pd.DataFrame):
        return X
    parts = [(X[[name]].to_numpy(float) - low) / (high - low) for name, (low, high) in RANGES.items() if name in X]
    parts += [pd.get_dummies(X[name]).to_numpy(float) for name in X if name not in RANGES]
    return np.clip(np.hstack(parts), 0, 1)


def declared(X):
    """Return the ranges and the categories of a table, as estimators take them."""
    if not isinstance(X, pd.DataFrame):
        return {"ranges": (0, 1)}
    ranges = {name: bounds for name, bounds in RANGES.items() if name in X}
    return {"ranges": ranges, "categories": {name: sorted(set(X[name])) for name in X if name not in RANGES}}


def widened(table):
    """Declare every range twice as wide as it is."""
    X, y = table
    low, high = X.min(axis=0), X.max(axis=0)
    bounds = float(1.5 * y.min() - 0.5 * y.max()), float(1.5 * y.max() - 0.5 * y.min())
    return 0.25 + (X - low) / (high - low) / 2, y, bounds


def made(kind, n=20_000):
    """Return a made-up table with a target of some kind."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(n, 8))
    if kind == "lognormal":
        return X / 2 + 0.25, np.exp(4 + X[:, :4] @ [2, 1, -1, 0.5] + 0.5 * rng.standard_normal(n)), (0.0, 20_000.0)
    if kind == "t2":
        y = 30 * X[:, 0] - 20 * X[:, 1] + 10 * X[:, 2] + 3 * rng.standard_t(2, n)
        return X / 2 + 0.25, np.clip(y, -500, 500), (-1000.0, 1000.0)
    if kind == "zero-inflated":
        some = rng.random(n) < 1 / (1 + np.exp(2.5 - 3 * X[:, 0]))
        return X / 2 + 0.25, some * np.exp(3 + 1.5 * X[:, 1] + X[:, 2] + 0.4 * rng.standard_normal(n)), (0.0, 5000.0)
    if kind == "pareto":
        X = rng.standard_normal((n, 10)).clip(-4, 4)
        y = np.exp(0.4 * X[:, 0] + 0.3 * X[:, 1]) * (rng.pareto(3.0, n) + 1) * 100
        return (X + 8) / 16, np.minimum(y, 50_000), (0.0, 100_000.0)
    if kind == "counts":
        mean = np.exp(X[:, :4] @ [2, 1, -1, 0.5] - 1)
        return X / 2 + 0.25, rng.poisson(mean * rng.gamma(2.0, 0.5, n)).astype(float), (0.0, 200.0)
    hidden, mix = rng.standard_normal((n, 6)), rng.standard_normal((6, 30))
    X = hidden @ mix + 0.5 * rng.standard_normal((n, 30))
    y = hidden @ [3, -2, 1, 1, 0, 0] + 2 * rng.standard_normal(n)
    return ((X / X.std(axis=0)).clip(-5, 5) + 10) / 20, y, (-60.0, 60.0)


TABLES = {
    "Adult, hours per week": lambda: adult("hours-per-week"),
    "Adult, age": lambda: adult("age"),
    "friedman1": lambda: widened(make_friedman1(20_000, noise=1.0, random_state=0)),
    "friedman2": lambda: widened(make_friedman2(20_000, noise=50.0, random_state=0)),
    "friedman3": lambda: widened(make_friedman3(20_000, noise=0.1, random_state=0)),
    "diabetes": lambda: widened(load_diabetes(return_X_y=True)),
} | {
    kind: lambda kind=kind: made(kind)
    for kind in ("lognormal", "t2", "zero-inflated", "pareto", "counts", "correlated")
}
LEAST = 0.01  # target of a gamma regression


def private(model, least=-np.inf, **settings):
    """Return a function from data and budget to predictions."""

    def fit(X, y, *, bounds, epsilon, delta, seed):
        bounds = max(bounds[0], least), bounds[1]
        return model(epsilon, delta=delta, target_bounds=bounds, random_state=seed, **settings).fit(X, y).predict

    return fit


FITS = {"PrivateRidge": private(PrivateRidge), "PrivateHuberRegressor": private(PrivateHuberRegressor),
        "AdaSSP": peers.fit_adassp}  # fmt: skip
OF_0_OR_MORE = {
    "PrivateRidge, log1p": private(PrivateRidge, target_transform="log1p"),
    "PrivatePoissonRegressor": private(PrivatePoissonRegressor),
    "PrivateGammaRegressor": private(PrivateGammaRegressor, least=LEAST),
}


def dp_ebm(about, **settings):
    """Return the same of DP-EBM, for raw columns."""

    def fit(X, y, *, bounds, epsilon, delta, seed):
        pairs = about["ranges"] if "categories" in about else dict.fromkeys(range(X.shape[1]), about["ranges"])
        names = list(X) if "categories" in about else range(X.shape[1])
        ranges = {place: pairs[name] for place, name in enumerate(names) if name in pairs}
        how = {"ranges": ranges, "target_bounds": bounds, "epsilon": epsilon, "delta": delta, "seed": seed}
        return peers.fit_dp_ebm(X, y, **how, **settings).predict

    return fit


def of_raw_columns(X, positive):
    """Return the fits that take a table as it is."""
    about, there = declared(X), not (reason := peers.why_not("interpret.privacy"))
    fits = {"PrivateAdditiveRegressor": private(PrivateAdditiveRegressor, **about)}
    if positive:
        fits["PrivateAdditiveRegressor, log1p"] = private(PrivateAdditiveRegressor, **about, target_transform="log1p")
    if not there:
        print(f"skipped DP-EBM: {reason}")
    return fits | ({name: dp_ebm(about, **settings) for name, settings in peers.DP_EBM.items()} if there else {})


def smeared(X, y):
    """Least squares of log(1 + y), with the factor of Duan (1983) that makes the mean right."""
    model = LinearRegression().fit(X, np.log1p(y))
    factor = np.exp(np.log1p(y) - model.predict(X)).mean()
    return lambda rows: factor * np.exp(model.predict(rows)) - 1


PLAIN = {"least squares": lambda X, y: LinearRegression().fit(X, y).predict}
PLAIN_OF_0_OR_MORE = {
    "log1p (TransformedTargetRegressor)": lambda X, y: (
        TransformedTargetRegressor(LinearRegression(), func=np.log1p, inverse_func=np.expm1).fit(X, y).predict
    ),
    "log1p, smeared": smeared,
    "PoissonRegressor": lambda X, y: PoissonRegressor(alpha=0, max_iter=1_000).fit(X, y).predict,
    "GammaRegressor": lambda X, y: GammaRegressor(alpha=0, max_iter=1_000).fit(X, np.maximum(y, LEAST)).predict,
}


def compare(tables=tuple(TABLES), seeds=5) -> None:
    """Print R2 and mean absolute error, a table for each data set."""
    warnings.simplefilter("ignore")
    for name in tables:
        try:
            raw, y, bounds = TABLES[name]()
        except FileNotFoundError as error:
            print(f"skipped {name}: {error}")
            continue
        X = encoded(raw)
        print(f"\n{name}, {len(y):,} rows, {X.shape[1]} columns\n\n| R2; MAE | {' | '.join(map(str, EPSILONS))} |")
        print("| --- |" + " --- |" * len(EPSILONS))
        parts = [train_test_split(np.arange(len(y)), random_state=seed) for seed in range(seeds)]
        positive = bounds[0] >= 0 and not name.startswith("Adult")

        def row(label, fit, table, budgets, parts=parts, y=y, bounds=bounds):
            cells = []
            for budget in budgets:
                pairs = []
                for seed, (train, test) in enumerate(parts):
                    how = {"bounds": bounds, "epsilon": budget, "delta": DELTA, "seed": seed} if budget else {}
                    predict = fit(rows(table, train), y[train], **how)
                    found = predict(rows(table, test))
                    pairs.append((r2_score(y[test], found), mean_absolute_error(y[test], found)))
                (r2, error), (spread, _) = np.mean(pairs, axis=0), np.std(pairs, axis=0)
                cells.append(f"{r2:.3f} ({spread:.3f}); {error:.4g}")
            print(f"| {label} | {' | '.join(cells)} |" + " |" * (len(EPSILONS) - len(cells)), flush=True)

        for label, fit in (FITS | (OF_0_OR_MORE if positive else {})).items():
            row(label, fit, X, EPSILONS)
        for label, fit in of_raw_columns(raw, positive).items():
            row(label, fit, raw, EPSILONS)
        for label, fit in (PLAIN | (PLAIN_OF_0_OR_MORE if positive else {})).items():
            row(f"{label}, NOT PRIVATE", fit, X, [None])


def rows(table, places):
    """Return some rows of a data frame or an array."""
    return table.iloc[places] if isinstance(table, pd.DataFrame) else table[places]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), help="which tables")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    compare(options.tables, options.seeds)


if __name__ == "__main__":
    main()
