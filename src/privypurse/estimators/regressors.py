"""Private linear regression: ridge regression and Huber's robust loss."""

from typing import Any, Unpack

from sklearn.base import RegressorMixin

from privypurse.core.checks import FloatArray, positive, shown
from privypurse.core.errors import InvalidArgument
from privypurse.estimators.base import Common, NoisyTags, PrivateLinearModel, with_common_parameters
from privypurse.estimators.compat import all_or_nothing
from privypurse.estimators.preparation import TARGET_ROOM, Preparation
from privypurse.losses.linear import Huber, LinearLoss, Squared
from privypurse.oracles.encoding import check_target_bounds
from privypurse.oracles.scores import Targets, checked_numbers
from privypurse.training.fit import BoundedOracle


class PrivateLinearRegressor(NoisyTags, RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """Base class of the regressors.

    Targets are clipped to their declared range, which may be wide, and to a selected range around
    most of them.
    """

    # Clipping a row but not its target makes slopes too steep, so clip few rows.
    _room = 1.6

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        target_bounds: tuple[float, float] | None = None,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(epsilon, **common)
        self.target_bounds = target_bounds

    def _loss(self, half_range: float) -> LinearLoss:
        raise NotImplementedError

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> Any:
        """Train on private rows.

        Parameters
        ----------
        X : array_like, data frame or sparse matrix of shape (n, d)
            The records. Not kept.
        y : array_like of shape (n,)
            Their targets, clipped to `target_bounds`. Not kept.

        Returns
        -------
        self

        Raises
        ------
        InvalidArgument
            A setting or the data is wrong. No budget is spent.
        BudgetExhausted
            Less is left in the purse than `epsilon`. No budget is spent.
        """
        X, y = self._check_input(X, y)
        target = Targets(y, check_target_bounds(self.target_bounds))

        def make_oracle(table: Any, preparation: Preparation) -> BoundedOracle:
            mapped, loss = target.mapped(*preparation.target), self._loss(preparation.target[1])
            return self._oracle(table, mapped, loss, preparation, target_bounds=(-1.0, 1.0))

        self._train(X, make_oracle, target=target)
        self.intercept_ = float(self.intercept_)
        return self

    def _check_input(self, X: Any, y: Any) -> tuple[Any, Any]:
        self._check_settings()
        low, high = check_target_bounds(self.target_bounds)
        if high - low < 1e-9 * max(abs(low), abs(high)):
            raise InvalidArgument(
                f"target_bounds must differ by more than rounding; got {shown(self.target_bounds)}. Subtract a "
                "public number from y and from its bounds."
            )
        self._loss((high - low) / 2)
        X, y = self._validated(X, y, y_numeric=True)
        return X, checked_numbers(y)

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted target of each row."""
        return self._scores(X)


@with_common_parameters
class PrivateRidge(PrivateLinearRegressor):
    """Ridge regression under differential privacy, without hyper-parameters to tune.

    Residuals are clipped at about twice the spread of most targets.

    Parameters
    ----------
    {common}
    target_bounds : pair of float
        Public range of the target, required. y is clipped to it. It may be wide: the range of most
        targets is selected within it.

    Attributes
    ----------
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from privypurse.estimators import PrivateRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 3))
    >>> y = 40 + 10 * X[:, 0] - 5 * X[:, 2] + rng.standard_normal(20_000)
    >>> model = PrivateRidge(epsilon=1.0, target_bounds=(0, 80), random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def _loss(self, half_range: float) -> LinearLoss:
        return Squared(clip_derivative=0.5)  # half of the selected range of targets


@with_common_parameters
class PrivateHuberRegressor(PrivateLinearRegressor):
    """Robust linear regression under differential privacy, with the Huber loss.

    A small threshold also needs less noise, because it bounds the sensitivity of the gradient.

    Parameters
    ----------
    {common}
    target_bounds : pair of float
        Public range of the target, required. y is clipped to it. It may be wide: the range of most
        targets is selected within it.
    threshold : float or None
        Where the loss becomes linear, in units of the target. Default: 1.35 times the spread of
        most targets around their median.

    Attributes
    ----------
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from privypurse.estimators import PrivateHuberRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 3))
    >>> y = 40 + 10 * X[:, 0] - 5 * X[:, 2] + rng.standard_t(2, 20_000)
    >>> model = PrivateHuberRegressor(epsilon=1.0, target_bounds=(0, 80), random_state=0).fit(X, y)
    >>> bool(abs(model.coef_[0] - 10) < 1)
    True
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        target_bounds: tuple[float, float] | None = None,
        threshold: float | None = None,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(epsilon, target_bounds=target_bounds, **common)
        self.threshold = threshold

    def _loss(self, half_range: float) -> LinearLoss:
        threshold = 1.35 / TARGET_ROOM if self.threshold is None else positive(threshold=self.threshold) / half_range
        return Huber(threshold=min(threshold, 2.0))
