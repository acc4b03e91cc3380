"""Models in folders: the same to the last bit, plain files only, and nothing taken for a model that
is none.
"""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, StandardScaler

from privypurse import InvalidArgument, Purse
from privypurse.core._reading import MISSHAPEN
from privypurse.estimators import (
    BoundedScaler,
    DeclaredOneHot,
    PrivateLogisticRegression,
    PrivateRangeScaler,
    PrivateRidge,
    RowNormalizer,
)
from privypurse.runs._steps import pipeline_from_json, steps_to_json
from privypurse.runs.folder import (
    ModelFolder,
    ModelNotSaved,
    load_model,
    model_files,
    model_from_json,
    model_to_json,
    replace_folder,
    save_model,
)
from tests.runs.fitted import KINDS, a_pipeline, a_table

FILES = {"model.json", "schema.toml", "certificate.json", "certificate.txt", "trace.json", "manifest.json"}


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", KINDS)
def test_models_come_back_the_same_to_the_last_bit(tmp_path, kind):
    pipeline, table = a_pipeline(kind), a_table(seed=5)
    save_model(pipeline, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    before, after = pipeline[-1], loaded[-1]
    assert type(before) is type(after)
    for name in ("coef_", "intercept_"):
        one, other = np.asarray(getattr(before, name)), np.asarray(getattr(after, name))
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    np.testing.assert_array_equal(pipeline.predict(table), loaded.predict(table))
    for name in ("decision_function", "predict_proba"):
        if hasattr(before, name):
            assert getattr(pipeline, name)(table).tobytes() == getattr(loaded, name)(table).tobytes()
    assert loaded[0].schema == pipeline[0].schema
    assert str(after.certificate_) == str(before.certificate_)
    assert after.trace_.to_json() == before.trace_.to_json()
    assert after.privacy_spent_ == before.privacy_spent_
    # Saved again, the files are the same.
    save_model(loaded, tmp_path / "again")
    assert content(tmp_path / "again") == content(tmp_path / "model")


def test_a_folder_holds_plain_text_only(tmp_path):
    save_model(a_pipeline(), tmp_path / "model")
    files = content(tmp_path / "model")
    assert set(files) == FILES
    for name, content_ in files.items():
        content_.decode("utf-8")
        if name.endswith(".json"):
            json.loads(content_)
        with pytest.raises(Exception):  # noqa: B017 - whatever it is, it is not a pickle
            pickle.loads(content_)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_loading_never_unpickles(tmp_path):
    save_model(a_pipeline(), tmp_path / "model")
    code = (
        "import pickle, sys\n"
        "def refuse(*_, **__): raise SystemExit('unpickled')\n"
        "from privypurse.runs.folder import load_model\n"
        "pickle.load = pickle.loads = pickle.Unpickler = pickle._Unpickler = refuse\n"
        "import numpy; numpy.load = refuse\n"
        f"print(load_model({str(tmp_path / 'model')!r}).predict({{'age': [3], 'job': ['law']}}))"
    )
    # Numba reads its own compiled code with pickle, from beside the library's files.
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("['no']", "['yes']")


@pytest.mark.parametrize("name", sorted(FILES - {"manifest.json"}))
@pytest.mark.parametrize("how", ["gone", "changed", "cut off"])
def test_a_damaged_model_is_refused_by_the_name_of_the_file(tmp_path, name, how):
    save_model(a_pipeline(), tmp_path / "model")
    path = tmp_path / "model" / name
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + (b"" if how == "cut off" else b"#"))
    with pytest.raises(InvalidArgument, match=name):
        load_model(tmp_path / "model")


@pytest.mark.parametrize(
    "manifest", [None, b"", b"[]", b"{}", b'{"sha256": 3}', b'{"sha256": {}}', b"\xff", b'{"sha256": {"../x": "y"}}']
)
def test_a_folder_without_a_manifest_is_no_model(tmp_path, manifest):
    save_model(a_pipeline(), tmp_path / "model")
    path = tmp_path / "model" / "manifest.json"
    path.unlink() if manifest is None else path.write_bytes(manifest)
    with pytest.raises(InvalidArgument, match="not a privypurse model"):
        load_model(tmp_path / "model")


def test_places_that_are_no_models_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "nowhere", tmp_path, tmp_path / "file"):
        with pytest.raises(InvalidArgument, match="not a privypurse model"):
            load_model(path)


def test_json_that_is_no_model_is_refused():
    text = model_to_json(a_pipeline()[-1])
    fields = json.loads(text)
    for wrong in (
        "",
        "[]",
        "{}",
        "3",
        json.dumps(fields | {"kind": "os.system"}),
        json.dumps(fields | {"params": {"x": 1}}),
    ):
        with pytest.raises(InvalidArgument, match="not a privypurse model"):
            model_from_json(wrong)
    with pytest.raises(InvalidArgument, match="format 2"):
        model_from_json(json.dumps(fields | {"format": 2}))
    with pytest.raises(InvalidArgument, match="fitted"):
        model_to_json(PrivateLogisticRegression())


