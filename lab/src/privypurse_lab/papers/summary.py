"""Summary: all methods on Adult by epsilon and by time, and the verdicts of all papers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from privypurse_lab.papers import drawing
from privypurse_lab.papers.accuracy_study import (
    EPSILONS,
    SHUFFLES,
    Measured,
    Study,
    accuracy_sheet,
    draw_over_epsilon,
    lines,
    one_timing,
    paired,
    uncovered_notes,
)
from privypurse_lab.papers.cells import Cell, Results
from privypurse_lab.papers.items import NOT_PRIVATE, SCOREBOARD, Finished, Item, Paper, Settings, Short, Verdict
from privypurse_lab.papers.methods_compared import DEFAULT, NAMES, SGD_MA, is_private

TIMES = Study(("adult",), "logistic", NAMES, repetitions=1, epsilons=(0.05, 0.4, 1.6), work=one_timing)
STUDY = Study(("adult",), "logistic", NAMES, repetitions=SHUFFLES, epsilons=EPSILONS, fewer={"PrivGene": 1, SGD_MA: 3})
TIME_EPSILON = 0.4


def _verdict(found: Sequence[Measured]) -> Verdict:
    """Return whether a private method is as good as all methods that only claim to be private."""
    rest = [entry for entry in found if entry.ran and entry.contestant != "Non-private"]
    ahead, said = 0, []
    epsilons = sorted({entry.epsilon for entry in rest})
    for epsilon in epsilons:
        here = [entry for entry in rest if entry.epsilon == epsilon]
        sound = max((e for e in here if is_private(e.contestant)), key=lambda e: e.mean("accuracy"))
        unsound = max((e for e in here if not is_private(e.contestant)), key=lambda e: e.mean("accuracy"))
        gap, half = paired(sound, unsound)
        beyond = "" if np.isnan(half) else f" ± {half:.2f}"
        ahead += gap - (0.0 if np.isnan(half) else half) > 0
        said.append(
            f"{epsilon:g}: {sound.contestant} {sound.mean('accuracy'):.2f} against {unsound.contestant} ({NOT_PRIVATE}) "
            f"{unsound.mean('accuracy'):.2f}, {gap:+.2f}{beyond}"
        )
    why = (
        f"The best sound method is ahead of the best of those that claim privacy and do not have it at {ahead} of "
        f"{len(epsilons)} budgets, by the 95 % interval of the paired difference over shuffles ({'; '.join(said)}). The best "
        "of sixteen is taken in hindsight, and constants were chosen looking at Adult."
    )
    return Verdict(SCOREBOARD, SCOREBOARD, why)


def _finish_accuracy(settings: Settings, results: Results) -> Finished:
    found = STUDY.measured(settings, results)

    def draw(figure: Any) -> None:
        whole, near = drawing.panels(figure, 1, 2, width=6, height=4.8)[0]
        for axes in (whole, near):
            draw_over_epsilon(axes, found, "adult", "accuracy", [*NAMES, *settings.also])
        whole.set(title="Adult, logistic regression, delta 1e-8, add/remove", ylabel="accuracy (%)")
        near.set(title="the same, from near", ylim=_near([entry.mean("accuracy") for entry in found if entry.ran]))
        drawing.legend_below(figure, [whole])

    sheets = [accuracy_sheet(found, "adult")]
    return Finished(
        [entry.row() for entry in found],
        _verdict(found),
        draw,
        sheets,
        [DASHED, *uncovered_notes(("adult",))],
        Short("the most accurate method at each budget", "", *(_best(found, private) for private in (False, True))),
    )


def _best(found: Sequence[Measured], private: bool) -> str:
    """Return the accuracies of the best methods, by epsilon."""
    rest = [entry for entry in found if entry.ran and entry.contestant != "Non-private"]
    own = [entry for entry in rest if is_private(entry.contestant) is private]
    best = {e.epsilon: max(o.mean("accuracy") for o in own if o.epsilon == e.epsilon) for e in own}
    return f"{' / '.join(f'{best[epsilon]:.1f}' for epsilon in sorted(best))} %"


def _near(accuracies: Sequence[float]) -> tuple[float, float]:
    """Return the range of the better half of some accuracies."""
    low, high = float(np.quantile(accuracies, 0.5)), max(accuracies)
    return low - 0.1 * (high - low), high + 0.1 * (high - low)


def _time_cells(settings: Settings) -> list[Cell]:
    return [*STUDY.cells(settings), *TIMES.cells(settings)]


DASHED = "Dashed lines with empty markers are NOT PRIVATE: the epsilon they stand at is what they claim."


def _finish_time(settings: Settings, results: Results) -> Finished:
    found = TIMES.measured(settings, results)
    study = STUDY.measured(settings, results)
    # A quick run has other budgets for times than for accuracies.
    both = {entry.epsilon for entry in found} & {entry.epsilon for entry in study}
    epsilon = min(both, key=lambda value: abs(value - TIME_EPSILON))
    points = {name: next(e for e in entries if e.epsilon == epsilon) for name, entries in lines(found, "adult").items()}
    # Times come from a few fits made one at a time, accuracies from all fits.
    accurate = {entry.contestant: entry for entry in study if entry.epsilon == epsilon and entry.ran}
    ran = {name: entry for name, entry in points.items() if entry.ran and name in accurate}

    def draw(figure: Any) -> None:
        panels = drawing.panels(figure, 1, 2, width=6, height=4.6)[0]
        for axes in panels:
            for number, name in enumerate([*NAMES, *settings.also]):
                if name in ran:
                    look = drawing.style(number, is_private(name)) | {"ls": "", "ms": 8}
                    look |= {"elinewidth": 0.8, "capsize": 2, "label": drawing.label(name, is_private(name))}
                    entry = accurate[name]
                    x, y = ran[name].mean("seconds"), entry.mean("accuracy")
                    axes.errorbar(x, y, yerr=entry.spread("accuracy"), **look)
            axes.set(xscale="log", xlabel="seconds of one fit, one thread")
        panels[0].set(title=f"Adult, logistic regression, epsilon {epsilon:g}", ylabel="accuracy (%)")
        panels[1].set(title="the same, from near", ylim=_near([accurate[name].mean("accuracy") for name in ran]))
        drawing.legend_below(figure, [panels[0]])

    default = ran[DEFAULT]
    beaten = []
    for name, entry in ran.items():
        gap, half = paired(accurate[name], accurate[DEFAULT])
        if is_private(name) and entry.mean("seconds") < default.mean("seconds") and gap + half >= 0:
            beaten.append(f"{name} ({entry.mean('seconds'):.2f} s, {accurate[name].mean('accuracy'):.2f} %)")
    why = (
        f"At epsilon {epsilon:g} the default takes {default.mean('seconds'):.2f} s for "
        f"{accurate[DEFAULT].mean('accuracy'):.2f} %. Sound methods that take less time and are not worse by the 95 % "
        f"interval: {', '.join(beaten) or 'none'}."
    )
    sheets = [accuracy_sheet(found, "adult", "seconds")]
    timed = ("seconds", "seconds_spread")
    rows = [accurate[name].row() | {key: ran[name].row()[key] for key in timed} for name in ran]
    short = Short(
        "accuracy and seconds of the default",
        "",
        "",
        f"{accurate[DEFAULT].mean('accuracy'):.1f} %, {default.mean('seconds'):.2f} s",
    )
    return Finished(rows, Verdict(SCOREBOARD, SCOREBOARD, why), draw, sheets, [DASHED], short)


PAPER = Paper(
    name="summary",
    title="Every method on one page",
    about=(
        "What the five papers come to on one table, Adult, by five shuffles of five-fold cross-validation (SGD-MA three, "
        'PrivGene one). Sound methods are solid; what was published and is not private is dashed. "privypurse default" is '
        "PrivateLogisticRegression as it is."
    ),
    items=(
        Item(
            "figure",
            "1",
            "accuracy over epsilon on Adult, every method",
            "Not in any one paper: the scoreboard of this project.",
            STUDY.cells,
            _finish_accuracy,
            needs=("adult",),
        ),
        Item(
            "figure",
            "2",
            "accuracy and training time on Adult",
            "Not in any one paper.",
            _time_cells,
            _finish_time,
            needs=("adult",),
        ),
    ),
    reserved=NAMES,
)
