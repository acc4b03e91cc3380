"""What a private search does to the estimator it is given: who pays, who does not, and what a trial sets."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from privypurse.accounting.filters import GdpFilter
from privypurse.core.checks import shown
from privypurse.core.errors import InvalidArgument
from privypurse.estimators.classifiers import LABELS_READ
from privypurse.preprocessing._compat import needs_fit
from privypurse.purse.purse import Purse

# What a trial sets on each step that pays. The step that pays last gets all that the others leave of the trial's purse.
_BUDGET = ("purse", "epsilon", "delta", "neighbouring", "random_state", "noise")
# What would tell of trials that lost.
_TELLING = ("verbose", "callbacks", "checkpoint")


@dataclass(frozen=True)
class Steps:
    """The steps of an estimator, by what they do with the data.

    Parameters
    ----------
    paying : tuple of (str, estimator)
        Those that take a purse, with the prefix of their parameters, in order.
    foreign : tuple of str
        Those of other libraries, which may refuse what this one takes.
    unpaid : tuple of str
        Those that learn from data and take none.
    trusted : tuple of str
        Those that learn nothing, but run a function of the user's.
    """

    paying: tuple[tuple[str, Any], ...]
    foreign: tuple[str, ...]
    unpaid: tuple[str, ...]
    trusted: tuple[str, ...]


def look_through(estimator: Any) -> Steps:
    """Sort the steps of an estimator, or of a pipeline; what is inside another meta-estimator is not looked for."""
    paying, foreign, unpaid, trusted = [], [], [], []
    for prefix, step in _steps(estimator, ""):
        name = f"{prefix.removesuffix('__')} ({type(step).__name__})" if prefix else type(step).__name__
        if type(step).__module__.partition(".")[0] != "privypurse":
            foreign.append(name)
        if "purse" in step.get_params(deep=False):
            paying.append((prefix, step))
        elif learns(step):
            unpaid.append(name)
        elif isinstance(step, FunctionTransformer) and step.func is not None:
            trusted.append(name)
    return Steps(tuple(paying), tuple(foreign), tuple(unpaid), tuple(trusted))


def _steps(estimator: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(estimator, Pipeline):
        if estimator.memory is not None:
            raise InvalidArgument(
                "memory of a pipeline must be None in a search: its files would tell of trials that lost. Leave it out."
            )
        for name, step in estimator.steps:
            if step is not None and step != "passthrough":
                yield from _steps(step, f"{prefix}{name}__")
    else:
        yield prefix, estimator


def learns(step: Any) -> bool:
    """Whether `fit` takes anything from the data, by the estimator's own tags."""
    return needs_fit(step)


def check_estimator(estimator: Any, candidates: list[dict[str, Any]], allow_unpaid: bool) -> list[str]:
    """Refuse, before anything is paid, what could not be searched over privately; return what will not be covered."""
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
                f"estimator must have a parameter 'purse', in at least one step; got {type(estimator).__name__} without. "
                "Nothing would bound what a trial releases. Pass one of privypurse's private estimators."
            )
        if steps.unpaid and not allow_unpaid:
            raise InvalidArgument(
                f"step {steps.unpaid[0]} learns from the data without paying. Use a step that takes a purse or "
                "whose settings are public, or pass allow_unpaid=True to have it named as uncovered on the certificate."
            )
        for prefix, step in steps.paying:
            _check_paying(prefix, step, candidate, last=prefix == steps.paying[-1][0])
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
            f"{prefix}noise must be 'auto' in a search; got {step.noise!r}. Give PrivateSearchCV a purse with that noise instead."
        )
    if step.purse is not None:
        raise InvalidArgument(
            f"{prefix}purse must be None: each trial gets a purse of its own. Give the purse to PrivateSearchCV instead."
        )
    for telling in ("callbacks", "checkpoint"):
        if getattr(step, telling, None):
            raise InvalidArgument(
                f"{prefix}{telling} must be left out in a search: it would tell of trials that lost, and how many there were."
            )
    if not last and getattr(step, "epsilon", None) is None:
        raise InvalidArgument(
            f"{prefix}epsilon must be a number: a step before the last one that pays would else take all of a trial's budget. "
            "Pass a part of search.trial_budget()[0]."
        )


def check_shares(estimator: Any, candidates: list[dict[str, Any]], limit: GdpFilter) -> None:
    """Refuse a pipeline whose earlier steps ask for all of a trial's budget: the search would be paid for nothing."""
    for candidate in candidates:
        earlier = look_through(with_parameters(estimator, candidate)).paying[:-1]
        asked = sum(GdpFilter(step.epsilon, limit.delta, limit.neighbouring).mu ** 2 for _, step in earlier)
        if asked >= 0.99 * limit.mu**2:
            raise InvalidArgument(
                f"the steps before the last one that pays ask for all of a trial's epsilon, {limit.epsilon:.4g}. "
                "Give them a smaller epsilon."
            )


def with_parameters(estimator: Any, candidate: dict[str, Any]) -> Any:
    """Return a fresh estimator with a candidate's parameters."""
    # Values may be estimators themselves; each trial must have its own.
    values = {name: clone(value, safe=False) for name, value in candidate.items()}
    try:
        return clone(estimator).set_params(**values)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"param_grid must name parameters of {type(estimator).__name__}; got {shown(sorted(candidate))}. "
            "List them with estimator.get_params()."
        ) from error


def for_a_trial(model: Any, purse: Any, n_public: int | None) -> None:
    """Set what a trial sets: one purse for all that pay, all that is left for the last of them, and silence."""
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
    """Give the best model its parameters back, without the trial's purse, and the search's own statements.

    A statement about the trial alone would be wrong: the trial was chosen, and choosing costs.
    """
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
