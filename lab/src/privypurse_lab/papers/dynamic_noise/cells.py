"""Cells of Figures 2 and 3 of the dynamic-noise paper, and text on both."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from privypurse_lab.papers import drawing, prepared_data
from privypurse_lab.papers.cells import Cell, Result, Results
from privypurse_lab.papers.dynamic_noise import influence, panels
from privypurse_lab.papers.dynamic_noise.problems import NETWORK, STEPS
from privypurse_lab.papers.entries import as_schedule
from privypurse_lab.papers.items import NOT_PRIVATE, Settings, Sheet

LEFT_SCALE = 10.0


def momentum_cell(**arguments: Any) -> Result:
    """Cell: the network with momentum at one data scale. Imports PyTorch on use."""
    from privypurse_lab.papers.dynamic_noise.network import momentum_at_scale

    return momentum_at_scale(**arguments)


def also(settings: Settings) -> dict[str, Any]:
    """Return the user's schedules; methods cannot be compared here."""
    found = {name: as_schedule(entry) for name, entry in settings.also.items()}
    return {name: schedule for name, schedule in found.items() if schedule is not None}


def amounts(name: str, quick: bool) -> dict[str, Any]:
    """Return the extent of a comparison."""
    if name == NETWORK:
        if quick:
            return {
                "counts": [20],
                "at": [5, 12, 20],
                "sigmas": [20.0, 200.0],
                "retrainings": 1,
                "runs": 2,
                "rehearsals": 1,
            }
        at, sigmas = [10, 40, 70, 90, 100], [20.0, 110.0, 200.0]
        return {"counts": [50, 100], "at": at, "sigmas": sigmas, "retrainings": 4, "runs": 10, "rehearsals": 2}
    if quick:
        return {
            "counts": [10, 30],
            "at": [5, 18, 30],
            "sigmas": [20.0, 200.0],
            "retrainings": 2,
            "runs": 4,
            "rehearsals": 2,
        }
    counts, at = [5, 10, 20, 35, 50, 75, STEPS], [1, *range(5, STEPS + 1, 5)]
    sigmas = [20.0, 65.0, 110.0, 155.0, 200.0]
    return {"counts": counts, "at": at, "sigmas": sigmas, "retrainings": 8, "runs": 100, "rehearsals": 20}


def scales(name: str, quick: bool) -> tuple[float, ...]:
    """Return the data scales of a row."""
    if name == NETWORK:
        return (10.0,) if quick else (5.0, 10.0, 15.0, 20.0)
    return (5.0, 15.0) if quick else (1.0, 5.0, 10.0, 15.0, 20.0, 25.0)


def comparisons(settings: Settings, name: str) -> dict[tuple[bool, float], Cell]:
    """Return the cells of relative losses and influences of a row, by soundness and data scale."""
    shared = {"problem": name, "seed": settings.seed, **amounts(name, settings.quick)}
    # Each cell has its own schedules: they may have state, and are part of the key.
    return {
        (sound, scale): Cell(influence.compare, {"scale": scale, "sound": sound, "also": also(settings), **shared})
        for sound in (False, True)
        for scale in scales(name, settings.quick)
    }


def single_steps(settings: Settings, name: str) -> dict[int, Cell]:
    """Return the cells of the left column of Figure 3, by step."""
    steps, at, runs = (STEPS, (10, 60, 90), 40) if not settings.quick else (30, (5, 18, 27), 3)
    sigmas = list(np.linspace(20.0, 200.0, 4 if settings.quick else 10))
    if name == NETWORK:
        steps, at, runs = (STEPS, (10, 60, 90), 6) if not settings.quick else (20, (5, 12, 18), 1)
        sigmas = [20.0, 80.0, 140.0, 200.0]
    shared = {
        "problem": name,
        "scale": LEFT_SCALE,
        "steps": steps,
        "sigmas": sigmas,
        "runs": runs,
        "seed": settings.seed,
    }
    return {step: Cell(influence.one_step, {**shared, "at": step}) for step in at}


def momentum_cells(settings: Settings) -> dict[float, Cell]:
    """Return the cells of the network with momentum, by data scale; none without PyTorch."""
    if not prepared_data.is_here("torch"):
        return {}
    shared = {
        "steps": STEPS,
        "ratios": [0.5, 2.0, 5.0, 20.0, 100.0, 500.0],
        "rehearsals": 2,
        "runs": 10,
        "test_rows": 50_000,
    }
    scales: tuple[float, ...] = (5.0, 10.0, 15.0, 20.0, 25.0)
    if settings.quick:
        shared, scales = (
            {"steps": 20, "ratios": [2.0, 5.0], "rehearsals": 1, "runs": 2, "test_rows": 2_000},
            (10.0, 25.0),
        )
    shared |= {"seed": settings.seed, "also": also(settings)}
    return {scale: Cell(momentum_cell, {"scale": scale, **shared}) for scale in scales}


