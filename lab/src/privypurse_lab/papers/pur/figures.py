"""Figures 1 and 2 of the PUR paper: gradient norm against epsilon."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from privypurse_lab.papers import drawing
from privypurse_lab.papers.cells import Cell, Results
from privypurse_lab.papers.items import (
    ANOTHER,
    AS_IN_PAPER,
    IN_PART,
    NOT_PRIVATE,
    NOTHING_PRINTED,
    UNDECIDED,
    Finished,
    Item,
    Settings,
    Sheet,
    Verdict,
)
from privypurse_lab.papers.pur import claims
from privypurse_lab.papers.pur.claims import AT_LEAST, ENDED, STILL, WORSE, Case
from privypurse_lab.papers.pur.lines import Line, all_cells, all_lines, ended_before, repetitions, scaling_note
from privypurse_lab.papers.pur.paths import ADAPTIVE, GRID, LARGEST_EPSILON, MARKS, MERGED
from privypurse_lab.papers.pur.problems import CONSTANTS, INDEPENDENT, MOST_STEPS, RIDGES, TITLES, those_here

FIRST, SECOND = ("synthetic", "iris"), ("mnist", "breast-cancer", "kddcup99-sf")
Panels = Mapping[tuple[str, float], Sequence[Line]]


def cells(settings: Settings, names: Sequence[str]) -> list[Cell]:
    """Return the runs of a figure."""
    return [cell for data in those_here(list(names)) for l2 in RIDGES for cell in all_cells(settings, data, l2)]


def finish(settings: Settings, results: Results, names: Sequence[str]) -> Finished:
    """Return the figure, and check the paper's statements in each panel."""
    there = those_here(list(names))
    panels = {(data, l2): all_lines(settings, results, data, l2) for data in there for l2 in RIDGES}
    cases = [case for (data, l2), lines in panels.items() for case in norm_cases(data, l2, lines)]
    caption = "Gradient norm, data-independent schedule against the best constant noise, which is picked in hindsight:"
    return Finished(
        rows=[row for (data, l2), lines in panels.items() for each in lines for row in _rows(data, l2, each)],
        verdict=_verdict(cases),
        picture=partial(_draw, panels=panels, there=there),
        sheets=[claims.sheet(cases, caption), *_own_sheet(settings, panels)],
        notes=_notes(settings, there, panels),
        short=claims.short([case for case in cases if case.ours == "independent"]),
    )


def _own_sheet(settings: Settings, panels: Mapping[tuple[str, float], Sequence[Line]]) -> list[Sheet]:
    """Return the results of the user's schedules, if any."""
    rows = [
        [f"{TITLES[data]}, {l2:g}, {each.name}", *(f"{float(np.median(each.norms_at(mark))):.4f}" for mark in MARKS)]
        for (data, l2), lines in panels.items()
        for each in lines
        if each.name in settings.also
    ]
    heads = ["data, ridge, schedule", *(f"epsilon {mark:g}" for mark in MARKS)]
    return [Sheet("Your own schedules, median gradient norm:", heads, rows)] if rows else []


def norm_cases(data: str, l2: float, lines: Sequence[Line], marks: Sequence[float] = MARKS) -> list[Case]:
    """Compare by gradient norm on one problem."""
    ours = [each.name for each in lines if each.name in INDEPENDENT]
    found = []
    for mark in marks:
        values = {each.name: each.norms_at(mark) for each in lines}
        ended = ended_before(lines, mark)
        which = {"data": data, "l2": l2, "start": "zero", "measure": "gradient norm", "epsilon": mark}
        found += [claims.compare(name, values, claims.by_norm, ended, **which) for name in ours]
    return found


