"""A search and the records it is given: they are refused before payment, by checks that the certificate names, or not at all."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from privypurse import (
    InvalidArgument,
    NoiseSource,
    Purse,
)
from privypurse.estimators import PrivateLinearSVC, PrivateLogisticRegression, PrivateRangeScaler, PrivateRidge
from privypurse.estimators._base import CHECKED
from privypurse.estimators._search import PrivateSearchCV
from privypurse.estimators._search_checks import NOT_CHECKED, TARGETS_CHECKED, after_the_search, for_a_trial
from tests.estimators.tiny_models import GRID, Tiny, two_columns

GRID_L2 = {"privatelogisticregression__l2": [0.0]}


@pytest.fixture(scope="module")
def table():
    return two_columns()


@pytest.mark.parametrize("records", [2, 3])
def test_a_part_with_one_record_or_none_is_no_reason_to_fail(records):
    """Whether one is left to train on depends on how many there are, and nobody paid for that."""
    rows, labels = np.eye(3)[:records], np.arange(records) % 2
    model = PrivateLogisticRegression(classes=[0, 1])
    for seed in range(12):  # at this share most of them train on nothing
        search = PrivateSearchCV(
            model, {"l2": [0.0]}, epsilon=1.0, mean_trials=1.0, validation=0.8, random_state=seed, n_public=1_000
        )
        assert np.isfinite(search.fit(rows, labels).best_estimator_.coef_).all()


@pytest.mark.parametrize("records", [0, 1])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize(
    "model",
    [
        PrivateLogisticRegression(classes=[0, 1]),
        PrivateLogisticRegression(classes=[0, 1, 2]),
        PrivateLinearSVC(classes=[0, 1], fit_intercept=False),
        PrivateRidge(target_bounds=(-1.0, 1.0)),
    ],
    ids=repr,
)
def test_estimators_take_what_there_is_where_a_refusal_would_tell(model, kind, records):
    rows, targets = kind(np.ones((records, 3))), np.zeros(records)
    model = clone(model).set_params(random_state=0)
    with pytest.raises(InvalidArgument, match="minimum of"):
        model.fit(rows, targets)
    for_a_trial(model, Purse(1.0, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=0)), None)
    model.set_params(random_state=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(model.fit(rows, targets).coef_).all()
    after_the_search(model, clone(model).set_params(purse=None, random_state=0, epsilon=1.0), {})
    with pytest.raises(InvalidArgument, match="minimum of"):
        model.fit(rows, targets)


def behind_a_range(*steps):
    return make_pipeline(PrivateRangeScaler(0.1), *steps, PrivateLogisticRegression(classes=[0, 1]))


@pytest.mark.parametrize("odd", [np.nan, np.inf, "text", 10**400, 1j], ids=["NaN", "inf", "text", "huge", "complex"])
@pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
def test_behind_a_step_that_pays_a_record_is_refused_before_payment_or_not_at_all(table, odd, neighbouring):
    rows, labels = table[0][:60].astype(object), np.arange(60) % 2
    purse = Purse(3.0, 1e-6, neighbouring=neighbouring, filter="rdp", noise=NoiseSource(seed=0))
    search = PrivateSearchCV(behind_a_range(Normalizer()), GRID_L2, epsilon=1.0, mean_trials=1.0, purse=purse)
    for wrong in (np.where(labels, 7, 0), labels[:-1]):
        with pytest.raises(InvalidArgument, match=r"label|classes|inconsistent"):
            search.fit(rows, wrong)
    rows[5, 1] = odd
    with pytest.raises((InvalidArgument, TypeError)):  # scikit-learn insists on the latter for what is no number at all
        search.fit(rows, labels)
    assert purse.spent.releases == 0
    rows[5, 1] = 0.0
    search.fit(rows, labels)
    assert CHECKED in search.certificate_.uncovered
    assert not {TARGETS_CHECKED, NOT_CHECKED} & set(search.certificate_.uncovered)


def test_rows_that_stop_being_finite_in_a_trial_contribute_nothing(table):
    rows, labels = np.clip(table[0][:60], -0.9, 0.9), np.arange(60) % 2
    rows[5] = 1e6  # the range clips it, and a function makes infinity of that
    pipeline = behind_a_range(FunctionTransformer(at_the_edge))
    search = PrivateSearchCV(pipeline, GRID_L2, epsilon=2.0, mean_trials=1.0, n_public=60, random_state=0)
    assert np.isfinite(search.fit(rows, labels).best_estimator_[-1].coef_).all()


def at_the_edge(X):
    return np.where(X >= 1, np.inf, X)


def test_steps_of_others_never_have_nothing_to_train_on(table):
    rows, labels = table[0][:25], np.arange(25) % 2
    purse = Purse(3.0, 1e-6, neighbouring="add-remove", filter="rdp")
    settings = {"epsilon": 1.0, "mean_trials": 1.0, "purse": purse, "n_public": 25}
    ours = PrivateLogisticRegression(classes=[0, 1])
    for estimator in (make_pipeline(Normalizer(), ours), behind_a_range(Normalizer())):
        with pytest.raises(InvalidArgument, match=r"at least \d+ rows .* validation=0.2.* fewer") as caught:
            PrivateSearchCV(estimator, GRID_L2, **settings).fit(rows, labels)
        assert "25" not in str(caught.value)
    assert purse.spent.releases == 0
    PrivateSearchCV(ours, {"l2": [0.0]}, **settings).fit(rows, labels)
    search = PrivateSearchCV(make_pipeline(Normalizer(), ours), GRID_L2, **settings).fit(*table)
    assert any("at least 29 records" in item for item in search.certificate_.uncovered)


def test_every_check_of_every_candidate_is_named(table):
    grid = {"standardscaler": [StandardScaler(), "passthrough"]}
    pipeline = make_pipeline(StandardScaler(), PrivateLogisticRegression(classes=[0, 1]))
    search = PrivateSearchCV(pipeline, grid, allow_unpaid=True, n_public=2_000).fit(*table)
    assert {CHECKED, TARGETS_CHECKED, NOT_CHECKED} <= set(search.certificate_.uncovered)
    learning = behind_a_range(StandardScaler())
    search = PrivateSearchCV(learning, GRID_L2, epsilon=1.0, allow_unpaid=True, n_public=2_000).fit(*table)
    assert NOT_CHECKED in search.certificate_.uncovered
    assert CHECKED not in search.certificate_.uncovered


def test_certificates_say_which_checks_were_made(table):
    asked = PrivateSearchCV(PrivateLogisticRegression(classes=[0, 1]), {"l2": [0.0]}, n_public=2_000).fit(*table)
    assert CHECKED in asked.certificate_.uncovered
    foreign = PrivateSearchCV(Tiny(), GRID, n_public=2_000).fit(*table)
    assert NOT_CHECKED in foreign.certificate_.uncovered
    assert CHECKED not in foreign.certificate_.uncovered


def test_the_mean_is_refused_by_the_name_it_has_here(table):
    with pytest.raises(InvalidArgument, match=r"mean_trials must be .* got 0"):
        PrivateSearchCV(Tiny(), GRID, mean_trials=0).fit(*table)
