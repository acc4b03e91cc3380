"""Attacks on the bound: one record, chosen to count for more than the clip norm, on every way from
records to a sum.
"""

import itertools
import math
import types

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from privypurse import NoiseSource, Purse  # noqa: E402
from privypurse.core._errors import InvalidArgument  # noqa: E402
from privypurse.core.queries import GradientAt  # noqa: E402
from privypurse.mechanisms._non_private import NonPrivateRelease  # noqa: E402
from privypurse.pytorch import make_private  # noqa: E402
from privypurse.pytorch._clipping import clipped_sum  # noqa: E402
from privypurse.pytorch._compiled import ClippedSums, Replayed, fill_up  # noqa: E402
from privypurse.pytorch._fitting import ModuleOracle  # noqa: E402
from privypurse.pytorch._taps import Taps  # noqa: E402
from privypurse.training.schedules._base import ConstantNoise  # noqa: E402

NEXT_TO_NONE = 1e-9


def summed(module, data, way, loss, **settings):
    """The sum of clipped gradients, next to no noise, by hooks, by the engine's own backward, or by
    the oracle.
    """
    if way == "oracle":
        oracle = ModuleOracle(module, data, loss=loss, records=100, clip_norm=1.0)
        purse = Purse.not_private(noise=NoiseSource(seed=0))
        box = oracle.answer(GradientAt(point=oracle.point, clip_norm=1.0))
        oracle.release_module()
        return torch.from_numpy(purse.release(box, NonPrivateRelease("a test")).value)
    private = make_private(
        module,
        torch.optim.SGD(module.parameters(), 0.0),
        data,
        records=100,
        full_batch=True,
        steps=1,
        purse=Purse.not_private(noise=NoiseSource(seed=0)),
        schedule=ConstantNoise(NEXT_TO_NONE),
        loss=loss,
        **settings,
    )
    for batch in private.loader:
        if way == "hooks":
            loss(module(*batch[:-1]), batch[-1]).backward()
        else:
            private.engine.backward(*batch)
        private.optimizer.step()
    private.engine.detach()
    return 100 * torch.cat([parameter.grad.flatten().double() for parameter in module.parameters()])


def moved(module, data, way, loss, **settings):
    """How far the first record moves the sum."""
    without = tuple(part[1:] for part in data)
    return float((summed(module, data, way, loss, **settings) - summed(module, without, way, loss, **settings)).norm())


WAYS = ["hooks", "backward", "oracle"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layer", ["linear", "convolution"])
def test_places_that_cancel_hide_nothing(way, layer):
    torch.manual_seed(0)
    X, y = torch.randn(30, 3, 2), torch.randn(30, 3, 1)
    X[0], y[0] = 0, torch.tensor([[-1e15], [-1e7], [1e15]])
    if layer == "convolution":
        X, y = X.mT.contiguous(), y.mT.contiguous()
    module = nn.Linear(2, 1) if layer == "linear" else nn.Conv1d(2, 1, 1)
    assert moved(module, (X, y), way, nn.MSELoss()) <= 1.0001


class Difference(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 1)

    def forward(self, first, second):
        return self.map(first) - self.map(second)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1.0, 1e6, 1e10, 1e15])
def test_uses_that_cancel_hide_nothing(way, size):
    torch.manual_seed(0)
    first, second, y = torch.randn(100, 3), torch.randn(100, 3), torch.randn(100, 1)
    first[0] = second[0] = size
    y[0] = size
    assert moved(Difference(), (first, second, y), way, nn.MSELoss()) <= 1.0001


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1e36, 1.2e36, 1.4e36, 3e37])
def test_factors_that_vanish_do_not_round_up(way, size):
    torch.manual_seed(0)
    X, y = torch.randn(20, 1), torch.randn(20, 1)
    X[0], y[0] = 1e9, size
    assert moved(nn.Linear(1, 1), (X, y), way, nn.MSELoss()) <= 1.0001


@pytest.mark.parametrize("way", ["backward", "oracle"])
@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.L1Loss(), nn.HuberLoss(), nn.SmoothL1Loss()])
def test_targets_of_another_shape_are_refused(way, loss):
    with pytest.raises(InvalidArgument, match="shape"):
        summed(nn.Linear(3, 1), (torch.randn(10, 3), torch.randn(10)), way, loss)


