"""Noise on tensors: the cipher is ChaCha20, every draw has its own key, and the release is as on
arrays.
"""

import types

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")

from privypurse import Gaussian, Neighbouring, NoiseSource, Norm, Purse, Sensitive  # noqa: E402
from privypurse.mechanisms import _torch_gaussian as on_tensors  # noqa: E402
from privypurse.mechanisms._torch_gaussian import SensitiveTensor, TorchGaussian, keystream, normals, to_normals  # noqa: E402

BOUNDS = {"norm": Norm.L2, "add_remove": 1.0, "replace_one": 2.0}
CPU, META = torch.device("cpu"), torch.device("meta")


@pytest.fixture
def compiled(monkeypatch):
    """Drawers without a compiler, which takes a minute."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    on_tensors._drawer.cache_clear()
    yield
    on_tensors._drawer.cache_clear()


def test_the_key_stream_is_that_of_rfc_8439():
    """Section 2.3.2."""
    key = torch.tensor([int.from_bytes(bytes(range(k, k + 4)), "little") for k in range(0, 32, 4)])
    words = keystream(key, torch.tensor([1]), (0x09000000, 0x4A000000, 0))
    assert [int(word) for word in words[:4]] == [0xE4E7F110, 0x15593BD1, 0x1FDD0F50, 0xC47120A3]
    assert int(words[15]) == 0x4E3C50A2


def test_normals_from_a_key_are_normal_and_differ_in_every_block():
    drawn = to_normals(torch.arange(8), torch.arange(2_000)).flatten().numpy()
    assert drawn.size == len(set(drawn.tolist())) == 16_000
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert stats.kstest(drawn, stats.norm(scale=1.1).cdf).pvalue < 1e-6


def test_on_the_processor_the_noise_is_that_of_the_source():
    box = SensitiveTensor(torch.zeros(3, 5), **BOUNDS)
    drawn = TorchGaussian(1.0).draw(box, Neighbouring.ADD_REMOVE, NoiseSource(seed=2))
    assert drawn.numpy().tolist() == NoiseSource(seed=2).normal((3, 5)).tolist()


def test_a_drawer_gives_the_normals_of_each_key(compiled):
    drawer = on_tensors._Drawer(CPU, 3)
    for key in (torch.arange(8), torch.arange(8) + 5):
        assert torch.equal(drawer(key), to_normals(key, torch.arange(3)).flatten())


def test_a_recorded_drawer_copies_the_key_replays_and_returns_a_copy(compiled):
    drawer = on_tensors._Drawer(CPU, 3)

    def replay():
        drawer._out.copy_(to_normals(drawer._key, drawer._blocks).flatten())

    drawer._graph = types.SimpleNamespace(replay=replay)
    first, second = (drawer(types.SimpleNamespace(pin_memory=lambda key=key: key + torch.arange(8))) for key in (1, 2))
    assert torch.equal(first, to_normals(1 + torch.arange(8), torch.arange(3)).flatten())
    assert torch.equal(second, to_normals(2 + torch.arange(8), torch.arange(3)).flatten())


def test_another_device_draws_there_with_a_fresh_key(compiled):
    class Counting(NoiseSource):
        given = 0

        def words(self, count):
            self.given += count
            return super().words(count)

    noise = Counting()
    for draws in (1, 2):
        drawn = normals((3, 7), META, noise)
        assert (drawn.device, drawn.shape, drawn.dtype) == (META, (3, 7), torch.float64)
        assert noise.given == 4 * draws, "256 bits of key each"


def test_a_device_without_a_compiler_gets_noise_from_the_processor(compiled, monkeypatch):
    def fail(function, **_):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", fail)
    with pytest.warns(RuntimeWarning, match="drawn on the CPU"):
        assert normals((3,), META, NoiseSource()).shape == (3,)


@pytest.mark.parametrize("noise", ["secure", "plain"])
def test_a_tensor_is_released_as_an_array_is(noise):
    value = np.array([[3.0, -4.0], [1e-3, 0.0]])
    released = [
        mechanism.draw(box, Neighbouring.ADD_REMOVE, NoiseSource(seed=5, secure=noise == "secure"))
        for mechanism, box in (
            (Gaussian(2.0), Sensitive(value, **BOUNDS)),
            (TorchGaussian(2.0), SensitiveTensor(torch.from_numpy(value), **BOUNDS)),
        )
    ]
    assert released[1].dtype == torch.float64
    assert released[1].numpy().tolist() == released[0].tolist()


def test_exact_noise_on_tensors_must_be_asked_for():
    """It would take most of the time of a step."""
    box = SensitiveTensor(torch.zeros(3), **BOUNDS)
    for name, exact in (("auto", None), ("secure", "secure")):
        purse = Purse(1.0, 1e-6, neighbouring="add-remove", noise=name)
        purse.release(box, TorchGaussian(20.0))
        (line,) = (entry for entry in purse.ledger.entries() if entry.kind == "charge")
        assert line.details["exact"] == exact