def _verdict(cases: Sequence[Case]) -> Verdict:
    """Judge by the schedule with the stated R; the effect of R = 1 is reported too."""
    stated = [case for case in cases if case.ours == "independent"]
    others = [case for case in cases if case.ours != "independent"]
    count = claims.counted(stated)
    moving = len(stated) - count[STILL] - count[ENDED]
    word = ANOTHER if 2 * count[WORSE] > moving else IN_PART
    if count[WORSE] == 0 and 2 * count[AT_LEAST] > moving:
        word = AS_IN_PAPER
    if not claims.enough(stated):
        # Too few cases are left to confirm a part of the claim.
        word = UNDECIDED
    shares = []
    for l2 in RIDGES:
        part = [case for case in stated if case.l2 == l2]
        shares.append(f"ridge {l2:g}: worse in {claims.counted(part)[WORSE]} of {_left(part)}")
    marks = ", ".join(f"{mark:g}" for mark in MARKS)
    why = f"By gradient norm at epsilon {marks}, {claims.in_words(stated)} ({'; '.join(shares)})."
    if not claims.enough(stated):
        why += (
            f" Only {moving} of {len(stated)} cases can tell anything: our limit on work decides, and the claim is neither borne "
            "out nor refuted here."
        )
    if others:
        good = claims.counted(others)
        why += (
            f" R is not stated in the paper; with R = 1 in place of 10, and M R^2/2 for the loss to be made up where there is a "
            f"ridge, it is worse in {good[WORSE]} of {_left(others)} and at least as good in {good[AT_LEAST]} ({good[ENDED]} "
            "left out)."
        )
    return Verdict(NOTHING_PRINTED, word, why)


def _left(cases: Sequence[Case]) -> int:
    """Return the number of cases not ended by our limit on work."""
    return len(cases) - claims.counted(cases)[ENDED]


def _rows(data: str, l2: float, line: Line) -> list[dict[str, Any]]:
    rows = []
    for epsilon, (low, middle, high) in zip(line.epsilons, line.quartiles.T, strict=True):
        rows.append(
            {
                "data": data,
                "ridge": l2,
                "schedule": line.name,
                "private": line.stamp,
                "epsilon": epsilon,
                "reached": not line.ended_before(epsilon),
                "gradient_norm_median": float(middle),
                "lower_quartile": float(low),
                "upper_quartile": float(high),
                "repetitions": len(line.norms),
            }
        )
    return rows


def _notes(settings: Settings, there: Sequence[str], panels: Panels) -> list[str]:
    notes = [
        f"{repetitions(settings)} repetitions, side by side, up to {MOST_STEPS:,} steps, until epsilon {LARGEST_EPSILON:g} is "
        "spent. Where a step of 1/(2M) is far shorter than the data requires, k steps are computed as one that is k times as "
        "long, with noise divided by sqrt(k): the same cost and the same noise in the model. k times the step times the "
        f"smoothness of the data is at most {MERGED:g}, so that gradients are off by at most {MERGED / 2:.0%}. Lines begin with "
        "the first step and end where the steps do; a shaded band is the interquartile range.",
        f"{scaling_note('Solid lines')} Dashed: the oracle, whose noise depends on the true gradient, "
        f"{NOT_PRIVATE} whatever is public. Picking the best constant noise in hindsight is {NOT_PRIVATE} as well, "
        "and not charged.",
        *_capped_notes(panels),
        "The adaptive rule (and schedules of your own) share out a budget that is given, so each of their points is a run of its "
        "own with that epsilon; a schedule of your own makes as many steps as the data-independent one with the same budget.",
    ]
    if "kddcup99-sf" in there:
        notes.append(
            "KDD Cup '99 is drawn from the 10 % file (73,237 connections, 4.5 % attacks); the paper draws from 699,691, of which "
            "0.3 % are attacks."
        )
    if "mnist" in there:
        longest = panels["mnist", RIDGES[0]][0].longest
        first = "The first 2,000 rows of MNIST" if settings.quick else "MNIST"
        notes.append(
            f"{first}, standardised by column, has rows of length up to Z = {longest:.0f}, for some pixels are almost never lit: "
            f"a step of 1/(2M) is {2 / longest**2:.1e}."
        )
    return notes


def _capped_notes(panels: Panels) -> list[str]:
    """Name the runs that would have taken more steps than were made."""
    ended = [
        f"{TITLES[data]} with ridge {l2:g}, {each.name}, at epsilon {each.capped:.2g}"
        for (data, l2), lines in panels.items()
        for each in lines
        if each.capped is not None and each.ended_before(LARGEST_EPSILON)
    ]
    if not ended:
        return []
    return [
        f"Ended by our limit on work before epsilon {LARGEST_EPSILON:g}: {'; '.join(ended)}. These count with what they reached. "
        "A case in which ours or the best constant was ended, and more steps could change what is said, is not scored."
    ]


