"""Private estimators as a scikit-learn user meets them: data of every kind, pipelines, copies, files."""

import importlib.util
import pickle
import warnings

import joblib
import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from privypurse import (
    BudgetExhausted,
    FixedSchedule,
    GaussianCharge,
    GdpFilter,
    InvalidArgument,
    NoiseSource,
    Purse,
    SharedAcrossProcesses,
)
from privypurse.baselines import Majority, ObjPert
from privypurse.estimators import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSearchCV,
    SimulationWarning,
    UncountedSpending,
)
from privypurse.methods import DPAGD, DPSGD, Dynamic, Nesterov
from privypurse.preprocessing import BoundedScaler, DeclaredOneHot, PrivateRangeScaler, RowNormalizer
from privypurse.purse.allowance import Allowance

CLASSIFIERS = [PrivateLogisticRegression, PrivateLinearSVC]
REGRESSORS = [PrivateRidge, PrivateHuberRegressor]


def a_table(rows=4_000, columns=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns))
    return X, (X[:, 0] - X[:, 1] + 0.3 * rng.standard_normal(rows) > 0).astype(int)


def a_target(X, seed=1):
    return 50 + 8 * X[:, 0] - 4 * X[:, 1] + np.random.default_rng(seed).standard_normal(len(X))


def a_purse(**settings):
    return Purse(2.0, 1e-6, neighbouring="add-remove", **settings)


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_two_classes_are_told_apart_and_paid_for_exactly(model):
    X, y = a_table()
    fitted = model(0.5, classes=[0, 1]).fit(X, y)
    assert fitted.score(X, y) > 0.85
    assert 0.4995 < fitted.privacy_spent_.epsilon <= 0.5
    assert fitted.privacy_spent_.delta == 1e-6
    assert fitted.certificate_.private
    assert fitted.certificate_.releases == fitted.privacy_spent_.releases > fitted.n_iter_ == len(fitted.trace_.steps)
    assert fitted.stop_reason_ == "steps"
    assert fitted.coef_.shape == (1, 4)
    assert fitted.intercept_.shape == (1,)
    assert np.mean(fitted.predict(X) == (X @ fitted.coef_[0] + fitted.intercept_ > 0)) > 0.98


def test_scores_are_linear_within_the_limit_and_bounded_beyond():
    X, y = a_table()
    fitted = PrivateLogisticRegression(1.0, random_state=0).fit(X, y)
    near, far = X[np.linalg.norm(X, axis=1) < 1], X * 1e9
    assert fitted.decision_function(near) == pytest.approx(near @ fitted.coef_[0] + fitted.intercept_)
    assert np.abs(fitted.decision_function(far)).max() < 100
    line = PrivateRidge(1.0, target_bounds=(0, 100), random_state=0).fit(X, a_target(X))
    assert line.predict(near) == pytest.approx(near @ line.coef_ + line.intercept_)


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_several_classes_share_one_budget(model):
    X, y = make_blobs(3_000, centers=5, n_features=3, cluster_std=0.7, random_state=2)
    names = np.array(["a", "b", "c", "d", "e"])
    fitted = model(2.0, classes=names, random_state=0).fit(X, names[y])
    assert fitted.score(X, names[y]) > 0.8
    assert fitted.privacy_spent_.epsilon <= 2.0
    assert fitted.coef_.shape == (5, 3)
    assert fitted.decision_function(X).shape == (3_000, 5)


def test_probabilities_add_up_to_one():
    X, y = a_table()
    for labels in (y, y + 2 * (X[:, 2] > 0)):
        fitted = PrivateLogisticRegression(1.0, random_state=0).fit(X, labels)
        assert fitted.predict_proba(X).sum(axis=1) == pytest.approx(1)
        assert np.log(fitted.predict_proba(X)) == pytest.approx(fitted.predict_log_proba(X))
        assert (fitted.classes_[fitted.predict_proba(X).argmax(axis=1)] == fitted.predict(X)).all()


@pytest.mark.parametrize("model", REGRESSORS)
def test_regression_finds_the_coefficients(model):
    X, _ = a_table(20_000)
    y = a_target(X)
    fitted = model(1.0, target_bounds=(0, 100), random_state=0).fit(X, y)
    assert fitted.coef_ == pytest.approx([8, -4, 0, 0], abs=0.6)
    assert fitted.intercept_ == pytest.approx(50, abs=0.6)
    assert fitted.score(X, y) > 0.9
    assert is_regressor(fitted)


