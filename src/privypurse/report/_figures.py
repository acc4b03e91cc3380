"""The plots of a report: data for Plotly, each with a caption and its numbers as a table.

Colours are style variables such as ``var(--accent)``, which the page resolves for light or dark.
"""

import datetime
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from privypurse.accounting import convert
from privypurse.core._errors import PrivypurseError
from privypurse.core._formats import counted, grouped
from privypurse.purse._certificate import Certificate
from privypurse.report import _words as words
from privypurse.report._content import Coefficient, Estimate, Measurement, ReportContent, Term
from privypurse.training._trace import Step, Trace

MOST_POINTS, MOST_ROWS, MOST_COEFFICIENTS = 1000, 60, 25
LONGEST_LABEL = 26
SEEN = 0.002  # share of the records from which on a knot sets the height of a drawing
SQUASHES = 5.0  # a coefficient so many times the median of those shown is cut at the edge
SERIES = ("var(--accent)", "var(--second)", "var(--third)", "var(--fourth)")

Row = tuple[str, ...]


@dataclass(frozen=True)
class Drawing:
    """A plot: data and layout for Plotly, and a caption."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    spoken: list[list[str]]  # the value of each point of each series, for tooltips and screen readers
    caption: str
    label: str = ""  # name among several drawings of a figure


@dataclass(frozen=True)
class Figure:
    """A figure: one or several drawings, shown one at a time, and a table."""

    key: str  # for links
    title: str
    drawings: tuple[Drawing, ...]  # one, or one for each of several outputs
    heads: Row
    rows: Sequence[Row]
    text_columns: int = 1  # at the left of the table
    note: str = ""  # what the table leaves out
    height: int = 300  # in pixels
    chooser: str = ""  # label of the selector of drawings


def thinned(count: int, most: int) -> list[int]:
    """Return at most `most` evenly spread indices, including the first and the last."""
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})


def _thinned_note(count: int, of: str) -> str:
    which = f"{MOST_ROWS} of {count:,} {of}, evenly spread"
    return f"{which}, the first and the last included." if count > MOST_ROWS else ""


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with a title."""
    return {"title": {"text": title}, "automargin": True, **more}


def _line(x: Sequence[float], y: Sequence[float], colour: str, **more: Any) -> dict[str, Any]:
    mode = "lines" if len(x) > 60 else "lines+markers"
    look = {"line": {"color": colour, "width": 2}, "marker": {"size": 6, "color": colour}}
    return {"type": "scatter", "mode": mode, "x": x, "y": y, **look, **more}


def spent_before_and_after(trace: Trace, certificate: Certificate) -> tuple[list[float], list[float]] | None:
    """Return steps from 0 on and the epsilon spent by then; None if the trace gives only shares."""
    if not math.isfinite(certificate.epsilon):
        return None
    try:
        mu = trace.mu_spent
        limit = convert.gdp_mu(certificate.epsilon, certificate.delta) ** 2
    except PrivypurseError:
        return None
    used = [limit * (1 - step.fraction_left) for step in trace.steps]
    # The shares on the trace are shares of this limit only if both give the same cost of each step.
    counted = [all_before - own**2 for all_before, own in zip(used, mu, strict=True)]
    before = counted[0]
    if before < -1e-6 * limit or any(abs(value - before) > 1e-6 * limit for value in counted):
        return None
    places = thinned(len(used), MOST_POINTS - 1)
    squares = [max(before, 0.0), *(used[place] for place in places)]
    epsilons = [convert.gdp_epsilon(math.sqrt(max(square, 0.0)), certificate.delta) for square in squares]
    numbers = [0.0, *(float(trace.steps[place].number) for place in places)]
    # Conversions round up, so the last step may seem to exceed the limit.
    return numbers, [min(epsilon, certificate.epsilon) for epsilon in epsilons]


