"""[RAW DATA] Checks of the pipeline and the data before a search is charged.

After them no record can make a trial fail.
"""

import bisect
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from privypurse.accounting._filters import GdpFilter
from privypurse.core._checks import check_positions, shown
from privypurse.core._errors import InvalidArgument
from privypurse.estimators._base import CHECKED, PrivateLinearModel
from privypurse.estimators._compat import FLOATS, Tagged, needs_fit, validate
from privypurse.estimators._linear_models import LABELS_READ
from privypurse.estimators._scalers import PrivateRangeScaler
from privypurse.purse._purse import Purse

# Parameters that a trial sets on each step with a purse. The last such step gets the rest of the
# budget.
_BUDGET = ("purse", "epsilon", "delta", "neighbouring", "random_state")
# Parameters that would reveal losing trials.
_TELLING = ("callbacks", "checkpoint")


def _steps(estimator: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the steps of a pipeline with the prefix of their parameters; other estimators are one step."""
    if not isinstance(estimator, Pipeline):
        yield prefix, estimator
        return
    if estimator.memory is not None:
        raise InvalidArgument(
            "memory of a pipeline must be None in a search: its files would reveal losing trials. Leave it out."
        )
    for name, step in estimator.steps:
        if step is not None and step != "passthrough":
            yield from _steps(step, f"{prefix}{name}__")


def _pays(step: Any) -> bool:
    return "purse" in step.get_params(deep=False)


def _paying(estimator: Any) -> list[tuple[str, Any]]:
    return [(prefix, step) for prefix, step in _steps(estimator) if _pays(step)]


def _our_steps(model: Any) -> list[Any]:
    """Return the steps that validate with this library, subclasses included."""
    return [step for _, step in _steps(model) if isinstance(step, PrivateLinearModel | Tagged)]


def check_estimator(
    estimator: Any, candidates: list[dict[str, Any]], limit: GdpFilter, *, allow_unpaid: bool
) -> list[str]:
    """Raise InvalidArgument unless trials within this limit are private. Return what is not covered."""
    if not hasattr(estimator, "get_params") or not hasattr(estimator, "fit") or isinstance(estimator, type):
        raise InvalidArgument(
            f"estimator must be a scikit-learn estimator; got {shown(estimator)}. "
            "Pass an object such as PrivateLogisticRegression()."
        )
    uncovered: dict[str, None] = {}
    for candidate in candidates:
        model = with_parameters(estimator, candidate)
        paying = _paying(model)
        if not paying:
            raise InvalidArgument(
                f"estimator must have a parameter 'purse', in at least one step; got {type(estimator).__name__} "
                "without, whose releases nothing would bound. Pass one of privypurse's private estimators."
            )
        unpaid, trusted = [], []
        for prefix, step in _steps(model):
            name = f"{prefix.removesuffix('__')} ({type(step).__name__})" if prefix else type(step).__name__
            if _pays(step):
                _check_paying(prefix, step, candidate, last=prefix == paying[-1][0])
            elif needs_fit(step) and not allow_unpaid:
                raise InvalidArgument(
                    f"step {name} learns from the data without paying. Use a step that takes a purse or whose settings "
                    "are public, or pass allow_unpaid=True to have it named as uncovered on the certificate."
                )
            elif needs_fit(step):
                unpaid.append(f"step {name}, which learned from the data without paying, and may have refused a record")
            elif isinstance(step, FunctionTransformer) and step.func is not None:
                trusted.append(f"that the function in step {name} treats each record alone, and takes any record")
        earlier = [GdpFilter(step.epsilon, limit.delta, limit.neighbouring).mu ** 2 for _, step in paying[:-1]]
        if sum(earlier) >= 0.99 * limit.mu**2:
            raise InvalidArgument(
                f"the steps before the last one that pays ask for all of a trial's epsilon, {limit.epsilon:.4g}. "
                "Give them a smaller epsilon."
            )
        if any(getattr(step, "classes", ...) is None for _, step in paying):
            uncovered[LABELS_READ] = None
        uncovered |= dict.fromkeys((*unpaid, *trusted))
    return list(uncovered)


def _check_paying(prefix: str, step: Any, candidate: dict[str, Any], *, last: bool) -> None:
    for name in (*_BUDGET, *_TELLING, "noise", "verbose"):
        if f"{prefix}{name}" in candidate:
            raise InvalidArgument(
                f"param_grid must not hold {prefix}{name}: the search sets it in each trial. Leave it out."
            )
    if getattr(step, "noise", "auto") != "auto":
        raise InvalidArgument(
            f"{prefix}noise must be 'auto' in a search; got {step.noise!r}. Pass PrivateSearchCV a purse with that noise."
        )
    if step.purse is not None:
        raise InvalidArgument(
            f"{prefix}purse must be None: each trial has its own purse. Pass the purse to PrivateSearchCV instead."
        )
    for name in _TELLING:
        if getattr(step, name, None):
            raise InvalidArgument(
                f"{prefix}{name} must be left out in a search: it would reveal losing trials, and their number."
            )
    if not last and getattr(step, "epsilon", None) is None:
        raise InvalidArgument(
            f"{prefix}epsilon must be a number: only the last step that pays may take all of a trial's budget. "
            "Pass a part of search.trial_budget()[0]."
        )


def with_parameters(estimator: Any, candidate: dict[str, Any]) -> Any:
    """Return a fresh estimator with a candidate's parameters."""
    # Values may be estimators: each trial must have its own.
    values = {name: clone(value, safe=False) for name, value in candidate.items()}
    try:
        return clone(estimator).set_params(**values)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"param_grid must name parameters of {type(estimator).__name__}; got {shown(sorted(candidate))}. "
            "List them with estimator.get_params()."
        ) from error


