"""Figure 2 of the dynamic-noise paper: influence by retraining, and the final loss against the data scale."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats

from privypurse.papers import drawing
from privypurse.papers.cells import Cell, Result, Results
from privypurse.papers.dynamic_noise import panels
from privypurse.papers.dynamic_noise.cells import (
    also,
    best,
    comparisons,
    gaps,
    left_out,
    listed,
    lower,
    momentum_cells,
    read,
    relative_sheet,
    said_of_fits,
)
from privypurse.papers.dynamic_noise.problems import SQUARED
from privypurse.papers.dynamic_noise.theory import half_width
from privypurse.papers.items import (
    AS_PUBLISHED_ONLY,
    IN_PART,
    NOT_PRIVATE,
    NOT_REPRODUCED,
    REPRODUCED,
    Finished,
    Item,
    Settings,
    Sheet,
    Verdict,
)


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
    missing = [] if network else ["PyTorch is not here: the panel of the network was not run."]
    return Finished(
        rows,
        _figure_2_verdict(found, relative, deep),
        lambda figure: _draw_figure_2(figure, found, relative, deep, list(also(settings))),
        [relative_sheet("Middle: squared loss on MNIST35", relative), *_network_sheets(network, deep)],
        [*missing, *said_of_fits(found), *_said_of_noise(network), *left_out(settings)],
    )


def _figure_2_verdict(
    found: Mapping[bool, Mapping[float, Result]],
    relative: Mapping[bool, Mapping[float, Mapping[str, panels.Gap]]],
    deep: Mapping[float, Mapping[str, panels.Gap]],
) -> Verdict:
    shapes = [panels.exponential_shape(result) for result in found[False].values()]
    exponential = float(np.median(shapes)) > 0.8
    gains = {sound: lower(each) for sound, each in relative.items()}
    enough = {sound: len(each) >= len(relative[sound]) / 2 for sound, each in gains.items()}
    linked, words = _link(found[False], relative[False])
    higher = [scale for scale, by in relative[False].items() if by["dynamic"].mean > by["dynamic"].half]
    checks = [exponential, enough[True], not higher, *([] if linked is None else [linked])]
    said = (
        f"Influence grows along an exponential (a line explains {100 * float(np.median(shapes)):.0f} % of the variance of its "
        f"logarithm, median over scales). A schedule that follows it ends lower than even noise, beyond the 95 % interval, at "
        f"data scales {listed(gains[False])} as published ({NOT_PRIVATE}; best: {best(relative[False])}) and "
        f"{listed(gains[True])} soundly (best: {best(relative[True])}). {words}"
    )
    if higher:
        said += (
            f" But the dynamic schedule by curvatures ends higher than even noise at scales {listed(higher)} as published (up to "
            f"{max(relative[False][scale]['dynamic'].mean for scale in higher):+.1f} %): curvatures know nothing of clipping, "
            "and the large early noise they allow leads to where gradients are clipped."
        )
    if deep:
        close = [scale for scale, by in deep.items() if abs(by["expinfl"].mean - by["momexpinfl"].mean) < 2.0]
        checks.append(len(close) >= len(deep) / 2)
        said += (
            f" On the network with momentum, expinfl and momexpinfl are within 2 points of each other at scales "
            f"{listed(close)} of {listed(list(deep))}; at 25 momexpinfl is at {deep[25.0]['momexpinfl'].mean:+.2f} % and "
            f"expinfl at {deep[25.0]['expinfl'].mean:+.2f} %."
        )
    if all(checks):
        return Verdict(REPRODUCED, said)
    if exponential and enough[False] and not enough[True]:
        return Verdict(AS_PUBLISHED_ONLY, said)
    return Verdict(IN_PART if any(checks) else NOT_REPRODUCED, said)


def _link(found: Mapping[float, Result], relative: Mapping[float, Mapping[str, panels.Gap]]) -> tuple[bool | None, str]:
    """Say whether gains are larger where influence varies more, as Lemma 4.1 has it."""
    if len(found) < 3:
        return None, "There are too few scales to see whether gains follow the variance of influence."
    variances = [result["variance"] for result in found.values()]
    rank = float(stats.spearmanr(variances, [-each["dynamic"].mean for each in relative.values()]).statistic)
    said = f"Rank correlation between the variance of influence and the gain of the dynamic schedule: {rank:+.2f}."
    return rank > 0.3, said


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
        "over no noise, %",
        "test accuracy, %",
    ]
    return [Sheet("Right: the network with momentum, sound.", heads, lines)] if lines else []


def _said_of_noise(network: Mapping[float, Result]) -> list[str]:
    """Say where noise itself helps, which no schedule may take credit for."""
    helped = []
    for scale, result in network.items():
        for name, each in result["schedules"].items():
            over = panels.percent(each["losses"], result["no_noise"])
            if float(np.mean(over)) < -half_width(over):
                helped.append(f"{name} at {scale:g}")
    if not helped:
        return []
    return [
        f"Below the loss without any noise end: {', '.join(helped)}. There noise itself helps: early noise shakes the weights "
        "out of a slow start, which is no merit of a schedule."
    ]


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
