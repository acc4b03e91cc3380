"""A fit that is refused, fails or is interrupted leaves the estimator as it was."""

import importlib
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator

import privypurse
from privypurse import Gaussian, Purse
from privypurse.core._errors import PrivypurseError
from privypurse.estimators import (
    BoundedScaler,
    DeclaredOneHot,
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
    PrivateGammaRegressor,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateRangeScaler,
    PrivateRidge,
    RowNormalizer,
)
from privypurse.estimators._fit_budget import EACH_FIT, UncountedSpending
from privypurse.estimators._search import PrivateSearchCV
from privypurse.oracles.statistics import clipped_sum
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._schema import Number, Schema

ROWS = 400


def _table(*names: str) -> pd.DataFrame:
    values = np.random.default_rng(len(names)).uniform(-1, 1, (ROWS, len(names)))
    return pd.DataFrame(values, columns=list(names))


FIRST, OTHER = _table("age", "height"), _table("income", "weight", "debt")
Y = (FIRST["age"] > 0).astype(int).to_numpy()


@dataclass(frozen=True)
class Case:
    """An estimator, and settings with which it refuses a table."""

    make: Callable[[], Any]
    invalid: dict[str, Any] = field(default_factory=dict)
    pays: bool = True
    filter: str = "gdp"


def _search() -> PrivateSearchCV:
    model = PrivateLogisticRegression(n_public=ROWS, feature_norm=2.0, standardize=False, classes=[0, 1])
    return PrivateSearchCV(model, {"l2": [0.0, 0.1]}, epsilon=4.0, mean_trials=1.5)


CASES = {
    PrivateLogisticRegression: Case(PrivateLogisticRegression, {"classes": [7, 8]}),
    PrivateLinearSVC: Case(PrivateLinearSVC, {"l2": -1.0}),
    PrivateRidge: Case(lambda: PrivateRidge(target_bounds=(0, 1)), {"target_bounds": (1, 0)}),
    PrivateHuberRegressor: Case(lambda: PrivateHuberRegressor(target_bounds=(0, 1)), {"threshold": -1.0}),
    PrivatePoissonRegressor: Case(lambda: PrivatePoissonRegressor(target_bounds=(0, 1)), {"target_bounds": (-1, 1)}),
    PrivateGammaRegressor: Case(lambda: PrivateGammaRegressor(target_bounds=(0.1, 1)), {"target_bounds": (0, 1)}),
    PrivateAdditiveClassifier: Case(lambda: PrivateAdditiveClassifier(ranges=(-1, 1)), {"classes": [7, 8]}),
    PrivateAdditiveRegressor: Case(
        lambda: PrivateAdditiveRegressor(ranges=(-1, 1), target_bounds=(0, 1)), {"target_bounds": (1, 0)}
    ),
    PrivateSearchCV: Case(_search, {"validation": 2.0}, filter="rdp"),
    PrivateRangeScaler: Case(lambda: PrivateRangeScaler(epsilon=0.5), {"quantiles": (0.9, 0.1)}),
    BoundedScaler: Case(lambda: BoundedScaler(-1, 1), {"lower": [0.0]}, pays=False),
    DeclaredOneHot: Case(lambda: DeclaredOneHot([0, 1]), {"categories": [[1]]}, pays=False),
    RowNormalizer: Case(RowNormalizer, {"norm": -1.0}, pays=False),
    TableEncoder: Case(
        lambda: TableEncoder(Schema((Number(name="age", range=(0, 1)),))),
        {"schema": Schema((Number(name="nobody", range=(0, 1)),))},
        pays=False,
    ),
}
OF_CASES = pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
pytestmark = pytest.mark.filterwarnings("ignore")


def _fitted(case: Case) -> Any:
    estimator = case.make()
    return estimator.fit(FIRST, Y)


def _answers(estimator: Any) -> Any:
    answers = estimator.predict(FIRST) if hasattr(estimator, "predict") else estimator.transform(FIRST)
    return np.asarray(answers.todense() if hasattr(answers, "todense") else answers)


def _check_unchanged(estimator: Any, before: dict[str, Any], answers: Any) -> None:
    assert vars(estimator).keys() == before.keys()
    assert all(vars(estimator)[name] is value for name, value in before.items())
    np.testing.assert_array_equal(_answers(estimator), answers)


def _purse(epsilon: float, case: Case) -> Purse:
    return Purse(epsilon, 1e-6, neighbouring="add-remove", filter=case.filter)


