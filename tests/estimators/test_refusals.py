"""What is refused, before anything is spent, in words that give no record away."""

import pickle
import traceback
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from privypurse import (
    BudgetExhausted,
    InvalidArgument,
    Purse,
)
from privypurse.estimators import (
    BoundedScaler,
    PrivateGammaRegressor,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateRidge,
    PrivateSearchCV,
    SimulationWarning,
    UncountedSpending,
)
from privypurse.methods import Nesterov
from tests.estimators.tables import a_purse, a_table, a_target

BAD_TABLES = {
    "text": (np.array([["a", "b"]] * 10), "X must hold numbers"),
    "object": (np.array([[1.0, "b"]] * 10, dtype=object), "X must hold numbers"),
    "nan": (np.array([[1.0, np.nan]] * 10), "contains NaN"),
    "infinite": (np.array([[1.0, np.inf]] * 10), "infinity"),
    "flat": (np.ones(10), "Expected 2D array"),
    "empty": (np.ones((0, 2)), "0 sample"),
    "no columns": (np.ones((10, 0)), r"0 feature\(s\)"),
    "one row": (np.ones((1, 2)), "1 sample"),
    "complex": (np.ones((10, 2)) * 1j, "Complex data"),
    "short": (np.ones((9, 2)), "inconsistent numbers"),
}


@pytest.mark.parametrize("bad", BAD_TABLES)
@pytest.mark.parametrize("model", [PrivateLogisticRegression, PrivateRidge])
def test_bad_tables_spend_nothing(bad, model):
    table, message = BAD_TABLES[bad]
    purse = a_purse()
    settings = {"target_bounds": (0, 1)} if model is PrivateRidge else {}
    with pytest.raises(ValueError, match=message):
        model(1.0, purse=purse, **settings).fit(table, np.arange(min(10, max(len(table), 10))) % 2)
    assert purse.spent.releases == 0


BAD_SETTINGS = [
    (PrivateLogisticRegression, {"epsilon": 0}, "epsilon must be"),
    (PrivateLogisticRegression, {"epsilon": -1.0}, "epsilon must be"),
    (PrivateLogisticRegression, {"epsilon": "1"}, "epsilon must be"),
    (PrivateLogisticRegression, {"epsilon": np.nan}, "epsilon must be"),
    (PrivateLogisticRegression, {"delta": 0.0}, "delta must be"),
    (PrivateLogisticRegression, {"delta": 0.5}, "delta must be (far below|that of the purse)"),
    (PrivateLogisticRegression, {"n_public": 2_000_000}, "delta must be far below one over"),
    (PrivateLogisticRegression, {"neighbouring": "friends"}, "neighbouring must be"),
    (PrivateLogisticRegression, {"method": "sgd"}, "method must be one of auto"),
    (PrivateLogisticRegression, {"method": Nesterov}, "the class Nesterov itself"),
    (PrivateLogisticRegression, {"l2": -1}, "l2 must be"),
    (PrivateLogisticRegression, {"feature_norm": 0}, "feature_norm must be"),
    (PrivateLogisticRegression, {"n_public": -5}, "n_public must be"),
    (PrivateLogisticRegression, {"fit_intercept": "yes"}, "fit_intercept must be"),
    (PrivateLogisticRegression, {"classes": [0]}, "classes must be two or more"),
    (PrivateLogisticRegression, {"classes": "01"}, "classes must be two or more"),
    (PrivateLogisticRegression, {"classes": [0, 0]}, "classes must be two or more"),
    (PrivateLogisticRegression, {"classes": [0, 2]}, "y must hold only the declared classes"),
    (PrivateLogisticRegression, {"classes": ["0", "1"]}, "y must hold only the declared classes"),
    (PrivateLogisticRegression, {"random_state": "x"}, "random_state must be"),
    (PrivateLogisticRegression, {"callbacks": [3]}, "callbacks must be"),
    (PrivateRidge, {}, "target_bounds must be"),
    (PrivateRidge, {"target_bounds": (1, 0)}, "target_bounds must be"),
    (PrivateRidge, {"target_bounds": (1e12, 1e12 + 1e-2)}, "target_bounds must differ"),
    (PrivateHuberRegressor, {"target_bounds": (0, 1), "threshold": 0}, "threshold must be"),
    (PrivatePoissonRegressor, {"target_bounds": (-1, 1)}, "target_bounds must start at 0 or above"),
    (PrivateGammaRegressor, {"target_bounds": (0, 1)}, "target_bounds must start above 0"),
]


