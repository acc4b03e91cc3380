"""Models in folders: the same to the last bit, plain files only, and nothing taken for a model that
is none.
"""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.pipeline import Pipeline

from privypurse import InvalidArgument
from privypurse.estimators import PrivateLogisticRegression
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
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


def test_only_our_pipelines_are_saved(tmp_path):
    for wrong in (a_pipeline()[-1], Pipeline([("model", a_pipeline()[-1])])):
        with pytest.raises(InvalidArgument, match="TableEncoder"):
            save_model(wrong, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


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
