"""Every planted bug is caught, and the same audit is silent without it; the published algorithms
are refuted.
"""

import importlib.util
import subprocess
import sys

import pytest

from privypurse.audit._verdicts import HOLDS, REFUTED, Line
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm
from privypurse_lab.audits import planted
from privypurse_lab.audits.mutants import MUTANTS, catch, without_the_bug
from privypurse_lab.audits.published import AS_PUBLISHED


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name):
    assert catch(name, quick=True).verdict == REFUTED


@pytest.mark.parametrize("name", MUTANTS)
def test_the_audit_is_silent_without_the_bug(name):
    line = without_the_bug(name, quick=True)
    assert line.verdict == HOLDS, line.findings


@pytest.mark.parametrize(("name", "quick"), [("adp-sgd", True), pytest.param("dp-agd", False, marks=pytest.mark.slow)])
def test_a_published_algorithm_is_refuted_at_the_epsilon_it_claims(name, quick):
    line = AS_PUBLISHED[name](quick=quick)
    assert line.shown_epsilon > line.claimed_epsilon
    assert line.verdict == REFUTED


def test_no_bug_was_dropped():
    assert sum(not mutant.needs_torch for mutant in MUTANTS.values()) == 19
    assert len(MUTANTS) == 19 + 4 * (importlib.util.find_spec("torch") is not None)


def test_a_bug_that_nobody_planted_is_named():
    with pytest.raises(InvalidArgument, match="noise-doubled"):
        catch("noise-doubled")


def test_lines_go_to_json_and_back():
    line = catch("clip-after-the-sum", quick=True)
    again = Line.from_json(line.to_json())
    assert again.to_json() == line.to_json()
    assert again.findings == line.findings


def test_halved_exact_noise_is_half_of_it_on_tensors():
    torch = pytest.importorskip("torch")
    from privypurse.mechanisms._torch_gaussian import SensitiveTensor, TorchGaussian

    def noise():
        box = SensitiveTensor(torch.zeros(4_000), norm=Norm.L2, add_remove=1.0, replace_one=2.0)
        return TorchGaussian(1.0).draw(box, Neighbouring.ADD_REMOVE, NoiseSource(seed=5, secure=True))

    whole = noise()
    with planted.exact_noise_halved():
        half = noise()
    assert float(half.std() / whole.std()) == pytest.approx(0.5, rel=0.05)
    assert torch.equal(noise(), whole)


def test_halving_exact_noise_does_not_load_pytorch():
    code = """
import sys
from privypurse_lab.audits import planted
with planted.exact_noise_halved():
    assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=900)
