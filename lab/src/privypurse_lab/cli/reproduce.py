"""`privypurse reproduce`."""

import pathlib
from typing import Annotated

import typer

from privypurse.cli import _options as options
from privypurse.cli._output import check_folder, emit, note, say, shown_progress, table
from privypurse.core._checks import positive_integer


def reproduce(
    paper: Annotated[
        str, typer.Argument(help="pur, adp-sgd, dp-agd, dynamic-noise, lecture, summary or all.", show_default=False)
    ] = "",
    figure: Annotated[str | None, typer.Option("--figure", help="Only this figure.", show_default=False)] = None,
    table_: Annotated[str | None, typer.Option("--table", help="Only this table.", show_default=False)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few repetitions, small problems: minutes.")] = False,
    out: Annotated[
        pathlib.Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder to write to: reproduction, or reproduction-quick.",
            writable=True,
            file_okay=False,
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Processes; one for each core by default.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Where seeds begin.")] = 0,
    also: Annotated[
        list[str] | None,
        typer.Option("--also", help="Your own schedule or method: FILE.py:NAME. May be repeated.", show_default=False),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what was finished before.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List tables and figures, and stop.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run the tables and figures of the papers; write CSV files, figures and pages of comparisons.

    Examples:

        privypurse reproduce lecture --quick

        privypurse reproduce pur --figure 1

        privypurse reproduce dynamic-noise --figure 2 --quick --also mine.py:cosine

    Interrupted runs are resumed. All of it is simulation on public data: seeded, exact, NOT
    PRIVATE.
    """
    from privypurse_lab import papers
    from privypurse_lab.papers.entries import load_entry

    if listing:
        if json:
            emit({"items": [{"paper": name, "item": item, "title": title} for name, item, title in papers.listed()]})
        else:
            table(("paper", "item", "shows"), papers.listed())
        return
    if not paper:
        raise typer.BadParameter("expected a paper: pur, adp-sgd, dp-agd, dynamic-noise, lecture, summary or all.")
    entries = [load_entry(spec) for spec in also or []]
    if len({name for name, _ in entries}) < len(entries):
        raise typer.BadParameter(f"--also names two objects alike; got {', '.join(also or [])}. Rename one of them.")
    if jobs is not None:
        positive_integer(**{"--jobs": jobs})
    folder = out or pathlib.Path("reproduction-quick" if quick else "reproduction")
    check_folder("--out", folder)
    if quick:
        note("a quick look: few repetitions, small problems, part of the data; do not quote its verdicts")
    with shown_progress(quiet) as progress:
        outcomes = papers.reproduce(
            paper,
            figure=figure,
            table=table_,
            quick=quick,
            output=folder,
            workers=jobs,
            seed=seed,
            also=dict(entries),
            fresh=fresh,
            progress=progress,
        )
    for outcome in outcomes:
        shown = outcome.files[0].read_text(encoding="utf-8") if outcome.files else ""
        if absent := [name for name, _ in entries if outcome.files and name not in shown]:
            note(f"{outcome.paper} {outcome.item} has no place for {', '.join(absent)}")
    if json:
        emit(
            {
                "output": str(folder),
                "quick": quick,
                "seed": seed,
                "pages": [str(folder / f"{name}.md") for name in dict.fromkeys(outcome.paper for outcome in outcomes)],
                "items": [
                    {
                        "paper": outcome.paper,
                        "item": outcome.item,
                        "title": outcome.title,
                        "reached": outcome.reached,
                        "ranking": outcome.ranking,
                        "why": outcome.why,
                        "files": [str(path) for path in outcome.files],
                    }
                    for outcome in outcomes
                ],
            }
        )
        return
    table(
        ("", "reached", "ranking"),
        [(f"{each.paper} {each.item}: {each.title}", each.reached, each.ranking) for each in outcomes],
    )
    names = dict.fromkeys(outcome.paper for outcome in outcomes)
    say(f"pages: {', '.join(str(folder / f'{name}.md') for name in names)}")
