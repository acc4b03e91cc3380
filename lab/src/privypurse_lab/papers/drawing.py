"""Style of all figures: private methods are solid, others dashed."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from privypurse.core.errors import InvalidArgument
from privypurse_lab.papers.items import NOT_PRIVATE

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
