"""What a pipeline learns without paying is named on the certificate."""

import numpy as np
import pytest
from joblib import parallel_backend
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, StandardScaler

from privypurse import GdpFilter, InvalidArgument, Purse, SqliteLedger
from privypurse.estimators import (
    BoundedScaler,
    DeclaredOneHot,
    PrivateLogisticRegression,
    PrivateRangeScaler,
    PrivateRidge,
    PrivateSearchCV,
    RowNormalizer,
    declare_pipeline,
)
from privypurse.estimators._fit_budget import IN_A_WORKER
from privypurse.estimators._uncovered import check_named
from privypurse.purse._allowance import Allowance


def a_purse(**settings):
    return Purse(1.0, 1e-6, neighbouring="add-remove", **settings)


def test_steps_that_learn_are_listed_wherever_they_are():
    pipeline = make_pipeline(
        ColumnTransformer(
            [
                ("numbers", Pipeline([("fill", SimpleImputer()), ("scale", StandardScaler())]), [0]),
                ("ranges", BoundedScaler(), [1]),
                ("left", "passthrough", [2]),
                ("gone", "drop", [3]),
            ],
            remainder=MinMaxScaler(),
        ),
        FeatureUnion([("pca", PCA(1)), ("same", FunctionTransformer())]),
        Normalizer(),
        RowNormalizer(),
        "passthrough",
        RidgeClassifier(),
    )
    expected = [
        ("SimpleImputer", "columntransformer__numbers__fill"),
        ("StandardScaler", "columntransformer__numbers__scale"),
        ("MinMaxScaler", "columntransformer__remainder"),
        ("PCA", "featureunion__pca"),
        ("RidgeClassifier", "ridgeclassifier"),
    ]
    listed = [f"{kind} (step {name!r}), fitted on the data without paying" for kind, name in expected]
    purse = a_purse()
    assert declare_pipeline(purse, pipeline) == listed
    certificate = purse.certificate()
    assert set(listed) <= set(certificate.uncovered)
    assert all(words in str(certificate) for words in listed)
    # Fitted pipelines are listed alike.
    table = [[1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 3.0, 4.0, 5.0, 6.0], [0.0, 1.0, 0.0, 1.0, 0.0]]
    assert declare_pipeline(purse, pipeline.fit(table, [0, 1, 1])) == listed


def test_nothing_is_declared_where_all_is_covered():
    purse = a_purse()
    pipeline = make_pipeline(DeclaredOneHot([0, 1]), PrivateRangeScaler(purse=purse), RowNormalizer())
    before = purse.certificate().uncovered
    assert declare_pipeline(purse, pipeline) == []
    assert purse.certificate().uncovered == before


def test_what_another_budget_paid_for_is_named(tmp_path):
    purse = a_purse()
    words = ["PrivateRangeScaler, paid from another budget than this purse"]
    assert declare_pipeline(purse, PrivateRangeScaler()) == words
    assert declare_pipeline(purse, PrivateRangeScaler(purse=a_purse())) == words
    allowance = Allowance(purse, GdpFilter(0.1, 1e-6, "add-remove"))
    assert declare_pipeline(purse, PrivateRangeScaler(purse=allowance)) == []
    assert declare_pipeline(allowance, PrivateRangeScaler(purse=allowance)) == []
    file = tmp_path / "budget.db"
    one, same = (a_purse(ledger=SqliteLedger(file)) for _ in range(2))
    other = a_purse(ledger=SqliteLedger(file), dataset="other")
    assert declare_pipeline(same, PrivateRangeScaler(purse=one)) == []
    assert declare_pipeline(other, PrivateRangeScaler(purse=one)) == words


