"""[RAW DATA] Private hyper-parameter search: the best of a random number of private trials."""

import functools
from typing import Any, cast

from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from privypurse.accounting import _rdp as rdp
from privypurse.accounting import _repeat_and_select as repeat_and_select
from privypurse.accounting._filters import GdpFilter, RdpFilter
from privypurse.accounting._totals import Totals, float_up
from privypurse.core._checks import positive, probability, shown, small_probability
from privypurse.core._errors import BudgetExhausted, InvalidArgument
from privypurse.core._formats import counted
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import SensitiveTrials
from privypurse.estimators import _search_trial as trials
from privypurse.estimators._compat import all_or_nothing
from privypurse.estimators._fit_budget import (
    LeavesItsPurse,
    check_terms,
    purse_of_one_fit,
    uncharged_around_fits,
    warn_of_many_fits,
)
from privypurse.mechanisms._repeat_and_select import RepeatAndSelect
from privypurse.purse._allowance import Allowance
from privypurse.purse._certificate import Certificate
from privypurse.purse._opening import DELTA, check_delta
from privypurse.purse._purse import Purse, Spent

RUNNING_TIME = (
    "how long the search took, and what it left in the memory of its process, which tell how many trials there were"
)


def _of_best(method: str) -> Any:
    """Return a method that calls that of the best model; it exists if the estimator has it."""

    def call(self: Any, X: Any) -> Any:
        check_is_fitted(self, "best_estimator_")
        return getattr(self.best_estimator_, method)(X)

    call.__name__, call.__doc__ = method, f"Call `{method}` of the best model."
    return available_if(lambda self: hasattr(getattr(self, "best_estimator_", self.estimator), method))(call)


