"""A search and the records it is given: they are refused before payment, by checks that the
certificate names, or not at all.
"""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from privypurse import (
    InvalidArgument,
    NoiseSource,
    Purse,
)
from privypurse.estimators import BoundedScaler, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from privypurse.estimators._base import CHECKED
from privypurse.estimators._linear_models import LABELS_READ
from privypurse.estimators._search import PrivateSearchCV
from privypurse.estimators._search_trial import NOT_CHECKED, after_the_search, for_a_trial
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
    search = SimpleNamespace(best_estimator_=model, privacy_spent_=None, certificate_=None)
    after_the_search(search, clone(model).set_params(purse=None, random_state=0, epsilon=1.0))
    with pytest.raises(InvalidArgument, match="minimum of"):
        model.fit(rows, targets)


@pytest.mark.parametrize("odd", [np.nan, np.inf, "text", 10**400, 1j], ids=["NaN", "inf", "text", "huge", "complex"])
@pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
@pytest.mark.parametrize("steps", [[BoundedScaler(-1e9, 1e9)], [Normalizer()], []], ids=["ours", "theirs", "none"])
def test_a_record_is_refused_before_payment_or_not_at_all(table, odd, neighbouring, steps):
    rows, labels = table[0][:60].astype(object), np.arange(60) % 2
    purse = Purse(3.0, 1e-6, neighbouring=neighbouring, filter="rdp", noise=NoiseSource(seed=0))
    pipeline = make_pipeline(*steps, PrivateLogisticRegression(classes=[0, 1]))
    search = PrivateSearchCV(pipeline, GRID_L2, epsilon=2.0, mean_trials=1.0, purse=purse)
    for wrong in (np.where(labels, 7, 0), labels[:-1]):
        with pytest.raises(InvalidArgument, match=r"label|classes|inconsistent"):
            search.fit(rows, wrong)
    rows[5, 1] = odd
    if steps and isinstance(steps[0], BoundedScaler) and isinstance(odd, float) and np.isinf(odd):
        search.fit(rows, labels)  # clipped
        return
    with pytest.raises((InvalidArgument, ValueError, TypeError, OverflowError)):  # a step of others raises its own
        search.fit(rows, labels)
    assert purse.spent.releases == 0
    rows[5, 1] = 0.0
    search.fit(rows, labels)
    assert CHECKED in search.certificate_.uncovered
    assert NOT_CHECKED not in search.certificate_.uncovered


def test_steps_of_others_never_have_nothing_to_train_on(table):
    rows, labels = table[0][:25], np.arange(25) % 2
    purse = Purse(3.0, 1e-6, neighbouring="add-remove", filter="rdp")
    settings = {"epsilon": 1.8, "mean_trials": 1.0, "purse": purse, "n_public": 25}
    ours = PrivateLogisticRegression(classes=[0, 1])
    with pytest.raises(InvalidArgument, match=r"at least \d+ rows .* validation=0.2.* fewer") as caught:
        PrivateSearchCV(make_pipeline(Normalizer(), ours), GRID_L2, **settings).fit(rows, labels)
    assert "25" not in str(caught.value)
    assert purse.spent.releases == 0
    PrivateSearchCV(ours, {"l2": [0.0]}, **settings).fit(rows, labels)
    settings["epsilon"] = 1.0  # the second release on a purse counts for less
    search = PrivateSearchCV(make_pipeline(Normalizer(), ours), GRID_L2, **settings).fit(*table)
    assert any("at least 29 records" in item for item in search.certificate_.uncovered)


def test_every_check_of_every_candidate_is_named(table):
    grid = {
        "normalizer": [Normalizer(), "passthrough"],
        "privatelogisticregression": [PrivateLogisticRegression(), Tiny()],
    }
    pipeline = make_pipeline(Normalizer(), PrivateLogisticRegression(classes=[0, 1]))
    search = PrivateSearchCV(pipeline, grid, n_public=2_000).fit(*table)
    assert {LABELS_READ, CHECKED, NOT_CHECKED} <= set(search.certificate_.uncovered)
    assert any("at least 29 records" in item for item in search.certificate_.uncovered)


def test_certificates_say_which_checks_were_made(table):
    asked = PrivateSearchCV(PrivateLogisticRegression(classes=[0, 1]), {"l2": [0.0]}, n_public=2_000).fit(*table)
    assert CHECKED in asked.certificate_.uncovered
    foreign = PrivateSearchCV(Tiny(), GRID, n_public=2_000).fit(*table)
    assert NOT_CHECKED in foreign.certificate_.uncovered
    assert CHECKED not in foreign.certificate_.uncovered


def test_the_mean_is_refused_by_the_name_it_has_here(table):
    with pytest.raises(InvalidArgument, match=r"mean_trials must be .* got 0"):
        PrivateSearchCV(Tiny(), GRID, mean_trials=0).fit(*table)
