"""Table 3 of the PUR paper: risk at two privacy levels, against the best constant noise."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from privypurse_lab.papers import drawing
from privypurse_lab.papers.cells import Cell, Results
from privypurse_lab.papers.items import (
    IN_PART,
    NOT_REACHED,
    REACHED,
    UNDECIDED,
    Finished,
    Item,
    Settings,
    Sheet,
    Short,
    Verdict,
    ranking_word,
)
from privypurse_lab.papers.pur import claims
from privypurse_lab.papers.pur.claims import ENDED, ENOUGH, HINDSIGHT, WORSE, Case
from privypurse_lab.papers.pur.figures import legend, norm_cases
from privypurse_lab.papers.pur.lines import (
    TABLE_RIDGE,
    Line,
    all_cells,
    all_lines,
    ended_before,
    line,
    path_cell,
    repetitions,
    scaling_note,
)
from privypurse_lab.papers.pur.paths import RADIUS, SCHEDULES, minimum
from privypurse_lab.papers.pur.problems import RIDGES, TITLES, those_here

NAMES = list(TITLES)
LEVELS = (0.1, 20.0)
STARTS = ("zero", "random")
# Table 3, in the order ours, best constant, for each of LEVELS.
PUBLISHED = {
    "synthetic": ((0.5090, 0.5307), (0.5087, 0.5087)),
    "mnist": ((1.0058, 0.9449), (0.6510, 0.5822)),
    "iris": ((0.6465, 0.6809), (0.2778, 0.2782)),
    "breast-cancer": ((1.1656, 0.8651), (0.2399, 0.2437)),
    "kddcup99-sf": ((0.5864, 0.5914), (0.5401, 0.5402)),
}
# Tolerance of reproduced numbers: noise, synthetic data and start affect the second digit.
CLOSE = 0.01
STAYING = float(np.log(2))
# Outcome of a published order: confirmed or reversed by the interval, or neither.
SEEN, CONTRADICTED = "seen", "contradicted"
# What the paper leaves open, and this table depends on: the start, and the bound on F(0) - F*.
WAYS = {
    f"{bound}, from {start}": (schedule, name)
    for start, name in (("zero", "zero"), ("a random point of length 1", "random"))
    for bound, schedule in (
        ("F(0) - F* <= log 2", "independent"),
        ("F(0) - F* <= M R^2/2 with R = 1", "independent, R = 1"),
    )
}
Found = Mapping[tuple[str, str, float], Case]  # by data set, way and epsilon


def cells(settings: Settings) -> list[Cell]:
    """Return the runs of the figures, those from a random start, and the exact minima."""
    there = those_here(NAMES)
    work = [cell for data in there for l2 in RIDGES for cell in all_cells(settings, data, l2)]
    for data in there:
        work += [path_cell(settings, data, TABLE_RIDGE, schedule, "random") for schedule in SCHEDULES]
    return work + [_minimum_cell(settings, data, l2) for data in there for l2 in RIDGES]


def finish(settings: Settings, results: Results) -> Finished:
    """Compare published and measured risks, and test the claim in every case."""
    there = those_here(NAMES)
    lines = {(data, l2, "zero"): all_lines(settings, results, data, l2) for data in there for l2 in RIDGES}
    for data in there:
        lines[data, TABLE_RIDGE, "random"] = [
            line(settings, results, data, TABLE_RIDGE, name, "random") for name in SCHEDULES
        ]
    cases = [case for (data, l2, start), each in lines.items() for case in risk_cases(data, l2, start, each)]
    norms = [case for data in there for l2 in RIDGES for case in norm_cases(data, l2, lines[data, l2, "zero"], LEVELS)]
    named = {way: name for name, way in WAYS.items()}
    found = {(case.data, named[case.ours, case.start], case.epsilon): case for case in cases if case.l2 == TABLE_RIDGE}
    least = {(data, l2): results[_minimum_cell(settings, data, l2)]["minimum"] for data in there for l2 in RIDGES}
    caption = "The claim, case by case (95 % confidence interval of ours minus best constant, paired by seed):"
    sheets = [_which_ridge(there, least), _side_by_side(there, found), claims.sheet([*cases, *norms], caption)]
    if settings.also:
        sheets.append(_own(there, lines, settings))
    return Finished(
        rows=[row for (data, l2, start), each in lines.items() for one in each for row in _rows(data, l2, start, one)],
        verdict=_verdict(there, found, least, cases, norms),
        picture=partial(_draw, there=there, found=found),
        sheets=sheets,
        notes=_notes(settings, there, lines),
        short=_short(there, found),
    )


def risk_cases(data: str, l2: float, start: str, lines: Sequence[Line]) -> list[Case]:
    """Compare by empirical risk on one problem."""
    ours = [each.name for each in lines if each.name.startswith("independent")]
    found = []
    for level in LEVELS:
        values = {each.name: each.risks_at(level) for each in lines}
        ended = ended_before(lines, level)
        which = {"data": data, "l2": l2, "start": start, "measure": "risk", "epsilon": level}
        found += [claims.compare(name, values, claims.by_risk, ended, **which) for name in ours]
    return found


def ridge_of_the_table(least: Mapping[tuple[str, float], float]) -> tuple[float, int]:
    """Return the ridge whose minima best match the published risks, and on how many data sets."""
    votes = [
        min(RIDGES, key=lambda l2: abs(min(PUBLISHED[data][1]) - least[data, l2]))
        for data in dict.fromkeys(data for data, _ in least)
    ]
    chosen = max(RIDGES, key=votes.count)
    return chosen, votes.count(chosen)


def _minimum_cell(settings: Settings, data: str, l2: float) -> Cell:
    return Cell(minimum, {"data": data, "quick": settings.quick, "l2": l2})


def order(case: Case, ours: float, best: float) -> str:
    """Return the outcome of a published order in one case."""
    if case.says == ENDED:
        return ENDED
    if case.low <= 0 <= case.high or case.low == case.high:
        return UNDECIDED
    return SEEN if (case.difference < 0) == (ours < best) else CONTRADICTED


def orders(there: Sequence[str], found: Found, way: str) -> dict[str, int]:
    """Count the outcomes of published orders read in one way; equal numbers have no order."""
    said = [order(found[data, way, level], ours, best) for data, level, ours, best in _printed(there) if ours != best]
    return {word: said.count(word) for word in (SEEN, CONTRADICTED, UNDECIDED, ENDED)}


def close(there: Sequence[str], found: Found, way: str) -> tuple[int, int]:
    """Return how many published risks are reproduced, of those not ended by our limit on work."""
    away = []
    for data, level, ours, best in _printed(there):
        case = found[data, way, level]
        away += [abs(case.our_mean - ours)] if case.ours_ended is None else []
        away += [abs(case.best_mean - best)] if case.best_ended is None else []
    return sum(each <= CLOSE for each in away), len(away)


def _printed(there: Sequence[str]) -> list[tuple[str, float, float, float]]:
    """Return data set, epsilon, and the two published risks."""
    return [(data, level, *pair) for data in there for level, pair in zip(LEVELS, PUBLISHED[data], strict=True)]


def _verdict(
    there: Sequence[str],
    found: Found,
    least: Mapping[tuple[str, float], float],
    risks: Sequence[Case],
    norms: Sequence[Case],
) -> Verdict:
    counts = {way: (*close(there, found, way), orders(there, found, way)) for way in WAYS}
    # Judged by the way that bears out the paper best: what it leaves open is read in its favour.
    way = max(counts, key=lambda name: counts[name][0] + counts[name][2][SEEN] - counts[name][2][CONTRADICTED])
    near, left, count = counts[way]
    pairs = sum(count.values())
    judged = pairs - count[ENDED]
    l2, votes = ridge_of_the_table(least)
    # Cases in which the published numbers contradict the claim; their data may be missing here.
    against = [f"{TITLES[data]} at epsilon {level:g}" for data, level, ours, best in _printed(there) if ours > best]
    own = f"its own table has ours worse for {', '.join(against)}" if against else "its own table agrees"
    enough = left >= ENOUGH * 4 * len(there) and judged >= ENOUGH * pairs
    word = REACHED if enough and near >= 0.9 * left else IN_PART if enough and near >= 0.25 * left else NOT_REACHED
    ranking = ranking_word(count[SEEN], judged, count[CONTRADICTED]) if enough else UNDECIDED
    said = "; ".join(
        f"{name}: {near} of {left} published risks are found to within {CLOSE:g}, and of {pairs} published orders "
        f"{count[SEEN]} are seen, {count[CONTRADICTED]} contradicted and {count[UNDECIDED]} undecided by the 95 % interval"
        for name, (near, left, count) in counts.items()
    )
    return Verdict(
        word,
        ranking,
        f"The paper states neither its start nor its bound on F(0) - F*. {said}. Judged by the best of these: {way}. "
        + ("" if enough else "Too few are left to judge by: our limit on work decides. ")
        + f"The table belongs to ridge {l2:g}: its exact minimum is the nearer one on {votes} of {len(there)} data sets. "
        f"The claim that the schedule is at least as good as the best constant: in the paper, {own}; here, by risk (both "
        f"starts), {_claim_in_words(risks)}. By gradient norm of the same runs (from zero), {_claim_in_words(norms)}.",
    )


def _short(there: Sequence[str], found: Found) -> Short:
    """Return the short row: how many published risks are found, in the way that finds most."""
    near, left = max(close(there, found, way) for way in WAYS)
    return Short(
        "risks of ours and of the best constant", f"{4 * len(there)} risks", f"{near} of {left} to within {CLOSE:g}"
    )


def _claim_in_words(cases: Sequence[Case]) -> str:
    stated = [case for case in cases if case.ours == "independent"]
    others = claims.counted([case for case in cases if case.ours != "independent"])
    said = claims.in_words(stated)
    if not claims.enough(stated):
        said += "; too few can tell anything, and our limit on work decides"
    many = sum(others.values())
    return said + (
        f"; with R = 1, worse in {others[WORSE]} of {many - others[ENDED]} ({others[ENDED]} left out)" if many else ""
    )


def _which_ridge(there: Sequence[str], least: Mapping[tuple[str, float], float]) -> Sheet:
    rows = [
        (TITLES[data], f"{min(PUBLISHED[data][1]):.4f}", *(f"{least[data, l2]:.4f}" for l2 in RIDGES)) for data in there
    ]
    caption = "Which ridge the table is for, which the paper does not say (minima are exact, NOT PRIVATE):"
    columns = ("", "smallest published risk", *(f"minimum, ridge {l2:g}" for l2 in RIDGES))
    return Sheet(caption, columns, rows)


def _side_by_side(there: Sequence[str], found: Found) -> Sheet:
    rows = []
    for data in there:
        for level, (ours, best) in zip(LEVELS, PUBLISHED[data], strict=True):
            shown = [f"{TITLES[data]}, epsilon {level:g}", f"{ours:.4f}", f"{best:.4f}"]
            for way, (schedule, _) in WAYS.items():
                case = found[data, way, level]
                shown.append(f"{case.our_mean:.4f}{_ended(case.ours_ended)}")
                if schedule != "independent":  # one best constant for each start
                    shown.append(
                        f"{case.best_mean:.4f} ({case.best.removeprefix('constant ')}){_ended(case.best_ended)}"
                    )
            rows.append(shown)
    columns = ["", "published: ours", f"published: {HINDSIGHT}"]
    for way, (schedule, start) in WAYS.items():
        columns.append(f"ours, {way}")
        if schedule != "independent":
            columns.append(f"{HINDSIGHT}; its noise; from {start}")
    caption = f"Mean empirical risk, ridge {TABLE_RIDGE:g} (and the epsilon reached, where our limit on work ended a run before):"
    return Sheet(caption, columns, rows)


def _ended(epsilon: float | None) -> str:
    return "" if epsilon is None else f", {ENDED}: {epsilon:.2g}"


def _own(there: Sequence[str], lines: Mapping[tuple[str, float, str], Sequence[Line]], settings: Settings) -> Sheet:
    rows = []
    for data in there:
        for each in lines[data, TABLE_RIDGE, "zero"]:
            if each.name in settings.also:
                means = [f"{np.mean(each.risks_at(level)):.4f}" for level in LEVELS]
                rows.append((f"{TITLES[data]}, {drawing.label(each.name, each.private)}", *means))
    return Sheet(
        "Your own, from zero, a budget for each epsilon:", ("", *(f"epsilon {level:g}" for level in LEVELS)), rows
    )


def _rows(data: str, l2: float, start: str, each: Line) -> list[dict[str, Any]]:
    rows = []
    for number, level in enumerate(LEVELS):
        risks = np.array(each.risks_at(level))
        ours, best = PUBLISHED[data][number]
        printed = ours if each.name == "independent" else best if each.name.startswith("constant ") else ""
        rows.append(
            {
                "data": data,
                "ridge": l2,
                "start": start,
                "epsilon": level,
                "schedule": each.name,
                "private": each.stamp,
                "reached": not each.ended_before(level),
                "risk_mean": float(risks.mean()),
                "standard_error": float(risks.std(ddof=1) / np.sqrt(risks.size)),
                "repetitions": int(risks.size),
                "published_ours_or_best_constant": printed if l2 == TABLE_RIDGE else "",
            }
        )
    return rows


def _notes(
    settings: Settings, there: Sequence[str], lines: Mapping[tuple[str, float, str], Sequence[Line]]
) -> list[str]:
    impossible = [
        f"{TITLES[data]} {best:.4f} at epsilon {level:g}"
        for data in there
        for level, (_, best) in zip(LEVELS, PUBLISHED[data], strict=True)
        if best > STAYING
    ]
    notes = [scaling_note("All schedules but the oracle")]
    if impossible:
        notes.append(
            f"From zero, a schedule that never moves has risk log 2 = {STAYING:.4f}, so the published best constants "
            f"{' and '.join(impossible)} cannot have started there. The start is not stated: zero, and a random point of "
            "length 1 (ridge 0.1 only), are both shown."
        )
    moved = 0.0
    for data in there:
        for start in STARTS:
            for each in lines[data, TABLE_RIDGE, start]:
                if each.name == "independent":
                    for level in LEVELS:
                        charged = [float(np.mean(each.risks_at(level, published=flag))) for flag in (False, True)]
                        moved = max(moved, abs(charged[0] - charged[1]))
    notes.append(
        "Charged is what the oracle enforces: sensitivity 2Z/N. The paper charges 2(lambda R + Z)/N although the ridge is "
        f"public; with that and R = {RADIUS:g}, which it does not state, our mean risks move by at most {moved:.4f}."
    )
    notes.append(
        f"{repetitions(settings)} repetitions of each. 'At least as good': the interval ends below 0.0001 (risk) or 1 % "
        "(gradient norm)."
    )
    return notes


def _draw(figure: Any, there: Sequence[str], found: Found) -> None:
    axes = drawing.panels(figure, 1, len(LEVELS), width=5.4, height=3.4)[0]
    for axis, level in zip(axes, LEVELS, strict=True):
        for place, data in enumerate(there):
            ours, best = PUBLISHED[data][LEVELS.index(level)]
            shown = [("published: ours", ours, 9, "*", False), (f"published: {HINDSIGHT}", best, 9, "o", False)]
            for number, (way, (schedule, start)) in enumerate(WAYS.items()):
                case = found[data, way, level]
                shown.append((f"ours, {way}", case.our_mean, number, "*", case.ours_ended is not None))
                if schedule != "independent":
                    name = f"{HINDSIGHT}, from {start}"
                    shown.append((name, case.best_mean, number, "o", case.best_ended is not None))
            for offset, (name, value, number, marker, ended) in enumerate(shown):
                left = place + (offset - 3.5) * 0.1
                face = "none" if "best" in name else drawing.colour(number)
                alpha = 0.35 if ended else 1.0
                axis.plot(left, value, marker, color=drawing.colour(number), mfc=face, ms=7, alpha=alpha, label=name)
        axis.axhline(STAYING, color="#7F7F7F", lw=1, ls=":", label="never moving from zero")
        axis.set_xticks(range(len(there)), [TITLES[data].replace(" ", "\n", 1) for data in there])
        axis.set(title=f"epsilon = {level:g}", ylabel="empirical risk" if level == LEVELS[0] else "")
    legend(figure, list(axes), 2, "Pale: our limit on work ended the run before that epsilon. All schedules")


TABLE_3 = Item(
    "table",
    "3",
    "empirical risk at epsilon 0.1 and 20",
    f"Ours / {HINDSIGHT}. Epsilon 0.1: Synthetic 0.5090 / 0.5307, MNIST 1.0058 / 0.9449, Iris 0.6465 / 0.6809, Breast cancer "
    "1.1656 / 0.8651, KDD Cup '99 0.5864 / 0.5914. Epsilon 20: 0.5087 / 0.5087, 0.6510 / 0.5822, 0.2778 / 0.2782, 0.2399 / "
    "0.2437, 0.5401 / 0.5402.",
    cells,
    finish,
    wants=[name for name in NAMES if name != "synthetic"],  # generated
)
