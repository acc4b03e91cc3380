"""Predict new records block by block. No guarantee covers the new records."""

import csv
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from sklearn.pipeline import Pipeline

from privypurse.runs._progress import Progress
from privypurse.runs._rows import Odd
from privypurse.tables._files import TableFile
from privypurse.tables.schema import Schema


def predict_blocks(
    pipeline: Pipeline, file: TableFile, odd: Odd, progress: Progress, keep: Sequence[str] = ()
) -> Iterator[tuple[Any, Any, list[Any]]]:
    """Yield predictions, class probabilities or None, and kept columns of each block of a file.

    Values that do not match the schema are counted in `odd`. An unreadable line raises
    InvalidArgument, so that predictions stay aligned with rows.
    """
    schema: Schema = pipeline[0].schema
    names = list(dict.fromkeys([*(column.name for column in schema.columns), *keep]))
    progress.stage(f"predicting {file.path.name}", file.size)
    for block in file.blocks(names, strict=True, progress=progress.update):
        odd.take(block, schema)
        has_chances = hasattr(pipeline[-1], "predict_proba")
        kept = [block[name].to_pylist() for name in keep]
        yield pipeline.predict(block), pipeline.predict_proba(block) if has_chances else None, kept


def write_predictions(
    pipeline: Pipeline, file: TableFile, target: TextIO, progress: Progress, keep: Sequence[str] = ()
) -> Odd:
    """Write a CSV line for each record: kept columns, prediction and probabilities of classes."""
    odd, writer = Odd(), csv.writer(target, lineterminator="\n")
    classes = [f"probability of {name}" for name in getattr(pipeline[-1], "classes_", [])]
    for index, (answers, chances, kept) in enumerate(predict_blocks(pipeline, file, odd, progress, keep)):
        if index == 0:
            writer.writerow([*keep, "prediction", *(classes if chances is not None else [])])
        columns = [*kept, [round(one, 6) if isinstance(one, float) else one for one in answers.tolist()]]
        columns += [] if chances is None else chances.round(6).T.tolist()
        writer.writerows(zip(*columns, strict=True))
    return odd
