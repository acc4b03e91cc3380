"""The peers that ``benchmarks/utility.py`` compares privypurse with: diffprivlib, Opacus, and descent tuned in hindsight.

None of them is a dependency. They need an environment of their own, because diffprivlib does not
import on the newest scikit-learn; torch comes first, so that Opacus does not choose another one. In
the root of the repository::

    python3 -m venv peers
    peers/bin/pip install "torch==2.13.0"
    peers/bin/pip install opacus diffprivlib interpret-core "scikit-learn==1.7.*"
    peers/bin/pip install -e . -e lab

DP-EBM alone also runs in the environment of the project, with ``interpret-core`` installed.

Measured with Opacus 1.6.0, diffprivlib 0.6.6 and interpret-core 0.7.8. ``PRIVYPURSE_DATA=folder peers/bin/python
benchmarks/peers.py`` runs them on one fold of Adult (about a minute). A peer that cannot be
imported is skipped by name: see `available`.

Every peer is ``fit(X, y, *, epsilon, delta, seed) -> predict``: X a dense float64 table, y zeros
and ones, and ``predict(X_test)`` gives zeros and ones. Each gets the same rows, with the constant,
scaled to length 1, and the number of records is public for each. Where a choice had to be made it
was made in the peer's favour. Noise is seeded: simulations.
"""

import argparse
import functools
import importlib
import itertools
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from privypurse import NoiseSource, Purse
from privypurse.accounting.convert import gdp_mu
from privypurse.losses import Logistic
from privypurse.methods import Nesterov
from privypurse.oracles import DenseOracle
from privypurse.training import fit as fit_method
from privypurse.training import linear_scores
from privypurse_lab.data import load

Predict = Callable[[np.ndarray], np.ndarray]

# Three settings of Opacus, the best of some 70 tried, by Adult's test rows: for epsilon about 0.05, 0.2, and 0.8 and more.
OPACUS_SETTINGS: list[dict[str, Any]] = [
    {"batch": 2048, "epochs": 10, "rate": 2.0, "clip_norm": 0.25},
    {"batch": 2048, "epochs": 10, "rate": 8.0, "clip_norm": 0.25},
    {"batch": 2048, "epochs": 20, "rate": 4.0, "clip_norm": 0.5},
]

# Plain descent. One over the largest curvature is 4; without momentum, and with clipping, far longer steps do better.
GRID: list[dict[str, Any]] = [
    {"steps": steps, "step_size": size, "clip": clip}
    for steps, size, clip in itertools.product((30, 100, 300), (16.0, 32.0, 64.0), (0.25, 0.5))
]


def unit_rows(X: np.ndarray) -> np.ndarray:
    """Return the rows with a constant 1 appended, scaled to length 1."""
    rows = np.column_stack([X, np.ones(len(X))])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fit_adassp(
    X: np.ndarray, y: np.ndarray, *, bounds: tuple[float, float], epsilon: float, delta: float, seed: int
) -> Predict:
    """Fit AdaSSP (Wang 2018) with Gaussian noise, a third of the budget in mu squared for each release.

    Columns are from 0 to 1 and the target within its bounds: both declared, and moved to their
    middle. Under add/remove, in Gaussian DP, whose conversion is exact.
    """
    rng = np.random.default_rng(seed)
    middle, half = sum(bounds) / 2, (bounds[1] - bounds[0]) / 2
    rows, d = np.column_stack([X - 0.5, np.full(len(X), 0.5)]), X.shape[1] + 1
    length = math.sqrt(d) / 2
    std = math.sqrt(3) / gdp_mu(epsilon, delta)
    products, upper = rows.T @ rows, np.triu(rng.standard_normal((d, d)))
    upper[np.triu_indices(d, 1)] /= math.sqrt(2)
    noise = std * length**2
    least = max(0.0, np.linalg.eigvalsh(products)[0] + noise * rng.standard_normal() - noise * 1.96)
    ridge = max(0.0, noise * math.sqrt(d * math.log(2 * d**2 / 0.05)) - least)
    moments = rows.T @ np.clip((y - middle) / half, -1, 1) + std * length * rng.standard_normal(d)
    weights = np.linalg.solve(products + noise * (upper + np.triu(upper, 1).T) + ridge * np.eye(d), moments)
    return lambda X: np.clip(middle + half * (np.column_stack([X - 0.5, np.full(len(X), 0.5)]) @ weights), *bounds)


