"""Figure 3 of the dynamic-noise paper: final loss over one sigma, influence, and relative loss."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from privypurse_lab.papers import drawing, prepared_data
from privypurse_lab.papers.cells import Cell, Result, Results
from privypurse_lab.papers.dynamic_noise import panels
from privypurse_lab.papers.dynamic_noise.cells import (
    LEFT_SCALE,
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
    single_steps,
)
from privypurse_lab.papers.dynamic_noise.problems import LINEAR, NETWORK, SQUARED
from privypurse_lab.papers.items import (
    NOT_PRIVATE,
    Finished,
    Item,
    Settings,
    Sheet,
    Short,
    Verdict,
    ranking_word,
    reached_word,
)

MIDDLE_SCALES = (1.0, 5.0, 10.0, 15.0)
# Published relative variances, "the variance divided by the mean value", at t = 10, 60 and 90 (App.
# D, Results): of the final loss for the squared one, of the coefficient c2 for the logistic one.
LOGISTIC = "logistic, MNIST35"
PUBLISHED_VARIANCES = {SQUARED: (0.14, 0.032, 0.016), LOGISTIC: (0.025, 0.024, 0.027)}


def _rows_of_figure_3() -> list[str]:
    """Return the rows whose data is available."""
    mnist = prepared_data.is_here("mnist")
    linear = [name for name, (source, _) in LINEAR.items() if source == "synthetic" or mnist]
    return [*linear, NETWORK] if mnist and prepared_data.is_here("torch") else linear


def _figure_3_cells(settings: Settings) -> list[Cell]:
    return [
        cell
        for name in _rows_of_figure_3()
        for cell in (*single_steps(settings, name).values(), *comparisons(settings, name).values())
    ]


def _finish_figure_3(settings: Settings, results: Results) -> Finished:
    single, found, rows = {}, {}, []
    for name in _rows_of_figure_3():
        cells = comparisons(settings, name)
        single[name] = {step: (cell, results[cell]) for step, cell in single_steps(settings, name).items()}
        found[name] = {sound: read(cells, results, sound) for sound in (False, True)}
        for step, (cell, result) in single[name].items():
            means = np.mean(result["losses"], axis=0)
            rows += [
                panels.row(f"{name}, left: final loss over sigma_t", f"t = {step}", sigma, float(mean), False)
                for sigma, mean in zip(cell.arguments["sigmas"], means, strict=True)
            ]
        for scale, result in found[name][False].items():
            rows += [
                panels.row(f"{name}, middle: influence", f"scale {scale:g}", step, value, False)
                for step, value in zip(result["at"], result["retrained"], strict=True)
            ]
        for sound, words in ((False, "as published"), (True, "sound")):
            panel = f"{name}, right, {words}: loss over uniform, %"
            rows += panels.relative_rows(panel, gaps(found[name][sound]), sound)
    relative = {name: {sound: gaps(each) for sound, each in by.items()} for name, by in found.items()}
    # From Figure 2, if it was run: the network without noise.
    silent = {scale: results[cell] for scale, cell in momentum_cells(settings).items() if cell in results}
    sheets = [
        _fit_sheet(single),
        *_variance_sheets(single),
        *(relative_sheet(f"Right: {name}", by) for name, by in relative.items()),
    ]
    absent = [name for name in (*LINEAR, NETWORK) if name not in found]
    missing = [f"Not run, for lack of MNIST or PyTorch: {'; '.join(absent)}."] if absent else []
    return Finished(
        rows,
        _figure_3_verdict(single, found, relative, silent),
        lambda figure: _draw_figure_3(figure, single, found, relative, list(also(settings))),
        sheets,
        [
            *missing,
            *([said_of_retrained(relative[SQUARED])] if SQUARED in relative else []),
            said_of_intervals(_tests(relative)),
            *said_of_fits({(name, scale): each for name, by in found.items() for scale, each in by[False].items()}),
            *left_out(settings),
        ],
        Short(
            "the loss is quadratic in one sigma; dynamic schedules end lower than uniform",
            "no number",
            *(
                f"lower in {sum(bool(lower(by[sound], _tests(relative))) for by in relative.values())} of {len(relative)} rows"
                for sound in (False, True)
            ),
        ),
    )


def explained(sigmas: list[float], result: Result) -> float:
    """Return the share of the variance of mean final losses that the parabola explains."""
    means = np.mean(result["losses"], axis=0)
    fitted = result["c2"] * np.square(sigmas) + result["c0"]
    return float(1 - np.sum((means - fitted) ** 2) / max(float(np.sum((means - means.mean()) ** 2)), 1e-300))


def _tests(relative: Any) -> int:
    """Return the number of comparisons with even noise in all rows of one version."""
    return sum(number_of_tests(by[True]) for by in relative.values())


def _figure_3_verdict(single: Any, found: Any, relative: Any, silent: Mapping[float, Result]) -> Verdict:
    said, held, tests = [], [], _tests(relative)
    for name, by in relative.items():
        fits = [explained(list(cell.arguments["sigmas"]), result) for cell, result in single[name].values()]
        steep = [panels.steepness(result) for result in found[name][False].values()]
        helped = {sound: [s for s, each in found[name][sound].items() if panels.noise_helps(each)] for sound in by}
        counted = {
            sound: {scale: gap for scale, gap in each.items() if scale not in helped[sound]}
            for sound, each in by.items()
        }
        ends_lower = {sound: lower(each, tests) for sound, each in counted.items()}
        held.append((min(fits) > 0.9, float(np.median(steep)) > 1.5, bool(ends_lower[True]), bool(ends_lower[False])))
        said.append(
            f"{name}: the parabola explains {100 * min(fits):.0f} to {100 * max(fits):.0f} %; influence of the last third of "
            f"steps over the first, {min(steep):.1f} to {max(steep):.1f} times; lower than uniform "
            f"{at_scales(ends_lower[False])} as published, {at_scales(ends_lower[True])} soundly (best: {best(counted[True])})"
            f"{_said_where_noise_helps(by, helped, tests, silent if name == NETWORK else {})}"
        )
    parabola, growing, sound, published = (sum(each) for each in zip(*held, strict=True))
    total = len(held)
    why = (
        f"Of {total} rows, {parabola} have final losses along a parabola, {growing} an influence that grows, and in {sound} the "
        f"dynamic or the exponential schedule beats even noise soundly at some scale ({published} as published, {NOT_PRIVATE}), "
        f"beyond the 95 % interval corrected for the {tests} tests of all rows. {'. '.join(said)}."
    )
    if SQUARED in single:
        why += f" {_said_of_variances(single[SQUARED])}"
    against = sum(each["dynamic"].higher(tests) for by in relative.values() for each in by[True].values())
    return Verdict(
        reached_word(parabola + growing, 2 * total), ranking_word(sound, total, against, published=published), why
    )


def _said_where_noise_helps(
    by: Mapping[bool, Mapping[float, Mapping[str, panels.Gap]]],
    helped: Mapping[bool, list[float]],
    tests: int,
    silent: Mapping[float, Result],
) -> str:
    """Describe what is not counted as a gain of a schedule."""
    apart = {sound: {scale: by[sound][scale] for scale in helped[sound]} for sound in by}
    gained = {sound: each for sound, each in apart.items() if lower(each, tests)}
    if not gained:
        return ""
    kinds = {False: "as published", True: "soundly"}
    said = "; not counted: " + " and ".join(f"{best(each)}, {kinds[sound]}" for sound, each in gained.items())
    said += ", where noise itself helps (influences by retraining add up to less than nothing, so that more noise is lower loss)"
    for scale in sorted({scale for each in gained.values() for scale in each} & set(silent)):
        loss, even = (
            np.mean(each) for each in (silent[scale]["no_noise"], silent[scale]["schedules"]["uniform"]["losses"])
        )
        if loss > even:
            said += (
                f"; likewise the network of Figure 2 at scale {scale:g} ends at {loss:.3f} without noise "
                f"({NOT_PRIVATE}) and at {even:.3f} with even noise"
            )
    return said


def over_mean(values: np.ndarray, power: int = 1) -> np.ndarray:
    """Return the variance over runs, divided by the mean or by its square, for each column."""
    return np.asarray(np.var(values, axis=0, ddof=1) / np.mean(values, axis=0) ** power)


def _said_of_variances(by: Mapping[int, tuple[Cell, Result]]) -> str:
    """Compare the published relative variances of the final squared loss with ours."""
    found = []
    for (_, result), published in zip(by.values(), PUBLISHED_VARIANCES[SQUARED], strict=True):
        losses = np.array(result["losses"])
        if len(losses) > 1:
            ours = over_mean(losses)
            found.append((bool((ours.max() > published / 2) & (ours.min() < 2 * published)), ours))
    if not found:
        return "For relative variances there are too few runs."
    low, high = min(ours.min() for _, ours in found), max(ours.max() for _, ours in found)
    return (
        f"Of the {len(found)} published variances of the final squared loss over its mean, {sum(near for near, _ in found)} are "
        f"within a factor of 2 of ours, which are {low:.2g} to {high:.2g} (published: "
        f"{' '.join(str(each) for each in PUBLISHED_VARIANCES[SQUARED])})."
    )


def _fit_sheet(single: Mapping[str, Mapping[int, tuple[Cell, Result]]]) -> Sheet:
    lines = []
    for name, by in single.items():
        for step, (cell, result) in by.items():
            each = np.array(result["coefficients"])
            error = f"{float(np.std(each, ddof=1) / len(each) ** 0.5):.2g}" if len(each) > 1 else "one run"
            share = f"{100 * explained(list(cell.arguments['sigmas']), result):.0f} %"
            lines.append([drawing.label(name, private=False), str(step), f"{result['c2']:.3g}", error, share])
    heads = ["row", "t", "influence c2", "its standard error", "parabola explains"]
    return Sheet(
        f"Left ({NOT_PRIVATE}: retraining on the private records, on a purse that is declared so): final loss over sigma_t at "
        f"data scale {LEFT_SCALE:g}, fitted by c2 sigma^2 + c0.",
        heads,
        lines,
    )


def _variance_sheets(single: Mapping[str, Mapping[int, tuple[Cell, Result]]]) -> list[Sheet]:
    """Return each published relative variance beside ours."""
    lines = []
    for name, printed in PUBLISHED_VARIANCES.items():
        for (step, (_, result)), published in zip(single.get(name, {}).items(), printed, strict=False):
            values = np.array(result["losses"] if name == SQUARED else result["coefficients"])
            what = "final loss" if name == SQUARED else "coefficient c2"
            ours = [_range(over_mean(values, power)) if len(values) > 1 else "one run" for power in (1, 2)]
            lines.append([drawing.label(name, private=False), str(step), what, str(published), *ours])
    heads = ["row", "t", "of", "published", "ours, over the mean", "ours, over its square"]
    caption = (
        f"Relative variances ({NOT_PRIVATE}): of one run, over runs; of the final loss from the least to the largest over the "
        'sigmas tried. Published are "the variance divided by the mean value"; over how many runs and which sigmas is not said. '
        "That quotient has the units of the mean, so that for c2 it depends on what sigma is measured in; over the square of the "
        "mean it does not, but that is another quantity than the words say."
    )
    return [Sheet(caption, heads, lines)] if lines else []


def _range(values: np.ndarray) -> str:
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.2g}" if low == high else f"{low:.3g} to {high:.3g}"


def _draw_figure_3(figure: Any, single: Any, found: Any, relative: Any, extra: list[str]) -> None:
    axes = drawing.panels(figure, len(found), 4, width=3.7, height=2.6)
    for line, name in zip(axes, found, strict=True):
        for number, (step, (cell, result)) in enumerate(single[name].items()):
            sigmas, means = np.array(cell.arguments["sigmas"]), np.mean(result["losses"], axis=0)
            style = drawing.style(number, private=False) | {"ls": "none"}
            line[0].plot(sigmas, means, **style, label=f"t = {step}")
            fine = np.linspace(sigmas.min(), sigmas.max(), 50)
            line[0].plot(fine, result["c2"] * fine**2 + result["c0"], color=drawing.colour(number), lw=1.0, ls="--")
        line[0].set(xlabel="$\\sigma_t$", ylabel="final loss", title=f"{name} ({NOT_PRIVATE})")
        line[0].legend(frameon=False, fontsize=7)
        shown = {
            scale: each
            for scale, each in found[name][False].items()
            if scale in (*MIDDLE_SCALES, 20.0)[: 4 + (name == NETWORK)]
        }
        panels.draw_influences(line[1], shown, f"influence ({NOT_PRIVATE})")
        for axis, sound, words in ((line[2], False, f"as published ({NOT_PRIVATE})"), (line[3], True, "sound")):
            variances = {scale: result["variance"] for scale, result in found[name][sound].items()}
            panels.draw_relative(axis, relative[name][sound], sound, words, variances, extra)
    drawing.legend_below(figure, axes[:, 2:].ravel(), columns=4)


FIGURE_3 = Item(
    "figure",
    "3",
    "final loss over one sigma, influence by step, relative loss over data scale",
    "Final losses are about quadratic in one sigma_t; influence grows with the step, steeply for the squared loss, less for the "
    "logistic one and the network; the advantage of dynamic schedules grows up to data scale 15 and shrinks beyond; on the "
    "network the dynamic schedule is not stable. The curves are lost in the scan; numbers in the text "
    "(relative variances) are in the second table.",
    _figure_3_cells,
    _finish_figure_3,
)
