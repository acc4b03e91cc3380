"""Who pays for a fit, what is counted, and what the certificate says."""

import pickle

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from privypurse import BudgetExhausted, FixedSchedule, GaussianCharge, GdpFilter, InvalidArgument, NoiseSource, Purse
from privypurse.core._errors import SharedAcrossProcesses
from privypurse.core._formats import rounded_up
from privypurse.estimators import (
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRangeScaler,
    PrivateRidge,
    PrivateSearchCV,
    RowNormalizer,
    SimulationWarning,
    UncountedSpending,
)
from privypurse.methods import DPSGD, Nesterov, ObjPert
from privypurse.purse._allowance import Allowance
from tests.estimators.tables import a_purse, a_table


def test_a_purse_is_shared_by_the_steps_of_a_pipeline():
    X, y = a_table()
    purse = a_purse(noise=NoiseSource(seed=1))  # of 20 ranges that are bought for so little one may be far off
    model = make_pipeline(PrivateRangeScaler(0.5, purse=purse), PrivateLogisticRegression(None, purse=purse))
    model.fit(X * [1, 1000, 1, 1e-3], y)
    assert model.score(X * [1, 1000, 1, 1e-3], y) > 0.85
    assert 1.99 < purse.spent.epsilon <= 2.0
    with pytest.raises(BudgetExhausted, match=r"PrivateRangeScaler\.fit spent nothing"):
        model.fit(X, y)


def test_fits_within_a_purse_are_limited_twice():
    X, y = a_table(1_000)
    purse = a_purse()
    first = PrivateLogisticRegression(0.5, purse=purse).fit(X, y)
    assert first.privacy_spent_.epsilon == pytest.approx(0.5, rel=1e-3)
    assert purse.spent.epsilon == pytest.approx(0.5, rel=1e-3)
    before = first.coef_.copy()
    with pytest.raises(
        BudgetExhausted,
        match=r"epsilon=1\.95 was requested, but 1\.9\d+ is left.*PrivateLogisticRegression.fit spent nothing",
    ):
        first.set_params(epsilon=1.95).fit(X, y)
    assert np.array_equal(first.coef_, before)
    assert purse.spent.epsilon == pytest.approx(0.5, rel=1e-3)
    rest = PrivateRidge(None, purse=purse, target_bounds=(0, 1)).fit(X, y)
    assert rest.privacy_spent_.epsilon < 2
    assert purse.spent.epsilon == pytest.approx(2.0, rel=1e-3)


