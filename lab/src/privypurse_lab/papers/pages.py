"""One Markdown page for each paper: published results, ours, and verdicts."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from privypurse.core.version import __version__
from privypurse_lab.papers.items import Finished, Item, Paper, Settings
from privypurse_lab.papers.prepared_data import UNAVAILABLE

QUICK = (
    "A quick look, to see that all works: few repetitions, small problems, part of the data. Do not quote its verdicts."
)


WORDS = (
    "Each verdict answers two questions. *Reached*: does a sound method give the printed numbers or better, or bear out the "
    "claim? *Ranking*: do the methods rank as in the paper, beyond the 95 % interval? *In part*: for some of them. *Only as "
    "published (NOT PRIVATE)*: for the methods as published, whose privacy claim is false, and not for sound ones. *Undecided*: "
    "no interval tells. *Mended* is the published algorithm with its errors mended; *sound* any method whose epsilon is true; "
    "*no step*: the accountant has no price for that budget."
)
COLUMNS = ["", "reached by a sound method", "ranking of the methods"]


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV, numbers to seven digits."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]) if rows else ["nothing"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: f"{value:.7g}" if isinstance(value, float) else value for key, value in row.items()} for row in rows
    )
    return file.getvalue()


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; columns after the first are right-aligned."""
    lines = [columns, ["---", *(["---:"] * (len(columns) - 1))], *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def section(paper: Paper, item: Item, finished: Finished, settings: Settings, date: str) -> str:
    """Return the section of one table or figure."""
    stem = f"{paper.name}-{item.name}"
    parts = [
        f"## {_heading(item)}",
        f"**In the paper.** {item.published}",
        f"![{item.title}]({stem}.png)",
        *(f"{sheet.caption}\n\n{markdown_table(sheet.columns, sheet.rows)}" for sheet in finished.sheets),
        f"**Reached: {finished.verdict.reached}. Ranking: {finished.verdict.ranking}.** {finished.verdict.why}",
        *finished.notes,
        f"`{command(paper, item, settings)}`{_entries(settings)}, seed {settings.asked_seed}, {date}. "
        f"Numbers: [{stem}.csv]({stem}.csv); picture: [{stem}.svg]({stem}.svg).",
    ]
    return "\n\n".join(parts)


def skipped(item: Item, missing: Sequence[str]) -> str:
    """Return the section of an item that could not be run."""
    return (
        f"## {_heading(item)}\n\n**In the paper.** {item.published}\n\n**Not run:** {', '.join(missing)} is not here."
    )


def command(paper: Paper, item: Item | None, settings: Settings) -> str:
    """Return the command that makes an item."""
    which = "" if item is None else f" --{item.kind} {item.number}"
    seed = f" --seed {settings.asked_seed}" if settings.asked_seed else ""
    return f"privypurse reproduce {paper.name}{which}{' --quick' if settings.quick else ''}{seed}"


def page(
    paper: Paper,
    settings: Settings,
    sections: Mapping[str, str],
    verdicts: Mapping[str, Mapping[str, str]],
    board: Sequence[Sequence[str]] = (),
) -> str:
    """Return the page of a paper; `board` replaces its own list of verdicts."""
    listed = board or [[_heading(item), *_words(verdicts.get(item.name, {}))] for item in paper.items]
    head = [
        f"# {paper.title}",
        *([f"> {QUICK}"] if settings.quick else []),
        paper.about,
        f"Made by `{command(paper, None, settings)}` with privypurse {__version__}. Noise is seeded, so that every number can be "
        "made again: these are simulations, and what is measured of them is exact and not private. We have the texts of the "
        f"papers without their pictures. {UNAVAILABLE['ipums-us']}",
        WORDS,
        markdown_table(COLUMNS, listed),
    ]
    return "\n\n".join([*head, *(sections[item.name] for item in paper.items if item.name in sections)]) + "\n"


def _entries(settings: Settings) -> str:
    return f" and --also for {', '.join(settings.also)}" if settings.also else ""


def _words(verdict: Mapping[str, str]) -> list[str]:
    return [verdict.get(name, "not run") for name in ("reached", "ranking")]


def _heading(item: Item) -> str:
    return f"{item.kind.capitalize()} {item.number}: {item.title}"


def board(papers: Sequence[tuple[Paper, Mapping[str, Mapping[str, str]]]]) -> list[list[str]]:
    """Return one row for each item of several papers, with a link to its page and its two verdicts."""
    return [
        [
            f"[{paper.name}]({paper.name}.md), {_heading(item)[0].lower()}{_heading(item)[1:]}",
            *_words(verdicts[item.name]),
        ]
        for paper, verdicts in papers
        for item in paper.items
        if item.name in verdicts
    ]
