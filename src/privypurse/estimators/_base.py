"""Base class of all private linear models."""

import contextlib
import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core._checks import FloatArray, non_negative, positive, shown
from privypurse.core._errors import InvalidArgument, LedgerCorrupt, PrivypurseError
from privypurse.core._formats import counted
from privypurse.core._neighbouring import Neighbouring
from privypurse.estimators._compat import FLOATS, all_or_nothing, same_attributes, validate
from privypurse.estimators._curves import Groups, positions, smoothed, unfolded
from privypurse.estimators._fit_budget import LeavesItsPurse, open_budget, part_for_training, uncharged_around_fits
from privypurse.estimators._noise_intervals import half_widths, looks_one_hot
from privypurse.estimators._preparation import TURN_AT, Preparation, Preparer
from privypurse.losses._linear import Logistic, Softmax
from privypurse.methods._auto import Auto
from privypurse.methods._by_name import method_by_name
from privypurse.methods.base import WarmStarted
from privypurse.oracles._linear import DenseOracle, SparseOracle
from privypurse.oracles._rows import Rows
from privypurse.oracles._scores import Targets
from privypurse.oracles._softmax import SoftmaxOracle
from privypurse.purse._holds import held
from privypurse.purse._opening import check_delta
from privypurse.purse._purse import Purse
from privypurse.training._loop import BoundedOracle, check_callbacks, check_part, facts_for, fit
from privypurse.training._plan import Facts, Method
from privypurse.training._progress import Callback, ProgressBar

if TYPE_CHECKING:
    import pandas

Model = TypeVar("Model", bound=type)

_ATTRIBUTES = """\
Attributes
----------
coef_, intercept_ : ndarray
    The model, in the units of the columns of X; `coefficients` names them. ``X @ coef_.T +
    intercept_`` equals `decision_function`, or `predict` of a regression within `target_bounds` (its
    logarithm, with a log link), except for rows that are longer, after preparation, than the limit of
    training: these are scaled down to it in prediction as in training.
n_iter_ : int
    Number of releases of the training itself.
privacy_spent_ : Spent
    ``epsilon``, ``delta`` and number of releases of this fit alone. Fits without a shared purse
    each count by themselves: two of epsilon 1 on the same records spend it twice.
certificate_ : Certificate
    The guarantee of this fit, its releases, and what is not covered. A purse has its own.
trace_ : Trace
    The public record of the training, step by step.
stop_reason_ : str
    Why the training ended: "steps", "budget", or "others" if other fits spent from the same purse.
preparation_ : Preparation
    The public numbers that rows were prepared with."""


def with_common_parameters(model: Model, base: "type | None" = None, attributes: str = _ATTRIBUTES) -> Model:
    """Fill in ``**common`` of the signature, which scikit-learn reads, and of the docstring.

    There ``{parameters}`` is the section of the base classes, by default those of linear models, and
    ``{attributes}`` that of all models.
    """
    init: Any = model.__init__  # type: ignore[misc]
    own, common = inspect.signature(init), inspect.signature((base or PrivateLinearModel).__init__)  # type: ignore[misc]
    named = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
    rest = [one for name, one in common.parameters.items() if name not in own.parameters]
    init.__signature__ = own.replace(parameters=[*named, *rest])
    if model.__doc__:  # absent under python -OO
        listed = "\n".join(map(_parameters, [base] if base else [PrivateLinearModel, model.__mro__[1]]))
        sections = {"parameters": f"Parameters\n----------\n{listed}", "attributes": attributes}
        model.__doc__ = inspect.cleandoc(model.__doc__).format(**sections)
    return model


def _parameters(model: type) -> str:
    return inspect.cleandoc(model.__doc__ or "").split("----------\n")[1]


# Named on every certificate: a refusal depends on the data.
CHECKED = (
    "that the table passed the checks before payment: numbers that a double can hold (finite and none missing, except "
    "in additive models), proper labels, more than one row"
)
CUT_SHORT = "the training was CUT SHORT"


