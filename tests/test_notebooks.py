"""The notebooks run from top to bottom, and are kept without outputs."""

import json
import pathlib
import sys

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A kernel of this interpreter, whatever kernels are installed; it inherits where this process
    finds its modules.
    """
    folder = tmp_path / "jupyter" / "kernels" / "python3"
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "test", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("PYTHONWARNINGS", raising=False)
    return "python3"


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 2


@pytest.mark.filterwarnings("default")  # of the client; what is shown in a notebook is its own affair
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, kernel, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=1_800, kernel_name=kernel, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [output.output_type for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert "display_data" in shown, "no plot was drawn"
    assert "error" not in shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path):
    for cell in nbformat.read(path, as_version=4).cells:
        assert not cell.get("outputs"), "clear the outputs before saving"
        assert cell.get("execution_count") is None
