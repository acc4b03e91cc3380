"""Figure 2 of the dynamic-noise paper: influence by retraining, and final loss by data scale."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from privypurse_lab.papers import drawing
from privypurse_lab.papers.cells import Cell, Result, Results
from privypurse_lab.papers.dynamic_noise import panels
from privypurse_lab.papers.dynamic_noise.cells import (
    also,
    at_scales,
    best,
    comparisons,
    gaps,
    left_out,
    lower,
    momentum_cells,
    number_of_tests,
    read,
    relative_sheet,
    said_of_fits,
    said_of_intervals,
    said_of_retrained,
)
from privypurse_lab.papers.dynamic_noise.problems import SQUARED
from privypurse_lab.papers.intervals import half_width
from privypurse_lab.papers.items import (
    NOT_PRIVATE,
    NOT_REACHED,
    REACHED,
    Finished,
    Item,
    Settings,
    Sheet,
    Short,
    Verdict,
    ranking_word,
)

# The paper's schedules on the network with momentum, except for the even one.
DEEP = ("expinfl", "momexpinfl", "dynamic")


def _figure_2_cells(settings: Settings) -> list[Cell]:
    return [*comparisons(settings, SQUARED).values(), *momentum_cells(settings).values()]


def _finish_figure_2(settings: Settings, results: Results) -> Finished:
    cells = comparisons(settings, SQUARED)
    found = {sound: read(cells, results, sound) for sound in (False, True)}
    relative = {sound: gaps(each) for sound, each in found.items()}
    network = {scale: results[cell] for scale, cell in momentum_cells(settings).items()}
    deep = {scale: panels.gaps(result["schedules"]) for scale, result in network.items()}
    rows = [
        panels.row("left: influence by retraining", f"scale {scale:g}", step, value, False)
        for scale, result in found[False].items()
        for step, value in zip(result["at"], result["retrained"], strict=True)
    ]
    rows += panels.relative_rows("middle, as published: loss over uniform, %", relative[False], False)
    rows += panels.relative_rows("middle, sound: loss over uniform, %", relative[True], True)
    rows += [
        panels.row("middle: T^2 Var sqrt(q)", "variance", scale, result["variance"], sound)
        for sound, each in found.items()
        for scale, result in each.items()
    ]
    rows += panels.relative_rows("right: network with momentum, loss over uniform, %", deep, True)
    rows += [
        panels.row("right: network with momentum, loss without noise", "no noise", scale, mean, False, loss=mean)
        for scale, mean in ((scale, float(np.mean(result["no_noise"]))) for scale, result in network.items())
    ]
    missing = [] if network else ["PyTorch is not here: the panel of the network was not run."]
    tests = number_of_tests(relative[True])
    return Finished(
        rows,
        _figure_2_verdict(found, relative, network),
        lambda figure: _draw_figure_2(figure, found, relative, deep, list(also(settings))),
        [relative_sheet("Middle: squared loss on MNIST35", relative), *_network_sheets(network, deep)],
        [
            *missing,
            said_of_retrained(relative),
            said_of_intervals(number_of_tests(relative[True])),
            *said_of_fits({(SQUARED, scale): result for scale, result in found[False].items()}),
            *_said_of_noise(network),
            *left_out(settings),
        ],
        Short(
            "influence is exponential in the step; dynamic and exponential schedules end lower than uniform",
            "no number",
            *(
                f"lower at {len(lower(relative[sound], tests))} of {len(relative[sound])} scales"
                for sound in (False, True)
            ),
        ),
    )


def _figure_2_verdict(
    found: Mapping[bool, Mapping[float, Result]],
    relative: Mapping[bool, Mapping[float, Mapping[str, panels.Gap]]],
    network: Mapping[float, Result],
) -> Verdict:
    shapes = [panels.exponential_shape(result) for result in found[False].values()]
    exponential = float(np.median(shapes)) > 0.8
    tests = number_of_tests(relative[True])
    gains = {sound: lower(each, tests) for sound, each in relative.items()}
    enough = {sound: len(each) >= len(relative[sound]) / 2 for sound, each in gains.items()}
    higher = [scale for scale, by in relative[False].items() if by["dynamic"].higher(tests)]
    checks = [enough[True], not higher]
    said = (
        f"Influence grows along an exponential (a line explains {100 * float(np.median(shapes)):.0f} % of the variance of its "
        f"logarithm, median over scales). The dynamic or the exponential schedule ends lower than even noise, beyond the 95 % "
        f"interval corrected for {tests} tests, {at_scales(gains[False])} as published ({NOT_PRIVATE}; best: "
        f"{best(relative[False])}) and {at_scales(gains[True])} soundly (best: {best(relative[True])}). "
        f"{said_of_link(found[False], relative[False])}"
    )
    if higher:
        said += (
            f" But the dynamic schedule by curvatures ends higher than even noise {at_scales(higher)} as published (up to "
            f"{max(relative[False][scale]['dynamic'].mean for scale in higher):+.1f} %): curvatures know nothing of clipping, "
            "and the large early noise they allow leads to where gradients are clipped."
        )
    if network:
        held, words = said_of_network(network)
        checks += held
        said += f" {words}"
    # The order is claimed of the schedules: without a sound gain there is none.
    right = sum(checks) if enough[True] else 0
    ranking = ranking_word(right, len(checks), against=len(higher), published=enough[False])
    return Verdict(REACHED if exponential else NOT_REACHED, ranking, said)


def said_of_link(found: Mapping[float, Result], relative: Mapping[float, Mapping[str, panels.Gap]]) -> str:
    """Describe whether gains grow with the variance of influence, as in Lemma 4.1."""
    if len(found) < 3:
        return "There are too few scales to see whether gains follow the variance of influence."
    ranks = stats.rankdata([result["variance"] for result in found.values()])
    gains = stats.rankdata([-each["dynamic"].mean for each in relative.values()])

    def correlation(order: Sequence[float]) -> float:
        return float(np.corrcoef(ranks, order)[0, 1])

    rank = correlation(gains.tolist())
    others = [correlation(order) for order in itertools.permutations(gains.tolist())]
    chance = float(np.mean([other >= rank - 1e-12 for other in others]))
    return (
        f"Rank correlation between the variance of influence and the gain of the dynamic schedule: {rank:+.2f} over "
        f"{len(found)} scales (by chance as large or larger: p = {chance:.2f}, all orders; too few to decide, and not counted)."
    )


def said_of_network(network: Mapping[float, Result]) -> tuple[list[bool], str]:
    """Compare the two exponential schedules; return checks: alike up to 20, and better at 25."""
    over, apart = {}, {}
    for scale, result in network.items():
        schedules = {name: np.array(each["losses"]) for name, each in result["schedules"].items()}
        over[scale] = (100 * (schedules["momexpinfl"] - schedules["expinfl"]) / schedules["uniform"]).tolist()
        near = panels.gaps(result["schedules"])
        apart[scale] = max(abs(near[name].mean) for name in DEEP)
    half = {scale: half_width(each, len(over)) for scale, each in over.items()}
    mean = {scale: float(np.mean(each)) for scale, each in over.items()}
    worse = [scale for scale in over if mean[scale] > half[scale]]
    better = [scale for scale in over if mean[scale] < -half[scale]]
    close = [scale for scale in over if apart[scale] < 1.0]
    largest = max(mean, key=lambda scale: abs(mean[scale]))
    differences = "; ".join(f"at {scale:g} {mean[scale]:+.2f} ± {half[scale]:.2f}" for scale in over)
    said = (
        f"On the network with momentum, momexpinfl over expinfl, in points of the even loss, pair by pair and corrected for "
        f"{len(over)} tests: {differences}. So momexpinfl ends higher {at_scales(worse)} and lower {at_scales(better)}, by "
        f"{abs(mean[largest]):.1f} points at most; the paper has them alike, and momexpinfl lower at 25."
    )
    if close:
        most = max(apart[scale] for scale in close)
        said += (
            f" {at_scales(close).capitalize()} all the paper's schedules are within {most:.1f} % of even noise, so that to be "
            "near one another says nothing there."
        )
    helped = noise_helped(network)
    if helped:
        scales = sorted({scale for _, scale in helped})
        said += (
            f" {at_scales(scales).capitalize()} noise itself helps (see below): not all gains there are the schedule's."
        )
    alike = not [scale for scale in (*worse, *better) if scale != 25.0]
    return [alike, 25.0 in better], said


def _network_sheets(network: Mapping[float, Result], deep: Mapping[float, Mapping[str, panels.Gap]]) -> list[Sheet]:
    lines = []
    for scale, result in network.items():
        for name, each in result["schedules"].items():
            gap = deep[scale][name]
            ratio = "" if each["ratio"] is None else f"{each['ratio']:g}"
            over = "" if name == "uniform" else f"{gap.mean:+.2f} ± {gap.half:.2f}"
            silent = float(np.mean(panels.percent(each["losses"], result["no_noise"])))
            correct = f"{np.mean(each['accuracies']):.1f}"
            lines.append([f"{scale:g}", name, ratio, f"{gap.loss:.4f}", over, f"{silent:+.1f}", correct])
    heads = [
        "data scale",
        "schedule",
        "ratio",
        "training loss",
        "over uniform, %",
        f"over no noise ({NOT_PRIVATE}), %",
        "test accuracy, %",
    ]
    caption = (
        f"Right: the network with momentum, sound, but for what is compared with a run without noise, which is {NOT_PRIVATE}; "
        "95 % intervals, not corrected."
    )
    return [Sheet(caption, heads, lines)] if lines else []


def noise_helped(network: Mapping[float, Result]) -> list[tuple[str, float]]:
    """Return the schedules and scales that are significantly below the loss without noise."""
    tests = sum(len(result["schedules"]) for result in network.values())
    found = []
    for scale, result in network.items():
        for name, each in result["schedules"].items():
            over = panels.percent(each["losses"], result["no_noise"])
            if float(np.mean(over)) < -half_width(over, tests):
                found.append((name, scale))
    return found


def _said_of_noise(network: Mapping[float, Result]) -> list[str]:
    """Name where noise itself lowers the loss, and describe the network's intervals."""
    if not network:
        return []
    said = [
        "Runs of the network with momentum each have a draw of 1,000 images, a start and noise of their own, the same for all "
        "schedules; the public images that ratios are chosen on are one draw."
    ]
    helped = noise_helped(network)
    if helped:
        names = ", ".join(f"{name} at {scale:g}" for name, scale in helped)
        said.append(
            f"Below the loss without any noise (epsilon 1e4: {NOT_PRIVATE}) end: {names}. There noise itself helps: early noise "
            "shakes the weights out of a slow start, which is no merit of a schedule."
        )
    return said


