"""Several methods on one synthetic table: plan, spending and accuracy of each.

Run: ``python examples/compare_methods.py``
"""

import numpy as np

from privypurse.losses import Logistic
from privypurse.methods import ADPSGD, DPAGD, DPSGD, PUR, AdaptivePUR, Dynamic, Majority, Nesterov, NoisyPGD, ObjPert
from privypurse.oracles import DenseOracle
from privypurse.training import facts_for, fit, linear_scores, purse_for

BUDGET = {"epsilon": 0.2, "delta": 1e-6, "neighbouring": "add-remove"}
METHODS = [
    Nesterov(),
    DPAGD(),
    ADPSGD(),
    PUR("convex"),
    AdaptivePUR(),
    Dynamic(),
    NoisyPGD(average="tail"),
    DPSGD(),
    ObjPert(),
    Majority(),
]


def main() -> None:
    """Plan, train, compare. Each method gets a budget of its own, as if on a table of its own."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((20_000, 30))
    y = (X @ rng.standard_normal(30) + 2 * rng.standard_normal(20_000) > 1.0).astype(int)
    train_rows, test_rows = slice(0, 15_000), slice(15_000, None)
    oracle = DenseOracle(X[train_rows], y[train_rows], loss=Logistic(clip_derivative=0.5))

    print(f"{'method':24s} {'planned steps':>13s} {'noise, first and last':>22s} {'releases':>9s} {'accuracy':>9s}")
    purse = None
    for method in METHODS:
        purse = purse_for(oracle, method, records=15_000, **BUDGET)
        plan = method.plan(facts_for(oracle, purse, records=15_000))
        result = fit(oracle, method, purse, records=15_000)
        accuracy = np.mean((linear_scores(X[test_rows], result.point) > 0) == (y[test_rows] == 1))
        noise = f"{plan.noise_std[0]:.0f} to {plan.noise_std[-1]:.0f}"
        print(f"{method.name:24s} {plan.steps:13d} {noise:>22s} {len(result.trace.steps):9d} {accuracy:9.3f}")
    print(
        f"\nThe last of {len(METHODS)} certificates. On one real table the budgets would add up: share one purse instead.\n"
    )
    print(purse.certificate() if purse else "")


if __name__ == "__main__":
    main()