class PrivateSearchCV(LeavesItsPurse, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Private hyper-parameter search: the best of a random number of trials, charged as a whole.

    Each record is assigned to the training part or the validation part at random. A trial draws one
    of the candidates, trains it on the training part with its own budget, and scores it on the
    validation part with noise: by accuracy if it is a classifier, else by minus the mean absolute
    error. Only the best of a random number of trials is released: its parameters, model and noisy
    score. Nothing else about the trials is kept, not even their number.

    Parameters
    ----------
    estimator : estimator or Pipeline
        The estimator. It, or the last step of the pipeline, takes a ``purse``; the search sets it,
        with ``epsilon``, ``delta``, ``neighbouring`` and ``random_state``, in each trial. Its
        releases must be ones that a Gaussian-DP purse admits: no Poisson samples. Steps before it,
        and those inside a ``ColumnTransformer`` or ``FeatureUnion``, may not learn, with a purse or
        without: transform X by those before the search, and pay for them or name them with
        `declare_pipeline`.
    param_grid : dict or list of dict
        The candidates, as for scikit-learn's ``ParameterGrid``. Public: chosen without the data.
    epsilon : float or None, default 1.0
        Budget of the whole search. None: all that is left in `purse`.
    delta : float, optional
        Default: that of `purse`, or 1e-6.
    purse : Purse, optional
        Purse to charge, with ``filter="rdp"``: only Rényi accounting has a price for a search. The
        epsilon that it reports as spent grows by at most `epsilon`. By default the search opens its
        own, at the Rényi order that suits it best: its trials have epsilon 0.58, not 0.51, at
        epsilon 1.
    neighbouring : {"add-remove", "replace-one"}, optional
        Default: that of `purse`, or "add-remove".
    mean_trials : float, default 5.0
        Expected number of trials; some searches have many times as many. More trials cost little:
        at epsilon 1 and delta 1e-6 a trial has epsilon 0.58 for 5 and 0.54 for 10.
    shape : float, default 0.0
        Shape of the number of trials, from 0 (logarithmic) to 1 (geometric). For the same epsilon
        of a trial, 0 tries more of the candidates; with 1 fewer searches have a single trial.
    validation : float, default 0.2
        Probability that a record is in the validation part.
    error_bound : float, optional
        Public bound that absolute errors are clipped at. Required unless it is a classifier.
    n_public : float, optional
        Public number of records. Under add/remove the score is divided by its validation part;
        without it a tenth of each trial's budget for scoring is spent on a noisy count. Passed on,
        less the validation part, to an estimator whose ``n_public`` is None.
    random_state : int, optional
        A seed makes the search a simulation: NOT private. Only without `purse`, which has its own
        noise.

    Attributes
    ----------
    best_params_, best_estimator_, best_score_
        Parameters, model (fitted on the training part) and noisy score of the best trial, which is
        the highest of several, so it is optimistic. ``certificate_`` and ``privacy_spent_`` of the
        model are those of the search. To fit ``best_params_`` on all records is another release.
    privacy_spent_ : Spent
        Cost of the search.
    certificate_ : Certificate
        Certificate of the purse, or of the search's part of a shared purse.
    classes_, n_features_in_, feature_names_in_
        Those of the model, if it has them.

    Guarantees
    ----------
    * One charge for the whole search is on the ledger before anything is trained: Papernot and
      Steinke (ICLR 2022), by the mechanism `RepeatAndSelect`; proof note
      ``docs/proofs/repeat_and_select.md``. A refused search spends nothing.
    * The split is by position, drawn once and independent of the data. A record is in one part: it
      affects a trial's model or a trial's score, not both.
    * A trial pays with its own purse, whose limit is what the price was computed from: it cannot
      release more. Exceptions, warnings and output of trials are suppressed; there is no
      ``cv_results_``, no ``verbose`` and no ``n_jobs``.
    * Relies on the estimator: `fit` uses the data only through its purse, `predict` treats each row
      alone, and neither logs, or fails in `fit`, because of one record.

    Examples
    --------
    >>> from privypurse.estimators import PrivateLogisticRegression, PrivateSearchCV
    >>> search = PrivateSearchCV(PrivateLogisticRegression(), {"l2": [0.0, 0.01]}, epsilon=1.0, mean_trials=5.0)
    >>> [round(value, 6) for value in search.trial_budget()]
    [0.58339, 1e-06]
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        purse: Purse | None = None,
        neighbouring: str | None = None,
        mean_trials: float = 5.0,
        shape: float = 0.0,
        validation: float = 0.2,
        error_bound: float | None = None,
        n_public: float | None = None,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.purse = purse
        self.neighbouring = neighbouring
        self.mean_trials = mean_trials
        self.shape = shape
        self.validation = validation
        self.error_bound = error_bound
        self.n_public = n_public
        self.random_state = random_state

    def trial_budget(self) -> tuple[float, float]:
        """Return the public (epsilon, delta) of one trial. Spends nothing."""
        _, _, limit = self._price()
        return limit.epsilon, limit.delta

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> "PrivateSearchCV":
        """Charge the purse, run the trials, and keep the best.

        Parameters
        ----------
        X : table of shape (n, d)
            The records: an array, a sparse matrix or a data frame.
        y : array_like of shape (n,)
            The targets.
        """
        mechanism, rule, limit = self._price()
        validation = probability(validation=self.validation)
        if validation == 1:
            raise InvalidArgument("validation must be below 1; got 1. Some records must be left to train on: pass 0.2.")
        check_delta(rule.delta, self.n_public)
        candidates = self._candidates()
        checked = trials.check_search(self.estimator, candidates, X, y, validation)
        measure = trials.Measure(None if is_classifier(self.estimator) else positive(error_bound=self.error_bound))
        if self.purse is None:
            seed = self.random_state
            warn_of_many_fits(rule.epsilon, seeded=seed is not None)
            payer = purse_of_one_fit(self, rule, None if seed is None else NoiseSource(seed=seed))
        else:
            payer = self.purse if self.epsilon is None else Allowance(self.purse, rule)
        X, targets = checked.X, measure.targets(checked.y)
        if trials.row_count(X) != targets.size:
            raise InvalidArgument("X and y must have the same number of rows; they do not. Check both.")
        training, scored = trials.split(targets.size, validation, payer.noise)
        if rule.neighbouring is Neighbouring.REPLACE_ONE:
            records: float | None = float(scored.size)  # the split is by position, and their number is public
        else:
            records = None if self.n_public is None else float(self.n_public) * validation
        n_public = None if self.n_public is None else max(1, round((1 - validation) * self.n_public))

        def make(candidate: int, purse: Purse) -> Any:
            model = trials.with_parameters(self.estimator, candidates[candidate])
            trials.for_a_trial(model, purse, n_public, checked.labels)
            return model

        own, others = ((trials.take(X, rows), targets[rows]) for rows in (training, scored))
        trial = trials.Trial(make, own, others, measure=measure, limit=limit, records=records)

        @functools.cache
        def stated() -> Certificate:
            for item in (*checked.uncovered, *uncharged_around_fits(payer), RUNNING_TIME):
                payer.declare_uncovered(item)
            return payer.certificate()

        def run(candidate: int, noise: NoiseSource) -> tuple[float, tuple[Any, float]]:
            stated()  # before the first trial: the time of a later entry would reveal their number
            return trial(candidate, noise)

        best: list[tuple[Any, float] | None] = []
        add_remove = rule.neighbouring is Neighbouring.ADD_REMOVE
        box = SensitiveTrials(
            run,
            candidates=len(candidates),
            # Under replace-one the public number of records is used, so there is no bound for
            # add/remove. Under add/remove a replacement is two changes, which doubles mu.
            add_remove=limit.mu if add_remove else None,
            replace_one=2 * limit.mu if add_remove else limit.mu,
            hand_over=best.append,
        )
        expected = f"{mechanism.mean:g} trials expected (shape {mechanism.shape:g}; arXiv:2110.03620)"
        what = f"hyper-parameter search, {counted(len(candidates), 'candidate')}, {expected}"
        released = payer.release(box, mechanism, what=what)
        certificate = stated()  # now, if the ledger was unavailable before
        params = candidates[int(released.value[0])]
        if best[0] is None:
            what = f"the best trial failed, with the parameters {shown(params)}: estimator could not be fitted"
            remedy = "Fit it with them and a purse on synthetic data to see why"
            raise InvalidArgument(f"{what}. The search is paid for. {remedy}.")
        epsilon = rule.epsilon_of(rule.after(rule.start(), released.charge), rule.delta)
        self.privacy_spent_, self.certificate_ = Spent(epsilon, rule.delta, 1), certificate
        self.best_params_, (self.best_estimator_, self.best_score_) = params, best[0]
        trials.after_the_search(self, trials.with_parameters(self.estimator, params))
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(self.best_estimator_, name):
                setattr(self, name, getattr(self.best_estimator_, name))
        return self

    def _candidates(self) -> list[dict[str, Any]]:
        try:
            candidates = list(ParameterGrid(self.param_grid))
        except (TypeError, ValueError):
            candidates = []
        if not candidates:
            what = f"param_grid must list at least one candidate; got {shown(self.param_grid)}"
            raise InvalidArgument(f"{what}. Pass {{'l2': [0.0, 0.01]}}.")
        return candidates

    def _rule(self) -> RdpFilter:
        """Return the filter of the search: for its epsilon, or the purse's if that is None."""
        purse, epsilon = self.purse, self.epsilon
        relation = None if self.neighbouring is None else Neighbouring.parse(self.neighbouring)
        if purse is None:
            if epsilon is None:
                raise InvalidArgument("epsilon must be a number without a purse; got None. Pass epsilon=1.0.")
            delta, relation = DELTA if self.delta is None else self.delta, relation or Neighbouring.ADD_REMOVE
        else:
            check_terms(purse, self.delta, relation, self.random_state)
            held = purse.filter
            if not isinstance(held, RdpFilter):
                what = f"purse must have filter='rdp' for a search; got filter {held.name!r}, which has no price for it"
                remedy = "Open it as Purse(epsilon, delta, neighbouring=..., filter='rdp'), or leave it out"
                raise InvalidArgument(f"{what}. {remedy}.")
            if epsilon is None:
                return held
            delta, relation = held.delta, held.neighbouring
        epsilon, delta = positive(epsilon=epsilon), small_probability(delta=delta)
        # The order with the least noise in the trials.
        orders = repeat_and_select.SEARCH_ORDERS
        budget = [rdp.largest_cost(order, epsilon, delta) for order in orders]
        order = repeat_and_select.best_order(budget, orders, float(self.mean_trials), float(self.shape))
        return RdpFilter(epsilon, delta, relation, orders=[order])

    def _price(self) -> tuple[RepeatAndSelect, RdpFilter, GdpFilter]:
        """Return mechanism and filter of the search, and the largest limit of a trial.

        A purse has its own orders, at which the search may cost more: it costs no more than epsilon
        by the count of the purse either. Earlier spending lowers the limit only if the search
        spends what is left; else a search that does not fit is refused.
        """
        mechanism, rule = RepeatAndSelect(positive(mean_trials=self.mean_trials), self.shape), self._rule()
        orders, left = list(rule.orders), list(rule.affordable(rule.start()))
        if self.purse is not None:
            its, totals = cast(RdpFilter, self.purse.filter), self.purse.totals
            if self.epsilon is None:
                orders, left = list(its.orders), list(its.affordable(totals))
            else:
                order, most = self._most_by_the_count_of(its, totals)
                orders, left = [*orders, *its.orders, order], [*left, *its.affordable(its.start()), most]
        multiplier = repeat_and_select.noise_multiplier_for(left, orders, mechanism.mean, mechanism.shape)
        if multiplier >= 1e8:
            why = f"choosing among mean_trials={mechanism.mean:g} trials alone costs more than what is left"
            raise BudgetExhausted(f"{why}. Use a larger epsilon.")
        return mechanism, rule, trials.trial_limit(1 / multiplier, rule.delta, rule.neighbouring)

    def _most_by_the_count_of(self, rule: RdpFilter, totals: Totals) -> tuple[int, float]:
        """Return an order of a purse's filter, and the most that the search may cost there.

        What the purse reports as spent then grows by epsilon at most.
        """
        spent = rule.epsilon_of(totals, rule.delta) if totals.releases else 0.0
        goal = spent + cast(float, self.epsilon)
        costs = [rdp.largest_cost(order, goal, rule.delta) * (1 - 1e-12) for order in rule.orders]
        room = [cost - float_up(used) for cost, used in zip(costs, totals.quanta, strict=True)]
        most = max(room)
        order = rule.orders[room.index(most)]
        if most <= 0:
            why = f"less than {goal - most:.3g}, which this purse counts for any first release at Rényi order {order}"
            remedy = "Use a larger epsilon, None for all that is left, or no purse"
            raise BudgetExhausted(f"epsilon={self.epsilon:g} is {why}. {remedy}.")
        return order, most

    predict, predict_proba = _of_best("predict"), _of_best("predict_proba")
    decision_function = _of_best("decision_function")

    def score(self, X: Any, y: Any) -> Any:
        """Return the score of the best model on other data. NOT private for that data."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.score(X, y)

    _required_parameters = ("estimator", "param_grid")  # before scikit-learn 1.6

    def _more_tags(self) -> dict[str, Any]:  # before scikit-learn 1.6
        return {"poor_score": True, "X_types": ["2darray", "sparse"]}

    @property
    def _estimator_type(self) -> Any:
        return getattr(self.estimator, "_estimator_type", None)  # before scikit-learn 1.6

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            its = self.estimator.__sklearn_tags__()
            tags.estimator_type, tags.input_tags = its.estimator_type, its.input_tags
            tags.classifier_tags, tags.regressor_tags = its.classifier_tags, its.regressor_tags
        tags.target_tags.required = True
        return tags
