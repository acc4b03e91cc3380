"""Accuracy of ``PrivateLogisticRegression(epsilon)`` with defaults: against no privacy, peers, tuning.

Run: ``PRIVYPURSE_DATA=folder python benchmarks/utility.py`` (about two hours), ``--quick`` for a look,
or some of its ``--parts``: "curves" is ``benchmarks/curves.py``, accuracy, AUC and log loss of additive
models, and "regression" is ``benchmarks/regression.py``. Their own docstrings say how they measure.

The other parts: five folds and several seeds of the noise; delta 1e-8; add/remove; the spread is the
standard error over folds and seeds. Peers run where they are installed (``benchmarks/peers.py`` says
how) and are skipped by name elsewhere. Noise is seeded, so that the numbers can be had again: these
are simulations.
"""

import argparse
import contextlib
import gzip
import itertools
import json
import os
import pathlib
import time
import warnings
from unittest import mock

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

import curves
import peers
import regression
from privypurse.estimators import PrivateLinearSVC, PrivateLogisticRegression, SimulationWarning
from privypurse.estimators import _preparation as preparation
from privypurse.methods import ADPSGD, DPAGD, PUR, Dynamic, Nesterov, NoisyPGD, ObjPert
from privypurse_lab.data import load

DELTA = 1e-8
EPSILONS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
BARS = {
    "adult": (83.3, 83.9, 84.3, 84.5, 84.6, 84.7),
    "bank": (88.8, 89.1, 89.2, 89.3, 89.3, 89.4),
    "ipums-br": (74.5, 75.2, 75.9, 76.5, 76.6, 76.8),
}
AUTO = "auto"


def estimator(model=PrivateLogisticRegression, **settings):
    """Return a function from data and budget to predictions."""

    def fit(X, y, *, epsilon, delta, seed):
        return model(epsilon, delta=delta, classes=[0, 1], random_state=seed, **settings).fit(X, y).predict

    return fit


def objective_perturbation(X, y, *, epsilon, delta, seed):
    """Fit by objective perturbation, with public facts: its price leaves no room for a preparation."""
    norm = float(np.median(np.linalg.norm(X, axis=1)))
    declared = {"n_public": len(y), "feature_norm": norm, "standardize": False}
    return estimator(method=ObjPert(), **declared)(X, y, epsilon=epsilon, delta=delta, seed=seed)


# The sound versions of the papers' methods see plain rows, limited to a length that is paid for, as the papers' methods do.
OURS = {
    AUTO: estimator(),
    "auto, SVM": estimator(PrivateLinearSVC),
    "Nesterov": estimator(method=Nesterov(), standardize=False),
    "DP-AGD": estimator(method=DPAGD(), standardize=False),
    "ADP-SGD": estimator(method=ADPSGD(), standardize=False),
    "PUR, convex": estimator(method=PUR("convex"), standardize=False),
    "dynamic": estimator(method=Dynamic(), standardize=False),
    "noisy PGD": estimator(method=NoisyPGD(), standardize=False),
    "objective perturbation": objective_perturbation,
}


def patched(**constants):
    """Return a fit with other constants in the preparation."""

    def fit(X, y, *, epsilon, delta, seed):
        with contextlib.ExitStack() as stack:
            for name, value in constants.items():
                stack.enter_context(mock.patch.object(preparation, name, value))
            return estimator()(X, y, epsilon=epsilon, delta=delta, seed=seed)

    return fit


def without_centre(X, y, *, epsilon, delta, seed):
    """Release the spread of columns and not their centre."""
    zero = mock.patch.object(preparation.Preparer, "_centre", lambda self, records, unit: np.zeros(self._rows.columns))
    with zero:
        return estimator()(X, y, epsilon=epsilon, delta=delta, seed=seed)


# What moves the accuracy, and what does not.
ABLATIONS = {
    AUTO: estimator(),
    "no preparation": estimator(standardize=False),
    "no sizes of columns": patched(UNITS_SHARE=0.0),
    "centre, no spread": patched(STRETCH=0.0),
    "spread, no centre": without_centre,
    "full spread (power 1)": patched(STRETCH=1.0),
    "half spread (power 0.5)": patched(STRETCH=0.5),
    "preparation for 3 + 3 %": patched(CENTRE_SHARE=0.03, SPREAD_SHARE=0.03),
    "preparation for 10 + 10 %": patched(CENTRE_SHARE=0.1, SPREAD_SHARE=0.1),
    "constant twice as large": patched(CONSTANT=0.5),
    "no slack at large budgets": patched(MOST_SLACK=1.0),
    "Nesterov in place of auto": estimator(method=Nesterov()),
    "Nesterov, tail mean": estimator(method=Nesterov(average="tail")),
    "DP-AGD in place of auto": estimator(method=DPAGD()),
    "ridge 1e-3": estimator(l2=1e-3),
}


