"""`privypurse evaluate`."""

from dataclasses import asdict
from typing import Annotated

import typer

from privypurse.cli import options
from privypurse.cli.output import at_least, emit, say, warn
from privypurse.cli.progress import shown_progress
from privypurse.cli.train import describe


def evaluate(
    model: options.ModelDir,
    data: options.DataFile,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", "-e", help="Pay for it: a noisy measurement for this much.", show_default=False),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Declare that these records are public.")] = False,
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
    """Measure a trained model on records it has not seen, and add that to its report.

    Examples:

        privypurse evaluate model test.csv --public

        privypurse evaluate model test.csv --epsilon 0.2

    Without --epsilon the figure is exact: if the records are private, do not publish it. With it, the figure is noisy, covered,
    and paid for by the data set of that name on the ledger.
    """
    from privypurse.jobs.evaluate import evaluate_file
    from privypurse.tables.files import TableFile

    file = TableFile(data, delimiter=options.tab(delimiter), encoding=encoding)
    account = options.account_for(
        data, ledger=ledger, dataset=dataset, budget=budget, delta=delta, neighbouring=neighbouring, who=who
    )
    with shown_progress(quiet) as progress:
        result = evaluate_file(model, file, progress, epsilon=epsilon, account=account, public=public)
    measured, purse = result.measured, result.purse
    for remark in result.remarks:
        warn(remark)
    spent = (
        None
        if purse is None
        else {"dataset": purse.dataset, "epsilon": purse.epsilon, "spent_epsilon": purse.spent.epsilon}
    )
    if json:
        emit(asdict(measured) | {"budget": spent})
        return
    say(describe(measured))
    for name, value in measured.details:
        say(f"  {name}: {100 * value:.1f} %")
    if purse is not None:
        say(f"spent: epsilon {at_least(purse.spent.epsilon)} of {purse.epsilon:g} on data set {purse.dataset!r}")
    elif not public:
        warn("exact, and not covered by any guarantee: pay for it (--epsilon), or declare the records --public.")
