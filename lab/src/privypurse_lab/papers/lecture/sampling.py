"""Figure 2 of the lecture: amplification by sampling, by its lemma and exactly."""

import functools
import math
from typing import Any

import numpy as np

from privypurse.accounting import convert
from privypurse.accounting.pld import pld_epsilon
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse_lab.papers import drawing
from privypurse_lab.papers.cells import Cell, Result, Results
from privypurse_lab.papers.items import (
    IN_PART,
    NONE_CLAIMED,
    NOT_REACHED,
    REACHED,
    Finished,
    Item,
    Settings,
    Sheet,
    Short,
    Verdict,
)
from privypurse_lab.papers.lecture.bounds import advanced, amplified

PUBLISHED = (
    "No numbers are published. If A is (epsilon, delta)-DP, then A on a secret uniform sample of a share q of the records is "
    "(ln(1 + q (e^epsilon - 1)), q delta)-DP, which is about (q epsilon, q delta) for epsilon <= 1. T such steps with q = "
    "1/n are "
    "(epsilon sqrt(T)/n, T delta/n)-DP, 'ignoring constants': one can run T = n^2 steps."
)
DELTA = 1e-5  # of one step without sampling, in the first two panels
MANY_DELTA = 1e-10  # of each of many steps: n^-5 at n = 100, as in the lecture
RATE = 0.01
ONE, MANY = "one step", "many steps"


def scale(settings: Settings) -> tuple[list[float], list[float], list[int]]:
    """Return epsilons, sampling rates and numbers of steps."""
    if settings.quick:
        return [0.1, 1.0, 4.0], [1e-3, 1e-2, 0.1, 0.5], [1, 100, 10_000]
    rates = [float(rate) for rate in np.geomspace(1e-3, 1, 10)[:-1]]
    return [0.1, 0.5, 1.0, 2.0, 4.0], rates, [1, 10, 100, 1_000, 10_000]


def one_step(epsilon: float, rate: float) -> Result:
    """Compute epsilon of a sampled release that is exactly (epsilon, delta)-DP without sampling."""
    lemma = amplified(epsilon, rate)
    charge = GaussianCharge(1 / convert.gdp_mu(epsilon, DELTA), rate)
    grid = max(1e-6, lemma / 2_000)
    return {"exact": pld_epsilon([charge], rate * DELTA, Neighbouring.ADD_REMOVE, interval=grid), "lemma": lemma}


def many_steps(epsilon: float, steps: int) -> Result:
    """Compute epsilon of T sampled releases: exact, advanced composition, as in the lecture."""
    charge = RepeatedCharge(GaussianCharge(1 / convert.gdp_mu(epsilon, MANY_DELTA), RATE), steps)
    claimed = RATE * epsilon * math.sqrt(steps)
    delta = steps * RATE * MANY_DELTA
    exact = pld_epsilon([charge], delta, Neighbouring.ADD_REMOVE, interval=max(2e-6, claimed / 2_000))
    # Advanced composition needs its own delta; with the same again, the total is twice delta.
    return {"exact": exact, "claimed": claimed, "advanced": advanced(amplified(epsilon, RATE), steps, delta)}


def cells(settings: Settings) -> list[Cell]:
    """Return all cells."""
    epsilons, rates, steps = scale(settings)
    ones = [Cell(one_step, {"epsilon": epsilon, "rate": rate}) for epsilon in epsilons for rate in rates]
    return ones + [Cell(many_steps, {"epsilon": epsilon, "steps": count}) for epsilon in epsilons for count in steps]


def rows_of(settings: Settings, results: Results) -> list[dict[str, Any]]:
    """Return all numbers."""
    rows = []
    for cell in cells(settings):
        found, one = results[cell], cell.function is one_step
        epsilon, rate = cell.arguments["epsilon"], cell.arguments.get("rate", RATE)
        rows.append(
            {
                "what": ONE if one else MANY,
                "epsilon_without_sampling": epsilon,
                "sampling_rate": rate,
                "steps": cell.arguments.get("steps", 1),
                "delta": rate * DELTA if one else cell.arguments["steps"] * rate * MANY_DELTA,
                "exact": found["exact"],
                "lemma": found["lemma"] if one else "",
                "about": rate * epsilon if one else found["claimed"],
                "advanced": "" if one else found["advanced"],
            }
        )
    return rows


