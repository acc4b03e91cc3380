"""Accuracy and time of every method and baseline on Adult, Bank and IPUMS-BR.

Run: ``PRIVYPURSE_DATA=folder python benchmarks/methods.py`` (about ten minutes), ``--quick`` for a
look. Five folds; delta 1e-8; add/remove. The spread is the standard deviation over folds. Times are
of one fit on the dense table that scikit-learn's non-private fit is timed on in the same run. Noise
is seeded, so that accuracies can be reproduced: these are simulations.
"""

import argparse
import itertools
import json
import pathlib
import time
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from privypurse import NoiseSource, Purse
from privypurse.losses import HuberHinge, Logistic
from privypurse.methods import (
    ADPSGD,
    DPAGD,
    DPSGD,
    PUR,
    AdaptivePUR,
    Dynamic,
    Majority,
    Nesterov,
    NoisyPGD,
    NonPrivate,
    ObjPert,
    OutPert,
    PrivGene,
)
from privypurse.oracles import DenseOracle, SparseOracle
from privypurse.training import facts_for, fit, linear_scores
from privypurse_lab.data import load

LOGISTIC, SVM = Logistic(clip_derivative=0.5), HuberHinge(width=0.5)
DELTA = 1e-8
L2 = 1e-3
# Name, method, loss, ridge. Full-batch methods first: these are held to scikit-learn's time.
RUNS = [
    ("nesterov", Nesterov(), LOGISTIC, 0.0),
    ("nesterov, tail mean", Nesterov(average="tail"), LOGISTIC, 0.0),
    ("nesterov, Huber SVM", Nesterov(), SVM, 0.0),
    ("dp-agd", DPAGD(), LOGISTIC, 0.0),
    ("dp-agd, no momentum", DPAGD(momentum=0.0), LOGISTIC, 0.0),
    ("dp-agd, Huber SVM", DPAGD(), SVM, 0.0),
    ("adp-sgd", ADPSGD(), LOGISTIC, 0.0),
    ("adp-sgd, Huber SVM", ADPSGD(), SVM, 0.0),
    ("pur, non-convex", PUR("non-convex"), LOGISTIC, 0.0),
    ("pur, convex", PUR("convex"), LOGISTIC, 0.0),
    ("pur, strongly convex", PUR("strongly-convex"), LOGISTIC, L2),
    ("pur, adaptive", AdaptivePUR(), LOGISTIC, 0.0),
    ("dynamic", Dynamic(), LOGISTIC, 0.0),
    ("dynamic, uniform", Dynamic("uniform"), LOGISTIC, 0.0),
    ("dynamic, exponential", Dynamic("exponential"), LOGISTIC, 0.0),
    ("dynamic, momentum", Dynamic(momentum=0.9), LOGISTIC, 0.0),
    ("noisy-pgd", NoisyPGD(), LOGISTIC, 0.0),
    ("noisy-pgd, tail mean", NoisyPGD(average="tail"), LOGISTIC, 0.0),
    ("dp-sgd", DPSGD(), LOGISTIC, 0.0),
    ("dp-sgd, advanced comp.", DPSGD(accounting="advanced"), LOGISTIC, 0.0),
    ("objective pert.", ObjPert(), LOGISTIC, 0.0),
    ("output pert.", OutPert(), LOGISTIC, 0.0),
    ("priv-gene", PrivGene(), LOGISTIC, 0.0),
    ("majority", Majority(), LOGISTIC, 0.0),
    ("NOT PRIVATE", NonPrivate(), LOGISTIC, 0.0),
]
FULL_BATCH = 18
# What the method must reach on Adult, in percent.
BARS = {
    "dp-agd": {0.05: 82.1, 0.4: 84.5, 1.6: 84.8},
    "adp-sgd": {0.05: 82.0},
    "nesterov": {0.05: 83.3, 0.1: 83.9, 0.2: 84.4, 0.8: 84.7},
    "nesterov, Huber SVM": {0.05: 83.2},
}