def _draw(figure: Any, panels: Panels, there: Sequence[str]) -> None:
    axes = drawing.panels(figure, len(there), len(RIDGES), width=4.4, height=2.8)
    for (data, l2), lines in panels.items():
        axis = axes[there.index(data), RIDGES.index(l2)]
        for each in lines:
            _draw_line(axis, each, _place(each.name, lines))
        axis.set(xscale="log", yscale="log", xlim=(GRID[0], LARGEST_EPSILON * 1.15))
        axis.set_title(f"{TITLES[data]}, {'convex' if l2 == 0 else 'strongly convex'} (ridge {l2:g})")
        drawing.number_ticks(axis.xaxis, (0.01, 0.1, 1, 10))
        _plain_numbers(axis)
        axis.set_xlabel("epsilon spent (delta = 1/N)")
        if l2 == RIDGES[0]:
            axis.set_ylabel("gradient norm")
    legend(figure, list(axes.flat), 3, "Solid lines")


def legend(figure: Any, axes: Sequence[Any], columns: int, what: str) -> None:
    """Put the legend below, with a note on what the privacy of lines depends on."""
    drawing.legend_below(figure, axes, columns)
    said = (
        f"{what}: private only given the scaling and Z as public;\n"
        f"in truth both were read from the data, uncharged: {NOT_PRIVATE} as a whole"
    )
    figure.legends[-1].set_title(said, prop={"size": 8})


def _plain_numbers(axis: Any) -> None:
    """Write plain numbers, between powers of ten only where few of those are visible."""
    low, high = axis.get_ylim()
    digits = "123456789" if high / low < 8 else "25" if high / low < 60 else ""
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.yaxis.set_minor_formatter(lambda value, _: f"{value:.3g}" if f"{value:e}"[0] in digits else "")


def _place(name: str, lines: Sequence[Line]) -> int:
    """Return the colour of a schedule, the same in all panels; the paper's own is black."""
    fixed = {"independent": 9, "independent, R = 1": 7, "oracle": 1, ADAPTIVE: 0}
    fixed |= {f"constant {level:g}": 2 + number for number, level in enumerate(CONSTANTS)}
    others = [each.name for each in lines if each.name not in fixed]
    return fixed[name] if name in fixed else (6, 8)[others.index(name) % 2]


def _draw_line(axis: Any, line: Line, number: int) -> None:
    epsilons = np.array(line.epsilons)
    shown = (epsilons >= line.first * 0.8) & (epsilons <= line.reached * (1 + 1e-9))
    low, middle, high = line.quartiles
    how = drawing.style(number, line.private) | {"ms": 3.5, "markevery": max(1, int(shown.sum()) // 6)}
    named = {"independent": "data-independent (ours in the paper)", "independent, R = 1": "data-independent, R = 1"}
    named |= {"oracle": "data-dependent oracle"} | {
        f"constant {level:g}": f"constant noise {level:g}" for level in CONSTANTS
    }
    # A schedule without a step has no line, but keeps its place in the legend.
    axis.plot(epsilons[shown], middle[shown], label=drawing.label(named.get(line.name, line.name), line.private), **how)
    axis.fill_between(epsilons[shown], low[shown], high[shown], color=how["color"], alpha=0.15, lw=0)


SAID = (
    "The picture is lost in our copy; what is published is its trend in words: median of 120 repetitions with interquartile "
    'band; "our schedules are at least as good as using an optimally tuned constant noise variance".'
)
FIGURE_1 = Item(
    "figure",
    "1",
    "gradient norm against epsilon: Synthetic and Iris",
    SAID,
    partial(cells, names=FIRST),
    partial(finish, names=FIRST),
)
FIGURE_2 = Item(
    "figure",
    "2",
    "gradient norm against epsilon: MNIST, Breast cancer, KDD Cup '99",
    SAID,
    partial(cells, names=SECOND),
    partial(finish, names=SECOND),
    wants=SECOND,
)
