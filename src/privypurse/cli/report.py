"""`privypurse report`."""

import pathlib
from typing import Annotated

import typer

from privypurse.cli import options
from privypurse.cli.output import emit, say, spare_ledgers


def report(
    model: options.ModelDir,
    out: Annotated[
        pathlib.Path | None,
        typer.Option(
            "--out", "-o", help="Where to write it; report.html in the model's folder by default.", show_default=False
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    json: options.Json = False,
) -> None:
    """Make the report of a trained model again: one HTML file that works offline.

    Examples:

        privypurse report model --open

        privypurse report model --out for_the_privacy_officer.html
    """
    from privypurse.jobs.describe import load_run, report_of
    from privypurse.store.folder import replace_file

    spare_ledgers(out=out)
    pipeline, about, measurements = load_run(model)
    path = out or model / "report.html"
    replace_file(path, report_of(pipeline, about, measurements))
    if json:
        emit({"report": str(path)})
    else:
        say(f"report: {path}")
    if show:
        typer.launch(str(path))
