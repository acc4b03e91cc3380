"""One Markdown page for each paper: published results, ours, and verdicts."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from privypurse.core._version import __version__
from privypurse_lab.papers.items import NOT_PRIVATE, Finished, Item, Paper, Settings
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
SHORT = {
    "claim": "claim",
    "printed": "printed",
    "as_published": f"as published, here ({NOT_PRIVATE})",
    "sound": "sound, here",
    "reached": "reached",
    "ranking": "ranking",
}


Board = list[tuple[str, Mapping[str, str]]]


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV, numbers to seven digits."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]) if rows else ["nothing"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: f"{value:.7g}" if isinstance(value, float) else value for key, value in row.items()} for row in rows
    )
    return file.getvalue()


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> str:
    """Return a table; columns of numbers, all but the first, are right-aligned."""
    lines = [columns, ["---", *(["---:" if numbers else "---"] * (len(columns) - 1))], *rows]
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
        f"`{command(paper, item, settings)}`{_entries(settings)}, seed {settings.asked_seed}{date and f', {date}'}. "
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


def page(paper: Paper, settings: Settings, sections: Mapping[str, str], board: "Board") -> str:
    """Return the page of a paper: picture and table of verdicts, then its sections."""
    head = [
        f"# {paper.title}",
        *([f"> {QUICK}"] if settings.quick else []),
        f"![Both verdicts on each table and figure]({paper.name}-verdicts.png)",
        markdown_table(["", *SHORT.values()], [_row(*each) for each in board], numbers=False),
        paper.about,
        f"Made by `{command(paper, None, settings)}` with privypurse {__version__}. Noise is seeded, so that every number can be "
        "made again: these are simulations, and what is measured of them is exact and not private. We have the texts of the "
        f"papers without their pictures. {UNAVAILABLE['ipums-us']}",
        WORDS,
    ]
    return "\n\n".join([*head, *(sections[item.name] for item in paper.items if item.name in sections)]) + "\n"


def _entries(settings: Settings) -> str:
    return f" and --also for {', '.join(settings.also)}" if settings.also else ""


def _row(name: str, found: Mapping[str, str]) -> list[str]:
    return [name, *(found.get(key, "") for key in SHORT)]


def _heading(item: Item) -> str:
    return f"{item.kind.capitalize()} {item.number}: {item.title}"


def board(paper: Paper, found: Mapping[str, Mapping[str, str]], *, linked: bool = False) -> Board:
    """Return heading, short row and verdicts of each item; `linked`, those run, with a link to the page."""
    if not linked:
        not_run = {"reached": "not run", "ranking": "not run"}
        return [(_heading(item), {**not_run, **found.get(item.name, {})}) for item in paper.items]
    return [
        (f"[{paper.name}]({paper.name}.md), {item.kind} {item.number}: {item.title}", found[item.name])
        for item in paper.items
        if "reached" in found.get(item.name, {})
    ]