def test_only_our_models_are_saved(tmp_path):
    for wrong in (StandardScaler(), Pipeline([("model", StandardScaler())])):
        with pytest.raises(InvalidArgument, match="private linear model"):
            save_model(wrong, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


FILL = SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True)
WORDS = {"kind": ["a", "b", "é"]}


def a_frame(rows=800, seed=0):
    rng = np.random.default_rng(seed)
    kinds, gaps = rng.choice(["a", "b", "é", "other"], rows), rng.standard_normal(rows)
    return pd.DataFrame(
        {
            "kind": np.where(rng.random(rows) < 0.1, None, kinds),
            "age": rng.uniform(-9, 99, rows),
            "gap": np.where(rng.random(rows) < 0.2, np.nan, gaps),
        }
    )


def by_column(**settings):
    hot = DeclaredOneHot(WORDS, missing="column", unknown="other", dtype=np.float32, **settings)
    ages = Pipeline([("scale", BoundedScaler({"age": 0}, {"age": np.float64(90)}))])
    return ColumnTransformer([("kind", hot, ["kind"]), ("age", ages, make_column_selector("age"))], remainder=FILL)


OF_DECLARED_STEPS = {
    "by column": lambda: make_pipeline(by_column(sparse_output=False), RowNormalizer(2.0)),
    "sparse": lambda: make_pipeline(by_column()),
    "as a frame": lambda: make_pipeline(by_column(sparse_output=False)).set_output(transform="pandas"),
    "a union": lambda: make_pipeline(
        ColumnTransformer([("x", "passthrough", ["age"]), ("no", "drop", ["kind"])]),
        FeatureUnion([("long", RowNormalizer(9.0)), ("unit", Normalizer())]),
    ),
    "text filled": lambda: make_pipeline(
        ColumnTransformer(
            [("kind", make_pipeline(clone(FILL).set_params(fill_value="a"), DeclaredOneHot([*"abc"])), ["kind"])]
        )
    ),
    "released ranges": lambda: make_pipeline(
        ColumnTransformer([("age", PrivateRangeScaler(1.0, random_state=0), slice(1, 2))])
    ),
}


@pytest.mark.parametrize("name", OF_DECLARED_STEPS)
def test_pipelines_of_declared_steps_come_back_with_equal_predictions(tmp_path, name):
    table, new = a_frame(), a_frame(300, seed=1)
    steps = OF_DECLARED_STEPS[name]()
    model = PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0)
    pipeline = Pipeline([*steps.steps, ("model", model)]).fit(table, (table.age > 40).astype(int))
    if name == "released ranges":
        assert any("paid from another budget than this purse" in words for words in pipeline[-1].certificate_.uncovered)
        purse = Purse(3.0, 1e-6, neighbouring="add-remove")
        pipeline[0].set_params(age__random_state=None, age__purse=purse)
        pipeline.set_params(model__purse=purse, model__random_state=None).fit(table, (table.age > 40).astype(int))
    save_model(pipeline, tmp_path / "model")
    files = content(tmp_path / "model")
    assert set(files) == FILES - {"schema.toml"} | {"steps.json"}
    json.loads(files["steps.json"])
    loaded = load_model(tmp_path / "model")
    assert [place for place, _ in loaded.steps] == [place for place, _ in pipeline.steps]
    np.testing.assert_array_equal(loaded.predict_proba(new), pipeline.predict_proba(new))
    np.testing.assert_array_equal(loaded.predict(new), pipeline.predict(new))
    np.testing.assert_array_equal(loaded[:-1].get_feature_names_out(), pipeline[:-1].get_feature_names_out())
    assert str(loaded[-1].certificate_) == str(pipeline[-1].certificate_)
    save_model(loaded, tmp_path / "again")
    assert content(tmp_path / "again") == files


def test_steps_for_a_table_of_absurd_width_are_refused():
    with pytest.raises(ValueError, match="more columns"):
        pipeline_from_json(json.dumps({"format": 1, "columns": 10**11, "names": None, "steps": []}), None)


def test_a_pipeline_of_a_model_alone_comes_back(tmp_path):
    table = a_frame()[["age"]]
    model = PrivateRidge(1.0, target_bounds=(0, 90), random_state=0)
    pipeline = Pipeline([("model", model)]).fit(table, table.age)
    save_model(pipeline, tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(table), pipeline.predict(table))


def double(X):
    return 2 * X


@pytest.mark.parametrize(
    ("step", "hint"),
    [
        (StandardScaler(), r"step 'step' \(StandardScaler\) learned from the data"),
        (Pipeline([("scale", StandardScaler())]), r"step 'step__scale' \(StandardScaler\) learned from the data"),
        (FunctionTransformer(double), "step 'step' is a function"),
        (Binarizer(), r"step 'step' \(Binarizer\) is of a kind"),
        (DeclaredOneHot([complex(1), 2.0]), "step 'step' has a setting"),
    ],
    ids=["learned", "inside", "function", "kind", "setting"],
)
def test_a_step_that_plain_files_cannot_hold_is_refused_by_its_name(tmp_path, step, hint):
    table = a_frame()[["age"]].to_numpy()
    model = PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0)
    pipeline = Pipeline([("step", step), ("model", model)]).fit(table, table[:, 0] > 40)
    with pytest.raises(InvalidArgument, match=f"{hint}.*save the pipeline with skops"):
        save_model(pipeline, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_learned_in_silence_is_refused_with_the_remedy(tmp_path):
    table = a_frame()[["age"]].to_numpy()
    scaler, model = StandardScaler().fit(table), PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0)
    pipeline = make_pipeline(scaler, model.fit(scaler.transform(table), table[:, 0] > 40))
    with pytest.raises(InvalidArgument, match=r"not name StandardScaler \(step 'standardscaler'\).* declare_pipeline"):
        save_model(pipeline, tmp_path / "model")