def test_more_budget_is_more_accuracy():
    X, y = a_table(2_000, 20)
    scores = [
        np.mean([PrivateLogisticRegression(e, random_state=s).fit(X, y).score(X, y) for s in range(5)])
        for e in (0.02, 0.2, 5.0)
    ]
    assert scores[0] + 0.05 < scores[1] < scores[2] - 0.01


def test_the_constant_is_not_private_in_any_other_way():
    X, y = a_table()
    assert PrivateLogisticRegression(1.0, fit_intercept=False, random_state=0).fit(X, y).intercept_ == 0


KINDS = {
    "dense": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "fortran": np.asfortranarray,
    "lists": lambda X: X.tolist(),
    "csr": sparse.csr_matrix,
    "csc": sparse.csc_matrix,
    "csr array": sparse.csr_array,
    "pandas": lambda X: pytest.importorskip("pandas").DataFrame(X, columns=list("abcd")),
    "polars": lambda X: pytest.importorskip("polars").DataFrame(X, schema=list("abcd")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", [PrivateLogisticRegression, PrivateRidge])
def test_every_kind_of_table_gives_the_same_model(kind, model):
    X, y = a_table(500)
    settings = {"random_state": 3} | ({"target_bounds": (0, 1)} if model is PrivateRidge else {})
    expected = model(5.0, **settings).fit(X, y)
    fitted = model(5.0, **settings).fit(KINDS[kind](X), y)
    assert fitted.coef_ == pytest.approx(expected.coef_, rel=1e-3, abs=1e-4)
    assert fitted.predict(KINDS[kind](X)) == pytest.approx(expected.predict(X), abs=1e-3)
    assert fitted.n_features_in_ == 4
    if kind in ("pandas", "polars"):
        assert fitted.feature_names_in_.tolist() == list("abcd")
        with pytest.raises(ValueError, match=r"(?i)feature names|columns"):
            fitted.predict(KINDS[kind](X).rename({"a": "z"}) if kind == "polars" else KINDS[kind](X)[list("dcba")])


def test_wide_sparse_tables_stay_sparse(monkeypatch):
    from privypurse.oracles.rows import Rows

    X = sparse.random(3_000, 1_000, density=0.01, format="csr", random_state=0)
    y = (np.asarray(X[:, :20].sum(axis=1)).ravel() > 0.05).astype(int)
    monkeypatch.setattr("privypurse.estimators.preparation.MOST_DENSE", 1_000)
    kept = []
    monkeypatch.setattr(Rows, "table", property(lambda self: kept.append(self._table) or self._table))
    fitted = PrivateLogisticRegression(50.0, random_state=0).fit(X, y)
    assert all(sparse.issparse(table) for table in kept)
    assert fitted.preparation_.centre is None
    assert np.isfinite(fitted.coef_).all()


def test_no_training_data_is_kept():
    X, y = a_table(2_000)
    secret = 12345.678
    X[7] = secret
    for model in (PrivateLogisticRegression(1.0), PrivateLinearSVC(1.0), PrivateRidge(1.0, target_bounds=(0, 1))):
        pickled = pickle.dumps(model.fit(X, y))
        assert np.float64(secret).tobytes() not in pickled
        assert np.float32(secret).tobytes() not in pickled
        assert len(pickled) < 100_000  # the table alone has 64,000 bytes in each of its copies


def test_copies_files_and_settings():
    X, y = a_table()
    model = PrivateLogisticRegression(0.7, classes=[0, 1], l2=0.01, random_state=1)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.set_params(epsilon=0.1).epsilon == 0.1
    fitted = model.fit(X, y)
    for again in (pickle.loads(pickle.dumps(fitted)), _through_joblib(fitted)):
        assert (again.predict(X) == fitted.predict(X)).all()
        assert str(again.certificate_) == str(fitted.certificate_)


def _through_joblib(fitted):
    import io

    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    return joblib.load(file)


def test_skops_files():
    skops = pytest.importorskip("skops.io")
    X, y = a_table(500)
    fitted = PrivateLogisticRegression(1.0, random_state=1).fit(X, y)
    written = skops.dumps(fitted)
    unknown = skops.get_untrusted_types(data=written)
    assert all(name.startswith("privypurse.") for name in unknown)
    assert (skops.loads(written, trusted=unknown).predict(X) == fitted.predict(X)).all()


def test_a_pipeline_over_mixed_columns():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"age": rng.integers(18, 90, 5_000), "job": rng.choice(["a", "b", "c"], 5_000)})
    y = np.where((frame.age > 50) ^ (frame.job == "c"), "yes", "no")
    columns = make_column_transformer(
        (BoundedScaler(lower=18, upper=90), ["age"]), (DeclaredOneHot([["a", "b", "c"]], sparse_output=False), ["job"])
    )
    assert isinstance(columns, ColumnTransformer)
    model = make_pipeline(columns, RowNormalizer(), PrivateLogisticRegression(1.0, classes=["no", "yes"]))
    assert model.fit(frame, y).score(frame, y) > 0.7
    assert "class labels" not in str(model[-1].certificate_)
    named = columns.set_output(transform="pandas").fit_transform(frame)
    assert model[-1].set_params(random_state=0).fit(named, y).feature_names_in_.tolist() == list(named.columns)