@pytest.mark.parametrize(("model", "settings", "message"), BAD_SETTINGS)
def test_bad_settings_spend_nothing(model, settings, message):
    X, y = a_table(20)
    purse = a_purse()
    with pytest.raises(InvalidArgument, match=message):
        model(**{"purse": purse} | settings).fit(X, y)
    assert purse.spent.releases == 0
    if not {"random_state"} & set(settings):
        with pytest.raises(InvalidArgument, match=message):
            model(**settings).fit(X, y)


def test_labels_that_cannot_be_learnt_spend_nothing():
    X, y = a_table(20)
    purse = a_purse()
    for labels, message in [
        (np.zeros(20), "only one class"),
        (y + 0.5, "(?i)unknown label type|continuous"),
        (np.where(y, np.nan, 0.0), "NaN"),
        (np.column_stack([y, y]), "1d array"),
        (None, "requires y"),
    ]:
        with pytest.raises(ValueError, match=message):
            PrivateLogisticRegression(1.0, purse=purse).fit(X, labels)
    assert purse.spent.releases == 0


def test_a_refused_fit_changes_nothing():
    X, _ = a_table(500)
    purse = Purse(0.5, 1e-6, neighbouring="add-remove")
    model = PrivateRidge(None, purse=purse, warm_start=True, target_bounds=(0, 80)).fit(X, a_target(X))
    before = model.predict(X)
    for _ in range(2):
        with pytest.raises(BudgetExhausted):
            model.fit(X, a_target(X))
    assert (model.predict(X) == before).all()


def test_a_search_refuses_bad_data_before_it_pays():
    X, y = a_table(200)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp")
    missing = np.where(np.arange(200)[:, None] == 3, np.nan, X)
    for model in (PrivateLogisticRegression(), make_pipeline(BoundedScaler(-3, 3), PrivateLogisticRegression())):
        prefix = "" if isinstance(model, PrivateLogisticRegression) else "privatelogisticregression__"
        with pytest.raises(ValueError, match="contains NaN"):
            PrivateSearchCV(model, {f"{prefix}l2": [0.0]}, purse=purse).fit(missing, y)
        with pytest.raises(ValueError, match="only one class"):
            PrivateSearchCV(model, {f"{prefix}l2": [0.0]}, purse=purse).fit(X, np.zeros(200))
    assert purse.spent.releases == 0


def test_a_search_refuses_bad_values_before_it_pays():
    X, y = a_table(200)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp")
    for values in ([0.0, -1.0], ["a", 0.1]):
        with pytest.raises(InvalidArgument, match="l2 must be"):
            PrivateSearchCV(PrivateLogisticRegression(), {"l2": values}, purse=purse).fit(X, y)
    assert purse.spent.releases == 0
    with pytest.warns(UncountedSpending):
        cross_val_score(PrivateSearchCV(PrivateLogisticRegression(), {"l2": [0.0]}), X, y, cv=2)


def test_errors_show_no_value_of_the_data():
    X, y = a_table(20)
    table = X.astype(object)
    table[3, 2] = "Rosalind"
    with pytest.raises(InvalidArgument) as refused:
        PrivateLogisticRegression(1.0).fit(table, y)
    assert "Rosalind" not in str(refused.value)
    assert refused.value.__cause__ is None
    for wrong in (np.full(20, 123.456), np.full((20, 2), 123.456j), np.float64(123.456)):
        with pytest.raises(ValueError, match=r"Expected 2D|Complex") as refused:
            PrivateLogisticRegression(1.0).fit(wrong, y)
        assert "123" not in str(refused.value)
        assert refused.value.__context__ is None
    labels = np.array(["yes", "no"] * 10, dtype=object)
    labels[4] = "Rosalind"
    with pytest.raises(InvalidArgument) as refused:
        PrivateLogisticRegression(1.0, classes=["no", "yes"]).fit(X, labels)
    assert "Rosalind" not in str(refused.value)


