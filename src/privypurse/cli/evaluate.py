"""`privypurse evaluate`."""

from dataclasses import asdict
from typing import Annotated

import typer

from privypurse.cli import options
from privypurse.cli.output import budget_of, emit, say, warn
from privypurse.cli.progress import shown_progress
from privypurse.cli.train import describe
from privypurse.core.formats import rounded_up


def evaluate(
    model: options.ModelDir,
    data: options.DataFile,
    epsilon: Annotated[float | None, options.option("--epsilon", "-e", help="Budget of a noisy measurement.")] = None,
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
    """Measure a trained model on unseen records and add the result to its report.

    Examples:

        privypurse evaluate model test.csv --public

        privypurse evaluate model test.csv --epsilon 0.2

    Without --epsilon the result is exact: if the records are private, do not publish it. With
    --epsilon the result is noisy, covered, and charged to the data set on the ledger.
    """
    from privypurse.runs.evaluate import evaluate_file
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
    if json:
        emit(asdict(measured) | {"budget": budget_of(purse), "remarks": result.remarks})
        return
    say(describe(measured))
    for name, value in measured.details:
        say(f"  {name}: {100 * value:.1f} %")
    if purse is not None:
        say(f"spent: epsilon {rounded_up(purse.spent.epsilon)} of {purse.epsilon:g} on data set {purse.dataset!r}")
    elif not public:
        warn("exact, not covered by any guarantee. Pass --epsilon, or --public if the records are public.")
