"""Tables with and without the canary, for the subjects of audits."""

import numpy as np

from privypurse.audit.subjects import COLUMNS, contradicted_table
from privypurse.core._checks import FloatArray


def with_canary(present: bool, *, in_place: bool = False) -> tuple[FloatArray, FloatArray]:
    """Return a table with the canary as its last row, or without it.

    `in_place`: replace an absent canary by a row of NaN, which contributes nothing, so that samples
    of both tables are drawn alike.
    """
    rows, labels, canary = contradicted_table()
    if not present and not in_place:
        return rows, labels
    last = canary if present else np.full(canary.size, np.nan)
    return np.vstack([rows, last]), np.append(labels, 1.0)


def on_last_column(result: FloatArray) -> float:
    """Return the weight of the canary's column."""
    return float(result[COLUMNS - 1])
