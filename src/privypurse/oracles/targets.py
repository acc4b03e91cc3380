"""[RAW DATA] The targets of a regression, as far as a preparation may ask about them: in sealed boxes."""

import numpy as np
from numpy.typing import ArrayLike

from privypurse.core.checks import FloatArray, finite_vector
from privypurse.core.sensitive import Sensitive
from privypurse.oracles.encoding import check_target_bounds
from privypurse.oracles.limits import limit_scores
from privypurse.oracles.quantiles import quantile_scores


class Targets:
    """Targets, clipped to their declared range.

    Parameters
    ----------
    y : array_like of shape (n,)
        One number for each record.
    bounds : pair of float
        The declared range. Public.
    """

    def __init__(self, y: ArrayLike, bounds: tuple[float, float]) -> None:
        self._low, self._high = check_target_bounds(bounds)
        self._values = np.clip(np.asarray(y, dtype=np.float64), self._low, self._high)

    @property
    def bounds(self) -> tuple[float, float]:
        """The declared range."""
        return self._low, self._high

    def medians(self, candidates: FloatArray) -> Sensitive:
        """Return scores for the selection of the median."""
        return quantile_scores(self._values, quantile=0.5, candidates=finite_vector(candidates=candidates))

    def spreads(self, middle: float, candidates: FloatArray) -> Sensitive:
        """Return scores for the selection of a limit on the distance from a public middle."""
        return limit_scores(np.abs(self._values - middle), candidates)

    def mapped(self, middle: float, half: float) -> FloatArray:
        """Return the targets on [-1, 1], clipped to ``middle - half`` and ``middle + half``; for an oracle and nobody else."""
        return np.clip((self._values - middle) / half, -1.0, 1.0)
