"""`privypurse schema`."""

import pathlib
import sys
from typing import Annotated, Any

import typer

from privypurse.cli import _options as options
from privypurse.cli._output import emit, say, shown_progress, table, warn
from privypurse.core._formats import percent


def schema(
    data: options.DataFile,
    target: Annotated[str | None, options.option("--target", "-t", help="Column to predict.")] = None,
    out: Annotated[
        pathlib.Path | None, options.output("--out", "-o", help="File for the draft. Default: stdout.")
    ] = None,
    buy_ranges: Annotated[
        bool, typer.Option("--buy-ranges", help='Write range = "private": `train` then spends budget on ranges.')
    ] = False,
    overwrite: options.Overwrite = False,
    check: Annotated[
        pathlib.Path | None, options.option("--check", help="Compare the file with this schema, without a draft.")
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

    A draft is read from the records, which no guarantee covers. Replace its values by what you know
    without looking at the records and change source to "declared", or pass --buy-ranges. The output
    of --check is for those who may see the records.
    """
    from privypurse.tables._files import TableFile
    from privypurse.tables.schema import read_schema

    file = TableFile(data, delimiter=options.tab(delimiter), encoding=encoding)
    if check is not None:
        described = read_schema(check)
        with shown_progress(quiet) as progress:
            differences = _differences(file, described, progress)
        _print_check(differences, file.tally, json)
        return
    from privypurse.tables.draft import draft_schema
    from privypurse.tables.schema import write_schema

    with shown_progress(quiet) as progress:
        progress.stage(f"reading {file.path.name}", file.size)
        drafted, remarks = draft_schema(file, target, progress=progress.update)
    text = write_schema(drafted.buying_ranges() if buy_ranges else drafted, comments=remarks)
    if out is not None:
        from privypurse.runs.folder import replace_file

        replace_file(out, text)
    if json:
        written = {"schema": text, "out": None if out is None else str(out), "covered": False, "left_out": remarks}
        emit(written | {"lines_left_out": dict(file.tally.left_out)})
    elif out is None:
        sys.stdout.write(text)
    else:
        say(f"draft: {out}")
    _warn_of_lines(file.tally)
    if target is None:
        warn("no --target: the draft has no [target]; the column to predict is drafted like the others.")
    warn('read from the data, not covered by any guarantee: go through it, then write source = "declared".')


def _differences(file: Any, described: Any, progress: Any) -> list[dict[str, Any]]:
    from privypurse.runs._rows import Odd

    odd, found = Odd(), []
    progress.stage(f"checking {file.path.name}", file.size)
    for block in file.blocks(described.names, progress=progress.update):
        odd.take(block, described, target=True)
    for part in described.parts:
        clips = getattr(part, "range", None) is not None and not getattr(part, "cuts", ())
        beyond = odd.beyond.get(part.name, 0) if clips else None
        counts = {"unknown": odd.unknown.get(part.name, 0), "missing": odd.missing.get(part.name, 0), "beyond": beyond}
        found.append({"column": part.name, "rows": odd.rows} | counts)
    return found


def _warn_of_lines(tally: Any) -> None:
    if tally.left_out:
        remedy = "Records with line breaks inside quotes? `privypurse data convert` reads those."
        warn(f"{tally}. They would be left out. {remedy}")


def _print_check(found: list[dict[str, Any]], tally: Any, json: bool) -> None:
    _warn_of_lines(tally)
    if json:
        emit({"covered": False, "columns": found, "lines_left_out": dict(tally.left_out)})
    else:
        rows = []
        for line in found:
            counts, of = (line[name] for name in ("unknown", "missing", "beyond")), max(line["rows"], 1)
            rows.append([line["column"], *("" if count is None else percent(count / of, 2) for count in counts)])
        table(("column", "on no list, no number", "missing", "beyond the range"), rows)
    warn("exact shares of private records, not covered by any guarantee: for those who may see the records.")