def _draw_figure_2(
    figure: Any,
    found: Mapping[bool, Mapping[float, Result]],
    relative: Mapping[bool, Mapping[float, Mapping[str, panels.Gap]]],
    deep: Mapping[float, Mapping[str, panels.Gap]],
    extra: list[str],
) -> None:
    axes = drawing.panels(figure, 2, 2, width=4.6, height=3.0).ravel()
    panels.draw_influences(axes[0], found[False], f"influence by retraining ({NOT_PRIVATE}); lines: by curvature")
    for axis, sound, words in ((axes[1], False, f"as published ({NOT_PRIVATE})"), (axes[2], True, "sound")):
        variances = {scale: result["variance"] for scale, result in found[sound].items()}
        panels.draw_relative(axis, relative[sound], sound, f"squared loss, MNIST35, {words}", variances, extra)
    if deep:
        panels.draw_relative(axes[3], deep, True, "network with momentum, sound", None, extra)
    else:
        axes[3].set_axis_off()
    drawing.legend_below(figure, axes[1:], columns=3)


FIGURE_2 = Item(
    "figure",
    "2",
    "influence by retraining, and the final loss against the data scale",
    "Influence is roughly exponential in the step (left); dynamic and exponential schedules end lower than uniform where the "
    "variance of influence is large (middle); for the network with momentum expinfl and momexpinfl are comparable, the latter "
    "better at data scale 25 with 100 steps only (right). The curves are lost in the scan: the trend in words is all there is.",
    _figure_2_cells,
    _finish_figure_2,
    ("mnist",),
)
