"""Small pieces of HTML. Whatever is passed as text is escaped here and nowhere else."""

import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any


def escaped(text: object) -> str:
    """Escape text for an element or a quoted attribute."""
    return html.escape(str(text), quote=True)


def paragraph(text: str, style: str = "") -> str:
    """Write a paragraph."""
    return f"<p{_class(style)}>{escaped(text)}</p>"


def bullets(items: Iterable[str], style: str = "") -> str:
    """Write a list."""
    return f"<ul{_class(style)}>" + "".join(f"<li>{escaped(item)}</li>" for item in items) + "</ul>"


def pairs(items: Iterable[tuple[str, str]]) -> str:
    """Write names and what they stand for."""
    rows = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in items)
    return f'<dl class="pairs">{rows}</dl>'


def table(label: str, heads: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """Write a table that scrolls within itself; the first columns are text, the others numbers."""
    head = "".join(
        f'<th scope="col"{_class("" if place < text_columns else "n")}>{escaped(name)}</th>'
        for place, name in enumerate(heads)
    )
    body = "".join(f"<tr>{_cells(row, text_columns)}</tr>" for row in rows)
    # A region that scrolls has to be reachable by keyboard, and needs a name then.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(label)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(row: Sequence[str], text_columns: int) -> str:
    first, *others = row
    cells = [f'<th scope="row">{escaped(first)}</th>']
    cells += [
        f"<td{_class('' if place < text_columns else 'n')}>{escaped(cell)}</td>"
        for place, cell in enumerate(others, start=1)
    ]
    return "".join(cells)


def details(summary: str, inner: str, *, printed: bool = False) -> str:
    """Write something that opens on demand; `printed` says that paper shows it open."""
    mark = " data-printed" if printed else ""
    return f"<details{mark}><summary>{escaped(summary)}</summary>{inner}</details>"


def code(text: str, *, copy: str = "", wrap: bool = True) -> str:
    """Write lines to keep as they are, long ones wrapped or to scroll; with a button that copies them if `copy` names them."""
    button = (
        f'<button type="button" class="copy needs-script" data-copy>Copy<span class="unseen"> {escaped(copy)}</span></button>'
        if copy
        else ""
    )
    label = escaped(copy or "text")
    return (
        f'<div class="code">{button}<pre{_class("" if wrap else "lines")} tabindex="0" role="region" aria-label="{label}">'
        f"<code>{escaped(text)}</code></pre></div>"
    )


def section(key: str, title: str, inner: str) -> str:
    """Write one section with its heading."""
    return (
        f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{escaped(title)}</h2>{inner}</section>'
    )


def embedded_json(value: Any) -> str:
    """Write JSON that cannot end the script element it stands in."""
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """Put null, which is drawn as a gap, where JSON has no number."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def embedded_script(source: str) -> str:
    """Return a script that cannot end its own element, whatever texts are in it, and that a browser reads byte for byte."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub(r"<(?=/script|!--|script)", r"\\x3c", source, flags=re.IGNORECASE)


def _class(style: str) -> str:
    return f' class="{style}"' if style else ""