@pytest.mark.parametrize("kind", ["autocast", "module"])
@pytest.mark.parametrize("records", [500, 2_000])
def test_half_precision_does_not_add_up(kind, records):
    """Rounding that depends on the number of records, alike for all of them, would move every
    gradient at once.
    """
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    X, y = torch.randn(1, 4).expand(records, 4).clone(), torch.zeros(records, dtype=torch.long)
    if kind == "module":
        module, X = module.bfloat16(), X.bfloat16()

    def loss(outputs, targets):
        return F.cross_entropy(outputs, targets)

    sums = []
    for count in range(records - 12, records):
        data = X[:count], y[:count]
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            sums.append(summed(module, data, "hooks", loss))
    # Gradients are given in the module's own precision; the sums are compared by their lengths.
    steps = [abs(float(b.norm() - a.norm())) for a, b in itertools.pairwise(sums)]
    coarse = 100 * 2.0**-8 * float(sums[-1].norm()) / 100 if kind == "module" else 0.0
    assert max(steps) <= 1.01 + coarse


class OverTheBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 2)

    def forward(self, x):
        return self.map(F.batch_norm(x, None, None, training=True))


class RunningMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x, *_):
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return self.map(x)


def begin(module, data, **settings):
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    budget = {"records": 30, "epsilon": 2.0, "delta": 1e-5, "steps": 3, "batch_size": 10}
    return make_private(module, optimizer, data, **budget | settings)


class Named(torch.utils.data.Dataset):
    def __len__(self):
        return 30

    def __getitem__(self, index):
        return {"x": torch.randn(3), "label": torch.tensor(1)}


@pytest.mark.parametrize("module", [OverTheBatch, RunningMean])
@pytest.mark.parametrize("data", ["pair", "inputs only", "names"])
def test_modules_that_mix_or_keep_records_are_refused_whatever_the_batch_is(module, data):
    chosen = {
        "pair": (torch.randn(30, 3), torch.randint(2, (30,))),
        "inputs only": TensorDataset(torch.randn(30, 3)),
        "names": DataLoader(Named(), batch_size=10),
    }[data]
    with pytest.raises(InvalidArgument, match=r"mixes records|changes its state"):
        begin(module(), chosen)


class OnlyTogether(nn.Module):
    """Takes a whole batch in a way that nobody could guess."""

    def __init__(self, keeps):
        super().__init__()
        self.map, self.keeps = nn.Linear(3, 2), keeps
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, *, inputs):
        if self.keeps:
            self.seen.add_(inputs.detach().mean(0))
        return self.map(inputs)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_way_of_calling_that_nobody_could_guess_is_tried_in_the_loop(keeps):
    module = OnlyTogether(keeps)
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))))
    inputs, targets = next(iter(private.loader))
    if keeps:
        with pytest.raises(InvalidArgument, match="seen"):
            module(inputs=inputs)
        assert not module.seen.any()
        assert private.purse.spent.releases == 0
    else:
        F.cross_entropy(module(inputs=inputs), targets).backward()
        private.optimizer.step()
        assert private.purse.spent.releases == 1
        assert not any("tried out" in line for line in private.purse.certificate().uncovered)


def test_a_collation_of_ones_own_is_on_the_certificate():
    data = TensorDataset(torch.randn(30, 3), torch.randint(2, (30,)))
    loader = DataLoader(data, batch_size=10, collate_fn=lambda items: torch.utils.data.default_collate(items))
    private = begin(nn.Linear(3, 2), loader)
    assert any("collate_fn" in line for line in private.purse.certificate().uncovered)


def test_two_loops_at_once_cannot_count_a_record_twice():
    module = nn.Linear(3, 2)
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))), accumulate=2, batch_size=5)
    first = iter(private.loader)
    inputs, targets = next(first)
    F.cross_entropy(module(inputs), targets).backward()
    private.optimizer.step()
    with pytest.warns(UserWarning, match="no step was made"):
        next(iter(private.loader))
    with pytest.raises(InvalidArgument, match="out of date"):
        next(first)


