"""Private linear models: logistic regression, a support vector machine, and regressions."""

import contextlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.multiclass import check_classification_targets

from privypurse.core._checks import FloatArray, positive, shown
from privypurse.core._errors import BudgetExhausted, InvalidArgument
from privypurse.estimators._base import NoisyTags, PrivateLinearModel, with_common_parameters
from privypurse.estimators._preparation import Preparation, Preparer
from privypurse.losses._linear import (
    Gamma,
    Huber,
    HuberHinge,
    LinearLoss,
    Logistic,
    OneVsRest,
    Poisson,
    Softmax,
    Squared,
)
from privypurse.methods._auto import Auto
from privypurse.oracles._encoding import check_target_bounds
from privypurse.oracles._scores import Targets, checked_numbers
from privypurse.training._loop import BoundedOracle
from privypurse.training._plan import Method

RESIDUAL = 0.4  # residuals, smaller than distances from the median, are clipped at this part of the reach
SMEARING_SHARE = 0.03  # of what is left after the preparation
LABELS_READ = "the set of class labels, which was read from y: declare it with classes=[...]"


class PrivateLinearClassifier(NoisyTags, ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """Base class of the classifiers.

    Parameters
    ----------
    classes : sequence, optional
        The public labels. By default they are read from y, which the certificate names as not
        covered.
    class_weight : dict or "balanced", optional
        Public weight of each class, 1 for one that is not listed; "balanced": inverse to the
        released class counts. Moves the intercept to where training on weighted records would put
        the boundary for the same probabilities. Records are not weighted, so nothing is charged
        and no bound changes. Probabilities are then those among weighted records, too.
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        classes: Sequence[Any] | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        **common: Any,
    ) -> None:
        super().__init__(epsilon, **common)
        self.classes = classes
        self.class_weight = class_weight

    def _loss(self, classes: int, slack: float) -> LinearLoss | Softmax:
        raise NotImplementedError

    def _fit(self, X: Any, y: Any) -> None:
        classes = self._declared(y)
        target = encode_labels(y, classes)
        if self.warm_start and hasattr(self, "classes_") and not np.array_equal(classes, self.classes_):
            raise InvalidArgument("classes must be those of the first fit with warm_start=True. Pass classes=[...].")

        def make_oracle(table: Any, preparation: Preparation) -> BoundedOracle:
            loss = self._loss(classes.size, preparation.slack)
            return self._oracle(table, target, loss, preparation, classes=range(classes.size))

        uncovered = [] if self.classes is not None else [LABELS_READ]
        self._train(X, make_oracle, labels=target, classes=classes.size, uncovered=uncovered)
        self.classes_ = classes
        self.__dict__.pop("_corrects_clip", None)  # of an earlier version's model, which is fitted again here
        self._move_intercept()

    def _move_intercept(self) -> None:
        """Move the intercept as `class_weight` says."""
        self._class_shift = np.zeros_like(self.intercept_)
        if self.class_weight is None:
            return
        if self.class_weight == "balanced":
            log_weights = -cast(FloatArray, self.preparation_.log_odds)
        else:
            log_weights = np.log([self.class_weight.get(name, 1.0) for name in self.classes_.tolist()])  # type: ignore[union-attr]
        # Two classes have one score; several have one each, for a class against the others.
        relative = log_weights[1:] - log_weights[0] if log_weights.size == 2 else log_weights - log_weights.mean()
        loss = cast(LinearLoss, self._loss(2, self.preparation_.slack))
        self._class_shift = np.array([-_score_at(loss, float(log_odds)) for log_odds in -relative])
        self.intercept_ = self.intercept_ + self._class_shift

    def _check_settings(self) -> Method:
        weights = self.class_weight
        if weights is None:
            return super()._check_settings()
        if not isinstance(weights, Mapping) and not (isinstance(weights, str) and weights == "balanced"):
            raise InvalidArgument(
                f"class_weight must be a dict, 'balanced' or None; got {shown(weights)}. Pass {{0: 1, 1: 9}}."
            )
        if isinstance(weights, Mapping):
            for weight in weights.values():
                positive(class_weight=weight)
        elif self.n_public is not None:
            raise InvalidArgument(
                "class_weight='balanced' needs the released class counts, and n_public=... declares their sum instead. "
                "Omit n_public, or pass public weights as a dict."
            )
        if not self.fit_intercept:
            raise InvalidArgument(
                "class_weight moves the intercept; got fit_intercept=False. Pass True, or no class_weight."
            )
        return super()._check_settings()

    def _check_targets(self, y: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning could depend on one record
            try:
                check_classification_targets(y)
            except ValueError as error:  # does not quote a label
                raise InvalidArgument(str(error)) from None
        classes = self._declared(y)
        encode_labels(y, classes)
        listed = list(self.class_weight) if isinstance(self.class_weight, Mapping) else []
        if unknown := [name for name in listed if name not in classes.tolist()]:
            # Labels that were read from y are not quoted.
            known = "that are in y" if self.classes is None else shown(classes.tolist())
            raise InvalidArgument(f"class_weight must name classes {known}; got {shown(unknown)}. Correct the keys.")
        return y

    def decision_function(self, X: Any) -> FloatArray:
        """Return scores: positive for the second of two classes, or one column for each class."""
        scores = self._scores(X)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row. No guarantee covers predictions for private rows."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])

    def _declared(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the declared classes, or those in y."""
        if self.classes is None and np.unique(y).size < 2:
            raise InvalidArgument(
                f"{type(self).__name__} needs two or more classes, and y has only one class. Check y, or pass classes=[0, 1]."
            )
        if self.classes is None:
            return np.unique(y)
        declared = np.asarray(self.classes)
        if isinstance(self.classes, str) or declared.ndim != 1 or np.unique(declared).size < max(2, declared.size):
            raise InvalidArgument(
                f"classes must be two or more different labels; got {shown(self.classes)}. Pass [0, 1]."
            )
        return np.unique(declared)


def encode_labels(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the index of each label among the sorted classes."""
    # numpy would compare labels and classes of different kinds as text.
    if (y.dtype.kind in "OUS") == (classes.dtype.kind in "OUS"):
        place = np.minimum(np.searchsorted(classes, y), classes.size - 1)
        if np.all(classes[place] == y):
            return np.asarray(place)
    raise InvalidArgument(
        f"y must hold only the declared classes {shown(classes.tolist())}; it has others, or of another type. Declare them all."
    )


def _score_at(loss: LinearLoss, log_odds: float) -> float:
    """Return the score that minimises the mean loss where the second class has these odds."""
    if log_odds == 0:
        return 0.0
    odds = math.exp(min(max(log_odds, -600.0), 600.0))
    return float(
        optimize.brentq(lambda score: loss.derivative(score, -1.0) + odds * loss.derivative(score, 1.0), -700, 700)
    )


def _log_probabilities(scores: FloatArray, clip: float) -> FloatArray:
    """Return logarithms of the probabilities for which scores minimise the mean clipped softmax loss.

    With q the softmax of the scores, the derivative for class k is ``q - e_k``, scaled down to the
    length `clip`. Its mean over the classes is zero where ``p_k`` is proportional to
    ``q_k max(1, |q - e_k| / clip)``. Probabilities rank as scores do.
    """
    logs = special.log_softmax(scores, axis=1)
    shares = np.exp(logs)
    squares = (shares * shares).sum(axis=1, keepdims=True) - 2 * shares + 1
    logs = logs + np.log(np.maximum(np.sqrt(np.maximum(squares, 0.0)) / clip, 1.0))
    return np.asarray(logs - special.logsumexp(logs, axis=1, keepdims=True))


@with_common_parameters
class PrivateLogisticRegression(PrivateLinearClassifier):
    """Logistic regression under differential privacy, without hyper-parameters to tune.

    Several classes are one multinomial model, with one budget.

    {parameters}

    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from privypurse.estimators import PrivateLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((5_000, 4))
    >>> y = (X[:, 0] + 0.5 * rng.standard_normal(5_000) > 0).astype(int)
    >>> model = PrivateLogisticRegression(epsilon=0.5, classes=[0, 1], random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8), round(model.privacy_spent_.epsilon, 3)
    (True, 0.5)
    """

    _corrects_clip: bool = True  # False for a model that was saved before probabilities were corrected

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class, one column for each, in the order of `classes_`.

        Derivatives of the loss are clipped in training, which drives scores apart. Probabilities are
        those for which the scores minimise the clipped loss, so the clip does not bias them.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of the probability of each class."""
        scores = self.decision_function(X)
        clip = math.inf
        if self._corrects_clip:
            clip = self._loss(len(self.classes_), self.preparation_.slack).clip_derivative
        if scores.ndim == 1:  # as two scores, whose derivative is longer by the root of two
            scores, clip = np.column_stack([np.zeros_like(scores), scores]), math.sqrt(2) * clip
        return _log_probabilities(scores, clip)

    def _loss(self, classes: int, slack: float) -> LinearLoss | Softmax:
        if classes == 2:
            # At zero weights the derivative is 1/2: nothing is clipped there, and the noise is halved.
            return Logistic(clip_derivative=min(0.5 * slack, 1.0))
        return Softmax(classes, clip_derivative=min(math.sqrt(1 - 1 / classes) * slack, math.sqrt(2)))


@with_common_parameters
class PrivateLinearSVC(PrivateLinearClassifier):
    """A linear support vector machine under differential privacy, without hyper-parameters to tune.

    The hinge loss is smoothed at its kink (Huber hinge). Several classes are one-vs-rest models
    that share each release.

    {parameters}

    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from privypurse.estimators import PrivateLinearSVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((5_000, 4))
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> model = PrivateLinearSVC(epsilon=0.5, classes=["no", "yes"], random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8), model.classes_.tolist()
    (True, ['no', 'yes'])
    """

    def _loss(self, classes: int, slack: float) -> LinearLoss | Softmax:
        return HuberHinge(width=0.5) if classes == 2 else OneVsRest(classes)


class PrivateLinearRegressor(NoisyTags, RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """Base class of the regressors.

    Parameters
    ----------
    target_bounds : pair of float
        Public range of the target, required. y is clipped to it. It may be wide: the range of most
        targets is selected within it.
    """

    # Clipping a row but not its target makes slopes too steep, so clip few rows.
    _room = 1.6
    _with_spread = _with_mean = False  # whether the loss needs the spread, or the mean, of targets

    def __init__(
        self, epsilon: float | None = 1.0, *, target_bounds: tuple[float, float] | None = None, **common: Any
    ) -> None:
        super().__init__(epsilon, **common)
        self.target_bounds = target_bounds

    def _loss(self, reach: float, spread: float | None) -> LinearLoss:
        raise NotImplementedError

    def _fit(self, X: Any, y: Any) -> None:
        target = Targets(*self._transformed(y), with_spread=self._with_spread, with_mean=self._with_mean)

        def make_oracle(table: Any, preparation: Preparation) -> BoundedOracle:
            mapped, bounds = target.mapped(*preparation.target_unit)
            loss = self._loss(preparation.target_reach or preparation.target[1], preparation.target_spread)
            return self._oracle(table, mapped, loss, preparation, target_bounds=bounds)

        self._train(X, make_oracle, target=target)

    def _check_settings(self) -> Method:
        low, high = self._transformed(np.zeros(1))[1]
        if high - low < 1e-9 * max(abs(low), abs(high)):
            raise InvalidArgument(
                f"target_bounds must differ by more than rounding; got {shown(self.target_bounds)}. Subtract a "
                "public number from y and from its bounds."
            )
        self._loss((high - low) / 2, high - low).target_bound(low, high)
        return super()._check_settings()

    def _transformed(self, y: Any) -> tuple[Any, tuple[float, float]]:
        """Return targets as they are trained on, with their bounds."""
        return y, check_target_bounds(self.target_bounds)

    def _check_targets(self, y: Any) -> Any:
        return checked_numbers(y)

    def _drawn(self, X: Any, rng: np.random.Generator) -> FloatArray:
        """Draw targets by the model, for rehearsals."""
        return self._scores(X) + 0.25 * self.preparation_.target[1] * rng.standard_normal(len(X))

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted target of each row, within `target_bounds`."""
        return np.clip(self._scores(X), *check_target_bounds(self.target_bounds))


@with_common_parameters
class PrivateRidge(PrivateLinearRegressor):
    """Ridge regression under differential privacy, without hyper-parameters to tune.

    Residuals are clipped at 0.4 times a distance from the median that few targets are beyond: fewer,
    the larger the budget.

    {parameters}
    target_transform : "log1p" or None
        "log1p": train on ``log(1 + y)``, for skewed targets of 0 or more. `predict` then returns the
        mean of y, not its median: the mean of ``exp(residual)``, by which the two differ (Duan 1983,
        smearing), is released for 3 % of the budget that is left for training, as a noisy sum up to a
        selected limit. Coefficients are those of ``log(1 + y)``.

    {attributes}
    smearing_ : float
        With a `target_transform`: the released mean of ``exp(residual)``, at least 1.

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

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        target_bounds: tuple[float, float] | None = None,
        target_transform: str | None = None,
        **common: Any,
    ) -> None:
        super().__init__(epsilon, target_bounds=target_bounds, **common)
        self.target_transform = target_transform

    @property
    def _share_after(self) -> float:  # type: ignore[override]
        return 0.0 if self.target_transform is None else SMEARING_SHARE

    def _loss(self, reach: float, spread: float | None) -> LinearLoss:
        return Squared(clip_derivative=RESIDUAL)

    def _check_settings(self) -> Method:
        if self.target_transform is not None:
            if not isinstance(self.target_transform, str) or self.target_transform != "log1p":
                raise InvalidArgument(
                    f"target_transform must be 'log1p' or None; got {shown(self.target_transform)}. Omit it."
                )
            if (low := check_target_bounds(self.target_bounds)[0]) < 0:
                raise InvalidArgument(
                    f"target_bounds must start at 0 or above for target_transform='log1p'; got {low:g}. Omit the transform."
                )
        return super()._check_settings()

    def _transformed(self, y: Any) -> tuple[Any, tuple[float, float]]:
        y, (low, high) = super()._transformed(y)
        if self.target_transform is None:
            return y, (low, high)
        return np.log1p(np.clip(np.asarray(y, dtype=np.float64), low, high)), (math.log1p(low), math.log1p(high))

    def _buy_after(self, buyer: Preparer, scores: FloatArray, target: Targets, records: float) -> None:
        self.smearing_ = 1.0
        with contextlib.suppress(BudgetExhausted):  # others spent from the same purse
            self.smearing_ = buyer.smearing(target, scores, records)

    def _drawn(self, X: Any, rng: np.random.Generator) -> FloatArray:
        targets = super()._drawn(X, rng)
        return targets if self.target_transform is None else np.expm1(np.minimum(targets, 700.0))

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted target of each row, its mean, within `target_bounds`."""
        if self.target_transform is None:
            return super().predict(X)
        means = self.smearing_ * np.exp(np.minimum(self._scores(X), 700.0)) - 1
        return np.clip(means, *check_target_bounds(self.target_bounds))


@with_common_parameters
class PrivateHuberRegressor(PrivateLinearRegressor):
    """Robust linear regression under differential privacy, with the Huber loss.

    A small threshold also needs less noise, because it bounds the sensitivity of the gradient.

    {parameters}
    threshold : float or None
        Where the loss becomes linear, in units of the target. Default: 1.35 times the spread of
        most targets around their median.

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
        **common: Any,
    ) -> None:
        super().__init__(epsilon, target_bounds=target_bounds, **common)
        self.threshold = threshold

    @property
    def _with_spread(self) -> bool:  # type: ignore[override]
        return self.threshold is None

    def _loss(self, reach: float, spread: float | None) -> LinearLoss:
        threshold = 1.35 * (spread or reach) if self.threshold is None else positive(threshold=self.threshold)
        return Huber(threshold=min(threshold / reach, 2.0))


LEAST_TARGET = 1e-30  # of a gamma regression: it is divided by the mean


class _LogLinkRegressor(PrivateLinearRegressor):
    """Base class of the regressors whose score is the logarithm of the mean.

    Parameters
    ----------
    target_bounds : pair of float
        Public range of the target, required, and above 0 for `PrivateGammaRegressor`. y is clipped
        to it. It may be wide: the range of most targets is selected within it.
    """

    _with_mean = True
    _power: ClassVar[int]  # the variance of a target is as the mean to this power

    def _auto(self, preparation: Preparation) -> Auto:
        # Near the minimum the mean of the second derivatives is about 1, since the unit is the mean of
        # targets; in the worst case it is as much larger as the reach.
        return replace(super()._auto(preparation), smoothness=preparation.row_limit**2)

    def _drawn(self, X: Any, rng: np.random.Generator) -> FloatArray:
        return self.predict(X) * rng.standard_exponential(len(X))

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted mean of each row, within `target_bounds`."""
        return np.clip(np.exp(np.minimum(self._scores(X), 700.0)), *check_target_bounds(self.target_bounds))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return D2, the share of the deviance that is explained, as scikit-learn's model of this name does.

        Not R2, which the other regressors return. No guarantee covers it for private rows.
        """
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=self._power))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _more_tags(self) -> dict[str, bool]:
        return super()._more_tags() | {"requires_positive_y": True}


