"""`privypurse demo`."""

import pathlib
from typing import Annotated

import typer

from privypurse.cli import _options as options
from privypurse.cli._output import emit, say
from privypurse.cli._progress import shown_progress
from privypurse.core._formats import percent, rounded_up


def demo(
    out: Annotated[
        pathlib.Path, typer.Option("--out", "-o", help="Folder for all output.", writable=True, file_okay=False)
    ] = pathlib.Path("demo"),
    rows: Annotated[int, typer.Option("--rows", help="Number of people in the synthetic census.")] = 30_000,
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="The budget.")] = 1.0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train on a synthetic census: from a CSV file to a private model and its report.

    Examples:

        privypurse demo

        privypurse demo --epsilon 0.1 --rows 100000 --out large
    """
    with shown_progress(quiet) as progress:
        progress.stage("starting")
        from privypurse.runs._demo import run_demo

        result = run_demo(out, rows=rows, epsilon=epsilon, progress=progress)
    purse, report = result.trained.purse, out / "model" / "report.html"
    if json:
        accuracy = {name: getattr(result, name) for name in ("private", "not_private", "majority", "best")}
        emit({"accuracy": accuracy, "spent_epsilon": purse.spent.epsilon, "report": str(report)})
        return
    say(
        f"accuracy on new people: private {percent(result.private)}, not private {percent(result.not_private)}, always the "
        f"majority {percent(result.majority)} (best possible {percent(result.best)})"
    )
    say(f"spent: epsilon {rounded_up(purse.spent.epsilon)} of {purse.epsilon:g} at delta {purse.delta:g}")
    say(f"report: {report}")