def test_lengths_are_measured_in_full_precision_by_hooks_too():
    seen = []
    module = nn.Linear(3, 2)
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))))
    inputs, targets = next(iter(private.loader))
    from privypurse.pytorch import _clipping as layers

    original = layers.LinearRule.squared_lengths
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        layers.LinearRule.squared_lengths = lambda self, use: (
            seen.append(torch.get_float32_matmul_precision()) or original(self, use)
        )
        F.cross_entropy(module(inputs), targets).backward()
    finally:
        layers.LinearRule.squared_lengths = original
        torch.set_float32_matmul_precision(before)
    assert seen == ["highest"]


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "autocast"])
def test_a_mean_leaves_no_trace_of_the_number_of_records(kind):
    """Gradients that lie between two numbers of lower precision: rounding must not depend on the
    number of records.
    """
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    data = torch.ones(4_000, 1), torch.full((4_000, 1), -(1 + 2.0**-8) / 2)
    if kind == "bfloat16":
        module = module.bfloat16()
        data = data[0].bfloat16(), data[1]
    lengths = []
    for count in range(3_960, 4_000):
        taps = Taps(module, dict(module.named_parameters()))
        taps.averaged_over = float(count)
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            outputs = module(data[0][:count])
        F.mse_loss(outputs, data[1][:count]).backward()
        sizes = {"weight": module.weight.shape}
        lengths.append(float(clipped_sum(taps.take(), sizes, torch.ones(count), 10.0).flat))
        taps.remove()
    assert max(abs(b - a) for a, b in itertools.pairwise(lengths)) <= 1.02


class Head(nn.Module):
    """A frozen head whose two outputs cancel: what a mean rounds off does not."""

    def __init__(self):
        super().__init__()
        self.map, self.head = nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False)
        nn.init.zeros_(self.map.weight)
        nn.init.ones_(self.head.weight)
        self.head.weight.requires_grad_(False)

    def forward(self, x):
        return self.head(self.map(x))


def narrow(outputs):
    return (outputs.to(torch.float32) + torch.zeros(2)).float()


class Passed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, outputs):
        return outputs * 1

    @staticmethod
    def backward(ctx, grad):
        return grad * 1


@pytest.mark.parametrize("read", [lambda outputs: outputs, narrow, Passed.apply])
@pytest.mark.parametrize("size", [1e3, 1e5, 3e6])
def test_a_mean_is_not_amplified_by_a_head_that_cancels(size, read):
    module = Head()
    sums = []
    for count in (9_998, 9_999, 10_000, 10_001):
        taps = Taps(module, {"map.weight": module.map.weight})
        taps.averaged_over = float(count)
        targets = torch.tensor([size, -size - 0.5]).expand(count, 2)
        (F.mse_loss(read(module(torch.ones(count, 1))), targets, reduction="none").sum(1) / 2).mean().backward()
        sums.append(
            float(clipped_sum(taps.take(), {"map.weight": (module.map.weight.shape)}, torch.ones(count), 1.0).flat)
        )
        taps.remove()
    assert max(abs(b - a) for a, b in itertools.pairwise(sums)) <= 1.001


class Graph:
    """What a CUDA graph does with its results: every replay writes into the same tensors."""

    def __init__(self, function, arguments, results):
        self._function, self._arguments, self._results = function, arguments, results

    def replay(self):
        for kept, fresh in zip(self._results, self._function(*self._arguments), strict=True):
            kept.copy_(fresh)


@pytest.mark.parametrize("settings", [{"micro_batch": 8}, {"accumulate": 2}])
def test_a_replay_does_not_write_over_an_earlier_piece(monkeypatch, settings):
    def record(self, values):
        self._addresses = [value.data_ptr() for value in values]
        arguments = (*values, *self._batch, self._weights, self._bound)
        self._results = tuple(result.clone() for result in self._function(*arguments))
        self._graph = Graph(self._function, arguments, self._results)

    def compiled(self, values, batch, size, bound):
        filled, weights = fill_up(batch, size)
        return Replayed(self._run, values, filled, weights, bound)

    monkeypatch.setattr(Replayed, "_record", record)
    monkeypatch.setattr(ClippedSums, "_compiled", compiled)
    torch.manual_seed(0)
    data = torch.randn(16, 3), torch.randint(2, (16,))
    module = nn.Linear(3, 2)
    played = summed(module, data, "backward", nn.CrossEntropyLoss(), compile=True, **settings)
    plain = summed(module, data, "backward", nn.CrossEntropyLoss(), compile=False)
    assert torch.allclose(played, plain, rtol=0, atol=1e-4)


