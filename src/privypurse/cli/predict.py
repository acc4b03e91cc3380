"""`privypurse predict`."""

import pathlib
import sys
from typing import Annotated

from privypurse.cli import options
from privypurse.cli.output import emit, say, warn
from privypurse.cli.progress import shown_progress
from privypurse.core.formats import counted


def predict(
    model: options.ModelDir,
    data: options.DataFile,
    out: Annotated[pathlib.Path | None, options.output("--out", "-o", help="CSV file. Default: stdout.")] = None,
    overwrite: options.Overwrite = False,
    keep: Annotated[list[str] | None, options.option("--keep", help="Column to copy, such as an id.")] = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = "utf-8",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict new records with a trained model.

    Examples:

        privypurse predict model new.csv --out predictions.csv

        privypurse predict model new.csv --keep id | head

    Predictions depend on the new records, which the guarantee of the model does not cover.
    Categories that the schema does not list count as unknown, missing numbers as the middle of
    their range.
    """
    from privypurse.runs.folder import load_model, partial_path
    from privypurse.runs.predict import Odd, predict_blocks, write_predictions
    from privypurse.tables.files import TableFile

    pipeline = load_model(model)
    file = TableFile(data, delimiter=options.tab(delimiter), encoding=encoding)
    answers: list[object] = []
    with shown_progress(quiet or (out is None and not json)) as progress:
        if out is not None:
            is_device = out.exists() and not out.is_file()
            partial = out if is_device else partial_path(out)
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
    for name, times in odd.unknown.items():
        warn(f"column {name!r}: {times:,} of {odd.rows:,} values do not match the schema and count as unknown")
    if file.tally.blank:
        warn(
            f"{data.name} has {counted(file.tally.blank, 'blank line')}, without a prediction: rows are those of the other lines"
        )
    if json:
        where = {"out": str(out)} if out is not None else {"predictions": answers}
        emit(
            {"rows": odd.rows, "blank_lines": file.tally.blank, "unknown": odd.unknown, "missing": odd.missing} | where
        )
    elif out is not None:
        say(f"{odd.rows:,} predictions: {out}")