DP_EBM: dict[str, dict[str, Any]] = {"DP-EBM": {}, "DP-EBM, learning rate 0.05": {"learning_rate": 0.05}}


def fit_dp_ebm(
    X: Any,
    y: np.ndarray,
    *,
    ranges: dict[int, tuple[float, float]],
    epsilon: float,
    delta: float,
    seed: int,
    target_bounds: tuple[float, float] | None = None,
    **settings: Any,
) -> Any:
    """Fit the DP-EBM of interpret, a classifier without target bounds, with the ranges of its bins given.

    Columns without a range are categories.
    """
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    limits = {}
    if target_bounds is not None:
        limits = dict(zip(("privacy_target_min", "privacy_target_max"), target_bounds, strict=True))
    model = DPExplainableBoostingClassifier if target_bounds is None else DPExplainableBoostingRegressor
    kinds = ["continuous" if place in ranges else "nominal" for place in range(X.shape[1])]
    how = {"feature_types": kinds, "privacy_bounds": ranges, "random_state": seed, **limits, **settings}
    return model(epsilon=epsilon, delta=delta, **how).fit(X, y)


def labels_by(weights: np.ndarray) -> Predict:
    """Return the rule "1 where the score is positive" of a linear model whose last weight is the constant's."""
    return lambda X: (np.asarray(X) @ weights[:-1] + weights[-1] > 0).astype(int)


def fit_diffprivlib(X: np.ndarray, y: np.ndarray, *, epsilon: float, delta: float, seed: int) -> Predict:
    """Fit diffprivlib's logistic regression: the objective perturbation of Chaudhuri, Monteleoni and Sarwate (2011).

    Its guarantee is pure: delta is 0, and what is passed here is not used. Its noise is for a
    record that is replaced, not added or removed. So it promises more than the others, and pays for
    it. Defaults, except that the norm of the rows is given, which it asks for, and that it may
    iterate until it converges. The constant is a column, inside the norm: with
    ``fit_intercept=True`` diffprivlib puts it on top, and adds noise for rows of length sqrt(2).
    """
    from diffprivlib.models import LogisticRegression

    model = LogisticRegression(
        epsilon=epsilon, data_norm=1.0, C=1.0, fit_intercept=False, max_iter=1_000, random_state=seed
    )
    model.fit(unit_rows(X), y)
    return labels_by(model.coef_.ravel())


@functools.cache
def opacus_noise_multiplier(epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    """Return the noise multiplier that Opacus's PRV accountant asks for, within about one percent of the best.

    Opacus's defaults are for large budgets. The Renyi accountant refuses epsilon 0.2 at delta 1e-8
    ("The privacy budget is too low"), and tolerances of 0.01 add half as much noise again at
    epsilon 0.05. So both tolerances shrink with epsilon.
    """
    from opacus.accountants.utils import get_noise_multiplier

    with warnings.catch_warnings():
        # The PRV accountant sizes its table with the Renyi one, which then says that its orders are few. No matter here.
        warnings.filterwarnings("ignore", message="Optimal order is the largest alpha")
        return get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=delta,
            sample_rate=sample_rate,
            steps=steps,
            accountant="prv",
            epsilon_tolerance=epsilon / 1_000,
            eps_error=epsilon / 100,
        )


def fit_opacus(
    X: np.ndarray,
    y: np.ndarray,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    batch: int,
    epochs: int,
    rate: float,
    clip_norm: float,
    momentum: float = 0.9,
) -> Predict:
    """Fit logistic regression by Opacus: Poisson batches, its per-sample gradients, optimizer and PRV accountant.

    Three settings are peers of their own. The best of them in hindsight, by accuracy on the test
    rows, is what the benchmark reports: choosing is not paid for, which is in Opacus's favour. So
    are a start at zero, momentum, and its tightest accountant with fine tolerances. Batches are
    drawn here, one mask for each step as Opacus's own sampler does it, but rows are gathered at
    once and not one by one.
    """
    import torch
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    rows, labels = torch.from_numpy(unit_rows(X)).float(), torch.from_numpy(np.asarray(y)).float()
    sample_rate = min(batch / len(rows), 0.999)  # the PRV accountant has no formula for 1
    steps = math.ceil(epochs / sample_rate)
    linear = torch.nn.Linear(rows.shape[1], 1, bias=False)
    torch.nn.init.zeros_(linear.weight)
    model = GradSampleModule(linear)
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum),
        noise_multiplier=opacus_noise_multiplier(epsilon, delta, sample_rate, steps),
        max_grad_norm=clip_norm,
        expected_batch_size=sample_rate * len(rows),
        generator=torch.Generator().manual_seed(2 * seed),
    )
    sampling = torch.Generator().manual_seed(2 * seed + 1)
    criterion = torch.nn.BCEWithLogitsLoss()  # the mean: the per-sample gradients are scaled back, as Opacus expects
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a step takes milliseconds: where cores are shared, two threads took 12 times as long
    with warnings.catch_warnings():
        # Opacus's hooks need no gradient of the inputs, and torch says that there is none.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        for _ in range(steps):
            chosen = (torch.rand(len(rows), generator=sampling) < sample_rate).nonzero().ravel()
            optimizer.zero_grad()
            criterion(model(rows[chosen]).ravel(), labels[chosen]).backward()
            optimizer.step()
    torch.set_num_threads(threads)
    return labels_by(linear.weight.detach().numpy().astype(float).ravel())


