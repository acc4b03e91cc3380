"""What is audited: a way to train, a pair of neighbouring made-up tables, and the budget that is claimed.

The record that the tables differ in, the *canary*, is made to be as visible as the rules allow: its gradient has the full clip
norm at every step, because it contradicts all other records.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse.accounting.convert import gdp_epsilon
from privypurse.audit.listening import Run
from privypurse.core.checks import FloatArray, shown
from privypurse.core.errors import InvalidArgument
from privypurse.core.randomness import NoiseSource
from privypurse.purse.purse import Purse

DELTA = 1e-6
RECORDS, COLUMNS = 64, 6


@dataclass(frozen=True, eq=False)
class Subject:
    """Something to audit.

    Parameters
    ----------
    name : str
        What it is called in reports.
    kind : str
        "method", "baseline", "estimator", "preprocessing" or "pytorch".
    run : callable
        ``run(data, purse)`` trains and returns the model.
    table : callable
        ``table(present)`` returns the data, with or without the canary. The same each time, and all other records in the same
        places: coins of samples and searches belong to places, so the canary is the last.
    purse : callable
        ``purse(mu, noise)`` returns a new purse that claims to be Gaussian-DP with this mu, or (epsilon, delta)-DP with the
        epsilon of that mu at `DELTA`.
    direction : ndarray, optional
        Where the canary's gradient points to; needed where records are sampled.
    score : callable, optional
        ``score(result)``: how much a final model looks like one that saw the canary, for attacks that see nothing else.
    shows_half : bool, default True
        Whether an attack that sees everything must show at least half of the claimed mu. Not so where no record can use up the
        bounds, as where survivors are selected from many models.
    exact : bool, default True
        Whether it can be run with exact noise; if not, it is audited with plain noise.
    """

    name: str
    kind: str
    run: Run
    table: Callable[[bool], Any]
    purse: Callable[[float, NoiseSource], Purse]
    direction: FloatArray | None = None
    score: Callable[[FloatArray], float] | None = None
    shows_half: bool = True
    exact: bool = True

    def __post_init__(self) -> None:
        for name, call in (("run", "data, purse"), ("table", "present"), ("purse", "mu, noise")):
            if not callable(getattr(self, name)):
                raise InvalidArgument(
                    f"{name} must be a function {name}({call}); got {shown(getattr(self, name))}. Pass for example "
                    f"lambda {call}: ..."
                )

    def noise(self, seed: int | None, *, secure: bool) -> NoiseSource:
        """Return noise to run it with."""
        return NoiseSource(seed, secure=secure and self.exact)


def contradicted_table(
    records: int = RECORDS, columns: int = COLUMNS, seed: int = 0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return rows, labels (0 and 1) and a canary with label 1.

    The last column says which class a row is of, and says the opposite for the canary: its loss stays on the linear part, where
    its gradient has the full length.
    """
    rng = np.random.default_rng(seed)
    side = np.where(np.arange(records) % 2 == 0, 1.0, -1.0)
    rest = rng.standard_normal((records, columns - 1))
    rest *= 0.6 / np.linalg.norm(rest, axis=1, keepdims=True)
    canary = np.zeros(columns)
    canary[-1] = 1.0
    return np.column_stack([rest, -0.8 * side]), (side > 0).astype(np.float64), canary


def with_canary(present: bool, *, in_place: bool = False) -> tuple[FloatArray, FloatArray]:
    """Return a table with the canary as its last row, or without it.

    `in_place`: where it is absent there is a row that is not finite in its place, which contributes nothing, so that samples of
    both tables are drawn with the same coins.
    """
    rows, labels, canary = contradicted_table()
    if not present and not in_place:
        return rows, labels
    last = canary if present else np.full(canary.size, np.nan)
    return np.vstack([rows, last]), np.append(labels, 1.0)


def on_last_column(result: FloatArray) -> float:
    """Return the weight of the column that the canary pulls up."""
    return float(result[COLUMNS - 1])


def gaussian_purse(mu: float, noise: NoiseSource, neighbouring: str = "add-remove") -> Purse:
    """Return a purse with a Gaussian-DP filter for this mu."""
    return Purse(gdp_epsilon(mu, DELTA), DELTA, neighbouring=neighbouring, noise=noise)