def read(cells: Mapping[tuple[bool, float], Cell], results: Results, sound: bool) -> dict[float, Result]:
    """Return the results of one version of a comparison, by data scale."""
    return {scale: results[cell] for (each, scale), cell in cells.items() if each is sound}


def gaps(found: Mapping[float, Result]) -> dict[float, dict[str, panels.Gap]]:
    """Compare the schedules at every data scale."""
    return {scale: panels.gaps(result["schedules"]) for scale, result in found.items()}


def number_of_tests(found: Mapping[float, Mapping[str, panels.Gap]], names: Sequence[str] = panels.GAINS) -> int:
    """Return the number of comparisons with even noise, over all schedules and scales."""
    return sum(name in each for each in found.values() for name in names)


def lower(
    found: Mapping[float, Mapping[str, panels.Gap]], tests: int, names: Sequence[str] = panels.GAINS
) -> list[float]:
    """Return the scales at which one of these schedules is significantly lower than even noise."""
    return [scale for scale, each in found.items() if any(each[name].lower(tests) for name in names if name in each)]


def at_scales(scales: Sequence[float]) -> str:
    """Name data scales."""
    if not scales:
        return "at no scale"
    return f"at scale{'s' * (len(scales) > 1)} {', '.join(f'{scale:g}' for scale in scales)}"


def best(found: Mapping[float, Mapping[str, panels.Gap]], names: Sequence[str] = panels.GAINS) -> str:
    """Name the scale at which one of these schedules gains most."""
    each = [(gap.mean, name, scale) for scale, by in found.items() for name, gap in by.items() if name in names]
    if not each:
        return "none"
    mean, name, scale = min(each)
    return f"{name} at scale {scale:g}, {mean:+.2f} %"


def relative_sheet(caption: str, relative: Mapping[bool, Mapping[float, Mapping[str, panels.Gap]]]) -> Sheet:
    """Return the table of relative losses, as published and sound."""
    lines = []
    for sound, by in relative.items():
        names = list(next(iter(by.values())))
        for name in names:
            words = [
                f"{gap.loss:.4f}" if name == "uniform" else f"{gap.mean:+.2f} ± {gap.half:.2f}"
                for gap in (each[name] for each in by.values())
            ]
            steps = ", ".join(str(each[name].steps) for each in by.values())
            lines.append([drawing.label(name, sound), *words, steps])
    heads = ["schedule", *(f"scale {scale:g}" for scale in relative[True]), "steps by scale"]
    said = (
        "uniform, the final loss; others, percent above it, 95 % intervals, not corrected for the number of comparisons"
    )
    return Sheet(f"{caption}: {said}.", heads, lines)


def said_of_retrained(relative: Mapping[bool, Mapping[float, Mapping[str, panels.Gap]]]) -> str:
    """Describe the schedule by retrained influences on the squared loss, not in the paper."""
    names = (panels.RETRAINED,)
    tests = number_of_tests(relative[True], names)
    scales = {sound: at_scales(lower(each, tests, names)) for sound, each in relative.items()}
    return (
        f'Not in the paper, and not counted: "{panels.RETRAINED}" on the squared loss (the paper takes curvatures there) ends '
        f"lower {scales[False]} as published ({NOT_PRIVATE}; best {best(relative[False], names)}) and "
        f"{scales[True]} soundly (best {best(relative[True], names)}), {tests} tests each."
    )


def said_of_intervals(tests: int) -> str:
    """Describe what intervals cover."""
    return (
        f"Drawn and printed intervals are at 95 % each; statements above are at 95 % for all {tests} comparisons of a version "
        "together (Bonferroni). Intervals over data scales cover the noise of the runs (for a network its start, too) "
        "on one draw of the data only: neither other records nor the choice of the number of steps, which as "
        "published is made on the very runs that are compared."
    )


def said_of_fits(found: Mapping[tuple[str, float], Result]) -> list[str]:
    """Describe what the fitted exponential would spend, by row and data scale."""
    spent = {key: result["fit_spends"] for key, result in found.items()}
    (least, at_least), (most, at_most) = (
        (spent[key], f"{key[0]}, at scale {key[1]:g}")
        for key in (min(spent, key=spent.__getitem__), max(spent, key=spent.__getitem__))
    )
    return [
        f"As fitted by least squares, the exponential would spend {least:.2g} ({at_least}) to {most:.2g} ({at_most}) times the "
        "budget, as published. Here its shape is kept and its level brought back to the budget.",
        f"As published, {NOT_PRIVATE}: images are projected and scaled by themselves, influences are estimated and numbers of "
        "steps are chosen on the private images, at no charge; budget 0.1963-zCDP by the classic conversion. Sound: all of "
        "that on other images of the same digits, taken as public; budget by the exact conversion, epsilon 4, delta "
        "1e-8, add/remove.",
    ]


def left_out(settings: Settings) -> list[str]:
    """Name the user's entries that cannot be compared."""
    names = [name for name, entry in settings.also.items() if as_schedule(entry) is None]
    return [f"Schedules are compared here: the method {name} has no place in it." for name in names]
