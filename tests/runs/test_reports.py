"""Reports of models that were fitted from Python."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from privypurse import InvalidArgument, Purse
from privypurse.estimators import (
    BoundedScaler,
    DeclaredOneHot,
    PrivateAdditiveClassifier,
    PrivateLogisticRegression,
    PrivateRidge,
    declare_pipeline,
)
from privypurse.runs.reports import _one_hot_groups, report

pytest.importorskip("plotly")
SETTINGS = {"classes": [0, 1]}


def a_table(rows=2_000):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, rows), rng.uniform(0, 90, rows)]).astype(float)
    return X, (X[:, 1] > 40).astype(int)


def text_of(path):
    return path.read_text(encoding="utf-8")


def test_the_report_of_a_model_has_its_guarantee_trace_and_named_coefficients(tmp_path):
    X, y = a_table()
    model = PrivateRidge(1.0, target_bounds=(-1, 2)).fit(X, y)
    report(model, tmp_path / "report.html", title="A study", names=["kind", "age of a person"])
    page = text_of(tmp_path / "report.html")
    for words in (
        "A study",
        "age of a person",
        "Spending of the training",
        "plot-noise",
        "Intervals are about noise alone",
    ):
        assert words in page
    assert "privypurse ledger verify" not in page  # its ledger is not a file


def test_the_report_of_a_pipeline_lists_its_declared_steps_and_the_budget_of_its_purse(tmp_path):
    X, y = a_table()
    purse = Purse(3.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db", dataset="a survey")
    columns = ColumnTransformer([("kind", DeclaredOneHot([[0.0, 1.0, 2.0]]), [0]), ("age", BoundedScaler(0, 90), [1])])
    pipeline = make_pipeline(columns, PrivateLogisticRegression(1.0, purse=purse, **SETTINGS)).fit(X, y)
    groups = _one_hot_groups(pipeline[0], pipeline[:-1].get_feature_names_out().tolist())
    assert groups == [["kind__x0_0.0", "kind__x0_1.0", "kind__x0_2.0"]]
    before = purse.spent
    report(pipeline, tmp_path / "report.html", intervals=False)
    page = text_of(tmp_path / "report.html")
    for words in ("a survey", "kind__x0_2.0", "step columntransformer", "privypurse ledger verify --ledger budget.db"):
        assert words in page
    assert purse.spent == before


LEARNED = r"StandardScaler \(step 'standardscaler'\), fitted on the data without paying"


def test_a_step_that_learned_is_refused_unless_the_certificate_names_it(tmp_path):
    X, y = a_table()
    purse = Purse(3.0, 1e-6, neighbouring="add-remove")
    scaler, model = StandardScaler().fit(X), PrivateLogisticRegression(1.0, purse=purse, **SETTINGS)
    pipeline = make_pipeline(scaler, model.fit(scaler.transform(X), y))
    with pytest.raises(InvalidArgument, match=LEARNED):
        report(pipeline, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    declare_pipeline(purse, pipeline)
    report(pipeline.fit(X, y), tmp_path / "report.html", intervals=False)
    assert "StandardScaler" in text_of(tmp_path / "report.html")


def test_a_function_that_may_use_several_rows_is_refused_unless_the_certificate_names_it(tmp_path):
    X, y = a_table()
    centred = FunctionTransformer(lambda table: table - table.mean(axis=0))
    purse = Purse(3.0, 1e-6, neighbouring="add-remove")
    model = PrivateLogisticRegression(1.0, purse=purse, **SETTINGS).fit(centred.transform(X), y)
    with pytest.raises(InvalidArgument, match=r"that the function in FunctionTransformer .* treats each record alone"):
        report(make_pipeline(centred, model), tmp_path / "report.html")
    report(make_pipeline(centred, model).fit(X, y), tmp_path / "report.html", intervals=False)
    assert "treats each record alone" in text_of(tmp_path / "report.html")


def test_the_report_of_an_additive_model_draws_its_curves_and_names_the_class(tmp_path):
    rng = np.random.default_rng(0)
    X, jobs = rng.uniform(0, 90, (6_000, 2)), rng.choice(["law", "care"], 6_000)
    frame = pd.DataFrame({"age": X[:, 0], "hours": X[:, 1], "job": jobs})
    y = np.where((X[:, 0] > 40) == (X[:, 1] > 50), "well", "ill")
    given = {"ranges": {"age": (0, 90), "hours": (0, 90)}, "categories": {"job": ["law", "care"]}}
    model = PrivateAdditiveClassifier(8.0, classes=["well", "ill"], **given).fit(frame, y)
    assert list(model.pairs()["pair"].unique()) == ["age x hours"]
    report(model, tmp_path / "report.html")
    page = text_of(tmp_path / "report.html")
    for words in ("What age adds to the score of well", "age x hours", "(other)", "Intervals are about noise alone"):
        assert words in page
    with pytest.raises(InvalidArgument, match="which has its own"):
        report(model, tmp_path / "report.html", names=["a", "b", "c"])


@pytest.mark.parametrize(
    "model", [PrivateLogisticRegression(), StandardScaler(), make_pipeline(StandardScaler()), 3], ids=str
)
def test_what_is_not_a_fitted_model_is_refused(tmp_path, model):
    with pytest.raises(InvalidArgument, match="fitted private model"):
        report(model, tmp_path / "report.html")
