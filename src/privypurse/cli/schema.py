"""`privypurse schema`."""

import pathlib
import sys
from typing import Annotated, Any

import typer

from privypurse.cli import options
from privypurse.cli.output import emit, say, spare_ledgers, table, warn
from privypurse.cli.progress import shown_progress


def schema(
    data: options.DataFile,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Column to predict.", show_default=False)] = None,
    out: Annotated[
        pathlib.Path | None,
        typer.Option("--out", "-o", help="Write the draft here; stdout by default.", show_default=False),
    ] = None,
    buy_ranges: Annotated[
        bool, typer.Option("--buy-ranges", help='Write range = "private": ranges are then bought from the budget.')
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file that is there.")] = False,
    check: Annotated[
        pathlib.Path | None,
        typer.Option("--check", help="Compare the file with this schema instead of drafting one.", show_default=False),
    ] = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = "utf-8",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Draft the public description of a table's columns, or check one.

    Examples:

        privypurse schema people.csv --target income --out people.toml

        privypurse schema people.csv --check people.toml

    A draft is read from the records, which no guarantee covers. Go through it, write what is known without looking, and change
    source to "declared"; or let ranges be bought. What --check prints is for those who may see the records.
    """
    from privypurse.tables.files import TableFile
    from privypurse.tables.schema_file import read_schema

    spare_ledgers(out=out)
    if out is not None and out.exists() and not overwrite:
        from privypurse.core.errors import InvalidArgument

        raise InvalidArgument(
            f"out {str(out)!r} is there already, with work in it perhaps. Pass --overwrite, or another."
        )
    file = TableFile(data, delimiter=options.tab(delimiter), encoding=encoding)
    if check is not None:
        described = read_schema(check)
        with shown_progress(quiet) as progress:
            _print_check(_differences(file, described, progress), json)
        return
    from privypurse.tables.draft import draft_schema
    from privypurse.tables.schema_file import write_schema

    with shown_progress(quiet) as progress:
        progress.stage(f"reading {file.path.name}", file.size)
        drafted, remarks = draft_schema(file, target, progress=progress.update)
    text = write_schema(drafted.buying_ranges() if buy_ranges else drafted, comments=remarks)
    if out is not None:
        from privypurse.store.folder import replace_file

        replace_file(out, text)
    if json:
        emit({"schema": text, "out": None if out is None else str(out), "covered": False, "left_out": remarks})
    elif out is None:
        sys.stdout.write(text)
    else:
        say(f"draft: {out}")
    if target is None:
        warn("no --target: the column to predict is drafted like the others, and [target] is missing.")
    warn('read from the data, not covered by any guarantee: go through it, then write source = "declared".')


def _differences(file: Any, described: Any, progress: Any) -> list[dict[str, Any]]:
    from privypurse.jobs.predict import Odd
    from privypurse.tables.columns import column_of, numbers
    from privypurse.tables.schema import Number, NumberTarget

    odd, beyond = Odd(), dict.fromkeys(described.names, 0)
    progress.stage(f"checking {file.path.name}", file.size)
    for block in file.blocks(described.names, progress=progress.update):
        odd.take(block, described, target=True)
        for column in described.parts:
            ranged = isinstance(column, NumberTarget) or (isinstance(column, Number) and not column.cuts)
            if ranged and column.range is not None:
                found = numbers(column_of(block, column.name), described.missing_values, described.decimal)
                beyond[column.name] += int(((found < column.range[0]) | (found > column.range[1])).sum())
    return [
        {
            "column": column.name,
            "rows": odd.rows,
            "unknown": odd.unknown.get(column.name, 0),
            "missing": odd.missing.get(column.name, 0),
            "beyond": beyond[column.name],
        }
        for column in described.parts
    ]


def _print_check(found: list[dict[str, Any]], json: bool) -> None:
    if json:
        emit({"covered": False, "columns": found})
    else:
        shares = [
            [f"{100 * line[name] / max(line['rows'], 1):.2f} %" for name in ("unknown", "missing", "beyond")]
            for line in found
        ]
        table(
            ("column", "on no list, no number", "missing", "beyond the range"),
            [[line["column"], *row] for line, row in zip(found, shares, strict=True)],
        )
    warn("exact shares of private records, not covered by any guarantee: for those who may see the records.")
