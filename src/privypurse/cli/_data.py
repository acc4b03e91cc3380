"""`privypurse data` and `schema`: files of records and the description of their columns."""

import pathlib
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from privypurse.cli import _options as options
from privypurse.cli._output import (
    EXIT_CODES,
    answer,
    check_outputs,
    checked,
    emit,
    note,
    say,
    shown_progress,
    table,
    warn,
)
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted, percent

CENSUS = "census"
# Data sets by name, with a description. Other distributions add theirs, and their loaders.
ABOUT = {CENSUS: "synthetic: 13 columns, mixed types, best accuracy known; no download"}
LOADERS: dict[str, Callable[[str, str], Any]] = {}


class _Commands(TyperGroup):  # type: ignore[misc]
    """Take anything but `convert` after `data` as the name of a data set, or as an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the command `write` if it is left out."""
        return list(super().parse_args(ctx, args if args[:1] in (["convert"], ["write"]) else ["write", *args]))


HELP = "List the data sets, write one as a CSV file, or convert a CSV file."
app = typer.Typer(cls=_Commands, help=HELP, rich_markup_mode="markdown", epilog=EXIT_CODES)


@app.command("convert", epilog=EXIT_CODES)
@checked
def convert(
    source: Annotated[pathlib.Path, typer.Argument(help="CSV with a header (also .gz or .zip).", show_default=False)],
    out: Annotated[
        pathlib.Path, typer.Argument(help="Parquet file to write.", writable=True, dir_okay=False, show_default=False)
    ],
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = "utf-8",
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Convert a CSV file with line breaks inside quotes to Parquet, one row for each record.

    Examples:

        privypurse data convert people.csv people.parquet

    `train` and `evaluate` read a CSV file line by line, so that no record can change how another is
    read, and leave such records out. A conversion follows quotation marks from line to line;
    certificates name that as not covered. The counts it prints are exact, for those who may see the
    records.
    """
    from privypurse.runs._convert import convert_file
    from privypurse.tables._files import TableFile

    file = TableFile(source, delimiter=options.tab(delimiter), encoding=encoding)
    with shown_progress(quiet) as progress:
        found = convert_file(file, out, progress)
    breaks = f"{found.with_line_breaks:,} with line breaks inside quotes"
    text = f"{counted(found.records, 'record')}, {breaks}; {counted(found.blank_lines, 'blank line')} left out: {out}"
    answer(json, {"out": str(out)} | asdict(found), text)
    note(f"pass --dataset {source.name!r} with the output to spend from the budget of {source.name}.")


@app.command("write", hidden=True, epilog=EXIT_CODES)
@checked
def data(
    name: Annotated[str | None, typer.Argument(help="Name of a data set; none for a list.", show_default=False)] = None,
    out: Annotated[pathlib.Path | None, options.output("--out", "-o", help="CSV file. Default: NAME.csv.")] = None,
    part: Annotated[str, typer.Option("--part", help="all, train or test, for data with official parts.")] = "all",
    rows: Annotated[int, typer.Option("--rows", help="Number of rows of the synthetic census.")] = 30_000,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the synthetic census.")] = 1,
    schema: Annotated[pathlib.Path | None, options.output("--schema", help="Write the census's schema here.")] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """List the data sets, or write one as a CSV file.

    Examples:

        privypurse data

        privypurse data census --rows 30000 --out census.csv --schema census.toml

        privypurse data adult-raw --part train --out adult.csv

        privypurse data convert people.csv people.parquet

    `data convert` reads a CSV file whose records have line breaks inside quotes; see its --help.
    Data sets are taken from the folder PRIVYPURSE_DATA, else from the cache, else downloaded.
    """
    if name is None:
        if json:
            emit({"data": ABOUT})
        else:
            table(("data set", "what"), list(ABOUT.items()))
        return
    target = out or pathlib.Path(f"{name}.csv")
    if out is None:
        check_outputs({"--out": target, **({"--schema": schema} if schema else {})}, overwrite=overwrite)
    written = _census(target, rows, seed, schema) if name == CENSUS else _table(name, part, target, schema)
    if json:
        emit(written)
    else:
        say(f"{counted(written['rows'], 'row')}: {target}" + (f"; schema: {schema}" if schema else ""))
        if "best_accuracy" in written:
            best, majority = percent(written["best_accuracy"]), percent(written["majority_accuracy"])
            say(f"best accuracy possible {best}, majority {majority}")


def _census(target: pathlib.Path, rows: int, seed: int, schema: pathlib.Path | None) -> dict[str, Any]:
    from privypurse.datasets import make_census
    from privypurse.runs._demo import census_schema
    from privypurse.tables._schema import write_schema

    census = make_census(rows, seed)
    census.to_csv(target)
    if schema is not None:
        schema.write_text(write_schema(census_schema(census)), encoding="utf-8")
    where = {"out": str(target), "rows": rows, "schema": None if schema is None else str(schema)}
    facts = {"best_accuracy": census.best_accuracy, "majority_accuracy": census.majority_accuracy}
    return {**where, "target": census.target, **facts}


def _table(name: str, part: str, target: pathlib.Path, schema: pathlib.Path | None) -> dict[str, Any]:
    if name not in LOADERS:
        remedy = "Study data such as adult or mnist needs: pip install privypurse-lab"
        raise InvalidArgument(f"expected the name of a data set ({', '.join(ABOUT)}), got {name!r}. {remedy}")
    if schema is not None:
        raise InvalidArgument(f"--schema is for the census only, got {name!r}. Draft one: `privypurse schema`.")
    loaded = LOADERS[name](name, part)
    loaded.to_csv(target)
    return {"out": str(target), "rows": len(loaded), "target": loaded.target, "source": loaded.source}


def schema(
    data: options.DataFile,
    target: Annotated[str | None, options.option("--target", "-t", help="Column to predict.")] = None,
    out: Annotated[pathlib.Path | None, options.output("--out", "-o", help="File to write. Default: stdout.")] = None,
    buy_ranges: Annotated[
        bool, typer.Option("--buy-ranges", help='Write range = "private": `train` then spends budget on ranges.')
    ] = False,
    overwrite: options.Overwrite = False,
    check: Annotated[
        pathlib.Path | None,
        options.option("--check", help="Compare the file with this schema instead.", complete=options.complete_schema),
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
    from privypurse.tables._schema import read_schema

    file = TableFile(data, delimiter=options.tab(delimiter), encoding=encoding)
    if check is not None:
        described = read_schema(check)
        with shown_progress(quiet) as progress:
            differences = _differences(file, described, progress)
        _print_check(differences, file, described, json)
        return
    from privypurse.tables._draft import draft_schema
    from privypurse.tables._schema import write_schema

    with shown_progress(quiet) as progress:
        progress.stage(f"reading {file.path.name}", file.size)
        drafted, remarks = draft_schema(file, target, progress=progress.update)
    text = write_schema(drafted.buying_ranges() if buy_ranges else drafted, comments=remarks)
    if out is not None:
        from privypurse.runs.folder import replace_file

        replace_file(out, text)
    if json:
        written = {"schema": text, "out": None if out is None else str(out), "covered": False}
        left_out = {name: remark.why for name, remark in remarks.items() if remark.taken_for == "left out"}
        columns = {name: asdict(remark) for name, remark in remarks.items()}
        emit(written | {"left_out": left_out, "columns": columns, "lines_left_out": dict(file.tally.left_out)})
    elif out is None:
        sys.stdout.write(text)
    else:
        width = max(map(len, remarks), default=0)
        for name, remark in remarks.items():
            say(f"{name:<{width}}  {remark.taken_for:<10}  {remark.why}")
        say(f"draft: {out}")
    for name, remark in remarks.items():
        if remark.warning:
            warn(f"column {name!r}, taken for {remark.taken_for}: {remark.warning}.")
    _warn_of_lines(file)
    if target is None:
        warn("no --target: the draft has no [target]; the column to predict is drafted like the others.")
    warn('read from the data, not covered by any guarantee: go through it, then write source = "declared".')


def _differences(file: Any, described: Any, progress: Any) -> dict[str, Any]:
    """Return exact counts of what differs from a schema, for the output as JSON."""
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
    lost, unused, absent = dict(file.tally.left_out), 0, list[str]()
    if described.target is not None:
        unused = found[-1]["unknown"] + found[-1]["missing"]
        classes = enumerate(getattr(described.target, "classes", ()))
        absent = [name for place, name in classes if place not in odd.listed.get(described.target.name, ())]
    counts = {"lines": odd.rows + sum(lost.values()), "used": odd.rows - unused, "without_target": unused}
    too_many = sum(lost.values()) > described.unreadable * counts["lines"]
    more = {"too_many_unreadable": too_many, "classes_without_records": absent}
    return {"covered": False, "columns": found, "lines_left_out": lost} | counts | more


def _warn_of_lines(file: Any) -> None:
    from privypurse.runs._rows import remedy_for

    if file.tally.left_out:
        warn(f"{file.tally}. They would be left out. {remedy_for(file)}")


def _print_check(found: dict[str, Any], file: Any, described: Any, json: bool) -> None:
    _warn_of_lines(file)
    if json:
        emit(found)
    else:
        rows = []
        for line in found["columns"]:
            counts, of = (line[name] for name in ("unknown", "missing", "beyond")), max(line["rows"], 1)
            rows.append([line["column"], *("" if count is None else percent(count / of, 2) for count in counts)])
        table(("column", "on no list, no number or date", "missing", "beyond the range"), rows)
        causes = [f"{count:,} {cause}" for cause, count in found["lines_left_out"].items()]
        if found["without_target"]:
            causes.append(f"{found['without_target']:,} whose target is missing, or on no list of the schema")
        say(f"train would use {found['used']:,} of {found['lines']:,} lines; left out: {', '.join(causes) or 'none'}")
    odd = [line["column"] for line in found["columns"] if 2 * line["unknown"] > line["rows"] - line["missing"] > 0]
    if odd:
        remedy = "Check its list, range, date format, decimal, thousands and unit in the schema"
        warn(f"most values of {', '.join(map(repr, odd))} are not as the schema describes. {remedy}.")
    if absent := found["classes_without_records"]:
        warn(f"no record has the target {', '.join(map(repr, absent[:5]))}. Is it spelt as in {file.path.name}?")
    if found["too_many_unreadable"]:  # train decides by a noisy count
        allowed = f"{percent(described.unreadable)} (unreadable = {described.unreadable:g} in the schema)"
        warn(f"train may refuse this file: more of its lines cannot be read than {allowed}.")
    warn("exact figures of private records, not covered by any guarantee: for those who may see the records.")
