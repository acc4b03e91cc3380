"""From content to one self-contained HTML page."""

import base64
import hashlib
from importlib import resources
from typing import Any

from privypurse.core.version import __version__
from privypurse.report import opening, plotly_library, sections
from privypurse.report.content import ReportContent
from privypurse.report.figures import Figure
from privypurse.report.markup import embedded_json, embedded_script, escaped

KEYS = "Arrow keys walk through the points of a plot; Home and End go to the first and the last; Escape leaves."

# Before anything is drawn: the styles hide what needs scripts until this has run.
FIRST_SCRIPT = 'document.documentElement.classList.add("scripted");'


def render(content: ReportContent) -> str:
    """Write the page.

    Parameters
    ----------
    content : ReportContent
        What is on it.

    Returns
    -------
    str
        The HTML of the whole page with styles, scripts and plots inside. It asks no network for anything, and forbids itself to.
    """
    spending, budget_figures = sections.spending(content)
    model, model_figures = sections.model(content)
    ledger, ledger_figures = sections.ledger(content)
    drawn = [*budget_figures, *model_figures, *ledger_figures]
    main = [
        opening.glance(content),
        sections.coverage(content),
        sections.worth(content),
        spending,
        model,
        ledger,
        sections.before(content),
        sections.reproduce(content),
        sections.verify(content),
    ]
    links = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name in _contents(content))
    scripts = (
        [plotly_library.source(), embedded_script(_file("script.js"))]
        if drawn
        else [embedded_script(_file("script.js"))]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy([FIRST_SCRIPT, *scripts])}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<title>{escaped(content.title)} - privacy report</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{_file('style.css')}</style>\n<script>{FIRST_SCRIPT}</script>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the report</a>\n'
        f'<div class="sheet">\n{opening.header(content)}\n'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n'
        '<p class="warning no-script"><strong>Scripts are off.</strong> Plots are not drawn; '
        "what they show is said in their captions, and their numbers are in the tables.</p>\n"
        f'<main id="main" tabindex="-1">\n{"".join(part + chr(10) for part in main if part)}</main>\n'
        f'<p id="keys" class="unseen">{KEYS}</p>\n'
        f'<footer><p class="screen-only">{KEYS}</p><p>Made by privypurse {escaped(__version__)}. '
        "Everything on this page was paid for, declared public, or is named as not covered.</p></footer>\n</div>\n"
        f'<script type="application/json" id="figures">{embedded_json([_described(one) for one in drawn])}</script>\n'
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )


def _contents(content: ReportContent) -> list[tuple[str, str]]:
    links = [("covers", "What it covers"), ("worth", "Worth"), ("spending", "Spending")]
    links += [("model", "Model")] if content.coefficients else []
    links += [("ledger", "Data set")] if content.budget is not None else []
    links += [("before", "Before training")] if content.prepared else []
    return [*links, ("reproduce", "Reproduce"), ("verify", "Verify")]


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
