"""What every page is put in: styles, scripts, plots and a policy that forbids it any network."""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from privypurse.core.version import __version__
from privypurse.report import plotly_library
from privypurse.report.figures import Figure
from privypurse.report.markup import embedded_json, embedded_script, escaped

KEYS = "Arrow keys walk through the points of a plot; Home and End go to the first and the last; Escape leaves."

# Before anything is drawn: the styles hide what needs scripts until this has run.
FIRST_SCRIPT = 'document.documentElement.classList.add("scripted");'


def whole_page(
    *,
    title: str,
    header: str,
    links: Sequence[tuple[str, str]],
    main: Sequence[str],
    figures: Sequence[Figure],
    closing: str,
) -> str:
    """Write a page.

    Parameters
    ----------
    title : str
        For the window.
    header, main
        HTML, escaped already.
    links : sequence of (str, str)
        Keys and names of the sections.
    figures : sequence of Figure
        What is drawn in it.
    closing : str
        The last sentence.
    """
    menu = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name in links)
    scripts = (
        [plotly_library.source(), embedded_script(_file("script.js"))]
        if figures
        else [embedded_script(_file("script.js"))]
    )
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
        f'<script type="application/json" id="figures">{embedded_json([_described(one) for one in figures])}</script>\n'
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )


def _described(figure: Figure) -> dict[str, Any]:
    return {
        "key": figure.key,
        "title": figure.title,
        "drawings": [
            {"data": one.data, "layout": one.layout, "spoken": one.spoken, "caption": one.caption}
            for one in figure.drawings
        ],
    }


def _policy(scripts: list[str]) -> str:
    """Allow these scripts by their digests, styles and images in the page, and no network at all."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Plotly writes styles and makes images of its own drawings; it evaluates no text as code.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> str:
    return resources.files("privypurse.report").joinpath(name).read_text(encoding="utf-8")
