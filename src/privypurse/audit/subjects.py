"""Subjects of audits: a training method, two neighbouring synthetic tables, and the claimed budget.

The tables differ in one record, the *canary*. It contradicts all other records, so that its
gradient has the full clip norm at every step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse.accounting.convert import gdp_epsilon
from privypurse.audit._listening import Run
from privypurse.core._checks import FloatArray, shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import NoiseSource
from privypurse.purse._purse import Purse

__all__ = ["contradicted_table", "gaussian_purse"]

DELTA = 1e-6
RECORDS, COLUMNS = 64, 6


@dataclass(frozen=True, eq=False)
class Subject:
    """Subject of an audit.

    Parameters
    ----------
    name : str
        Name in reports.
    kind : str
        "method", "baseline", "estimator", "preprocessing" or "pytorch".
    run : callable
        ``run(data, purse)`` trains and returns the model.
    table : callable
        ``table(present)`` returns the data, with or without the canary as the last record. It is
        deterministic and keeps other records in place, since samples and searches draw by place.
    purse : callable
        ``purse(mu, noise)`` returns a new purse that claims Gaussian DP with this mu, or
        (epsilon, delta)-DP with the epsilon of that mu at `DELTA`.
    direction : ndarray, optional
        Direction of the canary's gradient; needed where records are sampled.
    score : callable, optional
        ``score(result)`` is high for final models that saw the canary, for black-box attacks.
    shows_half : bool, default True
        Whether a white-box attack must show at least half of the claimed mu. False where no record
        can reach the bounds, as in selection among many models.
    exact : bool, default True
        Whether it can be run with exact noise.
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
                what = f"{name} must be a function {name}({call}); got {shown(getattr(self, name))}"
                raise InvalidArgument(f"{what}. Pass for example lambda {call}: ...")

    def noise(self, seed: int | None, *, secure: bool) -> NoiseSource:
        """Return a noise source for a run."""
        return NoiseSource(seed, secure=secure and self.exact)


def contradicted_table(
    records: int = RECORDS, columns: int = COLUMNS, seed: int = 0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return rows, labels (0 and 1) and a canary with label 1.

    The last column determines the class, and the canary contradicts it: its loss stays on the
    linear part, where its gradient has full norm.
    """
    rng = np.random.default_rng(seed)
    side = np.where(np.arange(records) % 2 == 0, 1.0, -1.0)
    rest = rng.standard_normal((records, columns - 1))
    rest *= 0.6 / np.linalg.norm(rest, axis=1, keepdims=True)
    canary = np.zeros(columns)
    canary[-1] = 1.0
    return np.column_stack([rest, -0.8 * side]), (side > 0).astype(np.float64), canary


def gaussian_purse(mu: float, noise: NoiseSource, neighbouring: str = "add-remove") -> Purse:
    """Return a purse with a Gaussian-DP filter for this mu."""
    return Purse(gdp_epsilon(mu, DELTA), DELTA, neighbouring=neighbouring, noise=noise)
