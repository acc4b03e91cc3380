"""The same results on a GPU as on the CPU. Skipped by name where there is none."""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from torch import nn  # noqa: E402

from privypurse import NoiseSource  # noqa: E402
from privypurse.mechanisms._torch_gaussian import normals, to_normals  # noqa: E402
from privypurse.pytorch import fit, make_private  # noqa: E402
from privypurse.pytorch._compiled import ClippedSums  # noqa: E402
from privypurse.pytorch._taps import Taps  # noqa: E402

GPU = torch.device("cuda")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 64, 3))


def records(count=50):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 1, 8, 8, generator=generator), torch.randint(3, (count,), generator=generator)


@pytest.mark.parametrize("compile", [False, True])
def test_sums_are_those_of_the_cpu(compile):
    sums = []
    for device in (torch.device("cpu"), GPU):
        module = network().to(device)
        trained = dict(module.named_parameters())
        function = ClippedSums(
            module, Taps(module, trained), nn.CrossEntropyLoss(), trained, compile=compile and device == GPU
        )
        sums.append([function([x[:k].to(device) for x in records()], 64, 0.5).flat.clone().cpu() for k in (50, 30, 1)])
    for here, there in zip(*sums, strict=True):
        assert torch.allclose(here, there, rtol=0, atol=1e-3)


def test_noise_is_that_of_the_cipher_and_differs_from_draw_to_draw():
    first, second = (normals((10_001,), GPU, NoiseSource()) for _ in range(2))
    assert first.dtype == torch.float64
    assert not torch.equal(first, second)
    assert float(torch.cat([first, second]).std()) == pytest.approx(1, abs=0.03)
    source, same = NoiseSource(seed=3), NoiseSource(seed=3)
    key = torch.from_numpy(same.words(4).view("uint32").astype("int64"))
    expected = to_normals(key, torch.arange(13)).flatten()[:100]
    assert torch.allclose(normals((100,), GPU, source).cpu(), expected, rtol=0, atol=1e-12)


def test_runs_spend_their_budget():
    module = network().to(GPU)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    data = tuple(part.to(GPU) for part in records(400))
    private = make_private(
        module,
        optimizer,
        data,
        records=400,
        epsilon=2.0,
        delta=1e-5,
        batch_size=40,
        steps=15,
        loss=nn.CrossEntropyLoss(),
    )
    while not private.engine.stop_reason:
        for batch in private.loader:
            private.engine.backward(*batch)
            optimizer.step()
    assert 1.99 < private.purse.spent.epsilon <= 2.0
    fitted = fit(network().to(GPU), data, loss=nn.CrossEntropyLoss(), records=400, epsilon=2.0, delta=1e-5)
    assert 1.99 < fitted.purse.spent.epsilon <= 2.0
