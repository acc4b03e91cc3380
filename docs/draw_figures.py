"""Draw the figures of these pages into ``docs/figures``, from plans, which need no data, and from runs on a made table.

Run: ``python docs/draw_figures.py`` (about ten seconds; noise is seeded, so figures do not change).
"""

import pathlib
import re

import matplotlib
import numpy as np
from matplotlib import pyplot as plt
from scipy.stats import norm

from privypurse import NoiseSource, Purse
from privypurse.accounting.convert import bounded_range_mu, gdp_mu
from privypurse.accounting.pld import pld_epsilon
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse.estimators import DeclaredOneHot
from privypurse.losses import Logistic
from privypurse.methods import (
    ADPSGD,
    DPAGD,
    DPSGD,
    PUR,
    AdaptivePUR,
    Auto,
    Dynamic,
    Nesterov,
    NoisyPGD,
    ObjPert,
    OraclePUR,
    OutPert,
)
from privypurse.oracles import SparseOracle
from privypurse.training import facts_for, train
from privypurse.training._plan import Facts

FOLDER = pathlib.Path(__file__).parent / "figures"
EPSILONS = (0.1, 1.0)
DELTA, RECORDS, DIMENSION = 1e-8, 40_000, 124
LOSS = Logistic(clip_derivative=0.5)
# Okabe and Ito's colours, told apart with every kind of colour vision; lines also differ in their dashes.
RED, BLUE, GREEN, PINK, GREY = "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#666666"
OF_EPSILON = {0.1: {"color": RED, "ls": "-"}, 1.0: {"color": BLUE, "ls": (0, (4, 2))}}


def public_facts(epsilon: float, **others: float) -> Facts:
    """Return facts about a table like Adult."""
    return Facts.of(
        LOSS,
        records=RECORDS,
        dimension=DIMENSION,
        epsilon=epsilon,
        delta=DELTA,
        neighbouring="add-remove",
        **others,
    )


def made_table() -> SparseOracle:
    """Return 40,000 made rows of twelve columns with 123 categories in all, some frequent and some rare, and their labels."""
    rng = np.random.default_rng(3)
    sizes = [10] * 11 + [13]
    columns = [rng.choice(size, RECORDS, p=rng.dirichlet(np.ones(size))) for size in sizes]
    rows = DeclaredOneHot([list(range(size)) for size in sizes]).fit_transform(np.column_stack(columns))
    scores = rows @ rng.normal(size=rows.shape[1]) - 1.0
    labels = (scores + rng.logistic(size=RECORDS) > 0).astype(int)
    return SparseOracle(rows, labels, loss=LOSS, classes=(0, 1))


class Recorded:
    """An optimizer that remembers which steps it could choose from."""

    def __init__(self, inner) -> None:
        self.inner, self.ranges = inner, []
        self.init, self.tell, self.point = inner.init, inner.tell, inner.point

    def ask(self, state):
        """Ask as the other does."""
        query = self.inner.ask(state)
        if hasattr(query, "steps"):
            self.ranges.append(query.steps)
        return query


def run(method, oracle, epsilon):
    """Return noise, step sizes and the share spent of one simulated run, gradient by gradient."""
    noise = NoiseSource(seed=5)
    if isinstance(method, OraclePUR):
        purse = Purse.not_private(delta=DELTA, neighbouring="add-remove", noise=noise)
    else:
        purse = Purse(epsilon, DELTA, neighbouring="add-remove", noise=noise)
    recipe = method.recipe(facts_for(oracle, purse, records=RECORDS))
    optimizer = Recorded(recipe.optimizer)
    trace = train(oracle, optimizer, recipe.schedule, purse, steps=recipe.steps).trace
    gradients = [step for step in trace.steps if step.noise_std is not None]
    chosen = [step.chosen for step in trace.steps if step.chosen is not None]
    taken = [steps[int(index)] for steps, index in zip(optimizer.ranges, chosen, strict=False)]
    return [step.noise_std for step in gradients], taken, [1 - step.fraction_left for step in gradients]