@pytest.mark.parametrize("model", [PrivateRidge, PrivateHuberRegressor])
@pytest.mark.parametrize("kind", [list, "U", "S", object, "string", "datetime64[D]", complex])
def test_targets_that_are_no_numbers_are_refused_unquoted_before_payment(model, kind):
    X, purse = a_table(20)[0], a_purse()
    y = ["1.5"] * 19 + ["Rosalind"]
    if kind in ("datetime64[D]", complex):
        y = np.zeros(20).astype(int).astype(kind)
    elif kind == "string":
        y = pd.Series(y, dtype="string")
    elif kind is not list:
        y = np.array(y, dtype=kind)
    for table in (X, sparse.csr_matrix(X)):
        fitted = model(1.0, purse=purse, target_bounds=(0, 2))
        for work in (fitted.fit, fitted.check_input):
            with pytest.raises(InvalidArgument) as refused:
                work(table, y)
            assert "Rosalind" not in "".join(traceback.format_exception(refused.value))
    assert purse.spent.releases == 0


def test_labels_of_no_kind_are_refused_in_our_words():
    X, purse = a_table(20)[0], a_purse()
    for labels in (np.array([0] * 19 + ["Rosalind"], dtype=object), np.linspace(0, 1, 20)):
        with pytest.raises(InvalidArgument, match="Unknown label type") as refused:
            PrivateLogisticRegression(1.0, purse=purse, classes=[0, 1]).fit(X, labels)
        assert "Rosalind" not in str(refused.value)
    assert purse.spent.releases == 0


def test_no_warning_and_no_error_tells_of_one_record():
    X, y = a_table(300)
    target = a_target(X)
    X[0], target[0] = 3e38, 1.7e308
    with warnings.catch_warnings(), np.errstate(over="raise", invalid="raise", divide="raise"):
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SimulationWarning)
        for table in (X, sparse.csr_matrix(X), X.astype(np.float32)):
            PrivateLogisticRegression(8.0, random_state=0).fit(table, y)
            PrivateRidge(8.0, target_bounds=(0, 1), random_state=0).fit(table, target)
            PrivateLogisticRegression(8.0, random_state=0).fit(table, y + (X[:, 2] > 0)).predict(table)
        labels = np.arange(41) % 21
        PrivateLogisticRegression(1.0, classes=range(21), random_state=0).fit(X[:41], labels)


def test_success_does_not_tell_the_number_of_records():
    X, y = a_table(10_001)
    for rows in (9_999, 10_001):
        with pytest.raises(InvalidArgument, match="declare n_public"):
            PrivateLogisticRegression(1.0, delta=1e-4).fit(X[:rows], y[:rows])
        PrivateLogisticRegression(1.0, delta=1e-4, n_public=9_000).fit(X[:rows], y[:rows])
    with pytest.warns(UserWarning, match="is above one over the number of records, which is about"):
        PrivateLogisticRegression(50.0, delta=9.9e-5, random_state=0).fit(np.tile(X, (2, 1)), np.tile(y, 2))


def test_no_training_data_is_kept():
    X, y = a_table(2_000)
    secret = 12345.678
    X[7] = secret
    for model in (PrivateLogisticRegression(1.0), PrivateLinearSVC(1.0), PrivateRidge(1.0, target_bounds=(0, 1))):
        pickled = pickle.dumps(model.fit(X, y))
        assert np.float64(secret).tobytes() not in pickled
        assert np.float32(secret).tobytes() not in pickled
        assert len(pickled) < 100_000  # the table alone has 64,000 bytes in each of its copies
