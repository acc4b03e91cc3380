"""`privypurse report`."""

import pathlib
from typing import Annotated

import typer

from privypurse.cli import options
from privypurse.cli.output import emit, say


def report(
    model: options.ModelDir,
    out: Annotated[
        pathlib.Path | None,
        options.output("--out", "-o", help="File. Default: report.html in the folder of the model."),
    ] = None,
    overwrite: options.Overwrite = False,
    show: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    json: options.Json = False,
) -> None:
    """Write the report of a trained model again: one HTML file that works offline.

    Examples:

        privypurse report model --open

        privypurse report model --out for_the_privacy_officer.html --overwrite
    """
    from privypurse.runs.describe import load_run, report_of
    from privypurse.runs.folder import replace_file

    pipeline, about, measurements = load_run(model)
    path = out or model / "report.html"
    replace_file(path, report_of(pipeline, about, measurements))
    if json:
        emit({"report": str(path)})
    else:
        say(f"report: {path}")
    if show:
        typer.launch(str(path))