def test_steps_that_were_changed_run_nothing(tmp_path):
    table = a_frame()[["age"]]
    model = PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0)
    pipeline = make_pipeline(FunctionTransformer(), model).fit(table, table.age > 40)
    fields = json.loads(steps_to_json(pipeline))

    def changed(**settings):
        return json.dumps(fields | {"steps": [["one", {"kind": "FunctionTransformer", "params": {}} | settings]]})

    assert pipeline_from_json(changed(), pipeline[-1])
    for wrong in (
        "{}",
        changed(kind="os.system"),
        changed(params={"func": "print"}),
        changed(kind="Pipeline", params={"steps": [], "memory": "cache"}),
        changed(params={"validate": {"eval": "1"}}),
        json.dumps(fields | {"columns": 2, "names": None}),
    ):
        with pytest.raises((InvalidArgument, *MISSHAPEN)):
            pipeline_from_json(wrong, pipeline[-1])
    with pytest.raises(InvalidArgument, match="format 2"):
        pipeline_from_json(json.dumps(fields | {"format": 2}), pipeline[-1])


def test_a_model_is_replaced_on_request_only(tmp_path):
    save_model(a_pipeline(), tmp_path / "model")
    with pytest.raises(InvalidArgument, match="exists already"):
        save_model(a_pipeline(seed=1), tmp_path / "model")
    assert load_model(tmp_path / "model")[-1].coef_.tolist() == a_pipeline()[-1].coef_.tolist()
    save_model(a_pipeline(seed=1), tmp_path / "model", overwrite=True)
    assert load_model(tmp_path / "model")[-1].coef_.tolist() == a_pipeline(seed=1)[-1].coef_.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_is_no_model_is_never_replaced(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    for name in ("thesis", "file", "broken"):
        with pytest.raises(InvalidArgument, match="not a privypurse model"):
            save_model(a_pipeline(), tmp_path / name, overwrite=True)
        with pytest.raises(InvalidArgument, match=r"would not be replaced: .*not a privypurse model") as refused:
            save_model(a_pipeline(), tmp_path / name)
        assert "--overwrite" not in str(refused.value)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "file", "thesis"]
    (tmp_path / "empty").mkdir()
    save_model(a_pipeline(), tmp_path / "empty", overwrite=True)
    load_model(tmp_path / "empty")


def test_what_appeared_in_the_meantime_is_not_replaced(tmp_path):
    for name, overwrite in (("model", False), ("thesis", True)):
        with ModelFolder(tmp_path / name, overwrite=overwrite) as place:
            (tmp_path / name).mkdir()
            (tmp_path / name / "chapter.txt").write_text("years of work")
            with pytest.raises(ModelNotSaved, match="move it from there") as refused:
                place.write(model_files(a_pipeline()))
        assert (tmp_path / name / "chapter.txt").read_text() == "years of work"
        load_model(str(refused.value).split("It is in '")[1].split("'")[0])


def test_a_link_is_replaced_and_what_it_points_to_is_not(tmp_path):
    save_model(a_pipeline(), tmp_path / "v1")
    (tmp_path / "latest").symlink_to("v1")
    assert load_model(tmp_path / "latest")
    save_model(a_pipeline(seed=1), tmp_path / "latest", overwrite=True)
    assert load_model(tmp_path / "v1")[-1].coef_.tolist() == a_pipeline()[-1].coef_.tolist()
    assert load_model(tmp_path / "latest")[-1].coef_.tolist() == a_pipeline(seed=1)[-1].coef_.tolist()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "v1"]


def test_a_place_is_checked_before_and_left_clean_after(tmp_path):
    with pytest.raises(InvalidArgument, match="does not exist"), ModelFolder(tmp_path / "no" / "model"):
        pass
    with ModelFolder(tmp_path / "model"):
        assert [path.suffix for path in tmp_path.iterdir()] == [".partial"]
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_no_text_do_not_lose_a_model(tmp_path):
    with ModelFolder(tmp_path / "model") as place:
        place.write(model_files(a_pipeline()) | {"report.html": os.fsdecode(b"caf\xe9.csv")})
    load_model(tmp_path / "model")


def test_replacing_a_folder_deletes_the_old_one_or_puts_it_back(tmp_path):
    for name in ("new", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "name").write_text(name)
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "nowhere", tmp_path / "there")
    assert (tmp_path / "there" / "name").read_text() == "there"
    replace_folder(tmp_path / "new", tmp_path / "there")
    assert (tmp_path / "there" / "name").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 1