class PrivateLinearModel(LeavesItsPurse, BaseEstimator):  # type: ignore[misc]
    """Base class of linear models trained under differential privacy.

    Parameters
    ----------
    epsilon : float or None, default 1.0
        Budget of one fit. With a purse, the most that this fit may spend from it; None for all that
        is left.
    delta : float or None
        Default: the purse's, or 1e-6. Should be far below one over the number of records. A delta
        above 1e-4 is refused unless `n_public` is small enough.
    method : str or Method, default "auto"
        Optimization method: a name such as "dp-agd" (``docs/methods.md``), or an object of
        ``privypurse.methods``. "auto" needs no settings.
    neighbouring : {"add-remove", "replace-one"} or None
        Protect the presence of a record (the default) or its contents. With a purse, the purse's.
    fit_intercept : bool, default True
        Whether to learn an intercept.
    l2 : float, default 0.0
        Ridge penalty on the mean loss, on the weights of the prepared columns and of the intercept.
    feature_norm : float or None
        Public norm that rows are clipped to before standardization: one scale for all columns.
        None: select one with a share of 1 % of the budget, or up to 10 % of a small budget.
    n_public : int or None
        Public number of records. None: spend a share of 3 % of the budget on a noisy count, by
        class if there are classes.
    standardize : bool, default True
        Spend a share of 12 to 18 % of the budget on size, centre and spread of the columns, and
        train on standardized columns. Skipped if the budget is too small to distinguish columns.
    purse : Purse or None
        Purse to charge, shared with other fits and with copies of the estimator.
    warm_start : bool, default False
        Continue from the coefficients of the last fit, and spend again from the same purse, which
        must be given. `certificate_` and `privacy_spent_` are then those of the purse.
    copy_X : bool, default True
        False: `fit` may overwrite a float32 array, which saves a copy of a large table.
    random_state : None, int, Generator or RandomState
        Seed for simulations, which are not private; the certificate says so.
    noise : {"auto", "secure", "plain"}, default "auto"
        "secure": noise and sums of gradients in exact arithmetic, so that their last digits leak
        nothing; what has no exact form is refused. "plain": in floating point. "auto": exact except
        where that takes a fifth longer. With a purse, the purse's.
    callbacks : sequence of Callback
        Called at each step with public values only.
    verbose : bool, default False
        Show a progress bar.
    """

    # Factor from a typical row length to the clipping norm of rows.
    _room: float = 1.0
    _turn_at: float = TURN_AT  # n mu for each d^1.5, from which on a regression decorrelates columns
    _declared_scales: bool = False  # whether every number is from 0 to 1, as after a `TableEncoder`
    _takes_any_rows: bool = False  # see `validate`
    _parts: Groups = ()  # of encoded rows, whose curves are smoothed after training
    _share_after: float = 0.0  # share of what training may spend, held back for `_buy_after`
    _stands_for: float = 1.0  # records for each row, in a rehearsal
    _begin: tuple[FloatArray, FloatArray] | None = None  # coefficients and intercept to start from

    preparation_: Preparation
    coef_: Any
    intercept_: Any
    classes_: NDArray[Any]
    n_features_in_: int
    _class_shift: Any = 0.0  # part of the intercept that weights of classes added after training
    # Of a model with a report: names and parts of its columns, and half-widths of the intervals in it.
    _reported: tuple[Sequence[str], Groups, tuple[FloatArray, FloatArray] | None] | None = None

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        delta: float | None = None,
        method: str | Method = "auto",
        neighbouring: Neighbouring | str | None = None,
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

    def _check_settings(self) -> Method:
        """Return the method. Raise InvalidArgument for wrong settings."""
        for name in ("feature_norm", "n_public"):
            if getattr(self, name) is not None:
                positive(**{name: getattr(self, name)})
        non_negative(l2=self.l2)
        check_callbacks(self.callbacks)
        for name in ("fit_intercept", "standardize", "warm_start", "copy_X"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise InvalidArgument(f"{name} must be True or False; got {shown(getattr(self, name))}.")
        if self.warm_start and not isinstance(self.purse, Purse):
            raise InvalidArgument("warm_start=True spends again, which only a purse can add up. Pass a purse.")
        if isinstance(self.method, str):
            return method_by_name(self.method)
        check_part("method", self.method, ("recipe", "plan", "filter"), "Pass 'auto', or an object such as Nesterov().")
        return self.method

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> Any:
        """Train on private rows.

        Parameters
        ----------
        X : array_like, data frame or sparse matrix of shape (n, d)
            The records. Not kept.
        y : array_like of shape (n,)
            Their labels, or their targets, which are clipped to `target_bounds`. Not kept.

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
        self._fit(*self._check_input(X, y))

    def check_input(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Check settings, rows and targets as `fit` does, and return both. Nothing is spent or changed."""
        return same_attributes(self)._check_input(X, y)

    def _check_input(self, X: Any, y: Any) -> tuple[Any, Any]:
        self._check_settings()
        settings = {"accept_sparse": "csr", "dtype": FLOATS, "ensure_min_samples": 2}
        X, y = validate(self, X, True, y, y_numeric=isinstance(self, RegressorMixin), **settings)
        return X, self._check_targets(y)

    def _check_targets(self, y: Any) -> Any:
        raise NotImplementedError

    def _fit(self, X: Any, y: Any) -> None:
        """Train on checked rows and targets."""
        raise NotImplementedError

    def _check_schedule(self, method: Method, purse: Purse) -> bool:
        """Whether a method needs its own purse with a fixed schedule, without preparation."""
        given = isinstance(purse.filter, FixedSchedule)
        facts = Facts(records=1e4, dimension=10, rule=purse.filter, bounds=Logistic().bounds(1.0))
        needs_one = not given and method.filter(facts) is not purse.filter
        if not given and not needs_one:
            method.recipe(replace(facts, l2=self.l2))  # raise now if the method lacks a setting
        declared = self.n_public is not None and self.feature_norm is not None and not self.standardize
        if (given or needs_one) and not (declared and not self._share_after):
            what = f"{method.name} has a fixed schedule, which allows no other release"
            remedy = "n_public=..., feature_norm=... and standardize=False, and no target_transform"
            raise InvalidArgument(f"{what}. Pass {remedy}.")
        if needs_one and self.purse is not None:
            why = f"{method.name} needs a purse with its own schedule; got {self.purse!r}"
            raise InvalidArgument(f"{why}. Omit it, or use training.purse_for.")
        return needs_one

    def _auto(self, preparation: Preparation) -> Auto:
        """Return the default method with what the preparation knows about the loss."""
        return Auto(slack=preparation.slack, curvature=preparation.curvature)

    def _oracle(self, table: Any, target: Any, loss: Any, preparation: Preparation, **settings: Any) -> BoundedOracle:
        """Join prepared rows with their targets."""
        in_memory = SparseOracle if sparse.issparse(table) else DenseOracle
        kind: Any = SoftmaxOracle if isinstance(loss, Softmax) else in_memory
        settings |= {"row_limit": preparation.row_limit, "constant": preparation.constant or False}
        return cast(BoundedOracle, kind(table, target, loss=loss, may_be_empty=self._takes_any_rows, **settings))

    def _buy_after(self, buyer: Preparer, scores: FloatArray, target: Targets, records: float) -> None:
        """Release what needs the trained model, for all that is left; `scores` are those of the records."""

    def _earlier_model(self, outputs: int | None) -> FloatArray | None:
        """Return the weights of the last fit for a warm start, if the same purse paid; else None."""
        if not (self.warm_start and hasattr(self, "preparation_")):
            return None
        purse, (dataset, head) = cast(Purse, self.purse), getattr(self, "_paid_by", None) or ("", None)
        same = head is not None and dataset == purse.dataset
        try:
            if same:
                purse.ledger.verify(head)
        except LedgerCorrupt:
            same = False
        if not same:
            raise InvalidArgument("warm_start=True needs a model paid from the same purse; got another. Fit a clone.")
        coefficients = self.coef_.T if outputs else self.coef_.ravel()
        intercept = np.reshape(self.intercept_ - self._class_shift, coefficients.shape[1:])
        return self.preparation_.from_columns(coefficients, intercept)

    def _train(
        self,
        X: Any,
        make_oracle: Callable[[Any, Preparation], BoundedOracle],
        *,
        labels: NDArray[np.intp] | None = None,
        classes: int = 0,
        target: Targets | None = None,
        uncovered: Sequence[str] = (),
    ) -> None:
        """Open the budget, prepare, train, and set the fitted attributes.

        `make_oracle` joins prepared rows with checked targets: it may not fail. `uncovered` names
        what was read from the data without paying.
        """
        rows = Rows(X, labels, classes, overwrite=not self.copy_X, may_be_empty=self._takes_any_rows)
        outputs = classes if classes > 2 else None  # columns of weights; None for one
        method, begin = self._check_settings(), self._earlier_model(outputs)
        goes_on = begin is not None
        purse = open_budget(self)
        check_delta(purse.delta, self.n_public)
        needs_own_schedule = self._check_schedule(method, purse)
        uncovered = (*uncovered, CHECKED, *uncharged_around_fits(purse))
        with held(purse):
            for what in uncovered:
                purse.declare_uncovered(what)
            if goes_on:
                preparation = self.preparation_
                preparation.apply(rows)
            else:
                preparation = Preparer(rows, purse, intercept=bool(self.fit_intercept)).run(
                    records=None if self.n_public is None else float(self.n_public),
                    feature_norm=None if self.feature_norm is None else float(self.feature_norm),
                    standardize=bool(self.standardize),
                    declared_scales=self._declared_scales,
                    room=self._room,
                    turn_at=self._turn_at,
                    target=target,
                )
                if purse.delta * preparation.records >= 1:
                    above = f"one over the number of records, which is about {preparation.records:.3g}"
                    why = "publishing a whole record could count as private. Use a smaller delta."
                    warnings.warn(f"delta={purse.delta:g} is above {above}: {why}", stacklevel=5)
                begin = preparation.start(outputs, rows.columns) if isinstance(method, Auto) else None
                if self._begin is not None:
                    coefficients = self._begin[0].T if outputs else self._begin[0].ravel()
                    begin = preparation.from_columns(coefficients, np.reshape(self._begin[1], coefficients.shape[1:]))
            has_parts = sum(width for width, _ in self._parts) == rows.columns
            smooths = has_parts and isinstance(method, Auto) and not goes_on
            if isinstance(method, Auto):
                method = self._auto(preparation)
            if begin is not None:
                method = WarmStarted(method, np.ravel(begin).astype(np.float64))
            oracle = make_oracle(rows.table, preparation)
            if needs_own_schedule:
                facts = facts_for(oracle, purse, records=preparation.records, l2=self.l2)
                purse = Purse.with_filter(method.filter(facts), noise=purse.noise)
                for what in uncovered:
                    purse.declare_uncovered(what)
            callbacks = [*self.callbacks, *([ProgressBar(purse, show=True)] if self.verbose else [])]
            part = part_for_training(purse, self._share_after)
            facts = facts_for(oracle, part, records=preparation.records, l2=self.l2)
            result = fit(oracle, method, part, records=preparation.records, l2=self.l2, callbacks=callbacks)
            point = result.point
            weights = point.reshape(-1, outputs) if outputs else point
            coefficients, intercept = preparation.to_columns(weights)
            if smooths:
                optimizer = method.recipe(facts).optimizer
                of_run = weights, self._parts, preparation, optimizer, result.trace
                coefficients = smoothed(*of_run, stands_for=self._stands_for)
                point = preparation.from_columns(coefficients, intercept)
            if target is not None and self._share_after:
                buyer = Preparer(rows, purse, intercept=bool(self.fit_intercept))
                self._buy_after(buyer, preparation.scores(rows.table, point), target, preparation.records)
        if result.trace.stop_reason == "others":
            others = "others spent from the same purse meanwhile, and it does not allow all planned steps"
            warnings.warn(f"{CUT_SHORT} after {counted(len(result.trace.steps), 'step')}: {others}.", stacklevel=5)
        # After a warm start the model depends on all releases of the purse.
        payer = self.purse if goes_on and self.purse is not None else purse
        self.coef_ = coefficients.T if outputs else coefficients.reshape(1, -1) if classes else coefficients
        self.intercept_ = intercept.reshape(-1) if classes else float(intercept)
        self.preparation_, self.trace_, self._reported = preparation, result.trace, None
        self.n_iter_, self.stop_reason_ = len(result.trace.steps), result.trace.stop_reason
        self.privacy_spent_, self.certificate_ = payer.spent, payer.certificate()
        self._paid_by = None if self.purse is None else (self.purse.dataset, self.purse.ledger.head())

    def coefficients(
        self,
        names: Sequence[str] | None = None,
        *,
        one_hot: Sequence[Sequence[str]] | None = None,
        intervals: bool = True,
    ) -> "pandas.DataFrame":
        """Return the intercept and the coefficients, in the units of the columns of X, as a data frame.

        Intervals are about noise alone: if this fit were repeated on the same records with fresh
        noise, the mean of a coefficient would lie in its interval, for roughly 95 of 100 intervals.
        They come from rehearsals of the fit on synthetic rows, drawn from what it released with
        numbers taken as correlated at 0.8; nothing is spent. Those of numbers that are correlated
        more strongly are too narrow.
        Columns that look like zeros and ones by their released centre and spread, and are not
        declared, get none, nor does the intercept beside them; a warning names them.

        Parameters
        ----------
        names : sequence of str, optional
            A name for each column. Default: those of the data frame given to `fit`, or of the
            report of a model from a folder; else x0, x1 and so on.
        one_hot : sequence of sequence of str, optional
            Groups of columns, by name, of which each row has at most one 1 and else zeros, also
            of a single column; an empty list if there are none. Public.
        intervals : bool, default True
            Whether to rehearse the fit, which takes about as long as 12 fits of 10,000 rows. A model
            from a folder has those of its report.

        Returns
        -------
        pandas.DataFrame
            With columns "name", "value", "low" and "high", and "class" first if there are several.
            Ends are NaN where there is no interval: after a search or a warm start, with more than
            4,000 coefficients, or for a method that cannot be rehearsed.
        """
        import pandas

        check_is_fitted(self)
        reported, parts, ends = self._reported or ([f"x{place}" for place in range(self.n_features_in_)], (), None)
        columns = list(getattr(self, "feature_names_in_", reported) if names is None else names)
        if len(columns) != self.n_features_in_:
            what = f"names must have one name for each of the {self.n_features_in_} columns; got {len(columns)}"
            raise InvalidArgument(f"{what}. Check them.")
        if unknown := [name for group in one_hot or () for name in group if name not in columns]:
            raise InvalidArgument(f"one_hot must name columns of X; got {shown(unknown)}. Pass lists of names.")
        groups = [[columns.index(name) for name in group] for group in one_hot or ()]
        values = joined(unfolded(self.coef_, parts, self.preparation_), self.intercept_)
        ends = ends if intervals else None
        if intervals and ends is None:
            with contextlib.suppress(PrivypurseError):  # a method that needs a purse of its own
                ends = half_widths(self, parts, one_hot=groups)
        half = np.full_like(values, np.nan) if ends is None else joined(*ends)
        declared_none = one_hot is not None and not groups
        if ends is not None and not (parts or declared_none) and (like := looks_one_hot(self, groups)).any():
            half[:, [True, *like]] = np.nan
            which = shown([name for name, one in zip(columns, like, strict=True) if one])
            none = f"no interval for the intercept and for columns that look like zeros and ones: {which}"
            remedy = "Declare them with one_hot=[[...], ...], a list of names for each category; or one_hot=[] if there are none"
            warnings.warn(f"{none}. {remedy}.", stacklevel=2)
        kept = np.append(True, ~positions(parts, self.n_features_in_))
        values, half = values[:, kept], half[:, kept]
        found: dict[str, Any] = {"name": np.array(["intercept", *columns])[kept].tolist() * len(values)}
        if len(values) > 1:
            found = {"class": np.repeat(self.classes_, values.shape[1])} | found
        found |= {"value": values.ravel(), "low": (values - half).ravel(), "high": (values + half).ravel()}
        return pandas.DataFrame(found)

    def _scores(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        table = validate(self, X, False, accept_sparse="csr", dtype=FLOATS)
        return self.preparation_.limited(table, self.coef_.T, np.asarray(self.intercept_))


def joined(coefficients: Any, intercept: Any) -> FloatArray:
    """Return a row for each output: the intercept, then the coefficients."""
    return np.column_stack([np.atleast_1d(intercept), np.atleast_2d(coefficients)])


class NoisyTags:
    """Tags that all private linear models share, for scikit-learn before and after 1.6."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        for kind in (tags.classifier_tags, tags.regressor_tags):
            if kind is not None:
                kind.poor_score = True  # noise hides small data, so no score can be promised there
        return tags

    def _more_tags(self) -> dict[str, bool]:
        return {"poor_score": True}
