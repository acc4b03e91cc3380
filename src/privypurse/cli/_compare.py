"""`privypurse compare`."""

import pathlib
from dataclasses import asdict
from typing import Annotated, Any

import typer

from privypurse.cli import _options as options
from privypurse.cli._output import budget_of, emit, say, stderr, table
from privypurse.cli._progress import shown_progress
from privypurse.core._formats import counted, percent, rounded_up, short


def compare(
    data: options.DataFile,
    target: options.Target,
    schema: options.SchemaFile = None,
    methods: Annotated[str, typer.Option("--methods", help="Separated by commas.")] = "auto,nesterov,dp-agd,adp-sgd",
    epsilons: Annotated[str, typer.Option("--epsilons", help="Separated by commas.")] = "0.1,0.5,1,2",
    repeats: Annotated[int, typer.Option("--repeats", help="Number of splits and seeds of the simulation.")] = 3,
    pay: Annotated[bool, typer.Option("--pay", help="Make a private comparison, charged to the budget.")] = False,
    plot: Annotated[pathlib.Path | None, options.output("--plot", help="HTML page to write.")] = None,
    overwrite: options.Overwrite = False,
    ledger: options.Ledger = None,
    dataset: options.Dataset = None,
    budget: options.Budget = None,
    delta: options.Delta = None,
    neighbouring: options.Neighbouring = None,
    who: options.Who = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = "utf-8",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare methods and budgets on a table.

    Examples:

        privypurse compare public.csv --target income --schema people.toml

        privypurse compare people.csv --target income --schema people.toml --methods auto,dp-agd
        --epsilons 0.5 --pay --budget 3

    By default the comparison is an exact simulation, NOT PRIVATE, for public data. With --pay each
    fit spends its epsilon from the budget of the data set, and the guarantee covers the output.
    """
    from privypurse.runs import _compare as job
    from privypurse.runs._account import put_on_record
    from privypurse.runs._rows import describe_columns
    from privypurse.runs.folder import replace_file
    from privypurse.tables._files import TableFile

    names, budgets = _texts(methods), _numbers(epsilons)
    job.check_choices(names, budgets, repeats)
    file = TableFile(data, delimiter=options.tab(delimiter), encoding=encoding)
    file.require([target])
    if not pay:
        stderr.print(job.NOT_PRIVATE, style="bold red", markup=False)
    purse: Any = None
    with shown_progress(quiet) as progress:
        described = describe_columns(file, target, schema, progress)
        account = options.account_for(
            data, ledger=ledger, dataset=dataset, budget=budget, delta=delta, neighbouring=neighbouring, who=who
        )
        if pay:

            def purse_to_charge() -> Any:
                nonlocal purse
                purse, _ = account.open(None)
                return purse

            result = job.compare_paid(file, described, names, budgets, purse_to_charge, progress)
        else:
            what = f"a comparison of methods on the records of {data.name}, and how many are left out, measured exactly"
            put_on_record([account], what)
            result = job.compare_not_private(file, described, names, budgets, repeats, progress)
    if plot is not None:
        from privypurse.report._comparisons import render_comparison

        replace_file(plot, render_comparison(result, f"{target}, from {data.name}"))
    if json:
        emit(asdict(result) | {"budget": budget_of(purse)})
    else:
        _print(result, names, budgets)
        if purse is not None:
            say(f"spent: epsilon {rounded_up(purse.spent.epsilon)} of {purse.epsilon:g} on data set {purse.dataset!r}")
        if plot is not None:
            say(f"plot: {plot}")


def _print(result: Any, names: list[str], budgets: list[float]) -> None:
    shown = percent if result.metric == "accuracy" else short
    found = {(entry.method, entry.epsilon): entry for entry in result.entries}
    rows = []
    for name in dict.fromkeys(entry.method for entry in result.entries):
        plain = found.get((name, None))
        cells = [plain or found.get((name, epsilon)) for epsilon in budgets]
        rows.append([name, *("" if cell is None else f"{shown(cell.value)} ± {shown(cell.spread)}" for cell in cells)])
    overlap = "half of a 95 % interval; where intervals overlap, no difference was shown"
    spread = overlap if result.private else f"spread over {counted(result.repetitions, 'split')} and as many seeds"
    table((f"{result.metric} at epsilon", *(f"{epsilon:g}" for epsilon in budgets)), rows)
    say(f"after ±: {spread}. {result.note}")


def _texts(listed: str) -> list[str]:
    return [part.strip() for part in listed.split(",") if part.strip()]


def _numbers(listed: str) -> list[float]:
    try:
        return [float(part) for part in _texts(listed)]
    except ValueError as error:
        message = f"expected numbers separated by commas in epsilons, got {listed!r}. Pass for example 0.1,1."
        raise typer.BadParameter(message) from error