def panels(width: float = 7.8, height: float = 2.8):
    """Return three panels: noise, step size, what is spent."""
    figure, axes = plt.subplots(1, 3, figsize=(width, height), layout="constrained")
    axes[0].set(ylabel="noise on the sum (std)", xlabel="step", yscale="log")
    axes[1].set(ylabel="step size", xlabel="step")
    axes[2].set(ylabel="share of the budget spent", xlabel="step", ylim=(0, 1.05))
    return figure, axes


def draw_plan(axes, plan, facts, label, **style) -> None:
    """Add one plan to the three panels."""
    steps = numbered(plan.noise_std)
    selections = [_selection_cost(epsilon) for epsilon in plan.selection_epsilon] or np.zeros(len(steps))
    shares = (np.asarray(plan.mu) ** 2 + np.asarray(selections)[: len(steps)]) / facts.mu**2
    axes[0].plot(steps, plan.noise_std, label=label, **style)
    axes[1].plot(steps, plan.step_sizes[: len(steps)], **style)
    axes[2].plot(steps, np.cumsum(shares), **style)


def _selection_cost(epsilon: float) -> float:
    return bounded_range_mu(epsilon) ** 2


def finish(figure, axes, name: str, columns: int = 2) -> None:
    """Write ticks as plain numbers, put one legend below, save."""
    for axis in axes:
        axis.grid(color="0.92", lw=0.6)
        axis.set_axisbelow(True)
        if axis.get_yscale() == "log":
            low, high = axis.get_ylim()
            ticks = [
                tick for power in range(-4, 6) for tick in np.array([1, 2, 5]) * 10.0**power if low <= tick <= high
            ]
            if len(ticks) > 7:
                ticks = [10.0**power for power in range(-4, 6) if low <= 10.0**power <= high]
            axis.set_yticks(ticks, labels=[f"{tick:g}" for tick in ticks])
            axis.set_yticks([], minor=True)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    figure.savefig(FOLDER / name, dpi=150, metadata={"Software": None})
    plt.close(figure)


def planned_only(name: str, method, note=lambda recipe: "", **limits) -> None:
    """Draw a method whose plan is what happens."""
    figure, axes = panels()
    for epsilon in EPSILONS:
        facts = public_facts(epsilon)
        label = f"epsilon {epsilon:g}{note(method.recipe(facts))}"
        draw_plan(axes, method.plan(facts), facts, label, **OF_EPSILON[epsilon])
    axes[0].set(**limits)
    axes[1].set(ylim=(0, 1.1 * axes[1].get_ylim()[1]))
    finish(figure, axes, name)


def with_run(name: str, method, oracle, *, log_steps: bool = False) -> None:
    """Draw a method that adapts: its plan as lines, one run on the made table as dots."""
    figure, axes = panels()
    for epsilon in EPSILONS:
        facts = public_facts(epsilon)
        draw_plan(axes, method.plan(facts), facts, f"epsilon {epsilon:g}, plan", **OF_EPSILON[epsilon])
        noise, taken, spent = run(method, oracle, epsilon)
        dots = {"color": OF_EPSILON[epsilon]["color"], "ls": "", "marker": "o" if epsilon < 1 else "x", "ms": 3.5}
        steps = numbered(noise)
        axes[0].plot(steps, noise, label=f"epsilon {epsilon:g}, one run", **dots)
        if taken:
            axes[1].plot(numbered(taken), taken, **dots)
        axes[2].plot(steps, spent, **dots)
    if log_steps:
        axes[1].set_yscale("symlog", linthresh=0.1)
        axes[1].set_yticks([0, 0.1, 1, 10], labels=["0", "0.1", "1", "10"])
        axes[1].set_ylim(0, None)
    finish(figure, axes, name, columns=4)


def numbered(values) -> np.ndarray:
    """Return 1, 2, ... for each value."""
    return np.arange(1, len(values) + 1)


