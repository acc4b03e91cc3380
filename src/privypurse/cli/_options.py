"""Options that several commands share, and what completes them in a shell."""

import contextlib
import pathlib
from collections.abc import Callable
from typing import Annotated, Any

import typer

from privypurse.core._errors import InvalidArgument

_BUDGET = "Budget"  # panel of the help
# Not imported from `methods`, which takes a second; a test compares the two.
METHODS = (
    *("auto", "nesterov", "noisy-pgd", "dp-sgd", "pur-nonconvex", "pur-convex", "pur-strongly-convex", "dynamic"),
    *("dp-agd", "adp-sgd"),
)


def complete_method(incomplete: str) -> list[str]:
    """Return the methods that begin so."""
    return [name for name in METHODS if name.startswith(incomplete)]


def complete_methods(incomplete: str) -> list[str]:
    """Complete the last of several methods, separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in complete_method(last) if name not in before.split(",")]


def complete_schema(incomplete: str) -> list[str]:
    """Return the TOML files, and the folders, that begin so."""
    start = incomplete.rpartition("/")[2]
    before = incomplete.removesuffix(start)
    with contextlib.suppress(OSError):
        place = pathlib.Path(before or ".").expanduser()
        found = sorted(path for path in place.iterdir() if path.name.startswith(start))
        shown = [path for path in found if start or not path.name.startswith(".")]
        return [f"{before}{one.name}{'/' * one.is_dir()}" for one in shown if one.is_dir() or one.suffix == ".toml"]
    return []


def complete_dataset(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the data sets on the ledger, given or the default one, that begin so."""
    with contextlib.suppress(Exception):  # there is nowhere to say what is wrong
        from privypurse.purse._sqlite_ledger import SqliteLedger
        from privypurse.runs._account import Account

        named = ctx.params.get("ledger") or ctx.params.get("path")
        data = ctx.params.get("data")
        beside = None if data is None else pathlib.Path(data).resolve().parent
        ledger = SqliteLedger(Account(ledger=named, beside=beside, dataset="any").path, must_exist=True)
        return sorted({entry.dataset for entry in ledger.entries() if entry.dataset.startswith(incomplete)})
    return []


def option(*names: str, help: str, panel: str | None = None, complete: Callable[..., list[str]] | None = None) -> Any:
    """Return an option whose default is not shown."""
    return typer.Option(*names, help=help, show_default=False, rich_help_panel=panel, autocompletion=complete)


def dataset(*, help: str) -> Any:
    """Return the option for a data set on a ledger."""
    return option("--dataset", help=help, panel=_BUDGET, complete=complete_dataset)


def output(*names: str, help: str, metavar: str | None = None) -> Any:
    """Return an option for a file to write, which `checked` checks before the command runs."""
    return typer.Option(*names, help=help, metavar=metavar, writable=True, dir_okay=False, show_default=False)


DataFile = Annotated[
    pathlib.Path, typer.Argument(help="CSV with a header, JSON lines, Parquet or Feather.", show_default=False)
]
ModelDir = Annotated[pathlib.Path, typer.Argument(help="Folder made by `privypurse train`.", show_default=False)]
Target = Annotated[str, option("--target", "-t", help="Column to predict.")]
SchemaFile = Annotated[
    pathlib.Path | None,
    option("--schema", "-s", help="Public description of the columns (TOML).", complete=complete_schema),
]
_METHOD_HELP = f"Optimization method: {', '.join(METHODS)}."
Method = Annotated[str, typer.Option("--method", help=_METHOD_HELP, autocompletion=complete_method)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
_LEDGER_HELP = "File of the ledger. Default: $PRIVYPURSE_LEDGER, or privypurse-ledger.db beside the data."
_DATASET_HELP = "Name of the data set on the ledger. Default: the file name."
_BUDGET_HELP = "Total epsilon of the data set, fixed at its first use. Default: the epsilon of that run."
_DELTA_HELP = "Far below one over the number of records. Default: that of the ledger, or 1e-6."
_NEIGHBOURING_HELP = "Protect a record's presence (add-remove, the default) or its contents (replace-one)."
Ledger = Annotated[pathlib.Path | None, option("--ledger", help=_LEDGER_HELP, panel=_BUDGET)]
_LEDGER_HERE_HELP = "File of the ledger. Default: $PRIVYPURSE_LEDGER, or privypurse-ledger.db here."
LedgerHere = Annotated[pathlib.Path | None, option("--ledger", help=_LEDGER_HERE_HELP)]
Dataset = Annotated[str | None, dataset(help=_DATASET_HELP)]
Budget = Annotated[float | None, option("--budget", help=_BUDGET_HELP, panel=_BUDGET)]
Delta = Annotated[float | None, option("--delta", help=_DELTA_HELP, panel=_BUDGET)]
Neighbouring = Annotated[str | None, option("--neighbouring", help=_NEIGHBOURING_HELP, panel=_BUDGET)]
Who = Annotated[str | None, option("--who", help="Name to record. Default: the user.", panel=_BUDGET)]
_DELIMITER_HELP = "Separator of fields. Default: found in the header."
Delimiter = Annotated[str | None, option("--delimiter", help=_DELIMITER_HELP, panel="File")]
Encoding = Annotated[str, typer.Option("--encoding", help="Encoding of a CSV file.", rich_help_panel="File")]


def tab(delimiter: str | None) -> str | None:
    r"""Return a tab for ``\t`` or ``tab``."""
    return "\t" if delimiter in ("\\t", "tab") else delimiter


def account_for(
    data: pathlib.Path, dataset: str | None, *, charged: bool, simulated: bool = False, **terms: Any
) -> Any:
    """Return the account, by default named after the file that `data` resolves to.

    Where it is charged, a converted file must be named: it would have a budget of its own.
    """
    from privypurse.runs._account import Account
    from privypurse.tables._files import converted_from

    file = data.resolve()
    if charged and dataset is None and (source := converted_from(file)):
        same = f"file {file.name!r} was converted from {source!r}: these are the same records, with one budget"
        remedy = f"Pass its data set, by default --dataset {source!r}, and --ledger if that file is in another folder"
        raise InvalidArgument(f"{same}. {remedy}.")
    # A simulation has its own account, so that the real one stays private.
    dataset = dataset or (f"{file.name} (simulation)" if simulated else file.name)
    return Account(beside=file.parent, dataset=dataset, **terms)
