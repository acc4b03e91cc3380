"""What commands print: results on stdout, as words or as JSON; everything else on stderr."""

import contextlib
import json
import math
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)

# Where SQLite keeps whose file it is.
_LEDGER = b"PPRS"
_BARS = " ▁▂▃▄▅▆▇█"


def emit(result: dict[str, Any]) -> None:
    """Print a result as JSON; infinities, which JSON does not have, as null."""
    sys.stdout.write(json.dumps(_finite(result), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def spare_ledgers(**paths: "pathlib.Path | None") -> None:
    """Refuse to write over a ledger, by the name of the option: the record of what was spent would be gone."""
    from privypurse.core.errors import InvalidArgument

    for option, path in paths.items():
        start = b""
        # Where it cannot be read, whoever writes there will find out.
        with contextlib.suppress(OSError, ValueError):
            if path is not None and path.is_file():
                with path.open("rb") as file:
                    start = file.read(72)
        if start.startswith(b"SQLite format 3\x00") and start.endswith(_LEDGER):
            raise InvalidArgument(
                f"{option} {str(path)!r} is a ledger, the record of what was spent, and is not written over. Pass another file."
            )


def say(text: str) -> None:
    """Print a line of a result, as it is."""
    stdout.print(text, markup=False)


def note(text: str) -> None:
    """Print a remark that is not part of the result."""
    stderr.print(text, markup=False, style="dim")


def warn(text: str) -> None:
    """Print a warning."""
    stderr.print(text, markup=False, style="yellow")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table; columns after the first are aligned to the right."""
    shown = Table(title=title or None, title_justify="left", header_style="bold", show_edge=False)
    for index, name in enumerate(columns):
        shown.add_column(name, justify="left" if index == 0 else "right", no_wrap=False)
    for row in rows:
        shown.add_row(*(cell.replace("[", "\\[") for cell in row))
    stdout.print(shown)


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Draw numbers as a line of bars from zero to the largest."""
    if not values:
        return ""
    thinned = [values[int(index * len(values) / min(width, len(values)))] for index in range(min(width, len(values)))]
    top = max(thinned) or 1.0
    return "".join(_BARS[max(1, round(value / top * (len(_BARS) - 1)))] for value in thinned)


def span(values: Sequence[float]) -> str:
    """Write the first and the last of some numbers, or one where they look alike."""
    first, last = number(values[0]), number(values[-1])
    return first if first == last else f"{first} to {last}"


def percent(value: float) -> str:
    """Write a share as per cent."""
    return f"{100 * value:.1f} %"


def number(value: float, digits: int = 4) -> str:
    """Write a number shortly."""
    return "infinite" if math.isinf(value) else f"{value:.{digits}g}"


def at_least(value: float) -> str:
    """Write an epsilon that was spent with four digits, never smaller than it is."""
    from privypurse.purse.certificate import rounded_up

    return rounded_up(value)
