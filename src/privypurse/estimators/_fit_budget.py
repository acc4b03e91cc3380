"""The purse that a scikit-learn fit is charged to: its own, or an allowance of a given one."""

import math
import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
from joblib import Parallel
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline

from privypurse.accounting import convert
from privypurse.accounting._filters import GdpFilter
from privypurse.accounting._totals import Filter
from privypurse.core._checks import positive, shown, small_probability
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import NO_PROTECTION_EPSILON, weakness
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.estimators._uncovered import uncovered_steps
from privypurse.purse._allowance import Allowance, mu_squared_left
from privypurse.purse._opening import DELTA, check_noise_name, noise_source, part_of
from privypurse.purse._purse import Purse

# Parts of scikit-learn that set the random state of the copies of an estimator that they fit.
SEEDING = ("sklearn.ensemble", "sklearn.multioutput")
# Parts that use the records for something else than fits, such as scores, or use one record in several places.
SCORING = (
    *("sklearn.model_selection", "sklearn.calibration", "sklearn.ensemble"),
    *("sklearn.feature_selection", "sklearn.semi_supervised"),
)
# All parts that fit copies of an estimator repeatedly.
FITTING_MANY = (*SEEDING, *SCORING, "sklearn.multiclass")


class SimulationWarning(UserWarning):
    """A seed was given, so nothing is private."""


class LeavesItsPurse:
    """Lets a fitted estimator be saved without its purse: a copied budget would be a second one.

    The copy predicts. To fit it again, pass a purse: ``model.set_params(purse=Purse.reopen(...))``.
    """

    def __getstate__(self) -> Any:
        state: dict[str, Any] = super().__getstate__().copy()  # type: ignore[attr-defined]
        purse = state.get("purse")
        if "certificate_" in state and isinstance(purse, Purse):
            state["purse"] = f"purse of {purse.dataset[:30]!r}, left behind"
        return state


class UncountedSpending(UserWarning):
    """Several fits without a purse, such as those of a search, are not added up."""


# On the certificate of a fit without a purse.
EACH_FIT = "other fits on the same records: each fit without a shared purse counts by itself, and they are not added up"
IN_A_WORKER = (
    "what steps before this fit learned, if there are any: it ran in a worker of joblib, which cannot see them"
)


def open_budget(estimator: Any) -> Purse:
    """Return the purse for a fit by the settings of its estimator: a new one, or part of the given one."""
    purse, random_state, noise = estimator.purse, estimator.random_state, getattr(estimator, "noise", "auto")
    check_noise_name(noise)
    epsilon = None if estimator.epsilon is None else positive(epsilon=estimator.epsilon)
    delta = None if estimator.delta is None else small_probability(delta=estimator.delta)
    relation = None if estimator.neighbouring is None else Neighbouring.parse(estimator.neighbouring)
    seed = seed_from(random_state)
    if purse is None:
        if epsilon is None:
            raise InvalidArgument("epsilon must be given without a purse; got None. Pass epsilon=1.0.")
        warn_of_many_fits(epsilon, seeded=seed is not None)
        source = noise_source(noise, seed)
        if seed is not None:
            seeded = f"random_state={shown(random_state)} makes the noise repeatable: this fit is a simulation"
            warnings.warn(f"{seeded}, NOT PRIVATE. Omit it on private data.", SimulationWarning, stacklevel=6)
        elif epsilon > NO_PROTECTION_EPSILON:
            warnings.warn(f"{weakness(epsilon)}. 1 is a usual choice.", UserWarning, stacklevel=6)
        rule = GdpFilter(epsilon, DELTA if delta is None else delta, relation or Neighbouring.ADD_REMOVE)
        return purse_of_one_fit(estimator, rule, source)
    check_terms(purse, delta, relation, random_state)
    if noise != "auto":
        raise InvalidArgument(f"noise must be 'auto' with a purse; got {noise!r}. Open the purse with noise={noise!r}.")
    return part_of(purse, epsilon)


def part_for_training(purse: Purse, held_back: float) -> Purse:
    """Return a part of a purse that leaves a share of what it holds, in squared mu, for later."""
    left = mu_squared_left(purse.filter, purse.totals)
    if not held_back or math.isinf(left):
        return purse
    epsilon = convert.gdp_epsilon(math.sqrt((1 - held_back) * left), purse.delta)
    # With delta alone above what is left, no epsilon describes a part of it.
    return Allowance(purse, GdpFilter(epsilon, purse.delta, purse.neighbouring)) if epsilon > 0 else purse