def draw_pur(oracle) -> None:
    """Draw the three planned cases, and the adaptive form with what it aims at."""
    figure, axes = panels(height=3.2)
    cases = {"convex": (GREEN, {}), "non-convex": (PINK, {}), "strongly-convex": (GREY, {"l2": 1e-3})}
    for epsilon in EPSILONS:
        for case, (color, others) in cases.items():
            facts = public_facts(epsilon, **others)
            style = {"color": color, "ls": OF_EPSILON[epsilon]["ls"]}
            draw_plan(axes, PUR(case).plan(facts), facts, f"{case}, epsilon {epsilon:g}", **style)
    axes[1].set(ylim=(0, 1.1 * axes[1].get_ylim()[1]))
    finish(figure, axes, "pur.png", columns=3)

    figure, axes = plt.subplots(1, 2, figsize=(7.8, 3.0), layout="constrained")
    for axis, epsilon in zip(axes, EPSILONS, strict=True):
        noise, _, _ = run(AdaptivePUR(), oracle, epsilon)
        aim, _, _ = run(OraclePUR(epsilon, DELTA), oracle, epsilon)
        plan = AdaptivePUR().plan(public_facts(epsilon)).noise_std
        axis.plot(numbered(plan), plan, label="plan: if gradients stayed as long as they can be", color=GREY, ls=":")
        axis.plot(numbered(noise), noise, "o", ms=3.5, color=BLUE, label="AdaptivePUR, one run")
        axis.plot(numbered(aim), aim, color=RED, label="OraclePUR, one run: NOT PRIVATE")
        axis.set(xlabel="step", ylabel="noise on the sum (std)", yscale="log", title=f"epsilon {epsilon:g}")
    finish(figure, axes, "pur_adaptive.png", columns=3)


def draw_dynamic() -> None:
    """Draw the four shapes."""
    figure, axes = panels(height=3.2)
    colors = {"dynamic": BLUE, "uniform": GREY, "exponential": RED, "step": GREEN}
    for epsilon in EPSILONS:
        facts = public_facts(epsilon)
        for shape, color in colors.items():
            style = {"color": color, "ls": OF_EPSILON[epsilon]["ls"]}
            draw_plan(axes, Dynamic(shape).plan(facts), facts, f"{shape}, epsilon {epsilon:g}", **style)
    axes[1].set(ylim=(0, 1.1 * axes[1].get_ylim()[1]))
    finish(figure, axes, "dynamic.png", columns=4)


def draw_dp_sgd() -> None:
    """Draw what three kinds of accounting ask for, and what the steps come to in epsilon."""
    figure, axes = panels(height=3.2)
    colors = {"pld": BLUE, "rdp": GREEN, "advanced": RED}
    for epsilon in EPSILONS:
        facts = public_facts(epsilon)
        for accounting, color in colors.items():
            plan = DPSGD(accounting=accounting).plan(facts)
            style = {"color": color, "ls": OF_EPSILON[epsilon]["ls"]}
            steps = np.arange(1, plan.steps + 1)
            axes[0].plot(steps, plan.noise_std, label=f"{accounting}, epsilon {epsilon:g}", **style)
            axes[1].plot(steps, plan.step_sizes, **style)
            charge = GaussianCharge(1 / plan.mu[0], plan.sample_prob)
            counts = np.unique(np.linspace(1, plan.steps, 8).astype(int))
            so_far = [
                pld_epsilon([RepeatedCharge(charge, int(count))], DELTA, Neighbouring.ADD_REMOVE) for count in counts
            ]
            axes[2].plot(counts, np.array(so_far) / epsilon, **style)
    axes[0].set_ylabel("noise on the sampled sum (std)")
    axes[1].set(ylim=(0, 1.1 * axes[1].get_ylim()[1]))
    axes[2].set(ylabel="epsilon so far / limit, by PLD")
    finish(figure, axes, "dp_sgd.png", columns=3)


