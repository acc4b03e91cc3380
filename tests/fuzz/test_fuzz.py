"""Past findings stay mended, and a short burst of fresh inputs finds nothing; `make fuzz` looks
longer.
"""

import pathlib

import pytest

from tests.fuzz.guard import Finding, TookTooLong, limited_memory, watched
from tests.fuzz.run import fuzz
from tests.fuzz.targets import Found, Target, by_name, examine, numbered

CORPUS = pathlib.Path(__file__).parent / "corpus"
# How many inputs of seed 1 are tried here; those with which something was found in the beginning
# are among them.
BURST = {
    "schema": 250,
    "csv": 80,
    "parquet": 250,
    "ledger": 40,
    "checkpoint": 45,
    "torch-checkpoint": 15,
    "model": 120,
    "certificate": 60,
    "commands": 15,
    "charges": 400,
    "terms": 120,
}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Targets by name, each made ready once."""
    known: dict[str, tuple[Target, pathlib.Path]] = {}

    def prepare(name):
        if name not in known:
            if name.startswith("torch"):
                pytest.importorskip("torch")
            target, folder = by_name()[name](), tmp_path_factory.mktemp(name)
            target.prepare(folder)
            known[name] = target, folder
        return known[name]

    return prepare


def test_every_target_has_a_burst():
    assert BURST.keys() == by_name().keys()


@pytest.mark.parametrize("name", BURST)
def test_a_burst_finds_nothing(prepared, name):
    target, folder = prepared(name)
    with limited_memory():
        summary = fuzz(target, folder, seed=1, first=0, seconds=600.0, inputs=BURST[name], out=None)
    assert not summary["findings"]
    assert summary["inputs"] == BURST[name]


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_past_findings_and_odd_cases(prepared, path):
    target, folder = prepared(path.parent.name)
    with limited_memory():
        examine(target, path.read_bytes(), folder)


def test_the_corpus_is_small():
    assert sum(path.stat().st_size for path in CORPUS.rglob("*")) < 100_000


def test_an_input_depends_on_its_number_alone(prepared):
    target, _ = prepared("schema")
    made = [target.make(numbered(1, "schema", number)) for number in range(20)]
    assert made == [target.make(numbered(1, "schema", number)) for number in range(20)]
    assert len(set(made)) > 15


class _Planted:
    """A reader with a fault of every kind."""

    name, seconds = "planted", 2.0

    def __init__(self, fault):
        self._fault = fault

    def check(self, content):
        self._fault()


def _hang():
    while True:
        pass


def _write():
    pathlib.Path("/tmp/privypurse-fuzz-elsewhere").write_text("x")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param(lambda: {}["x"], "KeyError", id="foreign error"),
        pytest.param(_hang, "hang", id="hang"),
        pytest.param(lambda: bytearray(6 << 30), "memory", id="memory"),
        pytest.param(lambda: eval("1 + 1"), "promise broken", id="code"),
        pytest.param(lambda: __import__("os").system("true"), "promise broken", id="command"),
        pytest.param(lambda: __import__("pickle").loads(b"cos\ngetcwd\n."), "promise broken", id="pickle"),
        pytest.param(_write, "promise broken", id="writing elsewhere"),
    ],
)
def test_planted_faults_are_found(tmp_path, fault, kind):
    with limited_memory(), pytest.raises(Found, match=kind):
        examine(_Planted(fault), b"", tmp_path)


def test_the_watch_lets_work_in_its_folder_pass(tmp_path):
    with watched(tmp_path, 5.0):
        (tmp_path / "file").write_text("x")
    with pytest.raises(TookTooLong), watched(tmp_path, 0.05):
        _hang()
    with pytest.raises(Finding, match="exec"), watched(tmp_path, 5.0):
        exec("pass")
