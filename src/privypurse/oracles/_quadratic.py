"""Synthetic quadratic problem with a known spectrum, to compare schedules. No private data."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privypurse.core._checks import FloatArray, finite_vector, positive
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core.queries import GradientAt, Query
from privypurse.losses._bounds import Bounds


class QuadraticOracle:
    """The mean loss ``sum_j curvature_j (w_j - best_j)^2 / 2`` of a number of imagined records.

    The mean gradient is exact, so results vary only by the noise, whose effect is known
    (``methods.dynamic.quadratic_influences``). No bound is enforced, because there are no records:
    only simulations get answers.

    Parameters
    ----------
    curvatures, best : array_like of shape (d,)
        The spectrum and the minimum.
    records : float
        Nominal number of records.
    gradient_bound : float
        The bound that clipping would have enforced on each record's gradient.

    Examples
    --------
    >>> oracle = QuadraticOracle([1.0, 0.1], [3.0, -1.0], records=1_000, gradient_bound=1.0)
    >>> oracle.excess_loss([0.0, 0.0])
    4.55
    """

    def __init__(self, curvatures: ArrayLike, best: ArrayLike, *, records: float, gradient_bound: float) -> None:
        self.curvatures = finite_vector(curvatures=curvatures)
        self.best = finite_vector(best=best)
        if self.curvatures.shape != self.best.shape or not (self.curvatures > 0).all():
            raise InvalidArgument(f"curvatures must be a positive number for each of best; got {curvatures!r}.")
        self.records = positive(records=records)
        self.gradient_bound = positive(gradient_bound=gradient_bound)

    @property
    def dimension(self) -> int:
        """Length of a point."""
        return self.best.size

    @property
    def bounds(self) -> Bounds:
        """Public constants of the mean loss."""
        return Bounds(self.gradient_bound, float(self.curvatures.max()), self.excess_loss(np.zeros(self.dimension)))

    @property
    def settings(self) -> dict[str, Any]:
        """Declared settings, by which a checkpoint recognises the oracle."""
        return vars(self)

    def excess_loss(self, point: ArrayLike) -> float:
        """Return the loss above the minimum."""
        return float(np.sum(self.curvatures * (np.asarray(point) - self.best) ** 2) / 2)

    def mean_gradient(self, point: ArrayLike) -> FloatArray:
        """Return the exact gradient."""
        return np.asarray(self.curvatures * (np.asarray(point) - self.best))

    def answer(self, query: Query, *, sample_prob: float = 1.0, noise: NoiseSource | None = None) -> Sensitive:
        """Answer a gradient query about all records, in a simulation."""
        if not isinstance(query, GradientAt) or sample_prob < 1:
            raise InvalidArgument(f"query must be a gradient of all records; got {query!r}. Use a real oracle.")
        if noise is None or not noise.simulation:
            what = "a synthetic problem has no records, so its bound is not enforced: it runs as a simulation only"
            raise InvalidArgument(f"{what}. Pass a purse with noise=NoiseSource(seed=1).")
        total = self.records * self.mean_gradient(query.point)
        return Sensitive(total, norm=Norm.L2, add_remove=self.gradient_bound, replace_one=2 * self.gradient_bound)

    def __repr__(self) -> str:
        return f"<QuadraticOracle: {counted(self.dimension, 'parameter')}, synthetic>"