def draw_baselines() -> None:
    """Draw the one perturbation of the one-shot baselines over epsilon."""
    epsilons = np.geomspace(0.05, 1.6, 16)
    facts = [public_facts(epsilon) for epsilon in epsilons]
    figure, axes = plt.subplots(1, 3, figsize=(7.8, 2.8), layout="constrained")
    objective, output = [ObjPert().plan(f) for f in facts], [OutPert().plan(f) for f in facts]
    styles = {"objective perturbation": (objective, BLUE, "-"), "output perturbation": (output, RED, (0, (4, 2)))}
    for axis, (name, (plans, color, ls)) in zip(axes, styles.items(), strict=False):
        axis.plot(epsilons, [plan.noise_std[0] for plan in plans], color=color, ls=ls, label=name)
    axes[0].set(ylabel="noise in the objective (std)")
    axes[1].set(ylabel="noise on each weight (std)")
    for plans, color, ls in styles.values():
        ridges = [float(re.findall(r"\d+\.?\d*", plan.notes[0])[0]) for plan in plans]  # the plan's note says it
        axes[2].plot(epsilons, ridges, color=color, ls=ls)
    axes[2].set(ylabel="ridge on the sum of losses")
    for axis in axes:
        axis.set(xlabel="epsilon", xscale="log", yscale="log")
        axis.set_xticks([0.05, 0.1, 0.2, 0.4, 0.8, 1.6], labels=["0.05", "0.1", "0.2", "0.4", "0.8", "1.6"])
        axis.set_xticks([], minor=True)
    axes[0].plot([], [], color=RED, ls=(0, (4, 2)), label="output perturbation")
    finish(figure, axes, "baselines.png")


def draw_epsilon() -> None:
    """Draw what a guesser can do: alarms against false alarms, and the best guess over epsilon."""
    figure, axes = plt.subplots(1, 2, figsize=(7.8, 3.5), layout="constrained")
    false_alarms = np.linspace(0, 1, 2_001)
    delta = 1e-6
    for epsilon, color in ((0.1, RED), (1.0, BLUE), (4.0, GREEN)):
        mu = gdp_mu(epsilon, delta)
        detected = norm.cdf(norm.ppf(false_alarms) + mu)
        missed = np.maximum(
            0, np.maximum(1 - delta - np.exp(epsilon) * false_alarms, np.exp(-epsilon) * (1 - delta - false_alarms))
        )
        axes[0].plot(false_alarms, detected, color=color, label=f"epsilon {epsilon:g}")
        axes[0].plot(false_alarms, 1 - missed, color=color, ls=(0, (4, 2)))
    axes[0].plot([0, 1], [0, 1], color="0.6", lw=0.8)
    axes[0].plot([], [], color="0.3", label="Gaussian noise that keeps it")
    axes[0].plot([], [], color="0.3", ls=(0, (4, 2)), label="worst the words allow")
    axes[0].set(xlabel="false alarms", ylabel="detected", xlim=(0, 1), ylim=(0, 1))
    axes[0].legend(frameon=False, fontsize=8, loc="lower right")
    epsilons = np.geomspace(0.05, 10, 80)
    axes[1].plot(
        epsilons,
        [100 * norm.cdf(gdp_mu(epsilon, delta) / 2) for epsilon in epsilons],
        color="0.3",
        label="Gaussian noise that keeps it",
    )
    worst = 100 * (np.exp(epsilons) + delta) / (1 + np.exp(epsilons))
    axes[1].plot(epsilons, worst, color="0.3", ls=(0, (4, 2)), label="worst the words allow")
    axes[1].axhline(50, color="0.6", lw=0.8)
    axes[1].set(xlabel="epsilon", ylabel="best guess right, percent", xscale="log", ylim=(45, 102))
    axes[1].set_xticks([0.1, 0.5, 1, 2, 4, 10], labels=["0.1", "0.5", "1", "2", "4", "10"])
    axes[1].set_xticks([], minor=True)
    axes[1].legend(frameon=False, fontsize=8, loc="upper left")
    for axis in axes:
        axis.grid(color="0.92", lw=0.6)
    figure.savefig(FOLDER / "epsilon.png", dpi=150, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    """Draw all."""
    matplotlib.use("Agg")
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.labelsize": 9})
    FOLDER.mkdir(exist_ok=True)
    draw_epsilon()
    planned_only("auto.png", Auto(), lambda recipe: f", momentum {recipe.optimizer.momentum:.2f}", ylim=(10, 500))
    planned_only("nesterov.png", Nesterov(), lambda recipe: ", momentum 0.90", ylim=(10, 500))
    planned_only("noisy_pgd.png", NoisyPGD(), ylim=(10, 500))
    draw_dp_sgd()
    draw_dynamic()
    draw_baselines()
    oracle = made_table()
    draw_pur(oracle)
    with_run("dp_agd.png", DPAGD(), oracle, log_steps=True)
    with_run("adp_sgd.png", ADPSGD(), oracle, log_steps=True)


if __name__ == "__main__":
    main()