def judge(rows: list[dict[str, Any]]) -> Verdict:
    """Compare the lemma and the two approximations with exact numbers."""
    ones, many = ([row for row in rows if row["what"] == what] for what in (ONE, MANY))
    off = max(abs(row["exact"] / row["lemma"] - 1) for row in ones)
    small = [row["exact"] / row["about"] for row in ones if row["epsilon_without_sampling"] <= 1]
    longest = [row for row in many if row["steps"] == max(each["steps"] for each in many)]
    up_to_one = [row for row in many if row["epsilon_without_sampling"] <= 1]
    constants = [row["exact"] / row["about"] for row in up_to_one]
    wasteful = [row["advanced"] / row["exact"] for row in longest if row["epsilon_without_sampling"] <= 1]
    holds = off < 0.01
    within = max(constants) < 2
    most = max(longest, key=lambda row: float(row["epsilon_without_sampling"]))
    unit = next(row for row in longest if row["epsilon_without_sampling"] == 1)
    word = REACHED if holds and within else IN_PART if holds else NOT_REACHED
    return Verdict(
        word,
        NONE_CLAIMED,
        f"For one step the lemma is {'not only right but exact' if holds else 'not exact'}: it and the privacy loss distribution "
        f"differ by at most {off:.2%}. The truth is {min(small):.2f} to {max(small):.2f} times 'about q epsilon' for epsilon "
        "<= 1, so "
        "that the approximation must not be used as a bound. For T steps the constants that the lecture ignores are between "
        f"{min(constants):.2f} and {max(constants):.2f} for epsilon <= 1, and {most['exact'] / most['about']:.2f} at epsilon "
        f"{most['epsilon_without_sampling']:g} after {most['steps']:,} steps. Advanced composition, which the lecture names, "
        "does not "
        f"show that: it states {min(wasteful):.1f} to {max(wasteful):.1f} times the exact epsilon there. T = n^2 = "
        f"{unit['steps']:,} "
        f"steps with n = {1 / RATE:g} cost {unit['exact']:.2f} where the lecture says 1.",
    )


def draw(settings: Settings, rows: list[dict[str, Any]], figure: Any) -> None:
    """Draw the lemma over the rate, the error of the approximation, and many steps."""
    lemma, about, many = drawing.panels(figure, 1, 3, width=4.0, height=3.6)[0]
    epsilons, rates, steps = scale(settings)
    dense = np.geomspace(rates[0], rates[-1], 100)
    for number, epsilon in enumerate(epsilons):
        ones = [row for row in rows if row["what"] == ONE and row["epsilon_without_sampling"] == epsilon]
        shown = drawing.style(number)
        name = f"epsilon {epsilon:g}"
        lemma.plot(dense, [amplified(epsilon, rate) for rate in dense], color=shown["color"], lw=1.2)
        lemma.plot(rates, [row["exact"] for row in ones], **{**shown, "ls": ""}, label=name)
        about.plot(rates, [row["exact"] / row["about"] for row in ones], **shown, label=name)
        longer = [row for row in rows if row["what"] == MANY and row["epsilon_without_sampling"] == epsilon]
        many.plot(steps, [row["exact"] / row["about"] for row in longer], **shown, label=name)
    wasteful = [row for row in rows if row["what"] == MANY and row["epsilon_without_sampling"] == 1.0]
    ratio = [row["advanced"] / row["about"] for row in wasteful]
    many.plot(steps, ratio, ":k", lw=1.4, label="advanced composition, epsilon 1")
    lemma.set(
        title="One step: lemma (lines), exact (marks)",
        xlabel="sampling rate q",
        ylabel="epsilon'",
        xscale="log",
        yscale="log",
    )
    about.set(title="One step: exact over 'about q epsilon'", xlabel="sampling rate q", xscale="log", yscale="log")
    many.set(title=f"T steps, q = {RATE:g}: over epsilon q sqrt(T)", xlabel="steps T", xscale="log", yscale="log")
    for axes in (about, many):
        drawing.number_ticks(axes.yaxis, [0.5, 1, 2, 5, 10])
        axes.axhline(1, color="0.6", lw=0.8)
    for axes in (lemma, about, many):
        axes.legend(fontsize=7)


def finish(settings: Settings, results: Results) -> Finished:
    """Return picture, table and verdict."""
    rows = rows_of(settings, results)
    many = [row for row in rows if row["what"] == MANY]
    table = [
        [f"epsilon {row['epsilon_without_sampling']:g}, T = {row['steps']:,}"]
        + [f"{row[key]:.4f}" for key in ("about", "exact", "advanced")]
        for row in many
    ]
    caption = f"T steps with q = {RATE:g}; each step has delta {MANY_DELTA:g} before sampling, T steps have T q delta."
    columns = ["", "lecture: epsilon q sqrt(T)", "exact", "advanced composition (twice the delta)"]
    return Finished(
        rows,
        judge(rows),
        functools.partial(draw, settings, rows),
        sheets=[Sheet(caption, columns, table)],
        notes=[
            "Exact: privacy loss distribution of Poisson-sampled Gaussian releases under add/remove. The lecture samples a fixed "
            "number and replaces records; its lemma is the same formula there."
        ],
        short=Short(
            "a secret sample of a share q costs ln(1 + q (e^epsilon - 1))",
            "no number",
            "",
            f"exact to {max(abs(row['exact'] / row['lemma'] - 1) for row in rows if row['what'] == ONE):.2%}",
        ),
    )


FIGURE_2 = Item("figure", "2", "Amplification by subsampling", PUBLISHED, cells, finish)
