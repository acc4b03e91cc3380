"""Style of all figures: private methods are solid, others dashed."""

import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from privypurse.core._errors import InvalidArgument
from privypurse_lab.papers.items import (
    ANOTHER,
    AS_IN_PAPER,
    AS_PUBLISHED_ONLY,
    IN_PART,
    NOT_PRIVATE,
    NOT_REACHED,
    REACHED,
)

# Colours for colour-blind readers (Okabe and Ito), black last.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B", "#7F7F7F", "#B2A400", "#000000"),
    *("#6A3D9A", "#FB6A4A", "#00441B", "#F781BF", "#A6761D", "#1B4F9C", "#66C2A5", "#B15928", "#984EA3", "#4D4D4D"),
)
MARKERS = "osD^vP*X<>h"


def colour(number: int) -> str:
    """Return the colour of the n-th line."""
    return COLOURS[number % len(COLOURS)]


def style(number: int, private: bool = True) -> dict[str, Any]:
    """Return the style of the n-th line: solid with filled markers, or dashed with empty ones."""
    shown = {"color": colour(number), "marker": MARKERS[number % len(MARKERS)], "ms": 4.5, "lw": 1.6}
    return shown | ({"ls": "-"} if private else {"ls": "--", "mfc": "white"})


def label(name: str, private: bool = True) -> str:
    """Return the label in the legend."""
    return name if private else f"{name} ({NOT_PRIVATE})"


def panels(figure: Any, rows: int, columns: int, *, width: float = 3.6, height: float = 2.9) -> Any:
    """Set the size of a figure and divide it; return a two-dimensional array of axes."""
    figure.set_size_inches(width * columns, height * rows + 0.5)
    return figure.subplots(rows, columns, squeeze=False)


def legend_below(figure: Any, axes: Sequence[Any], columns: int = 4) -> None:
    """Put one legend for all axes below them."""
    found: dict[str, Any] = {}
    for each in axes:
        for handle, text in zip(*each.get_legend_handles_labels(), strict=True):
            found.setdefault(text, handle)
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns, frameon=False)


def number_ticks(axis: Any, values: Sequence[float]) -> None:
    """Set exactly these ticks on a logarithmic axis, in plain numbers."""
    axis.set_ticks(list(values), labels=[f"{value:g}" for value in values], minor=False)
    axis.set_ticks([], minor=True)


# Colours of the words of verdicts; those that say neither yes nor no are grey.
TILES = {
    **dict.fromkeys((REACHED, AS_IN_PAPER), "#8FD1B5"),
    IN_PART: "#F5D98B",
    AS_PUBLISHED_ONLY: "#F2B48C",
    **dict.fromkeys((NOT_REACHED, ANOTHER), "#E88F86"),
}


def verdicts(board: Sequence[tuple[str, Mapping[str, str]]], figure: Any) -> None:
    """Draw both words of each verdict as coloured tiles."""
    figure.set_size_inches(9, 0.34 * len(board) + 0.5)
    axes = figure.subplots()
    for place, (name, found) in enumerate(board):
        text = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", name)  # a link of the page
        axes.text(0, place, text if len(text) < 62 else f"{text[:60]}...", va="center", fontsize=8)
        for column, key in enumerate(("reached", "ranking")):
            axes.barh(place, 0.98, 0.86, left=2.2 + column, color=TILES.get(found[key], "#E4E4E4"))
            axes.text(2.69 + column, place, found[key], ha="center", va="center", fontsize=7)
    for column, text in enumerate(("reached by a sound method?", "ranking as in the paper?")):
        axes.text(2.69 + column, -0.8, text, ha="center", va="center", fontsize=8, weight="bold")
    axes.set(xlim=(0, 4.2), ylim=(len(board) - 0.4, -1.2))
    axes.axis("off")


def save(draw: Callable[[Any], None], stem: pathlib.Path) -> list[pathlib.Path]:
    """Draw into a PNG and an SVG file; return their paths."""
    matplotlib = require_matplotlib()
    settings = {
        "font.size": 9,
        "axes.titlesize": 9,
        "legend.fontsize": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "figure.constrained_layout.use": True,
        "svg.hashsalt": "privypurse",
        "svg.fonttype": "none",
    }
    with matplotlib.rc_context(settings):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure()
        FigureCanvasAgg(figure)
        draw(figure)
        paths = [stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")]
        figure.savefig(paths[0], dpi=130)
        # Without a date the same numbers give the same file.
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def require_matplotlib() -> Any:
    """Import matplotlib, or raise InvalidArgument."""
    try:
        import matplotlib
    except ImportError as error:
        raise InvalidArgument(
            "figures of reproductions need matplotlib, which is not installed. Run pip install privypurse-lab."
        ) from error
    return matplotlib
