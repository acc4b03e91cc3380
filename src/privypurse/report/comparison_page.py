"""A comparison of methods and budgets as a page."""

from collections.abc import Sequence
from typing import Protocol

from privypurse.report.figures import SERIES, Drawing, Figure
from privypurse.report.html import escaped, paragraph, whole_page
from privypurse.report.sections import figure


class Line(Protocol):
    """One line of a comparison."""

    @property
    def method(self) -> str: ...  # noqa: D102
    @property
    def epsilon(self) -> float | None: ...  # noqa: D102
    @property
    def value(self) -> float: ...  # noqa: D102
    @property
    def spread(self) -> float: ...  # noqa: D102


class Compared(Protocol):
    """Result of `privypurse compare`."""

    @property
    def metric(self) -> str: ...  # noqa: D102
    @property
    def private(self) -> bool: ...  # noqa: D102
    @property
    def note(self) -> str: ...  # noqa: D102
    @property
    def entries(self) -> Sequence[Line]: ...  # noqa: D102


def render_comparison(result: Compared, title: str) -> str:
    """Return the page for a comparison."""
    drawn = _figure(result)
    style = "" if result.private else "warning"
    header = f"<header><h1>{escaped(title)}</h1>{paragraph(result.note, style)}</header>"
    return whole_page(
        title=f"{title} - comparison",
        header=header,
        links=[(drawn.key, drawn.title)],
        main=[figure(drawn)],
        figures=[drawn],
        closing=result.note,
    )


def _figure(result: Compared) -> Figure:
    methods = list(dict.fromkeys(entry.method for entry in result.entries))
    budgets = sorted({entry.epsilon for entry in result.entries if entry.epsilon is not None})
    factor, unit = (100, "accuracy in percent") if result.metric == "accuracy" else (1, result.metric)
    data, spoken = [], []
    for place, name in enumerate(methods):
        own = [entry for entry in result.entries if entry.method == name]
        plain = own[0].epsilon is None
        x = [budgets[0], budgets[-1]] if plain else [entry.epsilon for entry in own]
        y = [factor * own[0].value] * 2 if plain else [factor * entry.value for entry in own]
        line = {"color": SERIES[place % len(SERIES)], "width": 2, "dash": "dot" if plain else "solid"}
        series = {
            "type": "scatter",
            "mode": "lines" if plain else "lines+markers",
            "x": x,
            "y": y,
            "name": name,
            "line": line,
        }
        if not plain:
            series["error_y"] = {"type": "data", "array": [factor * entry.spread for entry in own], "thickness": 1}
        data.append(series)
        spoken.append([f"{name}, epsilon {one:g}: {value:.4g}" for one, value in zip(x, y, strict=True)])
    best = (max if result.metric == "accuracy" else min)(
        (entry for entry in result.entries if entry.epsilon is not None), key=lambda entry: entry.value
    )
    caption = (
        f"{unit} over epsilon, with spreads. The best of the private ones is {best.method} at epsilon {best.epsilon:g}, with "
        f"{factor * best.value:.4g}."
    )
    layout = {
        "xaxis": {"title": {"text": "epsilon"}, "type": "log", "automargin": True},
        "yaxis": {"title": {"text": unit}, "automargin": True},
        "showlegend": True,
        "legend": {"orientation": "h", "y": -0.3},
    }
    rows = [
        (
            entry.method,
            "not private" if entry.epsilon is None else f"{entry.epsilon:g}",
            f"{factor * entry.value:.4g}",
            f"{factor * entry.spread:.2g}",
        )
        for entry in result.entries
    ]
    heads = ("method", "epsilon", unit, "spread")
    return Figure(
        "comparison", "Methods and budgets", (Drawing(data, layout, spoken, caption),), heads, rows, height=420
    )
