"""Small private runs to take apart."""

import functools

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from privypurse import Gaussian, NoiseSource, Purse  # noqa: E402
from privypurse.pytorch import make_private, open_purse  # noqa: E402


def data(count=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(count, 3, generator=generator)
    return X, (X[:, 0] > 0).long()


@functools.cache
def rule(steps, sample_prob):
    """Calibration takes a second; most of these runs are alike."""
    return open_purse(epsilon=2.0, delta=1e-5, neighbouring="add-remove", steps=steps, sample_prob=sample_prob).filter


def begin(records=60, loader=None, optimizer=None, module=None, lr=0.1, **changes):
    torch.manual_seed(0)
    module = nn.Linear(3, 2) if module is None else module
    optimizer = torch.optim.SGD(module.parameters(), lr) if optimizer is None else optimizer(module)
    arguments = {"records": records, "batch_size": 12, "steps": 6} | changes
    if "purse" not in changes:
        noise, rate = arguments.pop("noise", NoiseSource(seed=3)), arguments["batch_size"] or 12
        rate = 1.0 if arguments.get("full_batch") else rate * arguments.get("accumulate", 1) / records
        steps = arguments["steps"] or arguments["epochs"] * round(1 / rate)
        arguments["purse"] = Purse.with_filter(rule(steps, rate), noise=noise)
    return make_private(module, optimizer, data() if loader is None else loader, **arguments)


def begin_full_batch(module, data, **changes):
    """Make a loop over all records private."""
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.1)
    budget = {"records": 30, "epsilon": 2.0, "delta": 1e-5, "steps": 2, "full_batch": True}
    return make_private(module, optimizer, data, **budget | changes)


def step(private, inputs, targets):
    private.optimizer.zero_grad()
    loss = F.cross_entropy(private.module(inputs), targets)
    loss.backward()
    private.optimizer.step()


def loop(private, epochs=100):
    for _ in range(epochs):
        for inputs, targets in private.loader:
            step(private, inputs, targets)
        if private.engine.stop_reason:
            break
    return private


def weights_of(module):
    return torch.cat([value.detach().flatten().clone() for value in module.parameters()])


class Small:
    """Hardly any noise, for a purse that is declared not private."""

    def propose(self, query, past, budget):
        return Gaussian(1e-7)


def noiseless(**changes):
    return begin(purse=Purse.not_private(noise=NoiseSource(seed=3)), schedule=Small(), **changes)


def public_steps(private):
    return [{"charge": one.charge, "noise_std": one.noise_std} for one in private.engine.trace.steps]


def encoder():
    layer = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)
    return nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (1, 4)), layer, nn.Flatten())