@with_common_parameters
class PrivatePoissonRegressor(_LogLinkRegressor):
    """Poisson regression under differential privacy, for counts and other targets of 0 or more.

    A generalised linear model: the logarithm of the mean is linear. Residuals are clipped as by
    `PrivateRidge`. The mean of the targets is released first, for 2 % of the budget. Training
    starts from it.

    {parameters}

    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from privypurse.estimators import PrivatePoissonRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 3))
    >>> y = rng.poisson(np.exp(1 + X[:, 0] - 0.5 * X[:, 2]))
    >>> model = PrivatePoissonRegressor(epsilon=1.0, target_bounds=(0, 100), random_state=0).fit(X, y)
    >>> bool(abs(model.coef_[0] - 1) < 0.1)
    True
    """

    _power: ClassVar[int] = 1

    def _loss(self, reach: float, spread: float | None) -> LinearLoss:
        return Poisson(clip_derivative=RESIDUAL * reach)


@with_common_parameters
class PrivateGammaRegressor(_LogLinkRegressor):
    """Gamma regression under differential privacy, for skewed targets above 0.

    A generalised linear model: the logarithm of the mean is linear, and errors count in proportion
    to the mean. Errors are clipped at 0.4 times the reach of targets, relative to their mean.

    {parameters}

    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from privypurse.estimators import PrivateGammaRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 3))
    >>> y = np.exp(1 + X[:, 0] - 0.5 * X[:, 2]) * rng.gamma(2, 0.5, 20_000)
    >>> model = PrivateGammaRegressor(epsilon=1.0, target_bounds=(0.01, 100), random_state=0).fit(X, y)
    >>> bool(abs(model.coef_[0] - 1) < 0.1)
    True
    """

    _power: ClassVar[int] = 2

    def _check_settings(self) -> Method:
        if 0 < (low := check_target_bounds(self.target_bounds)[0]) < LEAST_TARGET:
            raise InvalidArgument(
                f"target_bounds must start at {LEAST_TARGET:g} or above; got {low:g}. Use other units."
            )
        return super()._check_settings()

    def _loss(self, reach: float, spread: float | None) -> LinearLoss:
        return Gamma(clip_derivative=RESIDUAL * reach)