def test_a_step_paid_from_the_same_purse_is_outside_of_the_part_of_the_fit():
    purse = a_purse()
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 2)), rng.integers(0, 2, 300)
    model = PrivateLogisticRegression(0.3, classes=[0, 1], purse=purse)
    pipeline = make_pipeline(PrivateRangeScaler(0.3, purse=purse), model).fit(X, y)
    words = "PrivateRangeScaler (step 'privaterangescaler'), paid from the same purse, outside of this part"
    assert words in pipeline[-1].certificate_.uncovered
    assert not any("PrivateRangeScaler" in line for line in purse.certificate().uncovered)
    check_named(pipeline)
    # Joined by hand, the certificate of the model does not name the scaler.
    alone = clone(model).fit(X, y)
    with pytest.raises(InvalidArgument, match="outside of this part"):
        check_named(make_pipeline(pipeline[0], alone))


@pytest.mark.parametrize("jobs", [None, 2])
def test_steps_before_fits_in_workers_are_named_or_said_to_be_unseen(jobs):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((600, 2)), rng.integers(0, 3, 600)
    every = OneVsRestClassifier(PrivateLogisticRegression(purse=a_purse(), epsilon=0.1), n_jobs=jobs)
    with parallel_backend("threading", n_jobs=1):
        fitted = make_pipeline(StandardScaler(), every).fit(X, y)[-1]
    scaler = "StandardScaler (step 'standardscaler'), fitted on the data without paying"
    for model in fitted.estimators_:
        assert (scaler if jobs is None else IN_A_WORKER) in model.certificate_.uncovered
        assert (IN_A_WORKER in model.certificate_.uncovered) == (jobs is not None)


def test_what_a_transformer_learned_from_the_target_is_named():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 2)), rng.standard_normal(300)
    model = TransformedTargetRegressor(PrivateRidge(target_bounds=(0, 1)), transformer=MinMaxScaler()).fit(X, y)
    assert "MinMaxScaler, fitted on the data without paying" in model.regressor_.certificate_.uncovered


def test_a_fit_of_ones_own_is_not_ours():
    class Peeking(BoundedScaler):
        def fit(self, X, y=None):
            self.upper = max(map(max, X))
            return super().fit(X, y)

        _needs_fit = True

    class Renamed(PrivateRangeScaler):
        pass

    assert declare_pipeline(a_purse(), Peeking()) == ["Peeking, fitted on the data without paying"]
    purse = a_purse()
    assert declare_pipeline(purse, Renamed(purse=purse)) == []


def test_objects_that_say_nothing_about_themselves_are_listed():
    class Plain:
        def fit(self, X):
            return self

    assert declare_pipeline(a_purse(), Plain()) == ["Plain, fitted on the data without paying"]


def test_a_single_transformer_is_declared():
    purse = a_purse()
    (words,) = declare_pipeline(purse, StandardScaler())
    assert words in purse.certificate().uncovered
    assert purse.spent.releases == 0


def test_wrong_arguments_are_refused():
    for pipeline in (None, StandardScaler, "scaler"):
        with pytest.raises(InvalidArgument, match="pipeline must be an estimator"):
            declare_pipeline(a_purse(), pipeline)
    with pytest.raises(InvalidArgument, match="purse must be a Purse"):
        declare_pipeline(StandardScaler(), a_purse())


class Centre(FunctionTransformer):
    """Learns the mean, though the tags that it inherits say that it needs no fit."""

    def fit(self, X, y=None):
        self.mean_ = np.mean(X, axis=0)
        return self


@pytest.mark.parametrize(
    "step",
    [
        Centre(),
        SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True, add_indicator=True),
        ColumnTransformer([("kept", "passthrough", lambda X: [j for j in range(2) if X[:, j].max() <= 1])]),
    ],
    ids=["own-fit", "indicator", "columns-by-the-table"],
)
def test_steps_that_learn_in_spite_of_their_tags_are_declared_and_refused_in_a_search(step):
    assert declare_pipeline(a_purse(), make_pipeline(step, RowNormalizer())) != []
    search = PrivateSearchCV(make_pipeline(step, PrivateLogisticRegression()), {})
    with pytest.raises(InvalidArgument, match="would learn"):
        search.fit(np.zeros((100, 2)), np.arange(100) % 2)


