"""`privypurse data`."""

import pathlib
from typing import Annotated, Any

import typer

from privypurse.cli import options
from privypurse.cli.output import emit, say, spare_ledgers, table

CENSUS = "census"
ABOUT = {
    CENSUS: "made up: 13 columns, mixed types, best accuracy known; no download",
    "adult": "census income, one-hot (LIBSVM a9a)",
    "adult-raw": "census income, raw columns of mixed types",
    "bank": "bank marketing, one-hot",
    "bank-raw": "bank marketing, raw columns (download only)",
    "ipums-br": "census of Brazil, one-hot",
    "kddcup99": "network connections, KDD Cup 1999, ten per cent, one-hot",
    "kddcup99-sf": "network connections, KDD Cup 1999, SF",
    "mnist": "handwritten digits, 28 x 28",
    "iris": "three kinds of iris; comes with scikit-learn",
    "breast-cancer": "comes with scikit-learn",
    "digits": "handwritten digits, 8 x 8; comes with scikit-learn",
}


def data(
    name: Annotated[
        str | None, typer.Argument(help="Which data set; leave it out for a list.", show_default=False)
    ] = None,
    out: Annotated[
        pathlib.Path | None,
        typer.Option("--out", "-o", help="CSV file to write. Default: NAME.csv.", show_default=False),
    ] = None,
    part: Annotated[str, typer.Option("--part", help="all, train or test, where there are official parts.")] = "all",
    rows: Annotated[int, typer.Option("--rows", help="Rows of the made-up census.")] = 30_000,
    seed: Annotated[int, typer.Option("--seed", help="Which made-up census; another seed, other people.")] = 1,
    schema: Annotated[
        pathlib.Path | None,
        typer.Option("--schema", help="Write the made-up census's public description here.", show_default=False),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
    json: options.Json = False,
) -> None:
    """List the data sets, or write one as a CSV file.

    Examples:

        privypurse data

        privypurse data census --rows 30000 --out census.csv --schema census.toml

        privypurse data adult-raw --part train --out adult.csv

    Files are looked for in the folder that PRIVYPURSE_DATA names, then in the cache, then downloaded.
    """
    if name is None:
        if json:
            emit({"data": ABOUT})
        else:
            table(("data set", "what"), list(ABOUT.items()))
        return
    target = out or pathlib.Path(f"{name}.csv")
    spare_ledgers(out=target, schema=schema)
    for path in (target, *([schema] if schema else [])):
        if path.exists() and not overwrite:
            from privypurse.core.errors import InvalidArgument

            raise InvalidArgument(f"file {str(path)!r} is there already. Pass another --out, or --overwrite.")
    written = _census(target, rows, seed, schema) if name == CENSUS else _table(name, part, target, schema)
    if json:
        emit(written)
    else:
        say(f"{written['rows']:,} rows: {target}" + (f"; schema: {schema}" if schema else ""))
        if "best_accuracy" in written:
            best, majority = (f"{100 * written[name]:.1f} %" for name in ("best_accuracy", "majority_accuracy"))
            say(f"best accuracy possible {best}, majority {majority}")


def _census(target: pathlib.Path, rows: int, seed: int, schema: pathlib.Path | None) -> dict[str, Any]:
    from privypurse.datasets import make_census
    from privypurse.jobs.census_schema import census_schema
    from privypurse.tables.schema_file import write_schema

    census = make_census(rows, seed)
    census.to_csv(target)
    if schema is not None:
        schema.write_text(write_schema(census_schema(census)), encoding="utf-8")
    return {
        "out": str(target),
        "rows": rows,
        "schema": None if schema is None else str(schema),
        "target": census.target,
        "best_accuracy": census.best_accuracy,
        "majority_accuracy": census.majority_accuracy,
    }


def _table(name: str, part: str, target: pathlib.Path, schema: pathlib.Path | None) -> dict[str, Any]:
    from privypurse.core.errors import InvalidArgument
    from privypurse.datasets import load

    if schema is not None:
        raise InvalidArgument(
            f"schema comes with the made-up census only; got it for {name!r}. Draft one: `privypurse schema`."
        )
    loaded = load(name, part)
    loaded.to_csv(target)
    return {"out": str(target), "rows": len(loaded), "target": loaded.target, "source": loaded.source}
