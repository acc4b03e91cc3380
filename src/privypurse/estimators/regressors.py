"""Private linear regression: ridge regression and Huber's robust loss."""

from collections.abc import Sequence
from typing import Any

from scipy import sparse
from sklearn.base import RegressorMixin

from privypurse.core.checks import FloatArray, positive, shown
from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.estimators.base import PrivateLinearModel, set_tags, with_common_parameters
from privypurse.estimators.compat import all_or_nothing
from privypurse.estimators.preparation import TARGET_ROOM, Preparation
from privypurse.losses.linear import Huber, LinearLoss, Squared
from privypurse.oracles.encoding import check_target_bounds
from privypurse.oracles.linear import DenseOracle, SparseOracle
from privypurse.oracles.rows import Rows
from privypurse.oracles.scores import Targets, checked_numbers
from privypurse.purse.purse import Purse
from privypurse.training.fit import BoundedOracle
from privypurse.training.plan import Method
from privypurse.training.progress import Callback


class PrivateLinearRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
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
        delta: float | None = None,
        method: "str | Method" = "auto",
        neighbouring: "Neighbouring | str | None" = None,
        fit_intercept: bool = True,
        l2: float = 0.0,
        feature_norm: float | None = None,
        n_public: int | None = None,
        standardize: bool = True,
        purse: Purse | None = None,
        warm_start: bool = False,
        copy_X: bool = True,
        random_state: Any = None,
        noise: str = "auto",
        callbacks: Sequence[Callback] = (),
        verbose: bool = False,
    ) -> None:
        super().__init__(
            epsilon,
            delta=delta,
            method=method,
            neighbouring=neighbouring,
            fit_intercept=fit_intercept,
            l2=l2,
            feature_norm=feature_norm,
            n_public=n_public,
            standardize=standardize,
            purse=purse,
            warm_start=warm_start,
            copy_X=copy_X,
            random_state=random_state,
            noise=noise,
            callbacks=callbacks,
            verbose=verbose,
        )
        self.target_bounds = target_bounds

    def __sklearn_tags__(self) -> Any:
        return set_tags(super().__sklearn_tags__())

    def _more_tags(self) -> dict[str, bool]:  # scikit-learn 1.5 and older
        return {"poor_score": True}

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
            kind = SparseOracle if sparse.issparse(table) else DenseOracle
            mapped, loss = target.mapped(*preparation.target), self._loss(preparation.target[1])
            limits: dict[str, Any] = {"row_limit": preparation.row_limit, "constant": preparation.constant or False}
            return kind(table, mapped, loss=loss, target_bounds=(-1.0, 1.0), **limits)

        self._train(Rows(X, overwrite=not self.copy_X), make_oracle, None, [], target)
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
        delta: float | None = None,
        method: "str | Method" = "auto",
        neighbouring: "Neighbouring | str | None" = None,
        fit_intercept: bool = True,
        l2: float = 0.0,
        feature_norm: float | None = None,
        n_public: int | None = None,
        standardize: bool = True,
        purse: Purse | None = None,
        warm_start: bool = False,
        copy_X: bool = True,
        random_state: Any = None,
        noise: str = "auto",
        callbacks: Sequence[Callback] = (),
        verbose: bool = False,
    ) -> None:
        super().__init__(
            epsilon,
            target_bounds=target_bounds,
            delta=delta,
            method=method,
            neighbouring=neighbouring,
            fit_intercept=fit_intercept,
            l2=l2,
            feature_norm=feature_norm,
            n_public=n_public,
            standardize=standardize,
            purse=purse,
            warm_start=warm_start,
            copy_X=copy_X,
            random_state=random_state,
            noise=noise,
            callbacks=callbacks,
            verbose=verbose,
        )
        self.threshold = threshold

    def _loss(self, half_range: float) -> LinearLoss:
        threshold = 1.35 / TARGET_ROOM if self.threshold is None else positive(threshold=self.threshold) / half_range
        return Huber(threshold=min(threshold, 2.0))
