"""Private estimators as a scikit-learn user meets them: data of every kind, models, pipelines,
copies, files.
"""

import importlib.util
import pickle

import joblib
import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone, is_regressor
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from privypurse.estimators import (
    BoundedScaler,
    DeclaredOneHot,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    RowNormalizer,
)
from privypurse.methods import DPAGD, Dynamic, Majority, Nesterov
from tests.estimators.tables import a_table, a_target

CLASSIFIERS = [PrivateLogisticRegression, PrivateLinearSVC]
REGRESSORS = [PrivateRidge, PrivateHuberRegressor]


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


@pytest.mark.parametrize("kind", ["classifier", "classes", "regressor"])
def test_scores_do_not_depend_on_the_place_of_a_row(kind):
    # Measuring counts records by cells of scores. With a matrix product the last bits of other
    # records would change when one is added, and so would their cells.
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30_000, 7)), rng.integers(0, 3, 30_000)
    model = PrivateLogisticRegression(4.0, classes=range(3 if kind == "classes" else 2), random_state=0)
    if kind == "regressor":
        model = PrivateRidge(4.0, target_bounds=(0, 2), random_state=0)
    model.fit(X, np.minimum(y, 1) if kind == "classifier" else y)
    assert (kind == "regressor") == (model.preparation_.turn is not None)
    score = model.predict if kind == "regressor" else model.decision_function
    for table in (X, X.astype(np.float32)):
        for rows in range(1_001, 1_005):
            same = score(np.repeat(table[:1], rows, axis=0))
            assert len(np.unique(same, axis=0)) == 1


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


@pytest.mark.parametrize("model", REGRESSORS)
def test_predictions_stay_within_the_declared_range(model):
    X, _ = a_table(2_000)
    fitted = model(1.0, target_bounds=(45, 55), random_state=0).fit(X, a_target(X))
    predicted = fitted.predict(10 * X)
    assert (predicted.min(), predicted.max()) == (45, 55)


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
    from privypurse.oracles._rows import Rows

    X = sparse.random(3_000, 1_000, density=0.01, format="csr", random_state=0)
    y = (np.asarray(X[:, :20].sum(axis=1)).ravel() > 0.05).astype(int)
    monkeypatch.setattr("privypurse.estimators._preparation.MOST_DENSE", 1_000)
    kept = []
    monkeypatch.setattr(Rows, "table", property(lambda self: kept.append(self._table) or self._table))
    fitted = PrivateLogisticRegression(50.0, random_state=0).fit(X, y)
    assert all(sparse.issparse(table) for table in kept)
    assert fitted.preparation_.centre is None
    assert np.isfinite(fitted.coef_).all()


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


def test_metadata_routing_does_not_get_in_the_way():
    X, y = a_table(500)
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(BoundedScaler(-3, 3), PrivateLogisticRegression(1.0, random_state=0))
        assert len(cross_val_score(model, X, y, cv=3)) == 3
    with pytest.raises(TypeError, match="sample_weight"):
        PrivateLogisticRegression(1.0).fit(X, y, sample_weight=np.ones(500))


@pytest.mark.parametrize("method", [Nesterov(), DPAGD(), Dynamic(), Nesterov(average="tail")], ids=repr)
def test_any_method_can_be_used(method):
    X, y = a_table(4_000)
    fitted = PrivateLogisticRegression(1.0, method=method, random_state=0, classes=[0, 1]).fit(X, y)
    assert fitted.score(X, y) > 0.8
    assert fitted.privacy_spent_.epsilon <= 1.0


def test_the_majority_baseline_is_a_method_too():
    X, y = a_table(1_000)
    y = (y & (X[:, 2] > 0)).astype(int)
    assert set(PrivateLogisticRegression(5.0, method=Majority(), random_state=0).fit(X, y).predict(X)) == {0}


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