def test_a_search_without_a_purse_is_loud():
    X, y = a_table(300)
    with pytest.warns(UncountedSpending, match="the fits are not added up"):
        cross_val_score(PrivateLogisticRegression(1.0), X, y, cv=3)
    with pytest.warns(UncountedSpending, match="PrivateSearchCV"):
        GridSearchCV(PrivateLogisticRegression(1.0), {"l2": [0.0, 0.1]}, cv=2).fit(X, y)
    with pytest.warns(UncountedSpending):
        GridSearchCV(make_pipeline(RowNormalizer(), PrivateLinearSVC(1.0)), {}, cv=2).fit(X, y)


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_fit_of_a_plain_search_is_counted(tmp_path, jobs):
    X, y = a_table(300)
    purse = Purse(20.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    search = GridSearchCV(PrivateLogisticRegression(0.5, purse=purse), {"l2": [0.0, 0.1]}, cv=3, n_jobs=jobs)
    search.fit(X, y)
    counted = {group.what: group.count for group in purse.certificate().groups}
    assert counted["number of records"] == 7  # two candidates on three folds, and the refit
    assert search.best_estimator_.purse is purse
    # Gaussian DP adds up squares of mu.
    assert purse.totals.quanta[0] == pytest.approx(7 * (GdpFilter(0.5, 1e-6, "add-remove").mu ** 2) * 2**160, rel=1e-3)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_plain_search_is_named_on_the_certificate(tmp_path, jobs):
    X, y = a_table(300)
    purse = Purse(20.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    model = PrivateLogisticRegression(0.5, purse=purse, classes=[0, 1]).fit(X, y)
    named = "what sklearn.model_selection computed from the records around its fits"
    assert named not in str(purse.certificate())
    search = GridSearchCV(model, {"l2": [0.0, 0.1]}, cv=2, n_jobs=jobs).fit(X, y)
    for certificate in (purse.certificate(), search.best_estimator_.certificate_):
        assert sum(named in words for words in certificate.uncovered) == 1


def test_scores_of_a_cross_validation_are_named_without_a_purse_too():
    X, y = a_table(300)
    with pytest.warns(UncountedSpending):
        search = GridSearchCV(PrivateLogisticRegression(0.5, classes=[0, 1]), {}, cv=2).fit(X, y)
    assert "sklearn.model_selection" in str(search.best_estimator_.certificate_)


def test_a_purse_in_memory_refuses_to_be_shared_out_in_silence():
    X, y = a_table(300)
    purse = a_purse()
    with pytest.raises(pickle.PicklingError) as refused:
        cross_val_score(PrivateLogisticRegression(0.1, purse=purse), X, y, cv=2, n_jobs=2)
    assert isinstance(refused.value.__cause__, SharedAcrossProcesses) or "second budget" in str(
        refused.getrepr(chain=True)
    )
    assert purse.spent.releases == 0


@pytest.mark.parametrize("many", ["BaggingClassifier", "CalibratedClassifierCV", "OneVsRestClassifier"])
def test_what_fits_again_and_again_is_loud(many):
    from sklearn import calibration, ensemble, multiclass

    X, y = a_table(300)
    where = next(module for module in (calibration, ensemble, multiclass) if hasattr(module, many))
    words = "NOT PRIVATE" if many == "BaggingClassifier" else "the fits are not added up"
    with pytest.warns(UncountedSpending, match=words):
        getattr(where, many)(PrivateLogisticRegression(1.0)).fit(X, y)


def test_warm_starts_go_on_and_pay_again():
    X, y = a_table(4_000)
    purse = a_purse()
    model = PrivateLogisticRegression(0.3, purse=purse, warm_start=True, classes=[0, 1]).fit(X, y)
    before, spent = model.coef_.copy(), purse.spent
    model.fit(X, y)
    assert purse.spent.releases - spent.releases < spent.releases  # the preparation is not bought again
    assert purse.spent.epsilon > spent.epsilon
    assert np.corrcoef(before.ravel(), model.coef_.ravel())[0, 1] > 0.5
    assert model.privacy_spent_ == purse.spent  # the model depends on both fits, and so says its certificate
    assert model.certificate_.epsilon == purse.epsilon
    assert not model.certificate_.part_of
    regressor = PrivateRidge(0.3, purse=purse, warm_start=True, target_bounds=(0, 1)).fit(X, y)
    assert regressor.fit(X, y).score(X, y) > 0.4
    with pytest.raises(InvalidArgument, match="which only a purse can add up"):
        PrivateLogisticRegression(0.3, warm_start=True).fit(X, y)


def test_a_model_that_another_purse_paid_for_is_not_gone_on_with():
    X, y = a_table(500)
    seeded = PrivateLogisticRegression(50.0, random_state=0).fit(X, y)
    elsewhere = PrivateLogisticRegression(0.5, purse=a_purse()).fit(X, y)
    for model in (seeded, elsewhere):
        before, purse = model.coef_.copy(), a_purse()
        model.set_params(epsilon=0.1, purse=purse, random_state=None, warm_start=True)
        with pytest.raises(InvalidArgument, match="paid from the same purse"):
            model.fit(X, y)
        assert purse.spent.releases == 0
        assert (model.coef_ == before).all()


def test_a_model_never_stands_beside_the_statement_of_another(monkeypatch):
    X, y = a_table(500)
    first, second = a_purse(), a_purse()
    model = PrivateLogisticRegression(0.3, purse=first).fit(X, y)
    before = model.coef_.copy()
    with monkeypatch.context() as patched:
        patched.setattr(Allowance, "certificate", lambda self: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            model.set_params(purse=second).fit(X, y)
    assert (model.coef_ == before).all()
    loaded = pickle.loads(pickle.dumps(model)).set_params(warm_start=True)
    with pytest.raises(InvalidArgument, match="only a purse"):
        loaded.fit(X, y)


@pytest.mark.parametrize("method", [DPSGD(sample_prob=0.05, steps=60), ObjPert()], ids=["dp-sgd", "objpert"])
def test_methods_with_a_schedule_of_their_own_need_declared_facts(method):
    X, y = a_table(4_000)
    with pytest.raises(InvalidArgument, match=r"n_public=.*feature_norm=.*PrivateLogisticRegression.fit spent nothing"):
        PrivateLogisticRegression(1.0, method=method).fit(X, y)
    declared = {"n_public": 4_000, "feature_norm": 3.0, "standardize": False, "classes": [0, 1]}
    fitted = PrivateLogisticRegression(1.0, method=method, random_state=0, **declared).fit(X, y)
    assert fitted.score(X, y) > 0.8
    assert fitted.privacy_spent_.epsilon <= 1.0
    with pytest.raises(InvalidArgument, match="needs a purse with its own schedule"):
        PrivateLogisticRegression(1.0, method=method, purse=a_purse(), **declared).fit(X, y)


def test_a_schedule_that_was_fixed_in_advance_pays_for_nothing_else():
    X, y = a_table(1_000)
    purse = Purse.with_filter(FixedSchedule([GaussianCharge(20.0)] * 30, 2.0, 1e-6, "add-remove"))
    with pytest.raises(InvalidArgument, match="which allows no other release"):
        PrivateLogisticRegression(None, method=Nesterov(steps=30), purse=purse).fit(X, y)
    assert purse.spent.releases == 0
    declared = {"n_public": 1_000, "feature_norm": 3.0, "standardize": False}
    fitted = PrivateLogisticRegression(None, method=Nesterov(steps=30), purse=purse, **declared).fit(X, y)
    assert fitted.n_iter_ == purse.spent.releases == 30


def test_seeds_are_stamped_and_repeat():
    X, y = a_table(500)
    first, second = (PrivateLogisticRegression(1.0, random_state=7).fit(X, y) for _ in range(2))
    assert (first.coef_ == second.coef_).all()
    assert first.certificate_.simulation
    assert "SIMULATION" in str(first.certificate_)
    assert (PrivateLogisticRegression(1.0).fit(X, y).coef_ != PrivateLogisticRegression(1.0).fit(X, y).coef_).any()
    seeded = a_purse(noise=NoiseSource(seed=1))
    assert PrivateLogisticRegression(1.0, purse=seeded).fit(X, y).certificate_.simulation
    assert PrivateLogisticRegression(1.0, random_state=np.random.RandomState(0)).fit(X, y).certificate_.simulation


def test_a_seed_is_loud():
    X, y = a_table(200)
    with pytest.warns(SimulationWarning, match="NOT PRIVATE"):
        PrivateLogisticRegression(1.0, random_state=0).fit(X, y)


def test_what_was_read_from_the_data_is_on_the_certificate():
    X, y = a_table(500)
    assert any("class labels" in line for line in PrivateLogisticRegression(1.0).fit(X, y).certificate_.uncovered)
    declared = PrivateLogisticRegression(1.0, classes=[0, 1]).fit(X, y)
    assert not any("class labels" in line for line in declared.certificate_.uncovered)
    purse = a_purse()
    PrivateLogisticRegression(1.0, purse=purse).fit(X, y)
    assert any("class labels" in line for line in purse.certificate().uncovered)


def test_declared_facts_are_not_bought():
    X, y = a_table(500)
    groups = (
        PrivateLogisticRegression(1.0, n_public=500, feature_norm=2.0, standardize=False).fit(X, y).certificate_.groups
    )
    assert [group.what for group in groups] == ["GradientAt"]
    bought = {group.what for group in PrivateLogisticRegression(1.0).fit(X, y).certificate_.groups}
    assert bought >= {"number of records", "row length", "GradientAt"}


def test_the_certificate_of_a_fit_is_a_part_of_the_purse():
    X, y = a_table(500)
    purse = a_purse()
    purse.declare_uncovered("columns were chosen after looking")
    PrivateRidge(0.9, purse=purse, target_bounds=(0, 1)).fit(X, y)
    certificate = PrivateLogisticRegression(0.5, purse=purse).fit(X, y).certificate_
    assert "columns were chosen after looking" in certificate.uncovered
    spent = rounded_up(purse.spent.epsilon)
    assert certificate.part_of == f"a purse with epsilon 2, which had spent {spent} when this was issued"
    assert "one part of what was released" in str(certificate)
    assert purse.ledger.verify(certificate.head) >= certificate.ledger_lines
    assert type(certificate).from_json(certificate.to_json()) == certificate


@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_paid_model_can_be_deployed_without_its_purse(tmp_path, where):
    X, y = a_table(500)
    ledger = None if where == "memory" else tmp_path / "budget.db"
    purse = Purse(2.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    fitted = PrivateLogisticRegression(0.5, purse=purse).fit(X, y)
    written = pickle.dumps(fitted)
    if ledger is not None:
        ledger.rename(tmp_path / "elsewhere.db")
    loaded = pickle.loads(written)
    assert (loaded.predict(X) == fitted.predict(X)).all()
    with pytest.raises(InvalidArgument, match="left behind"):
        loaded.fit(X, y)
    assert fitted.purse is purse


def test_searching_pays_and_finds():
    X, y = a_table(4_000)
    search = PrivateSearchCV(
        PrivateLogisticRegression(classes=[0, 1]), {"l2": [0.0, 10.0]}, epsilon=4.0, mean_trials=8, random_state=3
    )
    search.fit(X, y)
    assert search.privacy_spent_.epsilon <= 4.0
    assert search.score(X, y) > 0.8
    assert search.best_params_ == {"l2": 0.0}
    assert is_classifier(search)
    assert search.best_estimator_.get_params()["classes"] == [0, 1]
    unlisted = PrivateSearchCV(PrivateLogisticRegression(), {"l2": [0.0]}, epsilon=1.0, mean_trials=2).fit(X, y)
    assert any("class labels" in line for line in unlisted.certificate_.uncovered)


def test_a_search_says_that_it_checked_and_keeps_nothing_of_its_trials():
    X, y = a_table(300)
    search = PrivateSearchCV(PrivateLogisticRegression(classes=[0, 1]), {"l2": [0.0]}, epsilon=2.0).fit(X, y)
    assert any("passed the checks" in line for line in search.certificate_.uncovered)
    assert search.best_estimator_._paid_by is None


def test_a_search_over_a_rare_class_does_not_lose_it():
    X, y = a_table(300)
    y[:2] = 7
    search = PrivateSearchCV(PrivateLogisticRegression(), {"l2": [0.0]}, epsilon=5.0, random_state=1).fit(X, y)
    assert search.classes_.tolist() == [0, 1, 7]
    assert search.best_estimator_.classes is None


def test_labels_that_a_candidate_declares_are_not_read():
    X, y = a_table(300)
    grid = {"classes": [[0, 1, 2]], "l2": [0.0, 0.1]}
    search = PrivateSearchCV(PrivateLogisticRegression(), grid, epsilon=2.0, random_state=0).fit(X, y)
    assert search.classes_.tolist() == [0, 1, 2]
    assert not any("class labels" in line for line in search.certificate_.uncovered)
