"""Figure 3 of the lecture: ways to compose T steps, and the boxed lemma."""

import functools
import math
from typing import Any

import numpy as np

from privypurse.accounting import _rdp as rdp
from privypurse.accounting import convert
from privypurse.accounting.pld import default_interval, pld_epsilon
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse_lab.papers import drawing
from privypurse_lab.papers.cells import Cell, Result, Results
from privypurse_lab.papers.items import (
    ANOTHER,
    AS_IN_PAPER,
    IN_PART,
    NOT_PRIVATE,
    NOT_REACHED,
    REACHED,
    Finished,
    Item,
    Settings,
    Sheet,
    Short,
    Verdict,
)
from privypurse_lab.papers.lecture.bounds import added, advanced_gaussian, boxed_lemma, lemma_holds_up_to

PUBLISHED = (
    "No numbers are published. Lemma (boxed): noisy projected descent is (epsilon, delta)-DP when sigma >= (2G/n) sqrt(2 T "
    "ln(1/delta))/epsilon; no range of epsilon is given. (The text prints epsilon for sigma on the left.) 'Advanced composition: "
    "loose bound. Better techniques: Renyi DP accountant, Gaussian DP, (zero-)concentrated DP.'"
)
DELTA = 1e-5
WHOLE_NOISE, SAMPLED_NOISE, RATE = 50.0, 2.0, 0.01
PLAIN, ADVANCED, CLASSIC, OPTIMAL = (
    "plain addition",
    "advanced composition",
    "zCDP, classic",
    "zCDP, optimal conversion",
)
RENYI, GAUSSIAN, NUMERICAL, LEMMA = "Renyi DP", "Gaussian DP, exact", "privacy loss distribution", "the lecture's lemma"
BETTER = (CLASSIC, OPTIMAL, RENYI, GAUSSIAN, NUMERICAL)
# Nearly one: with exactly one, Gaussian DP would fold releases into one without a grid.
NEARLY_ALL = 1 - 1e-9


def scale(settings: Settings) -> list[int]:
    """Return the numbers of steps."""
    return [round(step) for step in np.geomspace(1, 10_000, 5 if settings.quick else 13)]


def whole(steps: int) -> Result:
    """Compute epsilon of T full-batch releases with noise of 50 sensitivities, in every way."""
    rho = steps / (2 * WHOLE_NOISE**2)
    exact = convert.gdp_epsilon(math.sqrt(steps) / WHOLE_NOISE, DELTA)
    return {
        PLAIN: added(WHOLE_NOISE, steps, DELTA),
        ADVANCED: advanced_gaussian(WHOLE_NOISE, steps, DELTA),
        CLASSIC: convert.zcdp_epsilon(rho, DELTA, "classic"),
        OPTIMAL: convert.zcdp_epsilon(rho, DELTA),
        RENYI: renyi(GaussianCharge(WHOLE_NOISE), steps),
        GAUSSIAN: exact,
        NUMERICAL: numerical(GaussianCharge(WHOLE_NOISE, NEARLY_ALL), steps, exact),
        LEMMA: boxed_lemma(WHOLE_NOISE, steps, DELTA),
    }


def sampled(steps: int) -> Result:
    """Compute epsilon of T releases of 1 % Poisson samples with noise of 2 sensitivities."""
    charge = GaussianCharge(SAMPLED_NOISE, RATE)
    by_renyi = renyi(charge, steps)
    return {
        ADVANCED: advanced_gaussian(SAMPLED_NOISE, steps, DELTA, RATE),
        RENYI: by_renyi,
        NUMERICAL: numerical(charge, steps, by_renyi),
    }


def renyi(charge: GaussianCharge, steps: int) -> float:
    """Return epsilon by Rényi accounting, at the best order."""
    costs = [steps * cost for cost in rdp.curve(charge, Neighbouring.ADD_REMOVE)]
    return rdp.rdp_epsilon(rdp.ORDERS, costs, DELTA)


def numerical(charge: GaussianCharge, steps: int, about: float) -> float:
    """Return epsilon by privacy loss distributions, on an adapted grid."""
    grid = default_interval(about)
    return pld_epsilon([RepeatedCharge(charge, steps)], DELTA, Neighbouring.ADD_REMOVE, interval=grid)