def one_fit(method, loss, l2, X, y, epsilon, seed):
    """Fit once; return the model, and the seconds from the matrix to the model."""
    start = time.perf_counter()
    oracle = DenseOracle(X, y, loss=loss)
    noise = NoiseSource(seed=seed)
    purse = Purse(epsilon, DELTA, neighbouring="add-remove", noise=noise)
    facts = facts_for(oracle, purse, records=len(y), l2=l2)
    rule = method.filter(facts)
    if rule is not purse.filter:
        purse = Purse.with_filter(rule, noise=noise)
    result = fit(oracle, method, purse, records=len(y), l2=l2)
    seconds = time.perf_counter() - start
    if not isinstance(method, NonPrivate):
        assert purse.spent.epsilon <= epsilon
    return result.point, seconds


def measure(table, epsilons, folds, runs, seeds=1):
    """Return rows of (name, epsilon, mean, spread, seconds), and scikit-learn's seconds, timed between the methods."""
    splits = list(KFold(folds, shuffle=True, random_state=0).split(table.X))
    X = table.X.toarray()
    training = [(X[train], table.y[train]) for train, _ in splits]
    rows, theirs = [], []
    for name, method, loss, l2 in runs:
        for epsilon in epsilons:
            scores, seconds = [], []
            for seed, number in itertools.product(range(seeds), range(folds)):
                point, taken = one_fit(method, loss, l2, *training[number], epsilon, 1_000 * seed + number)
                test = splits[number][1]
                scores.append(100 * np.mean((linear_scores(X[test], point) > 0) == (table.y[test] == 1)))
                seconds.append(taken)
            rows.append((name, epsilon, float(np.mean(scores)), float(np.std(scores)), float(np.median(seconds))))
        theirs.append(scikit_learn_seconds(*training[0]))
    return rows, float(np.median(theirs))