def accuracies(fit, table, epsilon, seeds, delta=DELTA, folds=5):
    """Return the accuracy in percent of each fold and seed."""
    X, y = table
    scores = []
    for number, (train, test) in enumerate(KFold(folds, shuffle=True, random_state=0).split(X)):
        for seed in range(seeds):
            predict = fit(X[train], y[train], epsilon=epsilon, delta=delta, seed=1_000 * seed + number)
            scores.append(100 * np.mean(predict(X[test]) == y[test]))
    return np.array(scores)


def non_private(table):
    """Return scikit-learn's accuracy and that of the majority, in percent, over five folds."""
    X, y = table
    fitted, majority = [], []
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LogisticRegression(C=10.0, max_iter=2_000).fit(X[train], y[train])
        fitted.append(100 * model.score(X[test], y[test]))
        majority.append(100 * np.mean(y[test] == np.bincount(y[train]).argmax()))
    return float(np.mean(fitted)), float(np.mean(majority))


def cell(scores):
    return f"{scores.mean():.2f} ({scores.std() / len(scores) ** 0.5:.2f})"


def compare(name, table, fits, epsilons, seeds, report):
    """Print and keep one table: a row for each fit, a column for each epsilon."""
    print(f"\n## {name}: {len(table[1]):,} rows, {table[0].shape[1]} columns\n")
    print("| | " + " | ".join(f"{epsilon:g}" for epsilon in epsilons) + " |")
    print("|---|" + "---|" * len(epsilons), flush=True)
    rows = {}
    for label, (fit, repeats) in fits.items():
        cells = {epsilon: accuracies(fit, table, epsilon, repeats or seeds) for epsilon in epsilons}
        rows[label] = {str(epsilon): [float(s.mean()), float(s.std() / len(s) ** 0.5)] for epsilon, s in cells.items()}
        print(f"| {label} | " + " | ".join(cell(scores) for scores in cells.values()) + " |", flush=True)
    report[name] = rows
    return rows


def best_in_hindsight(members, table, epsilons, label):
    """Print the best of several fits at each epsilon, chosen by test accuracy for free: NOT private, and in its favour."""
    best = []
    for epsilon in epsilons:
        scores = [accuracies(fit, table, epsilon, 1) for fit in members]
        best.append(max(scores, key=np.mean))
    print(f"| {label} | " + " | ".join(cell(scores) for scores in best) + " |", flush=True)
    return {
        str(epsilon): [float(s.mean()), float(s.std() / len(s) ** 0.5)]
        for epsilon, s in zip(epsilons, best, strict=True)
    }


def utility(tables, epsilons, seeds, report, quick, with_peers):
    """Compare on the three tables of the papers."""
    there = peers.available() if with_peers else dict.fromkeys(peers.PEERS, "left out")
    for name, reason in there.items():
        if reason:
            print(f"skipped {name}: {reason}")
    for name, table in tables.items():
        fits = {label: (fit, None if label.startswith("auto") else 1) for label, fit in OURS.items()}
        rows = compare(name, table, fits, epsilons, seeds, report)
        grid = [
            lambda X, y, member=member, **settings: peers.fit_grid_member(X, y, **settings, **member)
            for member in (peers.GRID[::6] if quick else peers.GRID)
        ]
        if with_peers:
            label = "DP-GD, best of a grid in hindsight"
            rows[label] = best_in_hindsight(grid, table, epsilons, label)
        settings = [peers.PEERS[peer] for peer, reason in there.items() if peer.startswith("opacus") and not reason]
        if settings:
            label = "Opacus, best of three in hindsight"
            rows[label] = best_in_hindsight(settings, table, epsilons, label)
        if not there["diffprivlib"]:
            rows["diffprivlib (delta 0)"] = best_in_hindsight(
                [peers.PEERS["diffprivlib"]], table, epsilons, "diffprivlib (delta 0)"
            )
        plain, majority = non_private(table)
        print(f"| scikit-learn, NOT PRIVATE | {plain:.2f} |" + " |" * (len(epsilons) - 1))
        print(f"| majority | {majority:.2f} |" + " |" * (len(epsilons) - 1))
        rows["scikit-learn, NOT PRIVATE"], rows["majority"] = plain, majority
        bars = dict(zip(EPSILONS, BARS[name], strict=True))
        reached = {epsilon: rows[AUTO][str(epsilon)][0] for epsilon in epsilons}
        missed = [f"{e:g}: {reached[e]:.2f} < {bars[e]}" for e in epsilons if reached[e] < bars[e]]
        print(f"\nBars: {'all met' if not missed else 'MISSED at ' + ', '.join(missed)}", flush=True)


