"""Pages that compare methods: their plans, without data, and their results on a table."""

import itertools
import textwrap
from collections.abc import Callable, Sequence

from privypurse.report._content import Comparison, Entry
from privypurse.report._figures import MOST_POINTS, SERIES, Drawing, Figure, Row, axis, thinned
from privypurse.report._html import escaped, paragraph, whole_page
from privypurse.report._page import figure
from privypurse.report._words import sentence
from privypurse.training._plan import Plan

DASHES = ("solid", "dash", "dot", "dashdot")
LEGEND = {"orientation": "h", "y": -0.3}


def render_plans(plans: Sequence[Plan], facts: str) -> str:
    """Return the page for plans of several methods from the same facts, given in words."""
    drawn = [
        _planned(plans, "noise", "Noise on each sum of gradients", "standard deviation", lambda plan: plan.noise_std),
        _planned(plans, "spending", "Share of the spending so far", "share", _shares),
        _planned(plans, "steps", "Step sizes", "step size", lambda plan: plan.step_sizes),
    ]
    drawn = [one for one in drawn if one.drawings[0].data]
    names = ", ".join(plan.method for plan in plans) if len(plans) < 4 else "the methods"
    about = paragraph(facts, "lede") + paragraph("Planned from public numbers; no data was touched.")
    return whole_page(
        title="Plan - privypurse",
        header=f"<header><h1>What {escaped(names)} would do</h1>{about}</header>",
        links=[(one.key, one.title) for one in drawn],
        main=[figure(one) for one in drawn],
        figures=drawn,
        closing="Everything on this page follows from public numbers.",
    )


def _shares(plan: Plan) -> list[float]:
    squares = [one**2 for one in plan.mu]
    total = sum(squares)
    return [so_far / total for so_far in itertools.accumulate(squares)]


def _planned(plans: Sequence[Plan], key: str, title: str, unit: str, of: Callable[[Plan], Sequence[float]]) -> Figure:
    data, spoken, rows, courses = [], [], list[Row](), []
    for place, plan in enumerate(plans):
        values, name = of(plan), plan.method
        if not values:
            continue
        picked = thinned(len(values), MOST_POINTS)
        x, y = [float(index + 1) for index in picked], [values[index] for index in picked]
        dash = DASHES[(place // len(SERIES)) % len(DASHES)]
        line = {"color": SERIES[place % len(SERIES)], "width": 2, "dash": dash}
        data.append({"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": line})
        spoken.append([f"{name}, step {step:.0f}: {value:.4g}" for step, value in zip(x, y, strict=True)])
        rows += [(name, f"{index + 1}", f"{values[index]:.4g}") for index in thinned(len(values), 12)]
        first, last = f"{values[0]:.4g}", f"{values[-1]:.4g}"
        courses.append(f"{name}: {first} throughout" if first == last else f"{name}: {first} to {last}")
    several = len(data) > 1
    axes = {"xaxis": axis("step"), "yaxis": axis(unit, rangemode="tozero")}
    layout = {**axes, "showlegend": several, "legend": LEGEND}
    drawing = Drawing(data, layout, spoken, f"{title}, first to last step. {'; '.join(courses)}.")
    return Figure(key, title, (drawing,), ("method", "step", unit), rows, height=380 if several else 300)


def render_comparison(result: Comparison, title: str) -> str:
    """Return the page for a comparison."""
    drawn = _compared(result)
    style = "" if result.private else "warning"
    return whole_page(
        title=f"{title} - comparison",
        header=f"<header><h1>{escaped(title)}</h1>{paragraph(result.note, style)}</header>",
        links=[(drawn.key, drawn.title)],
        main=[figure(drawn)],
        figures=[drawn],
        closing=result.note,
    )


def _compared(result: Comparison) -> Figure:
    is_share = result.metric == "accuracy"
    factor, unit = (100, "accuracy in percent") if is_share else (1, result.metric)
    private = [entry for entry in result.entries if entry.epsilon is not None]
    budgets = sorted({entry.epsilon for entry in private if entry.epsilon is not None})
    best = (max if is_share else min)(private, key=lambda entry: entry.value)
    rows = []
    for entry in result.entries:
        epsilon = "not private" if entry.epsilon is None else f"{entry.epsilon:g}"
        rows.append((entry.method, epsilon, f"{factor * entry.value:.4g}", f"{factor * entry.spread:.2g}"))
    heads = ("method", "epsilon", unit, "spread")
    if len(budgets) == 1:
        found = f"{best.method}, with {factor * best.value:.4g}"
        caption = f"{sentence(unit)} at epsilon {budgets[0]:g}, with spreads. The best of the private ones is {found}."
        drawing, height = _by_method(result.entries, factor, unit, caption), 110 + 36 * len(result.entries)
        return Figure("comparison", f"Methods at epsilon {budgets[0]:g}", (drawing,), heads, rows, height=height)
    data, spoken = [], []
    for place, name in enumerate(dict.fromkeys(entry.method for entry in result.entries)):
        own = [entry for entry in result.entries if entry.method == name]
        plain = own[0].epsilon is None
        x = [budgets[0], budgets[-1]] if plain else [entry.epsilon for entry in own]
        y = [factor * own[0].value] * 2 if plain else [factor * entry.value for entry in own]
        line = {"color": SERIES[place % len(SERIES)], "width": 2, "dash": "dot" if plain else "solid"}
        mode = "lines" if plain else "lines+markers"
        series = {"type": "scatter", "mode": mode, "x": x, "y": y, "name": name, "line": line}
        if not plain:
            series["error_y"] = {"type": "data", "array": [factor * entry.spread for entry in own], "thickness": 1}
        data.append(series)
        spoken.append([f"{name}, epsilon {one:g}: {value:.4g}" for one, value in zip(x, y, strict=True)])
    found = f"{best.method} at epsilon {best.epsilon:g}, with {factor * best.value:.4g}"
    caption = f"{sentence(unit)} over epsilon, with spreads. The best of the private ones is {found}."
    layout = {"xaxis": axis("epsilon", type="log"), "yaxis": axis(unit), "showlegend": True, "legend": LEGEND}
    drawing = Drawing(data, layout, spoken, caption)
    return Figure("comparison", "Methods and budgets", (drawing,), heads, rows, height=420)


def _by_method(entries: Sequence[Entry], factor: float, unit: str, caption: str) -> Drawing:
    """Draw one line for each method: a dot with its spread, hollow if it is not private."""
    data, spoken = [], []
    for place, entry in enumerate(entries):
        plain, value = entry.epsilon is None, factor * entry.value
        marker = {"size": 10, "color": SERIES[plain], "symbol": "circle-open" if plain else "circle"}
        error = {"type": "data", "array": [factor * entry.spread], "thickness": 1.5, "width": 4, "color": SERIES[plain]}
        dot = {"type": "scatter", "mode": "markers", "marker": marker, "error_x": error}
        data.append(dot | {"x": [value], "y": [place]})
        spoken.append([f"{entry.method}{', not private' if plain else ''}: {value:.4g}"])
    # Long names are on two lines, which a narrow screen has room for.
    names = ["<br>".join(map(escaped, textwrap.wrap(entry.method, 16))) for entry in entries]
    ticks = {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": names}
    sides = {"range": [len(names) - 0.4, -0.6], "zeroline": False}
    layout = {"xaxis": axis(unit), "yaxis": axis("", **ticks, **sides), "showlegend": False}
    return Drawing(data, layout, spoken, caption)