def test_a_stateless_step_with_tags_of_its_own_is_not_declared():
    class Same(TransformerMixin, BaseEstimator):
        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return X

        def __sklearn_tags__(self):
            tags = super().__sklearn_tags__()
            tags.requires_fit = False
            return tags

        def _more_tags(self):  # before scikit-learn 1.6
            return {"requires_fit": False, "stateless": True}

    assert declare_pipeline(a_purse(), Same()) == []


def test_a_search_without_a_step_is_refused():
    with pytest.raises(InvalidArgument, match="no step"):
        PrivateSearchCV(Pipeline([("nothing", "passthrough")]), {}).fit(np.zeros((100, 2)), np.arange(100) % 2)


def test_a_search_takes_a_pipeline_of_declared_steps_wherever_they_are():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, 2_000), rng.uniform(0, 90, 2_000), rng.standard_normal(2_000)])
    y = (X[:, 1] > 40).astype(int)
    columns = ColumnTransformer(
        [
            ("kind", DeclaredOneHot([[0.0, 1.0, 2.0]]), [0]),
            ("ages", Pipeline([("scale", BoundedScaler(0, 90))]), [1]),
        ],
        remainder=FunctionTransformer(),
    )
    pipeline = make_pipeline(FeatureUnion([("columns", columns)]), PrivateLogisticRegression(classes=[0, 1]))
    search = PrivateSearchCV(pipeline, {"privatelogisticregression__l2": [0.0, 0.01]}, epsilon=4.0)
    purse = a_purse()
    assert declare_pipeline(purse, make_pipeline(FeatureUnion([("columns", columns)]), RowNormalizer())) == []
    assert search.fit(X, y).score(X, y) > 0.8
    assert 3.9 < search.privacy_spent_.epsilon <= 4.0


def test_a_choice_between_sparse_and_dense_by_the_records_is_named():
    X = np.random.default_rng(0).integers(0, 2, (2_000, 2)).astype(float)
    for threshold in (0.3, 0):
        hot = ColumnTransformer(
            [("kind", DeclaredOneHot([[0.0, 1.0], [0.0, 1.0]]), [0, 1])], sparse_threshold=threshold
        )
        pipeline = make_pipeline(FeatureUnion([("all", hot)]), PrivateLogisticRegression(classes=[0.0, 1.0]))
        certificate = PrivateSearchCV(pipeline, {}, epsilon=2.0).fit(X, X[:, 0]).certificate_
        assert any("returned a sparse table" in words for words in certificate.uncovered) == (threshold > 0)


def test_a_container_with_a_fit_of_its_own_is_listed():
    class Selecting(ColumnTransformer):
        def fit(self, X, y=None):
            return super().fit(X[:, X.std(axis=0) > 0], y)

    purse = a_purse()
    container = Selecting([("same", BoundedScaler(0, 1), [0])])
    assert declare_pipeline(purse, container) == ["Selecting, fitted on the data without paying"]


def test_a_fit_in_a_pipeline_names_what_the_steps_before_it_learned():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((500, 2)), np.arange(500) % 2
    columns = ColumnTransformer([("fill", SimpleImputer(), [0]), ("range", BoundedScaler(), [1])])
    careless = make_pipeline(columns, FunctionTransformer(np.abs), PrivateLogisticRegression(1.0, classes=[0, 1]))
    words = [
        "SimpleImputer (step 'columntransformer__fill'), fitted on the data without paying",
        "that the function in FunctionTransformer (step 'functiontransformer') treats each record alone",
    ]
    assert set(words) <= set(careless.fit(X, y)[-1].certificate_.uncovered)
    purse = a_purse()
    careless.set_params(privatelogisticregression__purse=purse).fit(X, y)
    assert set(words) <= set(purse.certificate().uncovered)
    assert declare_pipeline(purse, careless[:-1]) == words
    alone = PrivateLogisticRegression(1.0, classes=[0, 1]).fit(X, y).certificate_
    declared = make_pipeline(BoundedScaler(), PrivateLogisticRegression(1.0, classes=[0, 1])).fit(X, y)[-1].certificate_
    assert declared.uncovered == alone.uncovered
