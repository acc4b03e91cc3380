"""Options that several commands share, described once."""

import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from privypurse.jobs.account import Account

DataFile = Annotated[pathlib.Path, typer.Argument(help="CSV with a header (also .gz), or Parquet.", show_default=False)]
ModelDir = Annotated[pathlib.Path, typer.Argument(help="The folder that `privypurse train` made.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Ledger = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--ledger",
        help="The file that records what was spent. Default: $PRIVYPURSE_LEDGER, or privypurse-ledger.db beside the data.",
        show_default=False,
        rich_help_panel="Budget",
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        help="Name of the data set on the ledger. Default: the file's name.",
        show_default=False,
        rich_help_panel="Budget",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        help="Epsilon that may be spent on the data set in all, ever. Fixed at its first use; by default that run's epsilon.",
        show_default=False,
        rich_help_panel="Budget",
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(
        "--delta",
        help="Far below one over the number of records. Default: 1e-6, or that of the ledger.",
        show_default=False,
        rich_help_panel="Budget",
    ),
]
Neighbouring = Annotated[
    str | None,
    typer.Option(
        "--neighbouring",
        help="What is protected: add-remove (a record's presence; the default) or replace-one (its contents).",
        show_default=False,
        rich_help_panel="Budget",
    ),
]
Who = Annotated[
    str | None,
    typer.Option("--who", help="Who spends. Default: the user.", show_default=False, rich_help_panel="Budget"),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        help="What separates fields. Default: read off the header.",
        show_default=False,
        rich_help_panel="File",
    ),
]
Encoding = Annotated[str, typer.Option("--encoding", help="Of a CSV file.", rich_help_panel="File")]


def tab(delimiter: str | None) -> str | None:
    r"""Let people write \t or tab for a tab."""
    return "\t" if delimiter in ("\\t", "tab") else delimiter


def account_for(
    data: pathlib.Path,
    *,
    ledger: pathlib.Path | None,
    dataset: str | None,
    budget: float | None,
    delta: float | None,
    neighbouring: str | None,
    who: str | None,
    simulated: bool = False,
) -> "Account":
    """Return the account that a command with these options spends from: that of the file, wherever a link to it lies."""
    from privypurse.jobs.account import Account

    file = data.resolve()
    # A simulation must not spoil the record of the real records.
    own = f"{file.name} (simulation)" if simulated else file.name
    return Account(
        ledger=ledger,
        beside=file.parent,
        dataset=dataset or own,
        budget=budget,
        delta=delta,
        neighbouring=neighbouring,
        who=who,
    )
