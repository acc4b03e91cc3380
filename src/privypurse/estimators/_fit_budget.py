"""The purse that a scikit-learn fit is charged to: its own, or an allowance of a given one."""

import sys
import warnings
from types import FrameType
from typing import Any

import numpy as np

from privypurse.accounting._filters import GdpFilter
from privypurse.core._checks import positive, shown, small_probability
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
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
    """A search or cross-validation fits many times, and the fits are not added up."""


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
            warnings.warn(
                f"random_state={shown(random_state)} makes the noise repeatable: this fit is a simulation, NOT PRIVATE. "
                "Omit it on private data.",
                SimulationWarning,
                stacklevel=6,
            )
        rule = GdpFilter(epsilon, DELTA if delta is None else delta, relation or Neighbouring.ADD_REMOVE)
        return Purse.with_filter(rule, noise=source)
    check_terms(purse, delta, relation, random_state)
    if noise != "auto":
        raise InvalidArgument(f"noise must be 'auto' with a purse; got {noise!r}. Open the purse with noise={noise!r}.")
    return part_of(purse, epsilon)


def check_terms(purse: Any, delta: float | None, relation: Neighbouring | None, random_state: Any) -> None:
    """Raise InvalidArgument unless `purse` is one, on these terms, and draws the noise itself."""
    if not isinstance(purse, Purse):
        raise InvalidArgument(
            f"purse must be a Purse or None; got {shown(purse)}. "
            "Pass purse=Purse(1.0, 1e-6, neighbouring='add-remove'), or Purse.reopen(ledger, dataset)."
        )
    for name, mine, its in (("delta", delta, purse.delta), ("neighbouring", relation, purse.neighbouring)):
        if mine is not None and mine != its:
            words = [value.value if isinstance(value, Neighbouring) else value for value in (its, mine)]
            raise InvalidArgument(f"{name} must be that of the purse, {words[0]!r}; got {words[1]!r}. Omit it.")
    if random_state is not None:
        raise InvalidArgument(
            f"random_state must be None with a purse; got {shown(random_state)}. "
            "Omit it: a seed would make every run of this purse a simulation, NOT PRIVATE."
        )


def seed_from(random_state: Any) -> int | None:
    """Return a seed from a scikit-learn random state; None (private) stays None."""
    if random_state is None:
        return None
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise InvalidArgument(
            f"random_state must be None, a whole number of 0 or more, a Generator or a RandomState; got "
            f"{shown(random_state)}. Omit it for private noise: any seed makes the fit a simulation, NOT PRIVATE."
        )
    return int(random_state)


def uncharged_around_fits() -> list[str]:
    """Name, for the certificate, what scikit-learn code that calls a fit computes around it."""
    caller = _caller(SCORING)
    if caller is None:
        return []
    return [
        f"what {caller} computed from the records around its fits, such as exact scores and a choice by them: nothing "
        "was charged for it. PrivateSearchCV charges for a choice"
    ]


def _caller(modules: tuple[str, ...]) -> str | None:
    """Return which of these packages is on the call stack; None if none is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith(modules):
            return ".".join(name.split(".")[:2])
        frame = frame.f_back
    return None


def warn_of_many_fits(epsilon: float, *, seeded: bool) -> None:
    """Warn if scikit-learn code that fits many times calls a fit without a purse, or seeded it."""
    if _caller(SEEDING if seeded else FITTING_MANY) is None:
        return
    if seeded:
        message = (
            "this ensemble gave its members seeds (random_state), which makes their noise repeatable: NOT PRIVATE, "
            "and the fits are not added up. Give the estimator a purse, with which seeds are refused."
        )
    else:
        message = (
            f"each fit of this search, cross-validation or ensemble spends its own epsilon={epsilon:g} on the same "
            "records, and the fits are not added up. Search with PrivateSearchCV, which charges for the choice too; "
            "else pass purse=Purse(..., ledger='budget.db') to the estimator, which counts every fit (with n_jobs "
            "too) but no choice; or, if the data is not private, pass random_state=0: every fit is a simulation."
        )
    warnings.warn(message, UncountedSpending, stacklevel=5)