def cells(settings: Settings) -> list[Cell]:
    """Return all cells."""
    return [Cell(function, {"steps": steps}) for function in (whole, sampled) for steps in scale(settings)]


def rows_of(settings: Settings, results: Results) -> list[dict[str, Any]]:
    """Return all numbers; those of the lemma where it is false are marked."""
    limit = lemma_holds_up_to(DELTA)
    return [
        {
            "records": "all" if cell.function is whole else f"Poisson samples of {RATE:g}",
            "noise_multiplier": WHOLE_NOISE if cell.function is whole else SAMPLED_NOISE,
            "steps": cell.arguments["steps"],
            "delta": DELTA,
            "counted_by": name,
            "epsilon": epsilon,
            "private": "yes" if name != LEMMA or epsilon <= limit else NOT_PRIVATE,
        }
        for cell in cells(settings)
        for name, epsilon in results[cell].items()
    ]


def curve(rows: list[dict[str, Any]], records: str, name: str) -> np.ndarray:
    """Return epsilon over T of one line."""
    return np.array(
        [row["epsilon"] for row in rows if row["records"].startswith(records) and row["counted_by"] == name]
    )


def judge(settings: Settings, rows: list[dict[str, Any]]) -> Verdict:
    """Check the lemma, and the lecture's claims of what is better."""
    steps = scale(settings)
    limits = {delta: lemma_holds_up_to(delta) for delta in (1e-5, 1e-8)}
    loose, exact = curve(rows, "all", ADVANCED), curve(rows, "all", GAUSSIAN)
    several = np.array(steps) > 1
    better = all((curve(rows, "all", name) < loose)[several].all() for name in BETTER)
    samples = {name: curve(rows, "Poisson", name) for name in (ADVANCED, RENYI, NUMERICAL)}
    better = better and all((samples[name] < samples[ADVANCED])[several].all() for name in (RENYI, NUMERICAL))
    first = samples[RENYI][0] / samples[ADVANCED][0]
    agree = float(np.abs(curve(rows, "all", NUMERICAL) / exact - 1).max())
    classic, optimal, by_renyi = (float((curve(rows, "all", name) / exact).max()) for name in (CLASSIC, OPTIMAL, RENYI))
    few, many = loose[several][0] / exact[several][0], loose[-1] / exact[-1]
    drawn = samples[ADVANCED][-1] / samples[NUMERICAL][-1]
    least = curve(rows, "all", PLAIN) < loose
    crossing = max(step for step, cheaper in zip(steps, least, strict=True) if cheaper)
    everywhere = min(limits.values()) >= 99
    return Verdict(
        REACHED if everywhere else IN_PART if min(limits.values()) > 1 else NOT_REACHED,
        AS_IN_PAPER if better else ANOTHER,
        f"The better techniques {'are' if better else 'are not all'} better from two steps on (for one sample Renyi "
        "accounting states "
        f"{first:.1f} times what advanced composition does): advanced composition states {few:.1f} "
        f"times the exact epsilon after {steps[1]} steps, {many:.1f} times after {steps[-1]:,} ({drawn:.1f} times with "
        "samples of 1 %), and "
        f"up to {crossing} steps even more than plain addition; at worst zCDP states {classic:.2f} (classic) and "
        f"{optimal:.2f} times, Renyi "
        f"{by_renyi:.2f} times; Gaussian DP and the numerical distribution agree to {agree:.2%}. The boxed lemma, which "
        "gives no range "
        f"of epsilon, is true up to epsilon {limits[1e-5]:.2f} at delta 1e-5 and {limits[1e-8]:.2f} at 1e-8, and false above: it "
        "asks for too little noise there.",
    )


