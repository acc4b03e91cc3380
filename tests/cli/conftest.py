"""One trained model for many tests."""

import pathlib
import shutil

import pytest

from privypurse.datasets import make_census
from privypurse.runs._demo import census_schema
from privypurse.tables._schema import write_schema
from tests.cli.commands import run, training

ROWS = 3_000


def write_census(folder: pathlib.Path, rows: int, name: str = "census", seed: int = 1) -> None:
    """Write a made-up census and its description."""
    census = make_census(rows, seed)
    census.to_csv(folder / f"{name}.csv")
    (folder / f"{name}.toml").write_text(write_schema(census_schema(census)), encoding="utf-8")


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Train a model with a third of a budget; nobody writes here."""
    folder = tmp_path_factory.mktemp("trained")
    write_census(folder, ROWS)
    write_census(folder, 500, "new", seed=2)
    done = run(folder, *training("census.csv", "--budget", 3))
    assert done.returncode == 0, done.stderr
    (folder / "stdout.txt").write_text(done.stdout)
    (folder / "stderr.txt").write_text(done.stderr)
    return folder


@pytest.fixture
def trained(trained_once: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of it to work in."""
    return pathlib.Path(shutil.copytree(trained_once, tmp_path / "work"))


@pytest.fixture
def census(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with a small census."""
    write_census(tmp_path, 600)
    return tmp_path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with a census that takes a while."""
    folder = tmp_path_factory.mktemp("large")
    write_census(folder, 200_000)
    write_census(folder, 600, "small")
    return folder
