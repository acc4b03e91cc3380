"""Small runs for the tests of bugs that other libraries had."""

import copy
from collections import Counter

import dp_accounting
import pytest
from dp_accounting import dp_event, pld

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from privypurse import NoiseSource  # noqa: E402
from privypurse.pytorch import make_private  # noqa: E402

# Terms of a run on all records whose noise is negligible: 5e-6 of the clip norm.
LOUD = {"epsilon": 1e12, "delta": 1e-5, "full_batch": True}


def data_of(rows=60, width=4, seed=1):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, width, generator=generator)
    return inputs, (inputs[:, 0] > 0).long()


def small(seed=2, width=4):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, 5), nn.Tanh(), nn.Linear(5, 2))


def make(data=None, module=None, optimizer=None, **settings):
    module = small() if module is None else module
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1) if optimizer is None else optimizer
    data = data_of() if data is None else data
    usual = {"records": 60, "steps": 5, "noise": NoiseSource(seed=4)}
    if "purse" in settings:
        usual.pop("noise")
    if not settings.get("full_batch"):
        usual["batch_size"] = 12
    return make_private(module, optimizer, data, **usual | settings)


def train(private, steps=None, each=lambda: None):
    """The loop of a user; stops after some steps or with the run."""
    module, optimizer, loader = private
    made = 0
    while not private.engine.stop_reason:
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs), targets).backward()
            optimizer.step()
            each()
            made += 1
            if made == steps:
                return private
    return private


def flat(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()]).clone()


def given(module):
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters()]).clone()


def slow_sum(module, inputs, targets, clip_norm, loss=nn.functional.cross_entropy):
    """The sum of clipped gradients, record by record, as plainly as it can be written."""
    total = 0
    for k in range(len(inputs)):
        alone = copy.deepcopy(module)
        loss(alone(inputs[k : k + 1]), targets[k : k + 1]).backward()
        gradient = given(alone).double()
        total = total + gradient * min(1.0, clip_norm / float(gradient.norm()))
    return total


def pld_epsilon(event, delta, relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE):
    return pld.PLDAccountant(relation, value_discretization_interval=1e-3).compose(event).get_epsilon(delta)


def composed(multipliers, rates):
    """Gaussian releases of samples, for another accountant."""
    counts = Counter(zip(multipliers, rates, strict=True))
    return dp_event.ComposedDpEvent(
        [
            dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier)), n)
            for (multiplier, rate), n in counts.items()
        ]
    )
