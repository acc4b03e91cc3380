"""Saving a model survives kills and full disks: a complete model is under its name or beside it."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

from privypurse.core._errors import FileUnusable
from privypurse.runs.folder import ModelFolder, ModelNotSaved, load_model, model_files, save_model
from tests.runs.fitted import a_pipeline

SAVE_FOREVER = """
import sys
from privypurse.runs.folder import load_model, save_model
one, two, place = sys.argv[1:]
pipelines = [load_model(one), load_model(two)]
print("ready", flush=True)
while True:
    for pipeline in pipelines:
        save_model(pipeline, place, overwrite=True)
"""


def kept_models(folder):
    """Return the models that a reader finds under the name, or else under the names that replacing
    gives them.
    """
    if (folder / "model").exists():
        return [load_model(folder / "model")]
    return [load_model(path) for path in folder.glob(".model.*.old")]


def test_a_kill_at_any_moment_leaves_a_complete_model_under_its_name_or_beside_it(tmp_path):
    save_model(a_pipeline(), tmp_path / "one")
    save_model(a_pipeline(seed=1), tmp_path / "two")
    save_model(a_pipeline(), tmp_path / "model")
    known = [load_model(tmp_path / name)[-1].coef_.tolist() for name in ("one", "two")]
    rng = np.random.default_rng(0)
    for _ in range(6):
        arguments = [str(tmp_path / name) for name in ("one", "two", "model")]
        process = subprocess.Popen([sys.executable, "-c", SAVE_FOREVER, *arguments], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        models = kept_models(tmp_path)
        assert models
        assert all(model[-1].coef_.tolist() in known for model in models)


KILLED_AT_RENAME = """
import os, pathlib, sys
from privypurse.runs.folder import load_model, save_model
place, new, last = pathlib.Path(sys.argv[1]), load_model(sys.argv[2]), int(sys.argv[3])
rename, done = pathlib.Path.rename, 0
def counted(self, target):
    global done
    done += 1
    if done == last:
        os.kill(os.getpid(), 9)
    return rename(self, target)
pathlib.Path.rename = counted
save_model(new, place, overwrite=True)
"""


@pytest.mark.parametrize(("last", "left"), [(1, "model"), (2, ".old")])
def test_a_kill_before_either_rename_leaves_the_old_model_and_the_next_save_succeeds(tmp_path, last, left):
    save_model(a_pipeline(), tmp_path / "model")
    save_model(a_pipeline(seed=1), tmp_path / "new")
    arguments = [str(tmp_path / "model"), str(tmp_path / "new"), str(last)]
    done = subprocess.run([sys.executable, "-c", KILLED_AT_RENAME, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL
    (kept,) = [path for path in tmp_path.iterdir() if path.name.endswith(left)]
    assert load_model(kept)[-1].coef_.tolist() == a_pipeline()[-1].coef_.tolist()
    assert (tmp_path / "model").exists() == (left == "model")
    save_model(a_pipeline(seed=1), tmp_path / "model", overwrite=True)
    assert load_model(tmp_path / "model")[-1].coef_.tolist() == a_pipeline(seed=1)[-1].coef_.tolist()


def test_a_model_that_cannot_be_written_at_all_says_so_and_keeps_the_old_one(tmp_path):
    save_model(a_pipeline(), tmp_path / "model")
    code = (
        "import resource\n"
        "from privypurse.runs.folder import ModelFolder, load_model\n"
        "from privypurse.runs.folder import model_files\n"
        f"files = model_files(load_model({str(tmp_path / 'model')!r}))\n"
        f"with ModelFolder({str(tmp_path / 'model')!r}, overwrite=True) as place:\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "    place.write(files)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ModelNotSaved" in done.stderr
    assert "stays on the ledger" in done.stderr
    load_model(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_whose_folder_went_away_is_saved_elsewhere(tmp_path):
    (tmp_path / "deep").mkdir()
    with ModelFolder(tmp_path / "deep" / "model") as place:
        (tmp_path / "deep").rename(tmp_path / "moved")
        with pytest.raises(ModelNotSaved) as refused:
            place.write(model_files(a_pipeline()))
    refuge = pathlib.Path(str(refused.value).split("It is in '")[1].split("'")[0])
    assert load_model(refuge)[-1].coef_.tolist() == a_pipeline()[-1].coef_.tolist()


def test_without_a_folder_for_temporary_files_the_error_still_says_what_happened(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    (tmp_path / "deep").mkdir()
    with ModelFolder(tmp_path / "deep" / "model") as place:
        (tmp_path / "deep").rename(tmp_path / "moved")
        with pytest.raises(ModelNotSaved, match="stays on the ledger"):
            place.write(model_files(a_pipeline()))


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", place], capture_output=True, check=False
    ).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_too_little_room_is_noticed_before_anything_is_paid(small_disk):
    (small_disk / "junk").write_bytes(bytes(20 << 20))
    with pytest.raises(FileUnusable, match="24 MB of room"), ModelFolder(small_disk / "model"):
        pass
    assert [path.name for path in small_disk.iterdir()] == ["junk"]


def test_a_model_is_saved_elsewhere_when_the_disk_fills_up(small_disk):
    with ModelFolder(small_disk / "model") as place:
        with contextlib.suppress(OSError), (small_disk / "junk").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
        with pytest.raises(ModelNotSaved, match="No space left") as refused:
            place.write(model_files(a_pipeline()))
    load_model(str(refused.value).split("It is in '")[1].split("'")[0])
    assert [path.name for path in small_disk.iterdir()] == ["junk"]
