"""One Markdown page for each paper: what was published, what was found, and whether that is the same."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from privypurse.core.version import __version__
from privypurse.papers.items import Finished, Item, Paper, Settings, Sheet
from privypurse.papers.prepared import UNAVAILABLE

QUICK = "A quick look: few repetitions, small problems. Verdicts are for the full run."


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as CSV, numbers in full."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]) if rows else ["nothing"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table; columns after the first are aligned to the right."""
    lines = [columns, ["---", *(["---:"] * (len(columns) - 1))], *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def section(paper: Paper, item: Item, finished: Finished, settings: Settings, date: str) -> str:
    """Write what is said of one table or figure."""
    stem = f"{paper.name}-{item.name}"
    parts = [
        f"## {item.kind.capitalize()} {item.number}: {item.title}",
        f"**In the paper.** {item.published}",
        f"![{item.title}]({stem}.png)",
        *(_sheet(sheet) for sheet in finished.sheets),
        f"**Verdict: {finished.verdict.word}.** {finished.verdict.why}",
        *finished.notes,
        f"`{command(paper, item, settings)}`, seed {settings.seed}, {date}. "
        f"Numbers: [{stem}.csv]({stem}.csv); picture: [{stem}.svg]({stem}.svg).",
    ]
    return "\n\n".join(parts)


def skipped(item: Item, missing: Sequence[str]) -> str:
    """Write that one could not be run."""
    return (
        f"## {item.kind.capitalize()} {item.number}: {item.title}\n\n**In the paper.** {item.published}\n\n"
        f"**Not run:** {', '.join(missing)} is not here."
    )


def command(paper: Paper, item: Item | None, settings: Settings) -> str:
    """Return the command that makes it."""
    which = "" if item is None else f" --{item.kind} {item.number}"
    seed = f" --seed {settings.seed}" if settings.seed else ""
    return f"privypurse reproduce {paper.name}{which}{' --quick' if settings.quick else ''}{seed}"


def page(
    paper: Paper, settings: Settings, sections: Mapping[str, str], verdicts: Mapping[str, Mapping[str, str]]
) -> str:
    """Write the page of a paper from the sections that are there."""
    listed = [
        [f"{item.kind.capitalize()} {item.number}: {item.title}", verdicts.get(item.name, {}).get("word", "not run")]
        for item in paper.items
    ]
    head = [
        f"# {paper.title}",
        *([f"> {QUICK}"] if settings.quick else []),
        paper.about,
        f"Made by `{command(paper, None, settings)}` with privypurse {__version__}. Noise is seeded, so that every number can be "
        f"made again: these are simulations, and what is measured of them is exact and not private. {UNAVAILABLE['ipums-us']}",
        markdown_table(["", "verdict"], listed),
    ]
    return "\n\n".join([*head, *(sections[item.name] for item in paper.items if item.name in sections)]) + "\n"


def _sheet(sheet: Sheet) -> str:
    return f"{sheet.caption}\n\n{markdown_table(sheet.columns, sheet.rows)}"