def ablation(tables, seeds, report):
    """Change one thing at a time."""
    for name, table in tables.items():
        compare(
            f"{name}, one thing changed",
            table,
            {k: (f, None) for k, f in ABLATIONS.items()},
            (0.05, 0.2, 1.6),
            seeds,
            report,
        )


def images(part):
    folder = pathlib.Path(os.environ.get("PRIVYPURSE_DATA", "")) / "mnist"
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        X = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784).astype(np.float32) / 255
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        return X, np.frombuffer(file.read(), np.uint8, offset=8).astype(int)


def connections():
    """KDD Cup 1999: is a connection an attack? The columns of numbers, as logarithms: public arithmetic, nothing is learnt."""
    path = pathlib.Path(os.environ.get("PRIVYPURSE_DATA", "")) / "kddcup99-10percent.csv.gz"
    with gzip.open(path, "rt") as file:
        lines = [line.rstrip("\n").split(",") for line in file]
    numbers = np.array([[float(x) for x in line[:1] + line[4:41]] for line in lines])
    return np.log1p(numbers), np.array([line[41] != "normal." for line in lines]).astype(int)


def confirmation(seeds, report):
    """Tables on which nothing was chosen."""
    cancer, digits = load_breast_cancer(return_X_y=True), load_digits(return_X_y=True)
    tables = {"breast cancer": cancer, "digits, odd or even": (digits[0], digits[1] % 2)}
    try:
        X, y = images("train")
        tables["MNIST, below five"] = (X[:20_000], (y[:20_000] < 5).astype(int))
        tables["KDD Cup 1999"] = connections()
    except FileNotFoundError as error:
        print(f"skipped: {error}")
    fits = {label: (OURS[label], None) for label in (AUTO, "Nesterov", "DP-AGD", "objective perturbation")}
    for name, table in tables.items():
        rows = compare(name, table, fits, (0.1, 1.0), seeds if len(table[1]) < 100_000 else 1, report)
        plain, majority = non_private(table)
        print(f"| scikit-learn, NOT PRIVATE | {plain:.2f} | |\n| majority | {majority:.2f} | |", flush=True)
        rows["scikit-learn, NOT PRIVATE"], rows["majority"] = plain, majority


def digits_of_ten_classes(seeds, report, quick):
    """One budget for ten classes against ten budgets, one for each class against the rest."""
    try:
        (X, y), (Xt, yt) = images("train"), images("t10k")
    except FileNotFoundError as error:
        print(f"skipped MNIST: {error}")
        return
    if quick:
        X, y = X[:10_000], y[:10_000]
    print(
        f"\n## MNIST, ten classes, delta 1e-5, {len(y):,} rows\n\n"
        "| epsilon | one budget | one against the rest, epsilon/10 each |\n|---|---|---|"
    )
    for epsilon in (0.5, 2.0, 8.0):
        together, apart = [], []
        for seed in range(seeds):
            model = PrivateLogisticRegression(epsilon, delta=1e-5, classes=range(10), random_state=seed).fit(X, y)
            together.append(100 * model.score(Xt, yt))
            scores = [
                PrivateLogisticRegression(epsilon / 10, delta=1e-6, classes=[0, 1], random_state=10 * seed + k)
                .fit(X, (y == k).astype(int))
                .decision_function(Xt)
                for k in range(10)
            ]
            apart.append(100 * np.mean(np.argmax(scores, axis=0) == yt))
        report[f"MNIST {epsilon:g}"] = {"together": together, "apart": apart}
        print(f"| {epsilon:g} | {cell(np.array(together))} | {cell(np.array(apart))} |", flush=True)


def speed(table, report, repeats=7):
    """Time of one fit on Adult over scikit-learn's on the same dense matrix, turn by turn; compilation is not counted."""
    X, y = table
    train = next(KFold(5, shuffle=True, random_state=0).split(X))[0]
    X, y = X[train], y[train]
    PrivateLogisticRegression(1.0, delta=DELTA).fit(X[:1_000], y[:1_000])  # compiles, or loads what was compiled before
    print("\n## Time of one fit, Adult, dense double precision\n")
    for epsilon in (0.05, 1.6):
        ours, theirs = [], []
        for _ in range(repeats):
            start = time.perf_counter()
            PrivateLogisticRegression(epsilon, delta=DELTA, classes=[0, 1]).fit(X, y)
            middle = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                LogisticRegression().fit(X, y)
            ours.append(middle - start)
            theirs.append(time.perf_counter() - middle)
        ratio = float(np.median(np.divide(ours, theirs)))
        report[f"speed {epsilon:g}"] = {"ours": ours, "scikit-learn": theirs, "ratio": ratio}
        met = "met" if ratio <= 1 / 3 else "MISSED"
        print(
            f"epsilon {epsilon:g}: ours {1e3 * np.median(ours):.0f} ms, scikit-learn (NOT private) "
            f"{1e3 * np.median(theirs):.0f} ms; ratio {ratio:.2f} ({met}: at most a third)",
            flush=True,
        )


