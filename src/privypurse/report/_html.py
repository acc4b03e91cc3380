"""Write HTML pages that work offline. Text is escaped here and nowhere else."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any

from privypurse.core._errors import InvalidArgument
from privypurse.core._reading import finite_or_none
from privypurse.core._version import __version__
from privypurse.report._figures import Figure


def escaped(text: object) -> str:
    """Escape text for an element or a quoted attribute."""
    return html.escape(str(text), quote=True)


def paragraph(text: str, style: str = "") -> str:
    return f"<p{_class(style)}>{escaped(text)}</p>"


def bullets(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escaped(item)}</li>" for item in items) + "</ul>"


def pairs(items: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in items)
    return f'<dl class="pairs">{rows}</dl>'


def table(label: str, heads: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """Write a scrolling table. The first columns are text, the others numbers."""
    styles = [_class("" if place < text_columns else "n") for place in range(len(heads))]
    head = "".join(f'<th scope="col"{style}>{escaped(name)}</th>' for style, name in zip(styles, heads, strict=True))
    body = ""
    for first, *others in rows:
        cells = zip(styles[1:], others, strict=True)
        numbers = "".join(f"<td{style}>{escaped(cell)}</td>" for style, cell in cells)
        body += f'<tr><th scope="row">{escaped(first)}</th>{numbers}</tr>'
    # A scrolling region must be reachable by keyboard, so it needs a label.
    inner = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(label)}">{inner}</div>'


def details(summary: str, inner: str, *, printed: bool = False) -> str:
    """Write a part that opens on demand. `printed`: show it open on paper."""
    mark = " data-printed" if printed else ""
    return f"<details{mark}><summary>{escaped(summary)}</summary>{inner}</details>"


def code(text: str, *, copy: str, wrap: bool = True) -> str:
    """Write preformatted text, with a copy button labelled `copy`."""
    label = escaped(copy)
    unseen, style = f'<span class="unseen"> {label}</span>', _class("" if wrap else "lines")
    button = f'<button type="button" class="copy needs-script" data-copy>Copy{unseen}</button>'
    shown = f'<pre{style} tabindex="0" role="region" aria-label="{label}"><code>{escaped(text)}</code></pre>'
    return f'<div class="code">{button}{shown}</div>'


def section(key: str, title: str, inner: str) -> str:
    """Write one section with its heading."""
    heading = f'<h2 id="{key}-title">{escaped(title)}</h2>'
    return f'<section id="{key}" aria-labelledby="{key}-title">{heading}{inner}</section>'


def embedded_json(value: Any) -> str:
    """Return JSON that cannot end the script element around it."""
    text = json.dumps(finite_or_none(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def embedded_script(source: str) -> str:
    """Return a script that cannot end its element, with the line ends that browsers hash."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub(r"<(?=/script|!--|script)", r"\\x3c", source, flags=re.IGNORECASE)


def _class(style: str) -> str:
    return f' class="{style}"' if style else ""


@cache
def source() -> str:
    """Return plotly.js, about 5 MB, for a script element."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise InvalidArgument("reports need plotly. Install it: pip install 'privypurse[cli]'.") from error
    return embedded_script(str(get_plotlyjs()))


KEYS = "Arrow keys walk through the points of a plot; Home and End go to the first and the last; Escape leaves."
# Runs first: until then the styles hide what needs scripts.
FIRST_SCRIPT = 'document.documentElement.classList.add("scripted");'
_DRAWN = ("data", "layout", "spoken", "caption")
Links = Sequence[tuple[str, str]]


def whole_page(*, title: str, header: str, links: Links, main: list[str], figures: list[Figure], closing: str) -> str:
    """Return a page. `header` and `main` are HTML; `links` are keys and names of sections."""
    drawn = [[{name: getattr(part, name) for name in _DRAWN} for part in one.drawings] for one in figures]
    described = [{"key": one.key, "title": one.title, "drawings": own} for one, own in zip(figures, drawn, strict=True)]
    menu = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name in links)
    scripts = [*([source()] if figures else []), embedded_script(_file("script.js"))]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy([FIRST_SCRIPT, *scripts])}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<title>{escaped(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{_file('style.css')}</style>\n<script>{FIRST_SCRIPT}</script>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the report</a>\n'
        f'<div class="sheet">\n{header}\n'
        f'<nav aria-label="Sections"><ul>{menu}</ul></nav>\n'
        '<p class="warning no-script"><strong>Scripts are off.</strong> Plots are not drawn; '
        "what they show is said in their captions, and their numbers are in the tables.</p>\n"
        f'<main id="main" tabindex="-1">\n{"".join(part + chr(10) for part in main if part)}</main>\n'
        f'<p id="keys" class="unseen">{KEYS}</p>\n'
        f'<footer><p class="screen-only">{KEYS}</p><p>Made by privypurse {escaped(__version__)}. '
        f"{escaped(closing)}</p></footer>\n</div>\n"
        f'<script type="application/json" id="figures">{embedded_json(described)}</script>\n'
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )


def _policy(scripts: list[str]) -> str:
    """Allow these scripts by their digests, inline styles and images, and no network."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Plotly needs inline styles and images, but no eval.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> str:
    return resources.files("privypurse.report").joinpath(name).read_text(encoding="utf-8")
