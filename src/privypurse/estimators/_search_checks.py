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
_BUDGET = ("purse", "epsilon", "delta", "neighbouring", "random_state", "noise")
# Parameters that would reveal losing trials.
_TELLING = ("verbose", "callbacks", "checkpoint")


class Steps(NamedTuple):
    """The steps of an estimator, by their use of the data."""

    paying: list[tuple[str, Any]]  # steps with a purse, with the prefix of their parameters
    foreign: list[str]  # steps of other libraries, which may reject data that this one accepts
    unpaid: list[str]  # steps that learn from data without a purse
    trusted: list[str]  # steps that learn nothing but run a function of the user


def look_through(estimator: Any) -> Steps:
    """Sort the steps of an estimator or a pipeline. Other meta-estimators are single steps."""
    found = Steps([], [], [], [])
    for prefix, step in _steps(estimator):
        name = f"{prefix.removesuffix('__')} ({type(step).__name__})" if prefix else type(step).__name__
        if type(step).__module__.partition(".")[0] != "privypurse":
            found.foreign.append(name)
        if "purse" in step.get_params(deep=False):
            found.paying.append((prefix, step))
        elif needs_fit(step):
            found.unpaid.append(name)
        elif isinstance(step, FunctionTransformer) and step.func is not None:
            found.trusted.append(name)
    return found


def _steps(estimator: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(estimator, Pipeline):
        if estimator.memory is not None:
            raise InvalidArgument(
                "memory of a pipeline must be None in a search: its files would reveal losing trials. Leave it out."
            )
        for name, step in estimator.steps:
            if step is not None and step != "passthrough":
                yield from _steps(step, f"{prefix}{name}__")
    else:
        yield prefix, estimator


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
        steps = look_through(with_parameters(estimator, candidate))
        if not steps.paying:
            raise InvalidArgument(
                f"estimator must have a parameter 'purse', in at least one step; got {type(estimator).__name__} "
                "without, whose releases nothing would bound. Pass one of privypurse's private estimators."
            )
        if steps.unpaid and not allow_unpaid:
            raise InvalidArgument(
                f"step {steps.unpaid[0]} learns from the data without paying. Use a step that takes a purse or "
                "whose settings are public, or pass allow_unpaid=True to have it named as uncovered on the certificate."
            )
        for prefix, step in steps.paying:
            _check_paying(prefix, step, candidate, last=prefix == steps.paying[-1][0])
        earlier = [GdpFilter(step.epsilon, limit.delta, limit.neighbouring).mu ** 2 for _, step in steps.paying[:-1]]
        if sum(earlier) >= 0.99 * limit.mu**2:
            raise InvalidArgument(
                f"the steps before the last one that pays ask for all of a trial's epsilon, {limit.epsilon:.4g}. "
                "Give them a smaller epsilon."
            )
        if any(getattr(step, "classes", ...) is None for _, step in steps.paying):
            uncovered[LABELS_READ] = None
        uncovered.update(
            (f"step {name}, which learned from the data without paying, and may have refused a record", None)
            for name in steps.unpaid
        )
        uncovered.update(
            (f"that the function in step {name} treats each record alone, and takes any record", None)
            for name in steps.trusted
        )
    return list(uncovered)


def _check_paying(prefix: str, step: Any, candidate: dict[str, Any], *, last: bool) -> None:
    set_here = [name for name in (*_BUDGET, *_TELLING) if f"{prefix}{name}" in candidate]
    if set_here:
        raise InvalidArgument(
            f"param_grid must not hold {prefix}{set_here[0]}: the search sets it in each trial. Leave it out."
        )
    if getattr(step, "noise", "auto") != "auto":
        raise InvalidArgument(
            f"{prefix}noise must be 'auto' in a search; got {step.noise!r}. Pass PrivateSearchCV a purse with that noise."
        )
    if step.purse is not None:
        raise InvalidArgument(
            f"{prefix}purse must be None: each trial has its own purse. Pass the purse to PrivateSearchCV instead."
        )
    for telling in ("callbacks", "checkpoint"):
        if getattr(step, telling, None):
            raise InvalidArgument(
                f"{prefix}{telling} must be left out in a search: it would reveal losing trials, and their number."
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
    paying = look_through(model).paying
    settings: dict[str, Any] = {}
    for prefix, step in paying:
        own = step.get_params(deep=False)
        settings |= {f"{prefix}{name}": None for name in _BUDGET if name in own}
        settings[f"{prefix}purse"] = purse
        if "noise" in own:
            settings[f"{prefix}noise"] = "auto"  # the purse's
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
    for prefix, step in look_through(model).paying:
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
        if look_through(whole).foreign:
            uncovered[_enough_rows(X, validation)] = None
        model, table, prefix, asked = _before_the_model(whole, X)
        if not hasattr(model, "check_input"):
            uncovered[NOT_CHECKED] = None
            continue
        model.set_params(purse=None, epsilon=1.0, warm_start=False)
        seen, targets = model.check_input(np.zeros((_records(X), 1)) if table is None else table, y)
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
    table, prefix, asked = X, "", True
    while isinstance(model, Pipeline):
        *earlier, (name, last) = model.steps
        for step in (step for _, step in earlier if step is not None and step != "passthrough"):
            ours = isinstance(step, PrivateRangeScaler)
            if not ours and ("purse" in step.get_params(deep=False) or needs_fit(step)):
                table, asked = None, False
            elif ours and table is not None:
                # It returns finite numbers for finite numbers, which later steps require.
                validate(step, table, None, dtype=FLOATS)
                table = None
            elif table is not None:
                table = step.fit(table).transform(table)
        model, prefix = last, f"{prefix}{name}__"
    return model, table, prefix, asked


def _enough_rows(X: Any, validation: float) -> str:
    """Raise InvalidArgument for too few rows. Return what the certificate says of that check."""
    least = least_rows(validation)
    if _records(X) < least:
        raise InvalidArgument(
            f"X must have at least {least} rows with a step of another library and validation={validation:g}; it "
            "has fewer. Such a step may reject a small training part, which would reveal its size. Use a smaller "
            "validation, or steps of this library."
        )
    return f"that there are at least {least} records, which was checked before payment"


def least_rows(validation: float) -> int:
    """Return how many records give two to train on, except with probability `SMALL`.

    Of n records, none or one is trained on with a probability of at most ``(n + 1) v^(n - 1)``,
    which decreases for n above ``1 / ln(1 / v)``.

    Examples
    --------
    >>> least_rows(0.2), least_rows(0.95), least_rows(1 - 1e-9)
    (29, 943, 66364968693)
    """
    falls = -math.log(validation)
    return bisect.bisect_left(
        range(2**62),
        True,
        max(2, math.floor(1 / falls) + 1),
        2**62,
        key=lambda rows: math.log(rows + 1) - (rows - 1) * falls <= math.log(SMALL),
    )


def _records(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