def test_a_purse_is_shared_by_the_steps_of_a_pipeline():
    X, y = a_table()
    purse = a_purse()
    model = make_pipeline(PrivateRangeScaler(0.5, purse=purse), PrivateLogisticRegression(None, purse=purse))
    model.fit(X * [1, 1000, 1, 1e-3], y)
    assert model.score(X * [1, 1000, 1, 1e-3], y) > 0.85
    assert 1.99 < purse.spent.epsilon <= 2.0
    with pytest.raises(BudgetExhausted, match="Nothing was spent"):
        model.fit(X, y)


def test_fits_within_a_purse_are_limited_twice():
    X, y = a_table(1_000)
    purse = a_purse()
    first = PrivateLogisticRegression(0.5, purse=purse).fit(X, y)
    assert first.privacy_spent_.epsilon == pytest.approx(0.5, rel=1e-3)
    assert purse.spent.epsilon == pytest.approx(0.5, rel=1e-3)
    with pytest.warns(UserWarning, match=r"epsilon=100 was asked for, and 1\.\d+ is left"):
        rest = PrivateRidge(100.0, purse=purse, target_bounds=(0, 1)).fit(X, y)
    assert rest.privacy_spent_.epsilon < 2
    assert purse.spent.epsilon == pytest.approx(2.0, rel=1e-3)


def test_metadata_routing_does_not_get_in_the_way():
    X, y = a_table(500)
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(BoundedScaler(-3, 3), PrivateLogisticRegression(1.0, random_state=0))
        assert len(cross_val_score(model, X, y, cv=3)) == 3
    with pytest.raises(TypeError, match="sample_weight"):
        PrivateLogisticRegression(1.0).fit(X, y, sample_weight=np.ones(500))


def test_a_search_without_a_purse_is_loud():
    X, y = a_table(300)
    with pytest.warns(UncountedSpending, match="nobody adds them up"):
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


def test_a_purse_in_memory_refuses_to_be_shared_out_in_silence():
    X, y = a_table(300)
    purse = a_purse()
    with pytest.raises(pickle.PicklingError) as refused:
        cross_val_score(PrivateLogisticRegression(0.1, purse=purse), X, y, cv=2, n_jobs=2)
    assert isinstance(refused.value.__cause__, SharedAcrossProcesses) or "second budget" in str(
        refused.getrepr(chain=True)
    )
    assert purse.spent.releases == 0


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
    with pytest.raises(InvalidArgument, match="without a purse nobody adds it up"):
        PrivateLogisticRegression(0.3, warm_start=True).fit(X, y)


@pytest.mark.parametrize("method", [Nesterov(), DPAGD(), Dynamic(), Nesterov(average="tail")], ids=repr)
def test_any_method_can_be_used(method):
    X, y = a_table(4_000)
    fitted = PrivateLogisticRegression(1.0, method=method, random_state=0, classes=[0, 1]).fit(X, y)
    assert fitted.score(X, y) > 0.8
    assert fitted.privacy_spent_.epsilon <= 1.0


@pytest.mark.parametrize("method", [DPSGD(sample_prob=0.05, steps=60), ObjPert()], ids=["dp-sgd", "objpert"])
def test_methods_with_a_schedule_of_their_own_need_declared_facts(method):
    X, y = a_table(4_000)
    with pytest.raises(InvalidArgument, match=r"n_public=.*feature_norm=.*Nothing was spent"):
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
    with pytest.raises(InvalidArgument, match="next to which nothing else can be paid"):
        PrivateLogisticRegression(None, method=Nesterov(steps=30), purse=purse).fit(X, y)
    assert purse.spent.releases == 0
    declared = {"n_public": 1_000, "feature_norm": 3.0, "standardize": False}
    fitted = PrivateLogisticRegression(None, method=Nesterov(steps=30), purse=purse, **declared).fit(X, y)
    assert fitted.n_iter_ == purse.spent.releases == 30