def test_every_estimator_of_the_library_is_tested_here():
    for module in pkgutil.walk_packages(privypurse.__path__, "privypurse."):
        if module.name.startswith(("privypurse.estimators", "privypurse.estimators", "privypurse.tables")):
            for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                public = issubclass(kind, BaseEstimator) and kind.__module__.startswith("privypurse")
                # `test_images.py` has the same of images, which are no tables.
                elsewhere = kind.__name__.startswith(("PrivateLinear", "Additive", "PrivateImage", "_"))
                if public and hasattr(kind, "fit") and not elsewhere | (kind in CASES):
                    raise AssertionError(f"{kind} has a fit and is not in CASES")


def test_refit_keeps_feature_names_when_refused():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    model = PrivateLogisticRegression(epsilon=None, purse=purse, classes=[0, 1]).fit(FIRST, Y)
    with pytest.raises(PrivypurseError):
        model.fit(OTHER, Y)
    assert list(model.feature_names_in_) == list(FIRST.columns)
    assert model.score(FIRST, Y) > 0.8


@OF_CASES
@pytest.mark.parametrize("table", [FIRST, OTHER], ids=["same columns", "other columns"])
def test_invalid_argument_changes_nothing(kind, table):
    estimator = _fitted(CASES[kind])
    answers = _answers(estimator)
    estimator.set_params(**CASES[kind].invalid)
    before = dict(vars(estimator))
    with pytest.raises(PrivypurseError):
        estimator.fit(table, Y)
    estimator.set_params(**{name: CASES[kind].make().get_params()[name] for name in CASES[kind].invalid})
    before |= {name: vars(estimator)[name] for name in CASES[kind].invalid}
    _check_unchanged(estimator, before, answers)


@pytest.mark.parametrize("kind", [kind for kind in CASES if CASES[kind].pays], ids=lambda kind: kind.__name__)
def test_spent_purse_changes_nothing(kind):
    case = CASES[kind]
    estimator, purse = _fitted(case), _purse(0.5, case)
    answers = _answers(estimator)
    purse.release(clipped_sum(np.ones((3, 1)), clip_norm=1.0), Gaussian.spending(purse.remaining))
    estimator.set_params(purse=purse)
    before = dict(vars(estimator))
    with pytest.raises(PrivypurseError):
        estimator.fit(OTHER, Y)
    _check_unchanged(estimator, before, answers)


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateRidge], ids=lambda kind: kind.__name__)
def test_checking_input_changes_nothing(kind):
    estimator = _fitted(CASES[kind])
    before, answers = dict(vars(estimator)), _answers(estimator)
    estimator.check_input(OTHER, Y)
    _check_unchanged(estimator, before, answers)


class _Interrupt:
    """Raises KeyboardInterrupt before the n-th line of the library that runs; counts lines where n
    is None.
    """

    def __init__(self, at: int | None = None) -> None:
        self.at, self.lines = at, 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if "privypurse" not in frame.f_code.co_filename or "test_" in frame.f_code.co_filename:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                raise KeyboardInterrupt
        return self

    def __enter__(self) -> "_Interrupt":
        self._before = sys.gettrace()
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateRangeScaler], ids=lambda kind: kind.__name__)
def test_another_fit_without_a_purse_warns_that_it_spends_again(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator = CASES[kind].make().fit(FIRST, Y)
    assert EACH_FIT in estimator.certificate_.uncovered
    with pytest.warns(UncountedSpending, match=f"this {kind.__name__} was fitted before: .* they are not added up"):
        estimator.fit(FIRST, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shared = estimator.set_params(purse=_purse(5.0, CASES[kind]), epsilon=0.5).fit(FIRST, Y).fit(FIRST, Y)
    assert EACH_FIT not in shared.certificate_.uncovered


@OF_CASES
def test_an_interrupt_at_any_line_leaves_the_old_fit_or_the_new_one(kind):
    case = CASES[kind]
    estimator = _fitted(case)
    other = FIRST if kind is TableEncoder else OTHER
    with _Interrupt() as counted:
        case.make().fit(other, Y)

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.floats(0, 1))
    def interrupted(share):
        before, answers = dict(vars(estimator)), _answers(estimator)
        try:
            with _Interrupt(1 + int(share * (counted.lines - 1))), warnings.catch_warnings():
                estimator.fit(other, Y)
        except KeyboardInterrupt:
            learnt = [name for name in before if name.endswith("_")]
            if not any(vars(estimator)[name] is not before[name] for name in learnt):
                return _check_unchanged(estimator, before, answers)
            # After the step in which all attributes change together.
            numbers = (int, str, float)
            assert all(
                vars(estimator)[name] is not before[name] or isinstance(before[name], numbers) for name in learnt
            )
            assert list(estimator.feature_names_in_) == list(other.columns)
        estimator.fit(FIRST, Y)  # noise may also have made the run shorter than the one that was counted

    interrupted()
