"""Everything on one page: every method on Adult by epsilon and by time, and the verdicts of all papers."""

from collections.abc import Sequence
from typing import Any

from privypurse.papers import drawing
from privypurse.papers.accuracy_study import EPSILONS, Measured, Study, accuracy_sheet, draw_over_epsilon, lines
from privypurse.papers.cells import Results
from privypurse.papers.contestants import DEFAULT, NAMES, is_private
from privypurse.papers.items import IN_PART, REPRODUCED, Finished, Item, Paper, Settings, Verdict

STUDY = Study(("adult",), "logistic", NAMES, repetitions=10, epsilons=EPSILONS, fewer={"PrivGene": 1})
TIME_EPSILON = 0.4


def _verdict(found: Sequence[Measured]) -> Verdict:
    """Say whether some sound method is at least as good as everything that is not private but claims to be."""
    rest = [entry for entry in found if entry.ran and entry.contestant != "Non-private"]
    ahead, said = 0, []
    epsilons = sorted({entry.epsilon for entry in rest})
    for epsilon in epsilons:
        here = [entry for entry in rest if entry.epsilon == epsilon]
        sound = max((e for e in here if is_private(e.contestant)), key=lambda e: e.mean("accuracy"))
        unsound = max((e for e in here if not is_private(e.contestant)), key=lambda e: e.mean("accuracy"))
        ahead += sound.mean("accuracy") >= unsound.mean("accuracy")
        said.append(
            f"{epsilon:g}: {sound.contestant} {sound.mean('accuracy'):.2f} against {unsound.contestant} "
            f"{unsound.mean('accuracy'):.2f}"
        )
    why = (
        f"The best sound method is at least as good as the best of those that claim privacy and do not have it at {ahead} of "
        f"{len(epsilons)} budgets ({'; '.join(said)})."
    )
    return Verdict(REPRODUCED if ahead == len(epsilons) else IN_PART, why)


def _finish_accuracy(settings: Settings, results: Results) -> Finished:
    found = STUDY.measured(settings, results)

    def draw(figure: Any) -> None:
        axes = drawing.panels(figure, 1, 1, width=9, height=5.2)
        draw_over_epsilon(axes[0][0], found, "adult", "accuracy", [*NAMES, *settings.also])
        axes[0][0].set(title="Adult, logistic regression, delta 1e-8, add/remove", ylabel="accuracy (%)")
        worst = min(entry.mean("accuracy") for entry in found if entry.ran)
        axes[0][0].set_ylim(max(65, worst - 1), None)
        drawing.legend_below(figure, [axes[0][0]])

    sheets = [accuracy_sheet(found, "adult")]
    return Finished([entry.row() for entry in found], _verdict(found), draw, sheets, [DASHED])


DASHED = "Dashed lines with empty markers are NOT PRIVATE: the epsilon they stand at is what they claim."


def _finish_time(settings: Settings, results: Results) -> Finished:
    found = STUDY.measured(settings, results)
    epsilon = min({entry.epsilon for entry in found}, key=lambda value: abs(value - TIME_EPSILON))
    points = {name: next(e for e in entries if e.epsilon == epsilon) for name, entries in lines(found, "adult").items()}
    ran = {name: entry for name, entry in points.items() if entry.ran}

    def draw(figure: Any) -> None:
        axes = drawing.panels(figure, 1, 1, width=8, height=4.8)[0][0]
        for number, (name, entry) in enumerate(ran.items()):
            look = drawing.style(number, is_private(name)) | {"ls": "", "ms": 8}
            x, y = entry.mean("seconds"), entry.mean("accuracy")
            axes.errorbar(
                x,
                y,
                yerr=entry.spread("accuracy"),
                elinewidth=0.8,
                capsize=2,
                label=drawing.label(name, is_private(name)),
                **look,
            )
            axes.annotate(
                drawing.label(name, is_private(name)), (x, y), (6, 4), textcoords="offset points", fontsize=7.5
            )
        axes.set(xscale="log", xlabel="seconds of one fit, one thread", ylabel="accuracy (%)")
        axes.set_title(f"Adult, logistic regression, epsilon {epsilon:g}; bars: standard deviation over fits")
        drawing.legend_below(figure, [axes])

    default = points[DEFAULT]
    slower = [
        name for name, entry in ran.items() if entry.mean("seconds") > default.mean("seconds") and is_private(name)
    ]
    better = [
        name for name in slower if ran[name].mean("accuracy") > default.mean("accuracy") + default.spread("accuracy")
    ]
    why = (
        f"The default takes {default.mean('seconds'):.2f} s for {default.mean('accuracy'):.2f} %; of the {len(slower)} sound "
        f"methods that take longer, {len(better)} are better by more than the spread."
    )
    sheets = [accuracy_sheet(found, "adult", "seconds")]
    rows = [entry.row() for entry in ran.values()]
    return Finished(rows, Verdict(IN_PART if better else REPRODUCED, why), draw, sheets, [DASHED])


PAPER = Paper(
    name="summary",
    title="Every method on one page",
    about=(
        "What the five papers come to on one table, Adult, by ten shuffles of five-fold cross-validation (PrivGene one). Sound "
        'methods are solid; what was published and is not private is dashed. "privypurse default" is '
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
            STUDY.cells,
            _finish_time,
            needs=("adult",),
        ),
    ),
)