def test_the_majority_baseline_is_a_method_too():
    X, y = a_table(1_000)
    y = (y & (X[:, 2] > 0)).astype(int)
    assert set(PrivateLogisticRegression(5.0, method=Majority(), random_state=0).fit(X, y).predict(X)) == {0}


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


def test_callbacks_see_every_step(capsys):
    X, y = a_table(500)
    seen = []

    class Notes:
        def on_start(self, steps, done):
            seen.append(steps)

        def on_step(self, step):
            seen.append(step.number)

        def on_end(self, trace):
            seen.append(trace.stop_reason)

    fitted = PrivateLogisticRegression(1.0, callbacks=[Notes()]).fit(X, y)
    assert seen == [fitted.n_iter_, *range(1, fitted.n_iter_ + 1), "steps"]
    PrivateLogisticRegression(1.0, verbose=True).fit(X, y)
    shown = capsys.readouterr().err
    assert importlib.util.find_spec("rich") is None or "budget left 0.0%" in shown


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
    (PrivateLogisticRegression, {"method": "sgd"}, "method must be 'auto'"),
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
    (PrivateRidge, {"target_bounds": (1e12, 1e12 + 1e-2)}, "target_bounds must be further apart"),
    (PrivateHuberRegressor, {"target_bounds": (0, 1), "threshold": 0}, "threshold must be"),
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


def test_constant_columns_and_absent_classes_are_no_mistake():
    X, y = a_table(500)
    X[:, 2] = 7.0
    fitted = PrivateLogisticRegression(1.0, classes=[0, 1, 2], random_state=0).fit(X, y)
    assert np.isfinite(fitted.coef_).all()
    assert fitted.coef_.shape == (3, 4)


def test_predicting_from_other_columns_says_so():
    X, y = a_table(500)
    fitted = PrivateLogisticRegression(1.0).fit(X, y)
    with pytest.raises(ValueError, match=r"3 features.*expecting 4"):
        fitted.predict(X[:, :3])
    with pytest.raises(sklearn.exceptions.NotFittedError):
        PrivateLogisticRegression(1.0).predict(X)


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
    with pytest.raises(InvalidArgument, match="without a purse"):
        loaded.fit(X, y)


def test_a_search_says_that_it_checked_and_keeps_nothing_of_its_trials():
    X, y = a_table(300)
    search = PrivateSearchCV(PrivateLogisticRegression(classes=[0, 1]), {"l2": [0.0]}, epsilon=2.0).fit(X, y)
    assert any("passed the checks" in line for line in search.certificate_.uncovered)
    assert search.best_estimator_._paid_by is None


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


def test_a_search_refuses_bad_data_before_it_pays():
    X, y = a_table(200)
    purse = Purse(5.0, 1e-6, neighbouring="add-remove", filter="rdp")
    missing = np.where(np.arange(200)[:, None] == 3, np.nan, X)
    for model in (PrivateLogisticRegression(), make_pipeline(BoundedScaler(-3, 3), PrivateLogisticRegression())):
        prefix = "" if isinstance(model, PrivateLogisticRegression) else "privatelogisticregression__"
        with pytest.raises(ValueError, match="contains NaN"):
            PrivateSearchCV(model, {f"{prefix}l2": [0.0]}, purse=purse).fit(missing, y)
        with pytest.raises(ValueError, match="only one class"):
            PrivateSearchCV(model, {f"{prefix}l2": [0.0]}, purse=purse).fit(X, np.zeros(200))
    assert purse.spent.releases == 0


def test_a_search_over_a_rare_class_does_not_lose_it():
    X, y = a_table(300)
    y[:2] = 7
    search = PrivateSearchCV(PrivateLogisticRegression(), {"l2": [0.0]}, epsilon=5.0, random_state=1).fit(X, y)
    assert search.classes_.tolist() == [0, 1, 7]
    assert search.best_estimator_.classes is None


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


def test_a_refused_fit_changes_nothing():
    X, _ = a_table(500)
    purse = Purse(0.5, 1e-6, neighbouring="add-remove")
    model = PrivateRidge(None, purse=purse, warm_start=True, target_bounds=(0, 80)).fit(X, a_target(X))
    before = model.predict(X)
    for _ in range(2):
        with pytest.raises(BudgetExhausted):
            model.fit(X, a_target(X))
    assert (model.predict(X) == before).all()


