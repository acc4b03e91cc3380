"""Private linear regression: least squares with a ridge, and Huber's robust loss."""

from collections.abc import Sequence
from typing import Any

from scipy import sparse
from sklearn.base import RegressorMixin

from privypurse.core.checks import FloatArray, positive, shown
from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.estimators.base import PrivateLinearModel, set_tags
from privypurse.estimators.documentation import with_common_parameters
from privypurse.estimators.preparation import TARGET_ROOM, Preparation
from privypurse.losses.linear import Huber, LinearLoss, Squared
from privypurse.oracles.encoding import check_target_bounds
from privypurse.oracles.linear_rows import DenseOracle, SparseOracle
from privypurse.oracles.rows import Rows
from privypurse.oracles.targets import Targets
from privypurse.planning.plan import Method
from privypurse.purse.purse import Purse
from privypurse.training.fit import BoundedOracle
from privypurse.training.progress import Callback


class PrivateLinearRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """What the regressors share. Not used by itself.

    Targets are clipped to their declared range, and to the range where most of them are, which is bought; so bounds may be wide.
    """

    # A row that is cut short keeps its target, which makes slopes too steep: few rows may be.
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

    def fit(self, X: Any, y: Any) -> Any:
        """Train on private rows, and pay for it.

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
            Something is wrong with a setting or the data; nothing was spent.
        BudgetExhausted
            Nothing is left in the purse; nothing was spent.
        """
        X, y = self.check_input(X, y)
        target = Targets(y, check_target_bounds(self.target_bounds))

        def make_oracle(table: Any, preparation: Preparation) -> BoundedOracle:
            kind = SparseOracle if sparse.issparse(table) else DenseOracle
            mapped, loss = target.mapped(*preparation.target), self._loss(preparation.target[1])
            limits: dict[str, Any] = {"row_limit": preparation.row_limit, "constant": preparation.constant or False}
            return kind(table, mapped, loss=loss, target_bounds=(-1.0, 1.0), **limits)

        self._train(Rows(X, overwrite=not self.copy_X), make_oracle, None, [], target)
        self.intercept_ = float(self.intercept_)
        return self

    def check_input(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Refuse whatever `fit` would refuse about settings, rows and targets, and spend nothing.

        Parameters
        ----------
        X, y
            As for `fit`.

        Returns
        -------
        X, y
            As arrays, or a sparse matrix.
        """
        self._check_settings()
        low, high = check_target_bounds(self.target_bounds)
        if high - low < 1e-9 * max(abs(low), abs(high)):
            raise InvalidArgument(
                f"target_bounds must be further apart than rounding; got {shown(self.target_bounds)}. Subtract a public number "
                "from y and from its bounds."
            )
        self._loss((high - low) / 2)
        return self._validated(X, y, y_numeric=True)

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted target of each row."""
        return self._scores(X)


@with_common_parameters
class PrivateRidge(PrivateLinearRegressor):
    """Linear least squares with a ridge penalty, under differential privacy, with nothing to tune.

    Residuals that are far larger than what most targets are apart count as if they were smaller: about twice that.

    Parameters
    ----------
    {common}
    target_bounds : pair of float
        The public range of the target, required; y is clipped to it. It is not read from the data, and may be generous: the range
        where most targets are is bought.

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
        return Squared(clip_derivative=0.5)  # half of the range of targets that counts, which is wide


@with_common_parameters
class PrivateHuberRegressor(PrivateLinearRegressor):
    """Robust linear regression under differential privacy: squared loss near the target, absolute loss beyond a threshold.

    A small threshold also needs less noise: no record moves the sum of gradients by more than that.

    Parameters
    ----------
    {common}
    target_bounds : pair of float
        The public range of the target, required; y is clipped to it. It is not read from the data, and may be generous: the range
        where most targets are is bought.
    threshold : float or None
        Where the loss becomes linear, in units of the target. By default a third more than most targets are away from their
        median.

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