def purse_of_one_fit(estimator: Any, rule: Filter, noise: NoiseSource | None) -> Purse:
    """Open the purse of a fit without one. Warn if the estimator was fitted before, which spent, too."""
    purse = Purse.with_filter(rule, noise=noise)
    before = getattr(estimator, "certificate_", None)
    if before is not None and not (before.simulation or purse.noise.simulation):
        spends = f"without a purse each fit spends its own epsilon, now {rule.epsilon:g}, and they are not added up"
        remedy = "On the same records pass purse=Purse(...) to all fits"
        what = f"this {type(estimator).__name__} was fitted before: {spends}. {remedy}."
        warnings.warn(what, UncountedSpending, stacklevel=6)
    purse.declare_uncovered(EACH_FIT)
    return purse


def check_terms(purse: Any, delta: float | None, relation: Neighbouring | None, random_state: Any) -> None:
    """Raise InvalidArgument unless `purse` is one, on these terms, and draws the noise itself."""
    if not isinstance(purse, Purse):
        what = f"purse must be a Purse or None; got {shown(purse)}"
        raise InvalidArgument(f"{what}. Pass Purse(1.0, 1e-6, neighbouring='add-remove'), or Purse.reopen(ledger).")
    for name, mine, its in (("delta", delta, purse.delta), ("neighbouring", relation, purse.neighbouring)):
        if mine is not None and mine != its:
            words = [value.value if isinstance(value, Neighbouring) else value for value in (its, mine)]
            raise InvalidArgument(f"{name} must be that of the purse, {words[0]!r}; got {words[1]!r}. Omit it.")
    if random_state is not None:
        what = f"random_state must be None with a purse; got {shown(random_state)}"
        raise InvalidArgument(f"{what}. Omit it: a seed would make every run of this purse a simulation, NOT PRIVATE.")


def seed_from(random_state: Any) -> int | None:
    """Return a seed from a scikit-learn random state; None (private) stays None."""
    if random_state is None:
        return None
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        what = f"random_state must be None, a whole number of 0 or more, a Generator or a RandomState; got {shown(random_state)}"
        raise InvalidArgument(f"{what}. Omit it for private noise: any seed makes the fit a simulation, NOT PRIVATE.")
    return int(random_state)


def uncharged_around_fits(purse: Purse) -> list[str]:
    """Name, for the certificate, what scikit-learn code that calls a fit learns and computes around it."""
    whole, part = purse, isinstance(purse, Allowance)
    while isinstance(whole, Allowance):
        whole = whole.purse
    callers = [(frame.f_locals.get("self"), name) for frame, name in _callers()]
    around = [one[:-1] for one, _ in callers if isinstance(one, Pipeline)]
    around += [one.transformer_ for one, _ in callers if isinstance(one, TransformedTargetRegressor)]
    learned = [what for steps in around for what in uncovered_steps(whole, steps, part=part)]
    if any(name.startswith("joblib") for _, name in callers) and not any(
        isinstance(one, Parallel) for one, _ in callers
    ):
        learned.append(IN_A_WORKER)
    if (caller := _caller(SCORING)) is not None:
        computed = f"what {caller} computed from the records around its fits, such as exact scores and a choice by them"
        learned.append(f"{computed}: nothing was charged for it. PrivateSearchCV charges for a choice")
    return learned


def _caller(modules: tuple[str, ...]) -> str | None:
    """Return which of these packages is on the call stack; None if none is."""
    found = (name for _, name in _callers() if name.startswith(modules))
    return next((".".join(name.split(".")[:2]) for name in found), None)


def _callers() -> Iterator[tuple[FrameType, str]]:
    """Yield the frames of the call stack with the names of their modules."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame, frame.f_globals.get("__name__", "")
        frame = frame.f_back


def warn_of_many_fits(epsilon: float, *, seeded: bool) -> None:
    """Warn if scikit-learn code that fits many times calls a fit without a purse, or seeded it."""
    if _caller(SEEDING if seeded else FITTING_MANY) is None:
        return
    message = (
        f"each fit of this search, cross-validation or ensemble spends its own epsilon={epsilon:g} on the same "
        "records, and the fits are not added up. Search with PrivateSearchCV, which charges for the choice too; "
        "else pass purse=Purse(..., ledger='budget.db') to the estimator, which counts every fit (with n_jobs "
        "too) but no choice; or, if the data is not private, pass random_state=0: every fit is a simulation."
    )
    if seeded:
        message = (
            "this ensemble gave its members seeds (random_state), which makes their noise repeatable: NOT PRIVATE, "
            "and the fits are not added up. Give the estimator a purse, with which seeds are refused."
        )
    warnings.warn(message, UncountedSpending, stacklevel=5)
