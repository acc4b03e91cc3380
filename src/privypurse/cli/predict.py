"""`privypurse predict`."""

import pathlib
import sys
from typing import Annotated

import typer

from privypurse.cli import options
from privypurse.cli.output import emit, say, spare_ledgers, warn
from privypurse.cli.progress import shown_progress


def predict(
    model: options.ModelDir,
    data: options.DataFile,
    out: Annotated[
        pathlib.Path | None,
        typer.Option("--out", "-o", help="CSV file for the predictions; stdout by default.", show_default=False),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="A column to hand through, such as an id.", show_default=False),
    ] = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = "utf-8",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict new records with a trained model.

    Examples:

        privypurse predict model new.csv --out predictions.csv

        privypurse predict model new.csv --keep id | head

    What is predicted depends on the new records, which the model's guarantee does not cover. Categories that the schema does not
    list count as unknown, missing numbers as the middle of their range.
    """
    from privypurse.core.errors import InvalidArgument
    from privypurse.jobs.predict import Odd, predict_blocks, predictions_path, write_predictions
    from privypurse.store import load_model
    from privypurse.tables.files import TableFile

    spare_ledgers(out=out)
    pipeline = load_model(model)
    file = TableFile(data, delimiter=options.tab(delimiter), encoding=encoding)
    answers: list[object] = []
    with shown_progress(quiet or (out is None and not json)) as progress:
        if out is not None:
            if not out.absolute().parent.is_dir():
                raise InvalidArgument(f"out {str(out)!r} is in a folder that does not exist. Make it first.")
            # A device must stay one.
            partial = predictions_path(out) if out.is_file() or not out.exists() else out
            try:
                with partial.open("w", encoding="utf-8", newline="") as target:
                    odd = write_predictions(pipeline, file, target, progress, keep or [])
                if partial != out:
                    partial.replace(out)
            finally:
                if partial != out:
                    partial.unlink(missing_ok=True)
        elif json:
            odd = Odd()
            for block, _, _ in predict_blocks(pipeline, file, odd, progress):
                answers += block.tolist()
        else:
            odd = write_predictions(pipeline, file, sys.stdout, progress, keep or [])
    for name, count in odd.unknown.items():
        warn(f"column {name!r}: {count:,} of {odd.rows:,} values are not as the schema says and count as unknown")
    if json:
        where = {"out": str(out)} if out is not None else {"predictions": answers}
        emit({"rows": odd.rows, "unknown": odd.unknown, "missing": odd.missing} | where)
    elif out is not None:
        say(f"{odd.rows:,} predictions: {out}")