class Quantised(nn.Module):
    """Scales by the largest number in the batch, as training in eight bits does."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 2)

    def forward(self, x):
        scale = x.abs().max() / 127
        return self.map((x / scale).round() * scale)


class NoisyOverTheBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 2)

    def forward(self, x):
        x = x + 0.1 * torch.randn_like(x)
        return self.map(x - x.mean(0) if self.training else x)


class OwnLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 2)

    def forward(self, x, labels):
        logits = self.map(x)
        return {"loss": F.cross_entropy(logits, labels) / x.abs().max(), "logits": logits}


@pytest.mark.parametrize("module", [Quantised, NoisyOverTheBatch, OwnLoss])
def test_modules_that_mix_records_in_less_plain_ways_are_refused(module):
    with pytest.raises(InvalidArgument, match="mixes records"):
        begin(module(), (torch.randn(30, 3), torch.randint(2, (30,))))


class Bags(nn.Module):
    """Sums words by shares that a layer computes, in bags of different lengths."""

    def __init__(self):
        super().__init__()
        self.share, self.bag = nn.Linear(2, 1), nn.EmbeddingBag(10, 2, mode="sum")

    def forward(self, words, features, lengths):
        there = torch.arange(words.shape[1]) < lengths[:, None]
        shares = torch.sigmoid(self.share(features)).squeeze(-1)
        return self.bag(words[there], lengths.cumsum(0) - lengths, shares[there])


def test_a_record_that_is_not_finite_breaks_no_bag_of_words_but_its_own():
    torch.manual_seed(0)
    lengths, features = torch.tensor([1] * 9 + [8]), torch.randn(10, 8, 2)
    features[-1] = math.nan
    data = (torch.randint(10, (10, 8)), features, lengths, torch.zeros(10, dtype=torch.long))
    sums = []
    for rows in (slice(None), slice(-1)):
        torch.manual_seed(1)
        private = begin(Bags(), tuple(part[rows] for part in data), full_batch=True, batch_size=None, records=10)
        *inputs, targets = next(iter(private.loader))
        F.cross_entropy(private.module(*inputs), targets).backward()
        sums.append(private.engine._drawn.flat)
    assert sums[1].norm() > 0.5
    torch.testing.assert_close(*sums)


class Hidden(nn.Module):
    """Returns tensors where the trial does not look: in an object, or as complex numbers."""

    def __init__(self, form):
        super().__init__()
        self.map, self.form = nn.Linear(3, 2), form

    def forward(self, x):
        found = self.map(x)
        return found, self.form(found - found.mean(0))


HIDDEN = [
    lambda z: torch.distributions.Normal(z, 1.0),
    lambda z: torch.complex(z, z),
    lambda z: types.SimpleNamespace(z=[z]),
]


@pytest.mark.parametrize("form", HIDDEN, ids=["distribution", "complex", "object"])
def test_outputs_that_cannot_be_tried_are_refused(form):
    private = begin(Hidden(form), (torch.randn(30, 3), torch.zeros(30, dtype=torch.long)), loss_reduction="sum")
    with pytest.raises(InvalidArgument, match=r"the module's output holds .*, which cannot be tried"):
        private.module(next(iter(private.loader))[0])
    assert private.purse.spent.releases == 0


class Zipped(nn.Module):
    """Weights each record by its own number, which a layer is given in a list."""

    def __init__(self):
        super().__init__()
        self.pool = Listed()

    def forward(self, x):
        return self.pool(x, x[:, 0].tolist())


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 2))

    def forward(self, x, numbers):
        return torch.stack([row @ self.weight * number for row, number in zip(x, numbers, strict=False)])


@pytest.mark.filterwarnings("ignore:.*is run for each record alone:RuntimeWarning")
def test_lists_with_an_entry_for_each_record_are_refused():
    with pytest.raises(InvalidArgument, match="with a list of"):
        begin(Zipped(), (torch.randn(30, 3), torch.zeros(30, dtype=torch.long)))