def test_the_certificate_of_a_fit_is_a_part_of_the_purse():
    X, y = a_table(500)
    purse = a_purse()
    purse.declare_uncovered("columns were chosen after looking")
    PrivateRidge(0.9, purse=purse, target_bounds=(0, 1)).fit(X, y)
    certificate = PrivateLogisticRegression(0.5, purse=purse).fit(X, y).certificate_
    assert "columns were chosen after looking" in certificate.uncovered
    assert (
        certificate.part_of == f"a purse with epsilon 2, which had spent {purse.spent.epsilon:.4g} when this was issued"
    )
    assert "one part of what was released" in str(certificate)
    assert purse.ledger.verify(certificate.head) >= certificate.ledger_lines
    assert type(certificate).from_json(certificate.to_json()) == certificate


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


def test_labels_that_a_candidate_declares_are_not_read():
    X, y = a_table(300)
    grid = {"classes": [[0, 1, 2]], "l2": [0.0, 0.1]}
    search = PrivateSearchCV(PrivateLogisticRegression(), grid, epsilon=2.0, random_state=0).fit(X, y)
    assert search.classes_.tolist() == [0, 1, 2]
    assert not any("class labels" in line for line in search.certificate_.uncovered)


@pytest.mark.parametrize("many", ["BaggingClassifier", "CalibratedClassifierCV", "OneVsRestClassifier"])
def test_what_fits_again_and_again_is_loud(many):
    from sklearn import calibration, ensemble, multiclass

    X, y = a_table(300)
    where = next(module for module in (calibration, ensemble, multiclass) if hasattr(module, many))
    words = "NOT PRIVATE" if many == "BaggingClassifier" else "nobody adds them up"
    with pytest.warns(UncountedSpending, match=words):
        getattr(where, many)(PrivateLogisticRegression(1.0)).fit(X, y)


def test_a_seed_is_loud():
    X, y = a_table(200)
    with pytest.warns(SimulationWarning, match="NOT PRIVATE"):
        PrivateLogisticRegression(1.0, random_state=0).fit(X, y)


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


def test_units_of_measurement_do_not_matter():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.lognormal(10.5, 0.6, 20_000), rng.integers(0, 2, 20_000), rng.uniform(18, 90, 20_000)])
    y = (3 * X[:, 1] - 0.05 * (X[:, 2] - 54) - 1.5 + rng.logistic(size=20_000) > 0).astype(int)
    best = LogisticRegression(max_iter=10_000).fit(X / X.std(axis=0), y).score(X / X.std(axis=0), y)
    for units in (1, [1, 1000, 1e-3], [1e-6, 1, 1e6]):
        fitted = PrivateLogisticRegression(0.5, classes=[0, 1], random_state=0).fit(X * units, y)
        assert fitted.score(X * units, y) > best - 0.01
    target = 3 * X[:, 1] - 0.05 * X[:, 2] + rng.standard_normal(20_000)
    assert PrivateRidge(0.5, target_bounds=(-50, 50), random_state=0).fit(X, target).score(X, target) > 0.7


def test_bounds_of_a_target_may_be_generous():
    X, _ = a_table(3_000)
    y = 3 * X[:, 0] + 2 * X[:, 1] + np.random.default_rng(0).standard_normal(3_000)
    for model in REGRESSORS:
        for bounds in ((-15, 15), (-1_000, 1_000), (-100, 10_000)):
            assert model(1.0, target_bounds=bounds, random_state=0).fit(X, y).score(X, y) > 0.8


def test_coefficients_and_probabilities_are_right_where_the_budget_is_generous():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 5))
    y = (X[:, 0] - X[:, 1] + rng.logistic(size=20_000) > 0).astype(int)
    fitted = PrivateLogisticRegression(5.0, classes=[0, 1], random_state=0).fit(X, y)
    assert fitted.coef_[0] == pytest.approx([1, -1, 0, 0, 0], abs=0.12)
    likely = fitted.predict_proba(X)[:, 1]
    for low, high in ((0.1, 0.3), (0.4, 0.6), (0.7, 0.9)):
        there = (likely > low) & (likely < high)
        assert y[there].mean() == pytest.approx(likely[there].mean(), abs=0.03)


def test_a_search_refuses_bad_values_before_it_pays():
    X, y = a_table(200)
    purse = Purse(5.0, 1e-6, neighbouring="add-remove", filter="rdp")
    for values in ([0.0, -1.0], ["a", 0.1]):
        with pytest.raises(InvalidArgument, match="l2 must be"):
            PrivateSearchCV(PrivateLogisticRegression(), {"l2": values}, purse=purse).fit(X, y)
    assert purse.spent.releases == 0
    with pytest.warns(UncountedSpending):
        cross_val_score(PrivateSearchCV(PrivateLogisticRegression(), {"l2": [0.0]}), X, y, cv=2)
