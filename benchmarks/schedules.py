"""What each method plans, and what the influence-optimal schedule saves over even noise, predicted and simulated.

Run: ``python benchmarks/schedules.py [--figures docs/figures]``. Quadratics with curvatures from
1/kappa to 1, started at the optimum, so that all loss is noise.
"""

import argparse
import json
import pathlib

import numpy as np

from privypurse import NoiseSource, Purse
from privypurse.losses import Logistic
from privypurse.methods import ADPSGD, DPAGD, PUR, Dynamic, Nesterov
from privypurse.methods.dynamic import (
    best_dynamic_steps,
    best_uniform_steps,
    contraction,
    dynamic_bound,
    quadratic_influences,
    uniform_bound,
)
from privypurse.oracles._quadratic import QuadraticOracle
from privypurse.training import fit
from privypurse.training._plan import Facts

KAPPAS = [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]
DIMENSION, RECORDS, RUNS, STEPS = 20, 2_000.0, 400, 60


def simulated_loss(method, oracle, runs):
    losses = []
    for seed in range(runs):
        purse = Purse(1.0, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=seed))
        losses.append(oracle.excess_loss(fit(oracle, method, purse, records=RECORDS).point))
    return np.mean(losses), np.std(losses) / np.sqrt(runs)


def savings(kappa, runs):
    """Loss of even noise over loss of influence-optimal noise: predicted, simulated, standard error."""
    curvatures = np.geomspace(1 / kappa, 1.0, DIMENSION)
    oracle = QuadraticOracle(curvatures, np.full(DIMENSION, 1e-13), records=RECORDS, gradient_bound=1.0)
    influences = quadratic_influences(curvatures, 1.0, STEPS)
    predicted = STEPS * influences.sum() / np.sqrt(influences).sum() ** 2
    even, error_even = simulated_loss(Dynamic("uniform", steps=STEPS), oracle, runs)
    best, error_best = simulated_loss(Dynamic(influences=tuple(influences)), oracle, runs)
    return predicted, even / best, even / best * np.hypot(error_even / even, error_best / best)


def bound_ratio(kappa, alpha=1e-4):
    """Return the same for the worst-case bounds, with the best number of steps each."""
    gamma = contraction(kappa)
    even = uniform_bound(best_uniform_steps(gamma, alpha, 5_000), gamma, alpha)
    return even / dynamic_bound(best_dynamic_steps(gamma, alpha, 5_000), gamma, alpha)


def draw(rows, folder):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "0"})
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    kappas = [row["kappa"] for row in rows]
    axes.plot(kappas, [row["predicted"] for row in rows], color="tab:blue", label="quadratic, predicted")
    axes.errorbar(
        kappas,
        [row["simulated"] for row in rows],
        yerr=[2 * row["error"] for row in rows],
        fmt="o",
        color="tab:orange",
        label="quadratic, simulated (2 standard errors)",
    )
    axes.plot(kappas, [row["bounds"] for row in rows], "--", color="0.5", label="worst-case bounds, best steps each")
    axes.axhline(1.0, color="0.8", lw=0.8)
    axes.set(xscale="log", yscale="log", xlabel="condition number", ylabel="excess loss, even / dynamic noise")
    axes.set_yticks([1, 2, 5, 10, 20, 40], labels=["1", "2", "5", "10", "20", "40"], minor=False)
    axes.set_yticks([], minor=True)
    axes.set_xticks(kappas, labels=[f"{kappa:g}" for kappa in kappas], minor=False)
    axes.set_xticks([], minor=True)
    axes.legend(frameon=False)
    figure.savefig(folder / "dynamic_over_uniform.png", dpi=150)

    facts = Facts.of(
        Logistic(clip_derivative=0.5),
        records=39_000,
        dimension=124,
        epsilon=0.1,
        delta=1e-8,
        neighbouring="add-remove",
        l2=1e-3,
    )
    methods = {
        "Nesterov": Nesterov(),
        "PUR, convex": PUR("convex"),
        "PUR, strongly convex": PUR("strongly-convex"),
        "dynamic": Dynamic(),
        "DP-AGD (if nothing is refused)": DPAGD(),
        "ADP-SGD (if nothing is refused)": ADPSGD(),
    }
    figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for name, method in methods.items():
        plan = method.plan(facts)
        axes.plot(np.arange(1, plan.steps + 1), plan.noise_std, label=name)
    axes.set(xlabel="step", ylabel="noise on the clipped sum (std)", xscale="log", yscale="log")
    axes.set_title("Plans for 39,000 records, 124 parameters, epsilon 0.1, delta 1e-8", fontsize=10)
    axes.set_yticks([200, 500, 1000], labels=["200", "500", "1000"], minor=False)
    axes.set_yticks([], minor=True)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    figure.savefig(folder / "plans.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers here")
    parser.add_argument("--figures", type=pathlib.Path, help="draw plots into this folder")
    parser.add_argument("--runs", type=int, default=RUNS, help="simulated runs for each point")
    options = parser.parse_args()
    rows = []
    print(f"Loss with even noise over loss with dynamic noise; {options.runs} runs each, standard error.\n")
    print("| kappa | predicted | simulated | bounds |\n|---|---|---|---|")
    for kappa in KAPPAS:
        predicted, simulated, error = savings(kappa, options.runs)
        rows.append(
            {
                "kappa": kappa,
                "predicted": float(predicted),
                "simulated": float(simulated),
                "error": float(error),
                "bounds": bound_ratio(kappa),
            }
        )
        print(f"| {kappa:g} | {predicted:.2f} | {simulated:.2f} ± {error:.2f} | {rows[-1]['bounds']:.2f} |", flush=True)
    if options.figures:
        draw(rows, options.figures)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
