"""Made-up rows that look like a table from a distance: one column at a time, from public numbers only."""

from typing import Any

import numpy as np

from privypurse.core.checks import FloatArray
from privypurse.estimators.preparation import STRETCH, Preparation
from privypurse.tables.schema import Category, Number, Schema

LEAST_SHARE = 1e-4


def made_rows(schema: Schema, preparation: Preparation | None, rows: int, rng: np.random.Generator) -> Any:
    """Draw encoded rows: columns independent, with the centre and spread that a training bought, as far as it did.

    Parameters
    ----------
    schema : Schema
        Which columns there are.
    preparation : Preparation or None
        What was bought; without it categories are equally frequent and numbers spread over their range.
    rows : int
        How many.
    rng : Generator
        Protects nobody, so any will do.
    """
    width = len(schema.features)
    means, spreads = np.full(width, np.nan), np.full(width, 0.25)
    if preparation is not None and preparation.centre is not None:
        means = preparation.centre * preparation.unit * np.ones(width)
    if preparation is not None and preparation.stretch is not None:
        spreads = preparation.unit * preparation.stretch ** (-1 / STRETCH) * np.ones(width)
    made = np.zeros((rows, width), dtype=np.float32)
    start = 0
    for column in schema.columns:
        own = len(column.features)
        part, place = made[:, start : start + own], slice(start, start + own)
        if isinstance(column, Category) or column.cuts:
            _draw_categories(part, means[place], column, rng)
        else:
            middle = 0.5 if np.isnan(means[start]) else float(np.clip(means[start], 0.0, 1.0))
            part[:, 0] = np.clip(middle + spreads[start] * rng.standard_normal(rows), 0.0, 1.0)
            if column.missing:
                part[:, 1] = rng.random(rows) < np.clip(np.nan_to_num(means[start + 1], nan=0.0), 0.0, 1.0)
        start += own
    return made


def _draw_categories(part: Any, means: FloatArray, column: Category | Number, rng: np.random.Generator) -> None:
    """Put a one in at most one column of each row; bought shares may be noisy, so they are made to be shares."""
    known = not np.isnan(means).any()
    shares = np.maximum(means, LEAST_SHARE) if known else np.full(len(means), 1 / len(means))
    none = max(0.0, 1.0 - float(shares.sum())) if known else 0.0
    chances = np.append(shares, none) / (shares.sum() + none)
    drawn = rng.choice(len(chances), size=len(part), p=chances)
    hit = drawn < len(means)
    part[np.flatnonzero(hit), drawn[hit]] = 1.0
