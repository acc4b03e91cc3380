"""Models and disaster: killed at any moment, or without room on the disk, what was there or what is new is complete."""

import contextlib
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

from privypurse import InvalidArgument
from privypurse.store import ModelFolder, ModelNotSaved, load_model, save_model
from privypurse.store.folder import BALLAST_BYTES, model_files
from tests.store.fitted import a_pipeline

SAVE_FOREVER = """
import sys
from privypurse.store import load_model, save_model
one, two, place = sys.argv[1:]
pipelines = [load_model(one), load_model(two)]
print("ready", flush=True)
while True:
    for pipeline in pipelines:
        save_model(pipeline, place, overwrite=True)
"""


def test_a_process_killed_at_any_moment_leaves_a_complete_model(tmp_path):
    save_model(a_pipeline(), tmp_path / "one")
    save_model(a_pipeline(seed=1), tmp_path / "two")
    save_model(a_pipeline(), tmp_path / "model")
    known = [load_model(tmp_path / name)[-1].coef_.tolist() for name in ("one", "two")]
    rng, found = np.random.default_rng(0), []
    for _ in range(6):
        arguments = [str(tmp_path / name) for name in ("one", "two", "model")]
        process = subprocess.Popen([sys.executable, "-c", SAVE_FOREVER, *arguments], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found.append(known.index(load_model(tmp_path / "model")[-1].coef_.tolist()))
    assert set(found) <= {0, 1}  # the old one or the new one, whole


def test_readers_always_find_a_model_while_it_is_being_replaced(tmp_path):
    for name, seed in (("one", 0), ("two", 1), ("model", 0)):
        save_model(a_pipeline(seed=seed), tmp_path / name)
    arguments = [str(tmp_path / name) for name in ("one", "two", "model")]
    process = subprocess.Popen([sys.executable, "-c", SAVE_FOREVER, *arguments], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        for _ in range(3_000):
            assert (tmp_path / "model").is_dir()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def limited(code, limit):
    """Run code in a process that may not write files larger than a limit."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )


def test_too_little_room_is_noticed_before_anything_is_spent(tmp_path):
    code = f"from privypurse.store import ModelFolder\nwith ModelFolder({str(tmp_path / 'model')!r}): print('trained')"
    done = limited(code, BALLAST_BYTES - 1)
    assert "trained" not in done.stdout
    assert "Nothing was spent" in done.stderr
    assert "24 MB of room" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert limited(code, BALLAST_BYTES).stdout == "trained\n"


def test_a_model_that_cannot_be_written_at_all_says_so_and_keeps_the_old_one(tmp_path):
    save_model(a_pipeline(), tmp_path / "model")
    code = (
        "import resource\n"
        "from privypurse.store import ModelFolder, load_model\n"
        "from privypurse.store.folder import model_files\n"
        f"files = model_files(load_model({str(tmp_path / 'model')!r}))\n"
        f"with ModelFolder({str(tmp_path / 'model')!r}, overwrite=True) as place:\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "    place.write(files)"
    )
    done = limited(code, BALLAST_BYTES)
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


def test_a_full_disk_is_noticed_before_and_a_disk_that_fills_up_is_left_room_on(small_disk):
    (small_disk / "junk").write_bytes(bytes(16 << 20))
    with pytest.raises(InvalidArgument, match="Nothing was spent"), ModelFolder(small_disk / "model"):
        pytest.fail("there is no room")
    (small_disk / "junk").unlink()
    with ModelFolder(small_disk / "model") as place:
        with contextlib.suppress(OSError), (small_disk / "junk").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
        place.write(model_files(a_pipeline()))  # into the room that was taken before
    load_model(small_disk / "model")
