"""[RAW DATA] Checks before a private search is charged, after which no record can make a trial fail; and its trials.

A trial trains on some records and scores on the others.
"""

import bisect
import contextlib
import io
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from privypurse.accounting import _gdp as gdp
from privypurse.accounting import convert
from privypurse.accounting._filters import GdpFilter
from privypurse.core._checks import FloatArray, check_positions, shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.estimators._additive import Additive
from privypurse.estimators._base import CHECKED, PrivateLinearModel
from privypurse.estimators._compat import Tagged, needs_fit
from privypurse.estimators._linear_models import LABELS_READ
from privypurse.estimators._uncovered import innermost_steps, is_ours
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.oracles.statistics import clipped_sum
from privypurse.purse._purse import Purse

# Parameters of the model that a trial sets.
_BUDGET = ("purse", "epsilon", "delta", "neighbouring", "random_state")
# Parameters that would reveal losing trials.
_TELLING = ("callbacks", "checkpoint")
# For a model of another library.
NOT_CHECKED = (
    "that no record made the search fail: some of its steps were not asked before payment if they take these records"
)
# Largest probability that a step of another library gets fewer than two records, which it may
# reject.
SMALL = 1e-18


def _steps(estimator: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return the steps of a pipeline, the model last, with the prefix of their parameters."""
    if any(name.split("__")[-1] == "memory" and value is not None for name, value in estimator.get_params().items()):
        raise InvalidArgument("memory of a pipeline must be None: its files would reveal losing trials. Omit it.")
    if not isinstance(estimator, Pipeline):
        return [(prefix, estimator)]
    steps = [(name, step) for name, step in estimator.steps if step is not None and step != "passthrough"]
    return [found for name, step in steps for found in _steps(step, f"{prefix}{name}__")]


def _our_steps(model: Any) -> list[Any]:
    """Return the steps that validate with this library, subclasses included."""
    return [step for _, step in _steps(model) if isinstance(step, PrivateLinearModel | Additive | Tagged)]


def with_parameters(estimator: Any, candidate: dict[str, Any]) -> Any:
    """Return a fresh estimator with a candidate's parameters."""
    # Values may be estimators: each trial must have its own.
    values = {name: clone(value, safe=False) for name, value in candidate.items()}
    try:
        return clone(estimator).set_params(**values)
    except (ValueError, TypeError, AttributeError) as error:
        what = f"param_grid must name parameters of {type(estimator).__name__}; got {shown(sorted(candidate))}"
        raise InvalidArgument(f"{what}. See get_params().") from error


class Checked(NamedTuple):
    """What was found before the search is charged."""

    X: Any  # validated by the model if it is alone
    y: Any
    labels: NDArray[Any] | None  # to declare in each trial, whose records may lack a rare class
    uncovered: list[str]  # what was checked, and what was not, for the certificate


def check_search(estimator: Any, candidates: list[dict[str, Any]], X: Any, y: Any, validation: float) -> Checked:
    """Raise InvalidArgument unless the trials of every candidate are private and take the data."""
    if not hasattr(estimator, "get_params") or not hasattr(estimator, "fit") or isinstance(estimator, type):
        raise InvalidArgument(f"estimator must be a scikit-learn estimator; got {shown(estimator)}. Pass an object.")
    if sparse.issparse(X):
        check_positions(X)  # scipy takes rows for the trials
    checked, targets, labels = X, y, None
    uncovered: dict[str, None] = {}
    for candidate in candidates:
        steps = _steps(with_parameters(estimator, candidate))
        if not steps:
            raise InvalidArgument("estimator must be an estimator or a pipeline ending with one; got no step. Add one.")
        *earlier, (prefix, model) = steps
        _check_model(prefix, model, candidate)
        if getattr(model, "classes", ...) is None:
            uncovered[LABELS_READ] = None
        for place, step in earlier:
            uncovered |= dict.fromkeys(_check_declared(place.removesuffix("__"), step))
        if any(type(step).__module__.partition(".")[0] != "privypurse" for _, step in (*earlier, (prefix, model))):
            uncovered[_enough_rows(X, validation)] = None
        table = X
        for _, step in earlier:
            table = step.fit(table).transform(table)
        if not hasattr(model, "check_input"):
            uncovered[NOT_CHECKED] = None
            continue
        alone = {"purse": None, "epsilon": 1.0, "warm_start": False}
        model.set_params(**{name: value for name, value in alone.items() if name in model.get_params(deep=False)})
        seen, targets = model.check_input(table, y)
        checked = X if prefix or hasattr(X, "columns") else seen
        labels = np.unique(targets) if getattr(model, "classes", ...) is None else labels
        uncovered[CHECKED] = None
    return Checked(checked, targets, labels, list(uncovered))


def _check_declared(place: str, step: Any) -> list[str]:
    """Raise InvalidArgument if a step, or one inside it, learns. Return what the certificate says of them."""
    uncovered = []
    for name, inner in innermost_steps(place, step):
        named = f"{name} ({type(inner).__name__})"
        if (not is_ours(inner) and needs_fit(inner)) or "purse" in inner.get_params(deep=False):
            why = f"step {named} would learn from the data in each trial. Transform X by it before the search"
            raise InvalidArgument(f"{why}, and pay for it or name it with declare_pipeline; or declare its settings.")
        if isinstance(inner, FunctionTransformer) and inner.func is not None:
            uncovered.append(f"that the function in step {named} treats each record alone, and takes any record")
    if any(key.split("__")[-1] == "sparse_threshold" and value > 0 for key, value in step.get_params().items()):
        why = "which depends on how many of its numbers are zero"
        uncovered.append(f"whether step {place} returned a sparse table, {why}")
    return uncovered


def _check_model(prefix: str, model: Any, candidate: dict[str, Any]) -> None:
    if "purse" not in model.get_params(deep=False):
        what = f"estimator must have a parameter 'purse'; got {type(model).__name__} without"
        raise InvalidArgument(f"{what}. Pass an estimator of privypurse.")
    for name in (*_BUDGET, *_TELLING, "noise", "verbose"):
        if f"{prefix}{name}" in candidate:
            raise InvalidArgument(f"param_grid must not hold {prefix}{name}: the search sets it. Leave it out.")
    if getattr(model, "noise", "auto") != "auto":
        raise InvalidArgument(f"{prefix}noise must be 'auto'; got {model.noise!r}. Pass the search a purse with it.")
    if model.purse is not None:
        raise InvalidArgument(f"{prefix}purse must be None: each trial has its own. Pass the purse to PrivateSearchCV.")
    for name in _TELLING:
        if getattr(model, name, None):
            raise InvalidArgument(f"{prefix}{name} must be left out: it would reveal losing trials and their number.")


def _enough_rows(X: Any, validation: float) -> str:
    """Raise InvalidArgument for too few rows. Return what the certificate says of that check."""

    def enough(rows: int) -> bool:
        # Of n records, none or one is trained on with a probability of at most (n + 1) v^(n - 1).
        return math.log(rows + 1) + (rows - 1) * math.log(validation) <= math.log(SMALL)

    least = bisect.bisect_left(range(2**62), True, lo=2, key=enough)
    if row_count(X) < least:
        what = f"X must have at least {least} rows with a step of another library and {validation=:g}; it has fewer"
        why = "Such a step may reject a small training part, which would reveal its size"
        raise InvalidArgument(f"{what}. {why}. Use a smaller validation, or steps of this library.")
    return f"that there are at least {least} records, which was checked before payment"


def row_count(X: Any) -> int:
    """Return the number of rows of a table of any kind."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def for_a_trial(whole: Any, purse: Purse, n_public: int | None = None, labels: NDArray[Any] | None = None) -> None:
    """Set the purse of a trial, and the public number and labels of its records where undeclared.

    Turn output off. Steps of this library then take any rows, as `validate` says.
    """
    for step in _our_steps(whole):
        step._takes_any_rows = True
    whole.set_params(**{name: False for name in whole.get_params() if name.split("__")[-1] == "verbose"})
    _, model = _steps(whole)[-1]
    own = model.get_params(deep=False)
    counts_classes = own.get("class_weight") == "balanced"  # and needs their counts, not their public sum
    undeclared = {"n_public": None if counts_classes else n_public, "classes": labels}
    settings = {name: value for name, value in undeclared.items() if own.get(name, ...) is None}
    model.set_params(**settings | {name: None for name in _BUDGET if name in own} | {"purse": purse})


def after_the_search(search: Any, template: Any) -> None:
    """Restore the best model's parameters, and set the search's certificate: choosing costs, too."""
    for step in _our_steps(search.best_estimator_):
        del step._takes_any_rows
    (_, model), (_, as_given) = _steps(search.best_estimator_)[-1], _steps(template)[-1]
    given = as_given.get_params(deep=False)
    model.set_params(**{name: given[name] for name in (*_BUDGET, "classes") if name in given})
    for one in (model, *([model.linear_] if isinstance(model, Additive) else [])):
        for name, value in list(vars(one).items()):
            if name in ("privacy_spent_", "certificate_"):
                setattr(one, name, getattr(search, name))
            elif isinstance(value, Purse) or name == "_paid_by":
                setattr(one, name, None)


RowIndexes = NDArray[np.intp]

_COUNT_SHARE = 0.1  # of a trial's budget, to count the scored records if their number is private


@dataclass(frozen=True)
class Measure:
    """Score of one record's prediction, from -1/2 (worst) to 1/2 (best): its label, or its absolute error.

    The sensitivity of the sum is 1/2 under add/remove and 1 under replace-one.
    """

    error_bound: float | None = None  # absolute errors are clipped at this; None for labels

    def targets(self, y: Any) -> NDArray[Any]:
        """Return the targets as labels, or as numbers for an error."""
        labels = np.asarray(y)
        if self.error_bound is not None:
            try:
                labels = labels.astype(np.float64)
            except (TypeError, ValueError, OverflowError):
                raise InvalidArgument(f"y must hold numbers; got {labels.dtype}. Convert it first.") from None
        if labels.ndim != 1:
            raise InvalidArgument(f"y must have one dimension; got {labels.ndim}. Pass for example y.ravel().")
        return labels

    def judge(self, y: NDArray[Any], predicted: NDArray[Any]) -> FloatArray:
        """Return one number for each record."""
        if self.error_bound is None:
            return np.asarray(np.where(np.broadcast_to(predicted == y, y.shape), 0.5, -0.5))
        with np.errstate(all="ignore"):
            error = np.abs(y - predicted.astype(np.float64)) / self.error_bound
            return np.asarray(0.5 - np.clip(np.nan_to_num(error, nan=1.0, posinf=1.0), 0.0, 1.0))

    def score(self, mean: float) -> float:
        """Convert a mean of `judge` to the accuracy, or to minus the mean absolute error."""
        if self.error_bound is None:
            return float(np.clip(0.5 + mean, 0.0, 1.0))
        return float(-self.error_bound * np.clip(0.5 - mean, 0.0, 1.0))


def trial_limit(mu: float, delta: float, neighbouring: Neighbouring) -> GdpFilter:
    """Return the limit of one trial as a filter with at most, and nearly, this mu."""
    while (epsilon := convert.gdp_epsilon(mu, delta)) == 0:
        delta /= 10
    while (limit := GdpFilter(epsilon, delta, neighbouring)).mu > mu:
        epsilon *= 1 - 1e-10
    return limit


def split(rows: int, validation: float, noise: NoiseSource) -> tuple[RowIndexes, RowIndexes]:
    """Split positions at random. Return those to train on and those to score on."""
    scored = noise.words(rows) < np.uint64(int(validation * 2.0**64))
    return np.flatnonzero(~scored), np.flatnonzero(scored)


def take(X: Any, rows: RowIndexes) -> Any:
    """Return rows of a table of any kind."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    return X[rows] if hasattr(X, "shape") else np.asarray(X)[rows]


@dataclass(frozen=True, repr=False, eq=False)
class Trial:
    """One trial of a search.

    The model learns through a purse with this limit, and the score is released through another one
    with the same limit. A record is in one of the two parts, so either the model or the score given
    the model depends on it: a trial is Gaussian-DP with the mu of the limit.

    Targets were checked before payment, and a model of this library takes any rows (`for_a_trial`):
    to refuse its part of the records would be an unpaid release.
    """

    make: Callable[[int, Purse], Any]  # makes an unfitted model from the index of a candidate
    training: tuple[Any, NDArray[Any]]
    scored: tuple[Any, NDArray[Any]]
    measure: Measure
    limit: GdpFilter
    records: float | None  # public number of scored records; None to count them with noise

    def __call__(self, candidate: int, noise: NoiseSource) -> tuple[float, tuple[Any, float]]:
        """Return the noisy total, and the model with its score. The mechanism handles exceptions."""
        with _silence():
            purse = Purse.with_filter(self.limit, noise=noise)
            model = self.make(candidate, purse)
            model.fit(*self.training)
            if purse.totals.releases == 0:
                raise InvalidArgument("the estimator released nothing through its purse. Report this to its author.")
            total, records = self._noisy_total(model, noise)
            return total, (model, self.measure.score(total / max(records, 1.0)))

    def _noisy_total(self, model: Any, noise: NoiseSource) -> tuple[float, float]:
        """Return the noisy sum of scores, and the number to divide it by."""
        rows = self.scored[1].size
        judged = self._judge(model, np.arange(rows))
        purse = Purse.with_filter(self.limit, noise=noise)

        def released(each: FloatArray, clip_norm: float, multiplier: float, what: str) -> float:
            box = clipped_sum(each.reshape(-1, 1), clip_norm=clip_norm)
            return float(purse.release(box, Gaussian(multiplier), what=what).value[0])

        rest = self.limit.smallest_noise_multiplier
        if self.records is not None:
            return released(judged, 0.5, rest(purse.totals), "score of a trial"), self.records
        most = gdp.noise_multiplier_for((1 - _COUNT_SHARE) * self.limit.mu**2)
        total = released(judged, 0.5, most, "score of a trial")
        return total, released(np.ones(rows), 1.0, rest(purse.totals), "number of records that a trial is scored on")

    def _judge(self, model: Any, rows: RowIndexes) -> FloatArray:
        """Predict for all rows, or if that fails for each half: one record changes its own score only."""
        table, targets = self.scored
        if rows.size == 0:
            return np.empty(0)
        try:
            predicted = np.asarray(model.predict(take(table, rows)))
            if predicted.shape != rows.shape:
                raise ValueError
            return self.measure.judge(targets[rows], predicted)
        except Exception:
            if rows.size == 1:
                return np.array([-0.5])
        half = rows.size // 2
        return np.concatenate([self._judge(model, rows[:half]), self._judge(model, rows[half:])])


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Suppress warnings and output of a trial, which would reveal the number of trials."""
    nowhere = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        yield