def scikit_learn_seconds(X, y):
    """Time of scikit-learn's logistic regression on a training matrix, with its defaults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        LogisticRegression().fit(X, y)
        return time.perf_counter() - start


def show(table, rows, epsilons, scikit_learn):
    print(f"\n## {table.name}: {table.X.shape[0]:,} rows, {table.X.shape[1] + 1} parameters")
    print(
        "Accuracy in percent, mean (spread over folds); time at the slowest epsilon; times faster than scikit-learn.\n"
    )
    print("| method | " + " | ".join(f"{e:g}" for e in epsilons) + " | time | x |")
    print("|---|" + "---|" * (len(epsilons) + 2))
    for name in dict.fromkeys(row[0] for row in rows):
        cells = {row[1]: row for row in rows if row[0] == name}
        slowest = max(row[4] for row in cells.values())
        accuracies = " | ".join(f"{cells[e][2]:.1f} ({cells[e][3]:.1f})" for e in epsilons)
        print(f"| {name} | {accuracies} | {1e3 * slowest:.0f} ms | {scikit_learn / slowest:.1f} |")
    print(f"| scikit-learn, NOT PRIVATE | {' | '.join('' for _ in epsilons)} | {1e3 * scikit_learn:.0f} ms | 1.0 |")


def direct_transcription(X, y, rounds, candidates, epsilon_selection, noise_std, rng):
    """DP-AGD written down line by line in numpy: gradients clipped record by record, one loss for each candidate."""
    signs = 2.0 * y - 1
    clip_gradient, clip_loss = 0.5, 3.0

    def loss(w):
        return np.sum(np.minimum(np.logaddexp(0, -signs * (X @ w)), clip_loss))

    w, longest = np.zeros(X.shape[1]), 3.0
    for _ in range(rounds):
        gradients = (-signs / (1 + np.exp(signs * (X @ w))))[:, None] * X
        norms = np.linalg.norm(gradients, axis=1)
        gradients /= np.maximum(1, norms / clip_gradient)[:, None]
        noisy = gradients.sum(axis=0) + noise_std * rng.standard_normal(w.size)
        noisy /= np.linalg.norm(noisy)
        tried = [w - step * noisy for step in np.linspace(0, longest, candidates + 1)]
        scores = np.array([loss(candidate) for candidate in tried])
        w = tried[int(np.argmax(-scores * epsilon_selection / clip_loss + rng.gumbel(size=candidates + 1)))]
    return w


def against_transcription(table, epsilon=0.4, repeats=5):
    """Time of the direct transcription over ours, for the same number of rounds and the 20 candidates of the paper."""
    norms = np.sqrt(np.asarray(table.X.multiply(table.X).sum(axis=1)).ravel() + 1)
    dense = np.column_stack([table.X.toarray(), np.ones(table.X.shape[0])]) / norms[:, None]
    method = DPAGD(candidates=20)
    ours, theirs, runs = [], [], []
    for number in range(repeats):
        purse = Purse(epsilon, DELTA, neighbouring="add-remove", noise=NoiseSource(seed=number))
        start = time.perf_counter()
        runs.append(fit(SparseOracle(table.X, table.y, loss=LOGISTIC), method, purse, records=len(table.y)).trace.steps)
        ours.append(time.perf_counter() - start)
    for number, steps in enumerate(runs):
        # A round has one selection, whether a gradient was looked at once or twice.
        rounds = sum(step.query == "LossesAlong" for step in steps)
        noise_std = next(step.noise_std for step in steps if step.noise_std)
        rng = np.random.default_rng(number)
        start = time.perf_counter()
        direct_transcription(dense, table.y, rounds, method.candidates, 0.1, noise_std, rng)
        theirs.append(time.perf_counter() - start)
    return float(np.median(theirs)), float(np.median(ours)), float(np.median(np.divide(theirs, ours)))


def check_bars(table, seeds):
    """Say whether each bar on Adult is met, over several seeds of the noise."""
    print(f"\nBars on Adult, mean over 5 folds and {seeds} seeds of the noise:")
    for run in RUNS:
        bars = BARS.get(run[0], {})
        for name, epsilon, reached, *_ in measure(table, list(bars), 5, [run], seeds)[0] if bars else []:
            met = "met" if reached >= bars[epsilon] else "MISSED"
            print(f"  {name:22s} epsilon {epsilon:<5g} {reached:.2f}  bar {bars[epsilon]}  {met}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers here")
    parser.add_argument("--datasets", nargs="+", default=["adult", "bank", "ipums-br"], help="which tables")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.05, 0.1, 0.2, 0.4, 0.8, 1.6], help="budgets")
    parser.add_argument("--folds", type=int, default=5, help="folds of cross-validation; bars are checked for 5")
    parser.add_argument("--quick", action="store_true", help="Adult, two epsilons, two folds")
    options = parser.parse_args()
    if options.quick:
        options.datasets, options.epsilons, options.folds = ["adult"], [0.05, 0.4], 2
    report = {}
    for dataset in options.datasets:
        try:
            table = load(dataset)
        except FileNotFoundError as error:
            print(f"skipped {dataset}: {error}")
            continue
        for method in (Nesterov(steps=2), DPAGD(rounds=2)):  # compile before timing
            for loss in (LOGISTIC, SVM):
                one_fit(method, loss, 0.0, table.X[:1_000].toarray(), table.y[:1_000], 1.0, 0)
        rows, scikit_learn = measure(table, options.epsilons, options.folds, RUNS)
        show(table, rows, options.epsilons, scikit_learn)
        names = [name for name, *_ in RUNS[:FULL_BATCH]]
        slow = sorted({row[0] for row in rows if row[0] in names and row[4] >= scikit_learn})
        print(f"\nFull-batch methods slower than scikit-learn: {'; '.join(slow) or 'none'}")
        report[dataset] = {"rows": rows, "scikit_learn_seconds": scikit_learn}
        if dataset == "adult":
            if options.folds == 5:  # the bars are for four fifths of the rows
                check_bars(table, seeds=4)
            theirs, ours, ratio = against_transcription(table)
            print(
                f"\nDP-AGD with 21 candidates: direct numpy transcription {theirs:.2f} s, ours {1e3 * ours:.0f} ms "
                f"for the same rounds, {ratio:.0f} times faster"
            )
            report["transcription"] = {"theirs": theirs, "ours": ours, "ratio": ratio}
        if table.uncovered:
            print(f"Not covered by any guarantee: {table.uncovered}.")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