def draw(settings: Settings, rows: list[dict[str, Any]], figure: Any) -> None:
    """Draw epsilon over T for full batches and samples, and ratios to the exact values."""
    panels = drawing.panels(figure, 1, 3, width=4.0, height=3.3)[0]
    steps = scale(settings)
    names = [PLAIN, ADVANCED, CLASSIC, OPTIMAL, RENYI, GAUSSIAN, NUMERICAL, LEMMA]
    for number, name in enumerate(names):
        shown = drawing.style(number)
        lines = curve(rows, "all", name)
        over = lines / curve(rows, "all", GAUSSIAN)
        if name == LEMMA:
            _draw_lemma(panels[0], rows, steps, lines, shown["color"])
            _draw_lemma(panels[1], rows, steps, over, shown["color"])
            continue
        panels[0].plot(steps, lines, **shown, label=name)
        panels[1].plot(steps, over, **shown, label=name)
        if name in (ADVANCED, RENYI, NUMERICAL):
            panels[2].plot(steps, curve(rows, "Poisson", name), **shown, label=name)
    for axes in panels:
        axes.set(xscale="log", yscale="log", xlabel="steps T")
    panels[0].set(title=f"All records, noise {WHOLE_NOISE:g} sensitivities", ylabel=f"epsilon at delta {DELTA:g}")
    panels[1].set(title="The same, over the exact epsilon", ylim=(0.8, 25))
    panels[2].set(title=f"Poisson samples of {RATE:.0%}, noise {SAMPLED_NOISE:g}")
    drawing.number_ticks(panels[1].yaxis, [1, 1.5, 2, 3, 5, 10, 20])
    drawing.legend_below(figure, panels)


def _draw_lemma(axes: Any, rows: list[dict[str, Any]], steps: list[int], values: np.ndarray, color: str) -> None:
    """Draw the lemma dotted, and dashed with empty markers where it is false."""
    stamps = [row["private"] for row in rows if row["counted_by"] == LEMMA]
    wrong = stamps.index(NOT_PRIVATE) if NOT_PRIVATE in stamps else len(stamps)
    axes.plot(steps[:wrong], values[:wrong], ":", color=color, lw=1.6, label=LEMMA)
    # Starts at the last true value, so that the line is connected.
    style = {"ls": "--", "marker": "o", "mfc": "white", "ms": 5.5, "color": color, "lw": 1.6}
    marked = list(range(1, len(stamps) - wrong + 1)) if wrong else list(range(len(stamps)))
    first = max(wrong - 1, 0)
    axes.plot(steps[first:], values[first:], **style, markevery=marked, label=lemma_label())


def lemma_label() -> str:
    """Return the label of the lemma where it is false."""
    return f"{LEMMA} ({NOT_PRIVATE} above epsilon {lemma_holds_up_to(DELTA):.2f})"


def finish(settings: Settings, results: Results) -> Finished:
    """Return picture, table and verdict."""
    rows = rows_of(settings, results)
    steps = scale(settings)
    table = []
    for records, names in (
        ("all", [PLAIN, ADVANCED, CLASSIC, OPTIMAL, RENYI, GAUSSIAN, NUMERICAL, LEMMA]),
        ("Poisson", [ADVANCED, RENYI, NUMERICAL]),
    ):
        for name in names:
            kind = "all records" if records == "all" else "samples of 1 %"
            table.append(
                [
                    f"{lemma_label() if name == LEMMA else name}, {kind}",
                    *(f"{epsilon:.3g}" for epsilon in curve(rows, records, name)[:: len(steps) // 4]),
                ]
            )
    columns = ["", *(f"T = {step:,}" for step in steps[:: len(steps) // 4])]
    return Finished(
        rows,
        judge(settings, rows),
        functools.partial(draw, settings, rows),
        sheets=[Sheet(f"Epsilon at delta {DELTA:g}.", columns, table)],
        notes=[
            "Noise is in units of the sensitivity (2G/n for the lecture's mean gradient), so that n, G and the relation drop out."
        ],
        short=Short(
            "the noise of the boxed lemma is enough; newer accounting beats advanced composition",
            "for any epsilon",
            "",
            f"enough up to epsilon {lemma_holds_up_to(DELTA):.2f} at delta {DELTA:g}",
        ),
    )


FIGURE_3 = Item("figure", "3", "Ways to count many steps, side by side", PUBLISHED, cells, finish)