def budget(content: ReportContent) -> Figure | None:
    """Draw the budget spent over the steps."""
    trace, certificate = content.trace, content.certificate
    if not trace.steps or not math.isfinite(certificate.epsilon):
        return None
    found = spent_before_and_after(trace, certificate)
    if found is not None:
        x, y = found
        limit, unit, title = certificate.epsilon, "epsilon ", "epsilon spent"
        shown = [words.rounded_up(spent) for spent in y]
        said = [f"after step {step:.0f}: epsilon {spent}" for step, spent in zip(x, shown, strict=True)]
        said[0] = f"before training: epsilon {shown[0]}"
        begin = f"Of epsilon {grouped(limit)}, {shown[0]} was spent before training, and"
    else:
        steps = [trace.steps[place] for place in thinned(len(trace.steps), MOST_POINTS)]
        x = [float(step.number) for step in steps]
        y = [100 * (1 - step.fraction_left) for step in steps]
        limit, unit, title = 100.0, "", "share of the limit spent, %"
        shown = [f"{share:.1f} %" for share in y]
        said = [f"after step {step:.0f}: {share} of the limit" for step, share in zip(x, shown, strict=True)]
        begin = f"{shown[0]} of the limit was spent after the first step,"
    dashed = {"color": "var(--limit)", "width": 1.5, "dash": "dash"}
    label = {"text": f"limit {unit}{grouped(limit)}{'' if unit else ' %'}", "font": {"color": "var(--limit)"}}
    place = {"xref": "paper", "x": 0, "xanchor": "left", "y": limit, "yanchor": "bottom"}
    layout = {
        "xaxis": axis("step"),
        "yaxis": axis(title, range=[0, 1.12 * limit]),
        "shapes": [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": limit, "y1": limit, "line": dashed}],
        "annotations": [{**place, "showarrow": False, **label}],
    }
    series = _line(x, y, SERIES[0], fill="tozeroy", fillcolor="var(--wash)")
    drawing = Drawing([series], layout, [said], f"{begin} {shown[-1]} after step {x[-1]:,.0f}, the last.")
    heads = ("step", "epsilon spent" if unit else "share spent")
    rows = [(f"{x[at]:,.0f}" if x[at] else "before", shown[at]) for at in thinned(len(x), MOST_ROWS)]
    note = _thinned_note(len(trace.steps), "steps")
    return Figure("plot-budget", "Budget spent over the steps", (drawing,), heads, rows, note=note)


def noise(content: ReportContent) -> Figure | None:
    """Draw the noise of each release with a known standard deviation."""
    asked: dict[str, list[Step]] = {}
    for step in content.trace.steps:
        if step.noise_std is not None and math.isfinite(step.noise_std):
            asked.setdefault(step.query, []).append(step)
    if not asked:
        return None
    data, spoken, captions, rows = [], [], [], []
    for place, (name, steps) in enumerate(asked.items()):
        std = [float(step.noise_std or 0.0) for step in steps]
        kept = thinned(len(steps), MOST_POINTS // len(asked))
        x, y = [float(steps[at].number) for at in kept], [std[at] for at in kept]
        of = words.QUERIES.get(name, name)
        data.append(_line(x, y, SERIES[place % len(SERIES)], name=html.escape(of, quote=False)))
        spoken.append([f"step {at:.0f}, {of}: noise {grouped(value)}" for at, value in zip(x, y, strict=True)])
        captions.append(f"Noise on each sum ({of}) {words.course(std)}.")
        rows += [(steps[at].number, of, std[at]) for at in kept]
    rows.sort()
    upwards = axis("standard deviation", range=[0, 1.12 * max(max(one["y"]) for one in data) or 1])
    layout = {"xaxis": axis("step"), "yaxis": upwards, "showlegend": len(asked) > 1}
    selections = sum(step.chosen is not None for step in content.trace.steps)
    if selections:
        captions.append(f"No standard deviation is shown for {counted(selections, 'more step')}: selections.")
    drawing, heads = Drawing(data, layout, spoken, " ".join(captions)), ("step", "asked", "standard deviation")
    listed = [(f"{rows[at][0]:,}", rows[at][1], grouped(rows[at][2])) for at in thinned(len(rows), MOST_ROWS)]
    note = _thinned_note(sum(map(len, asked.values())), "steps")
    return Figure("plot-noise", "Noise schedule", (drawing,), heads, listed, 2, note)


def step_sizes(content: ReportContent) -> Figure | None:
    """Draw the step size of each update."""
    sizes = content.step_sizes
    if not sizes:
        return None
    kept = thinned(len(sizes), MOST_POINTS)
    x, y = [float(at + 1) for at in kept], [float(sizes[at]) for at in kept]
    series = _line(x, y, SERIES[1], name="step size")
    said = [f"update {at:.0f}: step size {grouped(size)}" for at, size in zip(x, y, strict=True)]
    from_zero = {"range": [0, 1.12 * max(y)]} if min(y) >= 0 < max(y) else {}
    layout = {"xaxis": axis("update"), "yaxis": axis("step size", **from_zero)}
    caption = f"Over {len(sizes):,} updates the step size {words.course(sizes)}."
    drawing, heads = Drawing([series], layout, [said], caption), ("update", "step size")
    rows = [(f"{at + 1:,}", grouped(sizes[at])) for at in thinned(len(sizes), MOST_ROWS)]
    return Figure("plot-steps", "Step sizes", (drawing,), heads, rows, note=_thinned_note(len(sizes), "updates"))


def _by_output(content: ReportContent) -> dict[str, list[Coefficient]]:
    outputs: dict[str, list[Coefficient]] = {}
    for coefficient in content.coefficients:
        outputs.setdefault(coefficient.output, []).append(coefficient)
    return outputs


def curves(content: ReportContent) -> list[Figure]:
    """Draw what each column adds to the score, the most important column first."""
    outputs, found = _by_output(content), list[tuple[float, Figure]]()
    several = len(outputs) > 1
    heads: Row = (*["output"] * several, "at", "adds", "from", "to", "share of records")
    for number, term in enumerate(content.terms):
        of = {output: _centred(term, listed) for output, listed in outputs.items()}
        spreads = [sum(p * one.value**2 for p, one in zip(term.shares, points, strict=True)) for points in of.values()]
        drawings = tuple(_curve(term, *pair) if term.at else _dots(*pair) for pair in of.items())
        rows = [
            (*[output] * several, *_row(one), words.percent(share))
            for output, points in of.items()
            for one, share in zip(points, term.shares, strict=True)
        ]
        height = 260 if term.at else _height(term.count)
        chooser, key = "Output" * several, f"plot-curve-{number}"
        found.append((max(spreads), Figure(key, term.name, drawings, heads, rows, 1 + several, "", height, chooser)))
    return [figure for _, figure in sorted(found, key=lambda pair: -pair[0])]


def _centred(term: Term, listed: list[Coefficient]) -> list[Coefficient]:
    """Return the values of a term at its knots or categories, centred by the shares."""
    points = listed[term.first : term.first + term.count]
    names = _places(term) or [one.name.partition(" = ")[2] or one.name for one in points]
    values, is_line = [one.value for one in points], len(term.at) == 2
    if is_line:
        points, values = points * 2, [0.0, *values]
    mean = sum(share * value for share, value in zip(term.shares, values, strict=True))
    found = []
    for name, value, one, share in zip(names, values, points, term.shares, strict=True):
        half = None if one.high is None else (one.high - one.value) * (1 - share if is_line else 1.0)
        low, high = (None, None) if half is None else (value - mean - half, value - mean + half)
        found.append(replace(one, name=name, value=value - mean, low=low, high=high))
    return found


def _places(term: Term) -> list[str]:
    """Return the knots of a curve in words."""
    if term.dates:
        first = datetime.datetime(1970, 1, 1)
        return [(first + datetime.timedelta(seconds=at)).date().isoformat() for at in term.at]
    return [grouped(at) for at in term.at]


def _curve(term: Term, output: str, points: list[Coefficient]) -> Drawing:
    y = [one.value for one in points]
    ends = [(one.value if one.low is None else one.low, one.value if one.high is None else one.high) for one in points]
    # Where there are hardly any records, a wide band would squash the rest.
    seen = [end for end, share in zip(ends, term.shares, strict=True) if share >= SEEN] or ends
    low, high = min(end[0] for end in seen), max(end[1] for end in seen)
    room = 0.15 * (high - low) or 1.0
    low, high = low - room, high + room
    # Knots of a skewed column are drawn evenly spaced: most are near one end.
    middle = (term.at[len(term.at) // 2] - term.at[0]) / (term.at[-1] - term.at[0])
    stretched = not 0.15 <= middle <= 0.85
    even = stretched or term.dates
    x = [float(at) for at in range(len(y))] if even else list(term.at)
    ticks: dict[str, Any] = {}
    if even:
        places = thinned(len(x), 3 if term.dates else 6)
        ticks = {"tickmode": "array", "tickvals": places, "ticktext": [points[at].name for at in places]}
        ticks["ticklabeloverflow"] = "allow"
    ahead, back = ([(at, end[side]) for at, end in zip(x, ends, strict=True)] for side in (1, 0))
    path = " L ".join(f"{at:.6g},{min(max(value, low), high):.6g}" for at, value in [*ahead, *reversed(back)])
    shape = {"type": "path", "path": f"M {path} Z", "fillcolor": "var(--wash)", "line": {"width": 0}, "layer": "below"}
    said = [f"{term.name} {one.name}: adds {grouped(one.value)}{_between(one)}" for one in points]
    bands = [shape] if any(one.low is not None for one in points) else []
    upwards = axis("adds", range=[low, high], zeroline=True)
    layout = {"xaxis": axis("", **ticks), "yaxis": upwards, "shapes": bands}
    largest = max(points, key=lambda one: one.value)
    caption = f"What {term.name} adds to the score{f' of {output}' if output else ''}: most at {largest.name}."
    if stretched and len(x) > 2:
        caption += " The axis is stretched where most records are."
    return Drawing([_line(x, y, SERIES[0])], layout, [said], caption, output)


def coefficients(content: ReportContent) -> Figure:
    """Draw the largest coefficients of each output with their intervals."""
    outputs = _by_output(content)
    several = len(outputs) > 1
    drawings = tuple(_dots(*pair) for pair in outputs.items())
    heads: Row = (*["output"] * several, "column", "coefficient", "from", "to")
    rows = [(*[one.output] * several, *_row(one)) for one in content.coefficients]
    height, chooser = _height(max(map(len, outputs.values()))), "Output" * several
    return Figure("plot-coefficients", "Coefficients", drawings, heads, rows, 1 + several, "", height, chooser)


def _height(dots: int) -> int:
    """Return the height, in pixels, of a drawing of so many coefficients."""
    return 110 + 24 * max(min(dots, MOST_COEFFICIENTS), 4)


def _row(one: Coefficient) -> Row:
    return one.name, grouped(one.value), *(_ends(one) or ("", ""))


def _ends(one: Coefficient) -> tuple[str, str] | None:
    return None if one.low is None or one.high is None else (grouped(one.low), grouped(one.high))


def _between(one: Coefficient) -> str:
    return ", from {} to {}".format(*ends) if (ends := _ends(one)) else ""


def _dots(output: str, of: list[Coefficient]) -> Drawing:
    shown = sorted(of, key=lambda one: abs(one.value), reverse=True)[:MOST_COEFFICIENTS]
    rehearsed = [(one.low, one.high) for one in of if one.low is not None and one.high is not None]
    clear = sum(low > 0 or high < 0 for low, high in rehearsed)
    y = list(range(len(shown)))
    # Cut far larger coefficients, and intervals far wider than any, at the edge: both would squash the rest.
    largest, median = abs(shown[0].value), abs(shown[(len(shown) - 1) // 2].value)
    reach = (min(largest, SQUASHES * median) if median > 0 else largest) or 1.0
    edge = 1.4 * reach
    beyond = [at for at, one in enumerate(shown) if abs(one.value) > edge]
    x = [min(max(float(one.value), -edge), edge) for one in shown]
    said = [f"{one.name}: {grouped(one.value)}{_between(one)}" for one in shown]
    marker: dict[str, Any] = {"size": 8, "color": SERIES[0]}
    if beyond:
        towards = {at: "triangle-right" if x[at] > 0 else "triangle-left" for at in beyond}
        marker |= {"size": [11 if at in towards else 8 for at in y], "symbol": [towards.get(at, "circle") for at in y]}
    series: dict[str, Any] = {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker}
    if rehearsed:
        held = [
            (at if one.low is None else one.low, at if one.high is None else one.high)
            for at, one in zip(x, shown, strict=True)
        ]
        series["error_x"] = {
            **{"type": "data", "symmetric": False, "color": "var(--quiet)", "thickness": 1.5, "width": 3},
            "array": [max(0.0, high - at) for at, (_, high) in zip(x, held, strict=True)],
            "arrayminus": [max(0.0, at - low) for at, (low, _) in zip(x, held, strict=True)],
        }
    wide = any(abs(end) > 3 * reach for one in shown for end in (one.low or 0.0, one.high or 0.0))
    bounds = {"range": [-1.5 * reach, 1.5 * reach]} if wide or beyond else {}
    sides: dict[bool, dict[str, Any]] = {
        True: {"xanchor": "right", "xshift": -9},
        False: {"xanchor": "left", "xshift": 9},
    }
    far = [dict(sides[x[at] > 0], x=x[at], y=at, text=grouped(shown[at].value), showarrow=False) for at in beyond]
    across = axis("coefficient", zeroline=True, zerolinewidth=1.5, **bounds)
    names = axis("", **_named([one.name for one in shown]), range=[len(shown) - 0.4, -0.6], zeroline=False)
    layout = {"xaxis": across, "yaxis": names, "annotations": far}
    of_output = f" of output {output}" if output else ""
    which = f"The {len(shown)} largest of {len(of)}" if len(shown) < len(of) else f"All {len(of)}"
    caption = f"{which} coefficients{of_output}. Largest: {shown[0].name}, {grouped(shown[0].value)}."
    if beyond:
        caption += f" Triangles mark {len(beyond)} beyond the edge, with their values."
    if rehearsed:
        caption += f" Lines show how far noise moves them; {clear} of {len(rehearsed)} stay on one side of zero."
    return Drawing([series], layout, [said], caption, output)


def _named(names: Sequence[str]) -> dict[str, Any]:
    """Return ticks with shortened names."""
    short = [name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "\u2026" for name in names]
    shown = [html.escape(name, quote=False) for name in short]  # Plotly interprets markup
    return {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": shown}


def quality(one: Measurement, number: int) -> list[Figure]:
    """Draw recall and precision of each class, and the calibration; `number` tells measurements apart."""
    made = []
    kinds = [kind for kind in ("recall", "precision") if one.estimated(kind)]
    if kinds:
        made.append(_bars(one, kinds, f"plot-classes-{number}"))
    every = one.estimated("calibration")
    # Of few clear cells, most would be clear because noise added to their counts.
    if 2 * len(cells := [cell for cell in every if not cell.says_little]) > len(every):
        made.append(_calibration(cells, len(every), f"plot-calibration-{number}"))
    return made


def _bars(one: Measurement, kinds: list[str], key: str) -> Figure:
    data, spoken, rows = [], [], list[Row]()
    shown = one.classes[:MOST_COEFFICIENTS]
    for place, kind in enumerate(kinds):
        # A class without enough records has no bar, but is named.
        estimates = [one.estimated(kind, name)[0] for name in shown]
        values = [0.0 if it.says_little else 100 * it.value for it in estimates]
        lines = {
            **{"type": "data", "symmetric": False, "color": "var(--ink)", "thickness": 1.5, "width": 4},
            "array": [0.0 if it.says_little else 100 * (it.high - it.value) for it in estimates],
            "arrayminus": [0.0 if it.says_little else 100 * (it.value - it.low) for it in estimates],
        }
        look: dict[str, Any] = {"marker": {"color": SERIES[place]}, "name": kind, "error_x": lines, "orientation": "h"}
        data.append({"type": "bar", "x": values, "y": list(range(len(shown))), **look})
        spoken.append([f"{kind} of {it.of}: {words.estimate(it)}" for it in estimates])
        rows += [(name, kind, words.estimate(one.estimated(kind, name)[0])) for name in one.classes]
    names = axis("", **_named(shown), range=[len(shown) - 0.5, -0.5], zeroline=False)
    bars = {"barmode": "group", "bargap": 0.35, "showlegend": len(kinds) > 1}
    layout = {"xaxis": axis("percent", range=[0, 100]), "yaxis": names, **bars}
    caption = "Recall is the share of the records of a class that are predicted as it."
    if len(kinds) > 1:
        caption += " Precision is the share of the predictions of a class that are right."
    caption += " Lines are 95 % intervals."
    if unknown := [name for name in one.classes if all(one.estimated(kind, name)[0].says_little for kind in kinds)]:
        caption += f" Too few records, or too noisy, to say: {', '.join(unknown)}."
    drawing = Drawing(data, layout, spoken, caption)
    height = 150 + 28 * len(kinds) * max(len(shown), 2)
    return Figure(key, "Recall and precision", (drawing,), ("class", "figure", "value"), rows, 3, "", height)


def _calibration(cells: list[Estimate], of: int, key: str) -> Figure:
    """Draw each cell as a box: predicted probabilities across, the interval of the share upwards."""
    rows, shapes, right = list[Row](), list[dict[str, Any]](), 0
    line = {"color": SERIES[0], "width": 1}
    ends = [one.cell or (0.0, 1.0) for one in cells]
    for one, (low, high) in zip(cells, ends, strict=True):
        sides = {"x0": 100 * low, "x1": 100 * high, "y0": 100 * one.low, "y1": 100 * one.high}
        shapes.append({"type": "rect", **sides, "fillcolor": "var(--wash)", "line": line})
        right += one.low <= high and low <= one.high
        rows.append((f"{words.percent(low)} to {words.percent(high)}", words.estimate(one)))
    # Cells are narrow where most records are, so the axes end with the last of them.
    across, upwards = (min(100.0, 104 * end) for end in (ends[-1][1], max(ends[-1][0], *(one.high for one in cells))))
    diagonal = {"color": "var(--limit)", "width": 1.5, "dash": "dash"}
    most = min(across, upwards)
    shapes.append({"type": "line", "x0": 0, "y0": 0, "x1": most, "y1": most, "line": diagonal})
    x, y = [50 * (low + high) for low, high in ends], [100 * one.value for one in cells]
    series = {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": {"size": 8, "color": SERIES[0]}}
    spoken = [[f"predicted {predicted}: observed {observed}" for predicted, observed in rows]]
    layout: dict[str, Any] = {"xaxis": axis("predicted probability, %", range=[0, across]), "shapes": shapes}
    layout["yaxis"] = axis("observed share, %", range=[0, upwards])
    caption = (
        f"Of the records with a predicted probability of {cells[0].of!r} in a range, the share that is {cells[0].of!r}: "
        "each box is a range and the 95 % interval of the share. Calibrated probabilities meet the dashed diagonal, "
        f"as {right} of {len(cells)} boxes do."
    )
    if of > len(cells):
        caption += f" Too few records, or too noisy, to say: {counted(of - len(cells), 'more range')}."
    heads = ("predicted", "observed")
    return Figure(key, "Calibration", (Drawing([series], layout, spoken, caption),), heads, rows, 2, height=340)


def ledger_runs(content: ReportContent) -> Figure | None:
    """Draw what each run on the ledger spent, or released if its cost is unknown."""
    runs = content.budget["runs"]
    if len(runs) < 2:  # a single bar says nothing
        return None
    spent = [run.get("spent_epsilon") for run in runs]
    stated = all(isinstance(value, int | float) and math.isfinite(value) for value in spent)
    kept = thinned(len(runs), MOST_POINTS)
    x = [float(at + 1) for at in kept]
    values = [float(spent[at]) if stated else float(runs[at]["releases"]) for at in kept]
    title = "epsilon spent so far" if stated else "releases"
    said = [
        f"run {at + 1}, {words.moment(runs[at]['when'])}, {runs[at]['who']}, {runs[at]['what']}: {title} {grouped(value)}"
        for at, value in zip(kept, values, strict=True)
    ]
    series: dict[str, Any] = {"type": "bar", "x": x, "y": values, "marker": {"color": SERIES[0]}}
    across = axis("run", **({"tickmode": "linear", "dtick": 1} if len(runs) <= 12 else {}))
    upwards = axis(title, rangemode="tozero")
    layout = {"xaxis": across, "yaxis": upwards, "bargap": 0.75 if len(runs) <= 6 else 0.4}
    total = sum(int(run["releases"]) for run in runs)
    caption = f"{len(runs):,} runs on this ledger released {counted(total, 'value')}."
    if stated:
        caption += f" They come to epsilon {words.rounded_up(float(spent[-1]))} together."
    rows = []
    for at in thinned(len(runs), MOST_ROWS):
        about = f"{at + 1:,}", words.moment(runs[at]["when"]), str(runs[at]["who"]), str(runs[at]["what"])
        so_far = (words.rounded_up(float(spent[at])),) if stated else ()
        rows.append((*about, *so_far, f"{int(runs[at]['releases']):,}"))
    heads = ("run", "when", "who", "what", *(("epsilon so far",) if stated else ()), "releases")
    drawing, note = Drawing([series], layout, [said], caption), _thinned_note(len(runs), "runs")
    return Figure("plot-runs", "Runs on the ledger", (drawing,), heads, rows, 4, note, height=240)
