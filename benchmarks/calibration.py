"""Calibration of ``PrivateLogisticRegression(epsilon)`` with defaults, beside scikit-learn's.

Run: ``PRIVYPURSE_DATA=folder python benchmarks/calibration.py`` (about two minutes). Each seed draws its
own test part, a fifth of the records, and its own noise; delta 1e-6, add/remove. The spread is the
standard deviation over seeds. "sigmoid" is the plain sigmoid of the score, "corrected" is
`predict_proba`. Noise is seeded, so that the numbers can be had again: these are simulations.
"""

import argparse
import itertools
import warnings

import numpy as np
from scipy import special
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from privypurse.accounting.convert import gdp_mu
from privypurse.estimators import PrivateLinearSVC, PrivateLogisticRegression, SimulationWarning
from privypurse_lab.data import load

EPSILONS = (0.1, 0.5, 1.0, 4.0)
BINS = 15


def rare(seed=0, rows=40_000):
    """Return a made-up table whose true model is logistic, with about 10 % positives."""
    rng = np.random.default_rng([seed, 2])
    X = rng.standard_normal((rows, 8))
    scores = X @ [0.5, 0.4, -0.3, 0.2, 0.0, 0.0, 0.1, 0.0] - 2.45
    return X, (rng.random(rows) < special.expit(scores)).astype(int)


def table_of(name):
    """Return rows and labels, 0 or 1, of a table."""
    if name == "made":
        return rare()
    table = load(name)
    return table.X.toarray(), (np.asarray(table.y) > 0).astype(int)


def calibration_error(y, predicted):
    """Return the expected calibration error over bins of equally many records."""
    bins = np.array_split(np.argsort(predicted, kind="stable"), BINS)
    return sum(abs(predicted[part].sum() - y[part].sum()) for part in bins) / len(y)


def figures(y, predicted):
    """Return calibration error, mean predicted minus true share, accuracy and AUC, in percent."""
    found = calibration_error(y, predicted), predicted.mean() - y.mean(), np.mean((predicted > 0.5) == y)
    return 100 * np.array([*found, roc_auc_score(y, predicted)])


def measured(X, y, epsilon, seed, tried):
    """Fit on four fifths of the records. Return the figures of the rest, by kind of probability."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[len(y) // 5 :], order[: len(y) // 5]
    if epsilon is None:
        model = LogisticRegression(C=10.0, max_iter=2_000).fit(X[train], y[train])
        return {"scikit-learn, NOT PRIVATE": figures(y[test], model.predict_proba(X[test])[:, 1])}
    model = PrivateLogisticRegression(epsilon, classes=[0, 1], random_state=seed).fit(X[train], y[train])
    plain, corrected = special.expit(model.decision_function(X[test])), model.predict_proba(X[test])[:, 1]
    kinds = {"sigmoid": plain, "corrected": corrected}
    if tried:
        kinds |= corrected_further(model, X[train], y[train], corrected, epsilon, seed)
    return {kind: figures(y[test], predicted) for kind, predicted in kinds.items()}


def corrected_further(model, X, y, corrected, epsilon, seed):
    """Correct probabilities by an intercept for 1 % of the budget, or by an exact line, which is NOT private."""
    own, scores = (special.logit(np.clip(p, 1e-9, 1 - 1e-9)) for p in (model.predict_proba(X)[:, 1], corrected))
    noise = np.random.default_rng([seed, 3]).normal() / (0.1 * gdp_mu(epsilon, model.privacy_spent_.delta))
    mean = np.clip(special.expit(own).mean() + noise / len(y), 1e-3, 1 - 1e-3)
    log_odds = model.preparation_.log_odds
    shift = np.clip(log_odds[1] - log_odds[0] - special.logit(mean), -1, 1)
    line = LogisticRegression(C=1e6).fit(own[:, None], y)
    return {
        "intercept for 1 %": special.expit(scores + shift),
        "exact intercept and slope, NOT PRIVATE": line.predict_proba(scores[:, None])[:, 1],
    }


def balanced(X, y, epsilon, seed, kind):
    """Return the balanced accuracy and AUC, in percent, plain, with balanced weights, and trained on weighted records.

    Weighted records with a largest weight of 1 have the gradient, up to sampling, and the noise of a
    table whose frequent class was thinned.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[len(y) // 5 :], order[: len(y) // 5]
    odds = y[train].mean() / (1 - y[train].mean())
    thinned = train[(y[train] == 1) | (np.random.default_rng([seed, 4]).random(len(train)) < odds)]
    settings = {"classes": [0, 1], "random_state": seed}
    fits = {
        "no weights": kind(epsilon, **settings).fit(X[train], y[train]),
        "balanced": kind(epsilon, class_weight="balanced", **settings).fit(X[train], y[train]),
        "weighted records": kind(epsilon, **settings).fit(X[thinned], y[thinned]),
    }
    scores = {name: model.decision_function(X[test]) for name, model in fits.items()}
    return {
        name: 100 * np.array([balanced_accuracy_score(y[test], score > 0), roc_auc_score(y[test], score)])
        for name, score in scores.items()
    }


def rare_classes(X, y, name, seeds):
    """Print a line for each model, epsilon and way of weighting."""
    for kind, epsilon in itertools.product((PrivateLogisticRegression, PrivateLinearSVC), EPSILONS):
        runs = [balanced(X, y, epsilon, seed, kind) for seed in range(seeds)]
        cells = []
        for way in runs[0]:
            numbers = np.array([run[way] for run in runs])
            cells += [
                f"{mean:.1f} ({spread:.1f})" for mean, spread in zip(numbers.mean(0), numbers.std(0), strict=True)
            ]
        print(f"| {name}, {kind.__name__} | {epsilon:g} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="*", default=["adult", "bank", "ipums-br", "made"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tried", action="store_true", help="further corrections, which the estimator does not make")
    parser.add_argument("--rare", action="store_true", help="balanced accuracy and AUC with class_weight instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SimulationWarning)
    if options.rare:
        print(
            "| table, model | epsilon | no weights: balanced accuracy, % | AUC, % | balanced | AUC | weighted records | AUC |"
        )
        print("|" + " --- |" * 8)
        for name in options.datasets:
            rare_classes(*table_of(name), name, options.seeds)
        return
    print(
        "| table | epsilon | probabilities | calibration error, % | mean predicted - true, % | accuracy, % | AUC, % |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in options.datasets:
        X, y = table_of(name)
        for epsilon in (*EPSILONS, None):
            runs = [measured(X, y, epsilon, seed, options.tried) for seed in range(options.seeds)]
            for kind in runs[0]:
                numbers = np.array([run[kind] for run in runs])
                cells = [
                    f"{mean:.2f} ({spread:.2f})" for mean, spread in zip(numbers.mean(0), numbers.std(0), strict=True)
                ]
                print(f"| {name} | {epsilon or ''} | {kind} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
