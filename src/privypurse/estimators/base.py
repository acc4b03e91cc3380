"""What all private linear models share: from a table and a budget to coefficients."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from privypurse.accounting.fixed_schedule import FixedSchedule
from privypurse.core.checks import FloatArray, non_negative, positive, shown
from privypurse.core.errors import InvalidArgument, LedgerCorrupt
from privypurse.core.neighbouring import Neighbouring
from privypurse.estimators.preparation import Preparation, Preparer
from privypurse.losses.linear import Logistic
from privypurse.methods.auto import Auto
from privypurse.methods.by_name import method_by_name
from privypurse.methods.warm import WarmStarted
from privypurse.oracles.rows import Rows
from privypurse.oracles.targets import Targets
from privypurse.planning.facts import Facts
from privypurse.planning.plan import Method
from privypurse.preprocessing._compat import validate
from privypurse.purse.opening import LeavesItsPurse, check_delta, open_budget
from privypurse.purse.purse import Purse
from privypurse.training.fit import BoundedOracle, facts_for, fit
from privypurse.training.loop import check_callbacks, check_part
from privypurse.training.progress import Callback, ProgressBar

# Named on every certificate: an error would have told.
CHECKED = (
    "that the table passed the checks before payment: finite numbers, none missing, proper labels, more than one row"
)
# From the prepared rows and what is public about them to an oracle.
MakeOracle = Callable[[Any, Preparation], BoundedOracle]


class PrivateLinearModel(LeavesItsPurse, BaseEstimator):  # type: ignore[misc]
    """A linear model trained under differential privacy. Not used by itself.

    Parameters
    ----------
    epsilon : float or None, default 1.0
        The budget of one fit. With a purse, the most this fit may take from it; None for all that is left there.
    delta : float or None
        1e-6 by default, or the purse's. Should be far below one over the number of records; above 1e-4 it is refused unless
        `n_public` is small enough.
    method : str or Method, default "auto"
        How to train; "auto" needs no choices. A name of ``methods.by_name.BY_NAME``, or an object of ``privypurse.methods`` or
        ``privypurse.baselines``.
    neighbouring : {"add-remove", "replace-one"} or None
        What the budget protects: the presence of a record (the default), or its contents. With a purse, the purse's.
    fit_intercept : bool, default True
        Whether to learn an intercept.
    l2 : float, default 0.0
        Ridge penalty on the mean loss, on the weights of the prepared columns, the intercept's included.
    feature_norm : float or None
        Public length that rows are scaled down to, before they are standardised if they are. None: a share of 1 % of the budget
        (up to 10 % of a small one) is paid for a good one.
    n_public : int or None
        Public number of records. None: a share of 3 % of the budget is paid for a noisy count, of each class if there are any.
    standardize : bool, default True
        Pay a share of 12 to 18 % of the budget for size, centre and spread of the columns, and train on columns of like size. It
        is worth it unless columns are all alike; skipped where the budget is too small to tell one column from another.
    purse : Purse or None
        A budget shared with other fits, on a durable ledger if it has a file. Copies of the estimator pay from the same one.
    warm_start : bool, default False
        Go on from the coefficients of the last fit, and pay again, from the same purse, which must be given. `certificate_` and
        `privacy_spent_` are then those of the purse: the model depends on all that it paid for.
    copy_X : bool, default True
        False: `fit` may overwrite a float32 array, which saves a copy of a large table.
    random_state : None, int, Generator or RandomState
        For simulations: a seed makes noise repeatable, so that nothing is private, and the certificate says so.
    noise : {"auto", "secure", "plain"}, default "auto"
        "secure": noise and sums of gradients in exact arithmetic, so that not even the last digits tell more than was paid for;
        what has no exact way is refused. "plain": in floating point. "auto": exact but for what would take a fifth longer. With
        a purse, the purse's.
    callbacks : sequence of Callback
        Told of public things only, step by step.
    verbose : bool, default False
        Show a progress bar.
    """

    # How much longer than most rows the limit on rows is.
    _room: float = 1.0

    preparation_: Preparation
    coef_: Any
    intercept_: Any

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
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
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.neighbouring = neighbouring
        self.fit_intercept = fit_intercept
        self.l2 = l2
        self.feature_norm = feature_norm
        self.n_public = n_public
        self.standardize = standardize
        self.purse = purse
        self.warm_start = warm_start
        self.copy_X = copy_X
        self.random_state = random_state
        self.noise = noise
        self.callbacks = callbacks
        self.verbose = verbose

    def _check_settings(self) -> "Method":
        """Refuse wrong settings before data is looked at; return the method."""
        positive_or_none = {"feature_norm": self.feature_norm, "n_public": self.n_public}
        for name, value in positive_or_none.items():
            if value is not None:
                positive(**{name: value})
        non_negative(l2=self.l2)
        check_callbacks(self.callbacks)
        for name in ("fit_intercept", "standardize", "warm_start", "copy_X"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise InvalidArgument(f"{name} must be True or False; got {shown(getattr(self, name))}.")
        if self.warm_start and not isinstance(self.purse, Purse):
            raise InvalidArgument(
                "warm_start=True pays again for the same records, and without a purse nobody adds it up. Pass a purse."
            )
        if isinstance(self.method, str):
            return method_by_name(self.method)
        check_part("method", self.method, ("recipe", "plan", "filter"), "Pass 'auto', or an object such as Nesterov().")
        return self.method

    def _validated(self, X: Any, y: Any, *, y_numeric: bool) -> tuple[Any, Any]:
        """Check a table and its targets as scikit-learn does, without showing a value of either."""
        settings = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "ensure_min_samples": 2}
        X, y = validate(self, X, True, y, y_numeric=y_numeric, **settings)
        return X, y

    def _check_schedule(self, method: Method, purse: Purse) -> bool:
        """Whether a method needs a purse of its own, with a list of releases fixed in advance; that leaves no room to prepare."""
        given = isinstance(purse.filter, FixedSchedule)
        facts = Facts(records=1e4, dimension=10, rule=purse.filter, bounds=Logistic().bounds(1.0))
        needs_one = not given and method.filter(facts) is not purse.filter
        if not given and not needs_one:
            method.recipe(replace(facts, l2=self.l2))  # so that a method that cannot do without something says so now
        declared = self.n_public is not None and self.feature_norm is not None and not self.standardize
        if (given or needs_one) and not declared:
            raise InvalidArgument(
                f"{method.name} is priced as a schedule fixed in advance, next to which nothing else can be paid. Pass "
                "n_public=..., feature_norm=... and standardize=False. Nothing was spent."
            )
        if needs_one and self.purse is not None:
            raise InvalidArgument(
                f"{method.name} needs a purse with its own schedule; got {self.purse!r}. Leave the purse out, or make it with "
                "training.open_purse. Nothing was spent."
            )
        return needs_one

    def _earlier_model(self, outputs: int | None) -> FloatArray | None:
        """Return the weights of the last fit where this one is to go on from it; None to begin afresh.

        Guarantees
        ----------
        A model is gone on with only if it was paid from the purse that pays now, whose certificate covers both.
        """
        if not (self.warm_start and hasattr(self, "preparation_")):
            return None
        dataset, head = getattr(self, "_paid_by", None) or ("", None)
        try:
            same = head is not None and self.purse is not None and dataset == self.purse.dataset
            if same and self.purse is not None:
                self.purse.ledger.verify(head)
        except LedgerCorrupt:
            same = False
        if not same:
            raise InvalidArgument(
                "warm_start=True goes on from a model that was paid from the same purse; the last fit was not. Fit a clone of "
                "the estimator. Nothing was spent."
            )
        coefficients = self.coef_.T if outputs else self.coef_.ravel()
        return self.preparation_.from_columns(coefficients, np.reshape(self.intercept_, coefficients.shape[1:]))

    def _train(
        self,
        rows: Rows,
        make_oracle: MakeOracle,
        outputs: int | None,
        uncovered: Sequence[str],
        target: Targets | None = None,
    ) -> None:
        """Pay, prepare, train, and keep what is public.

        Parameters
        ----------
        rows : Rows
            The checked rows, and classes if there are any.
        make_oracle : callable
            Puts the prepared rows together with the targets, which must be checked already: it may not fail.
        outputs : int or None
            How many columns of weights there are; None for one.
        uncovered : sequence of str
            What was read from the data without paying.
        target : Targets, optional
            For regression.
        """
        method = self._check_settings()
        begin = self._earlier_model(outputs)
        goes_on = begin is not None
        purse = open_budget(
            epsilon=self.epsilon,
            delta=self.delta,
            neighbouring=self.neighbouring,
            purse=self.purse,
            random_state=self.random_state,
            noise=self.noise,
        )
        check_delta(purse.delta, self.n_public)
        needs_own_schedule = self._check_schedule(method, purse)
        for what in (*uncovered, CHECKED):
            purse.declare_uncovered(what)
        if goes_on:
            preparation = self.preparation_
            preparation.apply(rows)
        else:
            preparer = Preparer(rows, purse, intercept=bool(self.fit_intercept))
            preparation = preparer.run(
                records=None if self.n_public is None else float(self.n_public),
                feature_norm=None if self.feature_norm is None else float(self.feature_norm),
                standardize=bool(self.standardize),
                room=self._room,
                target=target,
            )
            if purse.delta * preparation.records >= 1:
                warnings.warn(
                    f"delta={purse.delta:g} is above one over the number of records, which is about {preparation.records:.3g}: "
                    "publishing a whole record could count as private. Use a smaller delta.",
                    UserWarning,
                    stacklevel=4,
                )
            begin = preparation.start(outputs, rows.columns) if isinstance(method, Auto) else None
        if isinstance(method, Auto):
            method = Auto(slack=preparation.slack)
        if begin is not None:
            method = WarmStarted(method, np.ravel(begin).astype(np.float64))
        oracle = make_oracle(rows.table, preparation)
        if needs_own_schedule:
            facts = facts_for(oracle, purse, records=preparation.records, l2=self.l2)
            purse = Purse.with_filter(method.filter(facts), noise=purse.noise)
            for what in (*uncovered, CHECKED):
                purse.declare_uncovered(what)
        bar = [ProgressBar(purse, show=True)] if self.verbose else []
        result = fit(oracle, method, purse, records=preparation.records, l2=self.l2, callbacks=[*self.callbacks, *bar])
        weights = result.point.reshape(-1, outputs) if outputs else result.point
        coefficients, intercept = preparation.to_columns(weights)
        # A model that went on from another one depends on all that the purse paid for.
        payer = self.purse if goes_on and self.purse is not None else purse
        # The ledger is read before anything changes, so that a model never stands beside another one's statement.
        spent, certificate = payer.spent, payer.certificate()
        paid_by = None if self.purse is None else (self.purse.dataset, self.purse.ledger.head())
        self._paid_by = None
        self.coef_ = coefficients.T if outputs else coefficients
        self.intercept_ = intercept
        self.preparation_ = preparation
        self.trace_ = result.trace
        self.n_iter_ = len(result.trace.steps)
        self.stop_reason_ = result.trace.stop_reason
        self.privacy_spent_, self.certificate_, self._paid_by = spent, certificate, paid_by

    def _scores(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        table = validate(self, X, False, accept_sparse="csr", dtype=[np.float64, np.float32])
        return self.preparation_.limited(table, self.coef_.T, np.asarray(self.intercept_))


def set_tags(tags: Any) -> Any:
    """Fill in the tags all private linear models share."""
    tags.input_tags.sparse = True
    for kind in (tags.classifier_tags, tags.regressor_tags):
        if kind is not None:
            # A dozen records hide each other, as they should: no score can be promised on toy data.
            kind.poor_score = True
    return tags