def for_a_trial(model: Any, purse: Any, n_public: int | None) -> None:
    """Set the purse of a trial on all steps that pay, and turn their output off.

    Steps of this library then take any rows, as `validate` says.
    """
    for step in _our_steps(model):
        step._takes_any_rows = True
    paying = _paying(model)
    settings: dict[str, Any] = {}
    for prefix, step in paying:
        own = step.get_params(deep=False)
        settings |= {f"{prefix}{name}": None for name in _BUDGET if name in own}
        settings[f"{prefix}purse"] = purse
        if prefix != paying[-1][0]:
            settings[f"{prefix}epsilon"] = step.epsilon
        if n_public is not None and own.get("n_public", 0) is None:
            settings[f"{prefix}n_public"] = n_public
    settings |= {name: False for name in model.get_params(deep=True) if name.split("__")[-1] == "verbose"}
    model.set_params(**settings)


def after_the_search(model: Any, template: Any, stated: dict[str, Any]) -> None:
    """Restore the parameters of the best model and set the certificate of the search on it.

    A certificate of the trial alone would be wrong, because choosing the trial costs, too.
    """
    for step in _our_steps(model):
        del step._takes_any_rows
    given = template.get_params(deep=True)
    settings: dict[str, Any] = {}
    for prefix, step in _paying(model):
        names = [f"{prefix}{name}" for name in (*_BUDGET, "classes")]
        settings |= {name: given[name] for name in names if name in given}
        for name, value in list(vars(step).items()):
            if name in stated:
                setattr(step, name, stated[name])
            elif isinstance(value, Purse) or name == "_paid_by":
                setattr(step, name, None)
    model.set_params(**settings)


# For a step before the model that learns, or pays and is of another library.
TARGETS_CHECKED = "that the table and its targets passed the checks that could be made before payment"
# For such a step, or a model of another library.
NOT_CHECKED = (
    "that no record made the search fail: some of its steps were not asked before payment if they take these records"
)
# Largest probability that a step of another library gets fewer than two records, which it may
# reject.
SMALL = 1e-18


class Checked(NamedTuple):
    """Data that was checked before the search is charged; validated by the model if it is alone."""

    X: Any
    y: Any
    classes: dict[str, Any]  # undeclared labels to set in each trial, whose records may lack a rare class
    uncovered: list[str]  # what was checked, and what was not, for the certificate


def check_data(estimator: Any, candidates: list[dict[str, Any]], X: Any, y: Any, validation: float) -> Checked:
    """Check data and candidates by every step that can do so before the search is charged.

    After steps that pay or learn, the model checks the targets only. In a trial it accepts the rows
    that such steps return: those that are not finite contribute nothing.
    """
    if sparse.issparse(X):
        check_positions(X)  # scipy takes rows for the trials
    checked, targets, classes = X, y, dict[str, Any]()
    uncovered: dict[str, None] = {}
    for candidate in candidates:
        whole = with_parameters(estimator, candidate)
        if any(type(step).__module__.partition(".")[0] != "privypurse" for _, step in _steps(whole)):
            uncovered[_enough_rows(X, validation)] = None
        model, table, prefix, asked = _before_the_model(whole, X)
        if not hasattr(model, "check_input"):
            uncovered[NOT_CHECKED] = None
            continue
        model.set_params(purse=None, epsilon=1.0, warm_start=False)
        seen, targets = model.check_input(np.zeros((row_count(X), 1)) if table is None else table, y)
        if table is not None:
            checked = seen if prefix == "" and not hasattr(X, "columns") else X
        if getattr(model, "classes", ...) is None:
            classes = {f"{prefix}classes": np.unique(targets)}
        uncovered |= dict.fromkeys((CHECKED,) if asked else (TARGETS_CHECKED, NOT_CHECKED))
    return Checked(checked, targets, classes, list(uncovered))


def _before_the_model(model: Any, X: Any) -> tuple[Any, Any, str, bool]:
    """Transform the data by the steps of a pipeline as far as that costs nothing.

    Return the model at its end, the table that it will see (None if only a trial can compute it),
    the prefix of its parameters, and whether every step that could reject a record was checked.
    """
    *earlier, (prefix, last) = _steps(model)
    table, asked = X, True
    for _, step in earlier:
        ours = isinstance(step, PrivateRangeScaler)
        if not ours and (_pays(step) or needs_fit(step)):
            table, asked = None, False
        elif ours and table is not None:
            # It returns finite numbers for finite numbers, which later steps require.
            validate(step, table, None, dtype=FLOATS)
            table = None
        elif table is not None:
            table = step.fit(table).transform(table)
    return last, table, prefix, asked


def _enough_rows(X: Any, validation: float) -> str:
    """Raise InvalidArgument for too few rows. Return what the certificate says of that check."""
    least = least_rows(validation)
    if row_count(X) < least:
        raise InvalidArgument(
            f"X must have at least {least} rows with a step of another library and validation={validation:g}; it "
            "has fewer. Such a step may reject a small training part, which would reveal its size. Use a smaller "
            "validation, or steps of this library."
        )
    return f"that there are at least {least} records, which was checked before payment"


def least_rows(validation: float) -> int:
    """Return how many records give two to train on, except with probability `SMALL`.

    Of n records, none or one is trained on with a probability of at most ``(n + 1) v^(n - 1)``.

    Examples
    --------
    >>> least_rows(0.2), least_rows(0.95), least_rows(1 - 1e-9)
    (29, 943, 66364968693)
    """

    def enough(rows: int) -> bool:
        return math.log(rows + 1) + (rows - 1) * math.log(validation) <= math.log(SMALL)

    return bisect.bisect_left(range(2**62), True, lo=2, key=enough)


def row_count(X: Any) -> int:
    """Return the number of rows of a table of any kind."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
