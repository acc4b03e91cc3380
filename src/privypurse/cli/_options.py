"""Options that several commands share."""

import pathlib
from typing import Annotated, Any

import typer


def option(*names: str, help: str, panel: str | None = None) -> Any:
    """Return an option whose default is not shown."""
    return typer.Option(*names, help=help, show_default=False, rich_help_panel=panel)


def output(*names: str, help: str) -> Any:
    """Return an option for a file to write, which `checked` checks before the command runs."""
    return typer.Option(*names, help=help, writable=True, dir_okay=False, show_default=False)


DataFile = Annotated[
    pathlib.Path, typer.Argument(help="CSV with a header, JSON lines, Parquet or Feather.", show_default=False)
]
ModelDir = Annotated[pathlib.Path, typer.Argument(help="Folder made by `privypurse train`.", show_default=False)]
Target = Annotated[str, option("--target", "-t", help="Column to predict.")]
SchemaFile = Annotated[pathlib.Path | None, option("--schema", "-s", help="Public description of the columns (TOML).")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
_BUDGET = "Budget"
_LEDGER_HELP = "File of the ledger. Default: $PRIVYPURSE_LEDGER, or privypurse-ledger.db beside the data."
_DATASET_HELP = "Name of the data set on the ledger. Default: the file name."
_BUDGET_HELP = "Total epsilon of the data set, fixed at its first use. Default: the epsilon of that run."
_DELTA_HELP = "Far below one over the number of records. Default: that of the ledger, or 1e-6."
_NEIGHBOURING_HELP = "Protect a record's presence (add-remove, the default) or its contents (replace-one)."
Ledger = Annotated[pathlib.Path | None, option("--ledger", help=_LEDGER_HELP, panel=_BUDGET)]
Dataset = Annotated[str | None, option("--dataset", help=_DATASET_HELP, panel=_BUDGET)]
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


def account_for(data: pathlib.Path, dataset: str | None, *, simulated: bool = False, **terms: Any) -> Any:
    """Return the account to charge, by default named after the file that `data` resolves to."""
    from privypurse.runs._account import Account

    file = data.resolve()
    # A simulation has its own account, so that the real one stays private.
    dataset = dataset or (f"{file.name} (simulation)" if simulated else file.name)
    return Account(beside=file.parent, dataset=dataset, **terms)