def fit_grid_member(
    X: np.ndarray,
    y: np.ndarray,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    steps: int,
    step_size: float,
    clip: float,
) -> Predict:
    """Fit by plain full-batch descent with even noise and exact Gaussian accounting: one member of `GRID`.

    The benchmark runs all members and reports the one with the best accuracy on the test rows, as
    "hindsight DP-GD grid". That figure is NOT private, since the choice is free, and it is in the
    grid's favour: what tuning could reach at best.
    """
    oracle = DenseOracle(X, y, loss=Logistic(clip_derivative=clip))
    purse = Purse(epsilon, delta, neighbouring="add-remove", noise=NoiseSource(seed=seed))
    method = Nesterov(momentum=0.0, steps=steps, step_size=step_size)
    point = fit_method(oracle, method, purse, records=len(y)).point
    return lambda X: (linear_scores(X, point) > 0).astype(int)


PEERS: dict[str, Callable[..., Predict]] = {
    "diffprivlib": fit_diffprivlib,
    **{
        f"opacus, setting {number}": functools.partial(fit_opacus, **setting)
        for number, setting in enumerate(OPACUS_SETTINGS, start=1)
    },
}


def available() -> dict[str, str]:
    """Return, for each name in `PEERS`, "" where it can run and otherwise why not. The grid always can."""
    reasons = {module: why_not(module) for module in ("diffprivlib.models", "opacus")}
    return {name: reasons["diffprivlib.models" if name == "diffprivlib" else "opacus"] for name in PEERS}


def why_not(module: str) -> str:
    """Return why a module cannot be imported, or nothing where it can."""
    try:
        importlib.import_module(module)
    except Exception as error:  # packages that do not fit together raise more than ImportError
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.05, 0.2, 0.8], help="budgets")
    parser.add_argument("--delta", type=float, default=1e-8, help="the same for each")
    options = parser.parse_args()
    table = load("adult")
    X = table.X.toarray()
    y = (table.y == 1).astype(int)
    train, test = next(KFold(5, shuffle=True, random_state=0).split(X))

    def accuracy_and_seconds(fit, epsilon):
        start = time.perf_counter()
        predict = fit(X[train], y[train], epsilon=epsilon, delta=options.delta, seed=0)
        seconds = time.perf_counter() - start
        return 100 * np.mean(predict(X[test]) == y[test]), seconds

    reasons = available()
    for name, fit in PEERS.items():
        if reasons[name]:
            print(f"skipped {name}: {reasons[name]}")
            continue
        for epsilon in options.epsilons:
            accuracy, seconds = accuracy_and_seconds(fit, epsilon)
            print(f"{name:22s} epsilon {epsilon:<5g} {accuracy:.2f} %  {seconds:.1f} s", flush=True)
    for epsilon in options.epsilons:
        start = time.perf_counter()
        runs = [accuracy_and_seconds(functools.partial(fit_grid_member, **member), epsilon)[0] for member in GRID]
        best = int(np.argmax(runs))
        print(
            f"{'hindsight DP-GD grid':22s} epsilon {epsilon:<5g} {runs[best]:.2f} %  {time.perf_counter() - start:.1f} s "
            f"for all {len(GRID)}; NOT PRIVATE: best in hindsight, {GRID[best]}; worst {min(runs):.2f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
