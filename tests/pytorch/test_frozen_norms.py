"""Batch normalisation that is not trained: its statistics are public, each record has its gradient,
and nothing of it changes.
"""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from privypurse import InvalidArgument, NoiseSource, Purse  # noqa: E402
from privypurse.pytorch import DeepNesterov, fit, make_private  # noqa: E402
from privypurse.pytorch._clipping import MARGIN  # noqa: E402


def backbone():
    """A pretrained part with statistics of other records."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh())
    with torch.no_grad():
        for _ in range(20):
            body(3 * torch.randn(50, 4) + 1)
        body[1].weight.uniform_(0.5, 2.0)
        body[1].bias.uniform_(-1.0, 1.0)
    return body.requires_grad_(False)


def network():
    torch.manual_seed(1)
    return nn.Sequential(backbone(), nn.Linear(6, 2))


def data(count=50):
    generator = torch.Generator().manual_seed(2)
    X = torch.randn(count, 4, generator=generator)
    return X, (X[:, 0] > 0).long()


def begin(module, **changes):
    arguments = {"records": 50, "full_batch": True, "steps": 5, "epsilon": 4.0, "delta": 1e-5} | changes
    trained = [value for value in module.parameters() if value.requires_grad]
    return make_private(module, torch.optim.SGD(trained, 0.5), data(), **arguments)


def state_of(layer):
    return copy.deepcopy(layer.state_dict())


def same(one, other):
    return all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("way", ["hooks", "backward"])
def test_a_head_is_trained_over_frozen_normalisation_of_which_nothing_changes(way):
    module = network()
    norm, body, head = module[0][1], state_of(module[0]), state_of(module[1])
    private = begin(module, loss=nn.CrossEntropyLoss())
    assert same(body, module[0].state_dict()), "the trial leaves it alone"
    for inputs, targets in private.loader:
        module.train()
        if way == "hooks":
            F.cross_entropy(module(inputs), targets).backward()
        else:
            private.engine.backward(inputs, targets)
        assert not norm.training
        private.optimizer.step()
    assert private.engine.gradients == 5
    module.train()
    with torch.no_grad():
        module(data()[0])
    assert not norm.training
    assert same(body, module[0].state_dict())
    assert norm.num_batches_tracked == 20
    assert not same(head, module[1].state_dict())
    assert all(value.grad is None for value in module[0].parameters())


class SmallNoise:
    def propose(self, query, past, budget):
        from privypurse import Gaussian

        return Gaussian(1e-7)


@pytest.mark.parametrize("way", ["hooks", "backward"])
def test_gradients_over_frozen_normalisation_are_those_of_single_records(way):
    module, (X, y) = network(), data()
    module[0][1].eval()
    rows = []
    for k in range(len(X)):
        loss = F.cross_entropy(module(X[k : k + 1]), y[k : k + 1])
        rows.append(torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(module[1].parameters()))]))
    rows = torch.stack(rows)
    bound = float(rows.norm(dim=1).median())
    expected = (rows * (bound * (1 - MARGIN) / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0) / 50
    changes = {"purse": Purse.not_private(noise=NoiseSource(seed=1)), "epsilon": None, "delta": None}
    module.train()
    private = begin(module, schedule=SmallNoise(), steps=1, clip_norm=bound, loss=nn.CrossEntropyLoss(), **changes)
    for inputs, targets in private.loader:
        if way == "hooks":
            F.cross_entropy(module(inputs), targets).backward()
        else:
            private.engine.backward(inputs, targets)
        private.optimizer.step()
    found = torch.cat([value.grad.flatten() for value in module[1].parameters()])
    assert torch.allclose(found, expected, rtol=0, atol=1e-5 * bound)


def test_samples_of_any_size_pass_through_frozen_normalisation():
    module = network()
    body = state_of(module[0])
    private = begin(module, full_batch=False, batch_size=1, steps=20)
    sizes = []
    for inputs, targets in private.loader:
        sizes.append(private.engine._drawn.chunk)
        F.cross_entropy(module(inputs), targets).backward()
        private.optimizer.step()
    assert {0, 1} <= set(sizes)
    assert private.engine.gradients == 20
    assert same(body, module[0].state_dict())


def test_layers_before_frozen_normalisation_are_trained_through_it():
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(4, 4), backbone(), nn.Linear(6, 2))
    first, body = state_of(module[0]), state_of(module[1])
    private = begin(module)
    for inputs, targets in private.loader:
        F.cross_entropy(module(inputs), targets).backward()
        private.optimizer.step()
    assert private.engine.gradients == 5
    assert same(body, module[1].state_dict())
    assert not same(first, module[0].state_dict())


def test_fit_trains_a_head_over_frozen_normalisation():
    module = network()
    body, head = state_of(module[0]), state_of(module[1])
    settings = {"loss": nn.CrossEntropyLoss(), "records": 50, "epsilon": 4.0, "delta": 1e-5}
    assert fit(module, data(), method=DeepNesterov(steps=5), **settings).stop_reason == "steps"
    assert same(body, module[0].state_dict())
    assert not same(head, module[1].state_dict())


def test_normalisation_without_parameters_is_frozen_where_it_is_in_evaluation_mode():
    torch.manual_seed(4)
    norm = nn.BatchNorm1d(4, affine=False)
    norm(torch.randn(30, 4))
    module = nn.Sequential(norm, nn.Linear(4, 2))
    with pytest.raises(InvalidArgument, match="Norm"):
        begin(module)
    norm.eval()
    before = state_of(norm)
    private = begin(module)
    module.train()
    for inputs, targets in private.loader:
        F.cross_entropy(module(inputs), targets).backward()
        private.optimizer.step()
    assert private.engine.gradients == 5
    assert not norm.training
    assert same(before, norm.state_dict())


def only_scale(norm):
    norm.bias.requires_grad_(False)
    return norm


@pytest.mark.parametrize(
    "norm",
    [
        lambda: nn.BatchNorm1d(6),
        lambda: nn.BatchNorm1d(6).eval(),
        lambda: only_scale(nn.BatchNorm1d(6)),
        lambda: nn.BatchNorm1d(6, track_running_stats=False).requires_grad_(False),
        lambda: nn.BatchNorm1d(6, affine=False, track_running_stats=False).eval(),
    ],
    ids=["trained", "trained in evaluation mode", "half trained", "without statistics", "nothing of its own"],
)
def test_other_normalisation_over_records_is_refused(norm):
    with pytest.raises(InvalidArgument, match=r"1 \(BatchNorm1d\).*GroupNorm\(2, 6\)"):
        begin(nn.Sequential(nn.Linear(4, 6), norm(), nn.Linear(6, 2)))