def plot(report, names, epsilons, target):
    """Draw accuracy over epsilon, a panel for each table."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(names), figsize=(4.2 * len(names), 3.6), squeeze=False)
    styles = itertools.cycle(["o-", "s--", "^--", "v--", "D:", "x:", "+:", "*-."])
    shown = [AUTO, "Nesterov", "DP-AGD", "objective perturbation", "DP-GD, best of a grid in hindsight",
             "Opacus, best of three in hindsight", "diffprivlib (delta 0)"]  # fmt: skip
    chosen = {label: next(styles) for label in shown}
    for panel, name in zip(panels[0], names, strict=True):
        rows = report[name]
        for label in (label for label in shown if label in rows):
            mean, error = np.array([rows[label][str(epsilon)] for epsilon in epsilons]).T
            width = 2.5 if label == AUTO else 1
            panel.errorbar(epsilons, mean, error, fmt=chosen[label], label=label, linewidth=width, markersize=4)
        panel.axhline(rows["scikit-learn, NOT PRIVATE"], color="black", linewidth=1, label="scikit-learn, NOT PRIVATE")
        panel.axhline(rows["majority"], color="grey", linewidth=1, linestyle=":", label="majority")
        panel.set(xscale="log", title=name, xlabel="epsilon", xticks=epsilons)
        panel.set_xticklabels([f"{epsilon:g}" for epsilon in epsilons])
        panel.minorticks_off()
        # diffprivlib is far below at small budgets, and would flatten everything else.
        others = [rows[label] for label in shown if label in rows and not label.startswith("diffprivlib")]
        low = min(row[str(epsilon)][0] for row in others for epsilon in epsilons)
        panel.set_ylim(low - 0.4, rows["scikit-learn, NOT PRIVATE"] + 0.3)
    panels[0][0].set_ylabel("accuracy, %")
    lines, labels = panels[0][-1].get_legend_handles_labels()
    figure.legend(lines, labels, fontsize=8, ncols=5, loc="lower center")
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    figure.savefig(target, dpi=130)


def keep(report, path):
    """Write what there is so far."""
    if path:
        path.write_text(json.dumps(report, indent=1))


def main() -> None:
    warnings.filterwarnings("ignore", category=SimulationWarning)  # seeds are what these runs are made of
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers here")
    parser.add_argument("--plot", type=pathlib.Path, help="also draw accuracy over epsilon here")
    parser.add_argument("--seeds", type=int, default=4, help="seeds of the noise for each fold")
    parser.add_argument("--datasets", nargs="+", default=list(BARS), help="which tables")
    parts = ["speed", "utility", "ablation", "confirmation", "mnist", "curves", "regression"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts, help="which parts")
    parser.add_argument("--without-peers", action="store_true", help="our own methods only")
    parser.add_argument("--quick", action="store_true", help="Adult, two epsilons, one seed")
    options = parser.parse_args()
    epsilons = EPSILONS
    if options.quick:
        options.datasets, epsilons, options.seeds, options.parts = ["adult"], (0.05, 1.6), 1, ["speed", "utility"]
    report, tables = {}, {}
    for name in options.datasets:
        try:
            table = load(name)
            tables[name] = (table.X.toarray(), table.y)
        except FileNotFoundError as error:
            print(f"skipped {name}: {error}")
    if "speed" in options.parts and "adult" in tables:
        speed(tables["adult"], report)
    if "utility" in options.parts:
        utility(tables, epsilons, options.seeds, report, options.quick, not options.without_peers)
        keep(report, options.json)
        if options.plot and tables:
            plot(report, list(tables), epsilons, options.plot)
    if "ablation" in options.parts:
        ablation(tables, max(1, options.seeds // 2), report)
    if "confirmation" in options.parts:
        confirmation(options.seeds, report)
    if "mnist" in options.parts:
        digits_of_ten_classes(max(1, options.seeds // 2), report, options.quick)
    keep(report, options.json)
    if "curves" in options.parts:
        curves.compare(curves.DATASETS)
    if "regression" in options.parts:
        regression.compare()


if __name__ == "__main__":
    main()
