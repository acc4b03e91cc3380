"""Private classifiers: logistic regression, binary and multinomial, and a support vector machine."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from privypurse.core.checks import FloatArray, shown
from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.estimators.base import PrivateLinearModel, set_tags
from privypurse.estimators.documentation import with_common_parameters
from privypurse.estimators.preparation import Preparation
from privypurse.losses.linear import HuberHinge, LinearLoss, Logistic
from privypurse.losses.softmax import OneVsRest, Softmax
from privypurse.oracles.linear_rows import DenseOracle, SparseOracle
from privypurse.oracles.rows import Rows
from privypurse.oracles.softmax import SoftmaxOracle
from privypurse.planning.plan import Method
from privypurse.purse.purse import Purse
from privypurse.training.fit import BoundedOracle
from privypurse.training.progress import Callback

LABELS_READ = "the set of class labels, which was read from y: declare it with classes=[...]"


class PrivateLinearClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """What the classifiers share. Not used by itself."""

    classes_: NDArray[Any]

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        delta: float | None = None,
        method: "str | Method" = "auto",
        neighbouring: "Neighbouring | str | None" = None,
        classes: Sequence[Any] | None = None,
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
        self.classes = classes

    def __sklearn_tags__(self) -> Any:
        return set_tags(super().__sklearn_tags__())

    def _more_tags(self) -> dict[str, bool]:  # scikit-learn 1.5 and older
        return {"poor_score": True}

    def _two_class_loss(self, slack: float) -> LinearLoss:
        raise NotImplementedError

    def _many_class_loss(self, classes: int, slack: float) -> Softmax:
        raise NotImplementedError

    def fit(self, X: Any, y: Any) -> Any:
        """Train on private rows, and pay for it.

        Parameters
        ----------
        X : array_like, data frame or sparse matrix of shape (n, d)
            The records. Not kept.
        y : array_like of shape (n,)
            Their labels. Not kept.

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
        classes = self._declared(y)
        target = _encode(y, classes)
        if self.warm_start and hasattr(self, "classes_") and not np.array_equal(classes, self.classes_):
            raise InvalidArgument(
                "classes must be those of the first fit to go on with warm_start=True. Pass classes=[...]."
            )
        many = classes.size > 2
        labels = range(classes.size)

        def make_oracle(table: Any, preparation: Preparation) -> BoundedOracle:
            limits: dict[str, Any] = {"row_limit": preparation.row_limit, "constant": preparation.constant or False}
            if many:
                return SoftmaxOracle(
                    table, target, loss=self._many_class_loss(classes.size, preparation.slack), classes=labels, **limits
                )
            kind = SparseOracle if sparse.issparse(table) else DenseOracle
            return kind(table, target, loss=self._two_class_loss(preparation.slack), classes=labels, **limits)

        uncovered = [] if self.classes is not None else [LABELS_READ]
        self._train(
            Rows(X, target, classes.size, overwrite=not self.copy_X),
            make_oracle,
            classes.size if many else None,
            uncovered,
        )
        self.classes_ = classes
        if not many:
            self.coef_, self.intercept_ = self.coef_.reshape(1, -1), self.intercept_.reshape(1)
        return self

    def check_input(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Refuse whatever `fit` would refuse about settings, rows and labels, and spend nothing.

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
        X, y = self._validated(X, y, y_numeric=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning that depends on one record would tell of it
            check_classification_targets(y)
        _encode(y, self._declared(y))
        return X, y

    def decision_function(self, X: Any) -> FloatArray:
        """Return the score of each row: above zero for the second of two classes, or one column for each of several."""
        scores = self._scores(X)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row. What is predicted from private rows is not covered by the model's guarantee."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])

    def _declared(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the classes: the declared ones, or those in y."""
        if self.classes is None:
            found = np.unique(y)
            if found.size < 2:
                raise InvalidArgument(
                    f"{type(self).__name__} needs two or more classes, and y has only one class. Check y, or declare what could "
                    "be there: classes=[0, 1]. Nothing was spent."
                )
            return found
        declared = np.asarray(self.classes)
        if isinstance(self.classes, str) or declared.ndim != 1 or np.unique(declared).size < max(2, declared.size):
            raise InvalidArgument(
                f"classes must be two or more different labels; got {shown(self.classes)}. Pass for example classes=[0, 1]."
            )
        return np.unique(declared)


def _encode(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the place of each label among the sorted classes."""
    # Labels of another kind than the classes would be compared as text.
    if (y.dtype.kind in "OUS") != (classes.dtype.kind in "OUS"):
        known = np.zeros(1, dtype=bool)
        place = np.zeros(1, dtype=np.intp)
    else:
        place = np.minimum(np.searchsorted(classes, y), classes.size - 1)
        known = classes[place] == y
    if not np.all(known):
        raise InvalidArgument(
            f"y must hold only the declared classes {shown(classes.tolist())}, and of their type; it has others. "
            "Pass classes=... as they are in y. Nothing was spent."
        )
    return np.asarray(place)


@with_common_parameters
class PrivateLogisticRegression(PrivateLinearClassifier):
    """Logistic regression under differential privacy, with nothing to tune.

    Two classes or many; many share one budget (a multinomial model, not one model for each class).

    Parameters
    ----------
    {common}
    classes : sequence, optional
        The labels there can be, public. By default they are read from y, which the certificate names as not covered.

    Attributes
    ----------
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

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class, one column for each, in the order of `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(special.softmax(scores, axis=1))
        return np.column_stack([special.expit(-scores), special.expit(scores)])

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of the probability of each class."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(special.log_softmax(scores, axis=1))
        return np.column_stack([special.log_expit(-scores), special.log_expit(scores)])

    def _two_class_loss(self, slack: float) -> LinearLoss:
        # A half is the length of the derivative at the start: no record is clipped there, and half the noise is saved.
        return Logistic(clip_derivative=min(0.5 * slack, 1.0))

    def _many_class_loss(self, classes: int, slack: float) -> Softmax:
        return Softmax(classes, clip_derivative=min(math.sqrt(1 - 1 / classes) * slack, math.sqrt(2)))


@with_common_parameters
class PrivateLinearSVC(PrivateLinearClassifier):
    """A linear support vector machine under differential privacy, with nothing to tune.

    The hinge loss is rounded at its kink (Huber hinge), so that steps have a size. Several classes are told from each other one
    against the rest, at one price for all.

    Parameters
    ----------
    {common}
    classes : sequence, optional
        The labels there can be, public. By default they are read from y, which the certificate names as not covered.

    Attributes
    ----------
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

    def _two_class_loss(self, slack: float) -> LinearLoss:
        return HuberHinge(width=0.5)

    def _many_class_loss(self, classes: int, slack: float) -> Softmax:
        return OneVsRest(classes)
