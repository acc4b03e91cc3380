"""Pieces of any size give one sum, and one record moves it by no more than the clip norm."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.pytorch.layer_cases import BOUNDED, NASTY, SLOW_VMAP, by_hooks, by_sums, clipped, made, one_by_one  # noqa: E402


@pytest.mark.filterwarnings(SLOW_VMAP)
@settings(max_examples=40)
@given(
    case=st.sampled_from(["linear", "tied", "conv1d", "several inputs", "self attention"]),
    count=st.integers(0, 11),
    size=st.integers(1, 13),
)
def test_pieces_of_any_size_give_the_same_sum(case, count, size):
    module, batch = made(case, 11)
    batch = [part[:count] for part in batch]
    whole, parts = by_sums(module, batch, 0.3, size=11), by_sums(module, batch, 0.3, size=size)
    assert torch.allclose(whole.flat, parts.flat, rtol=0, atol=1e-5)
    assert float(whole.within) == float(parts.within)
    if count == 0:
        assert not parts.flat.any()


@pytest.mark.parametrize("size", [1, 3, 8, 64])
def test_padding_that_has_no_finite_gradient_does_not_matter(size):
    class Normalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x / x.norm(dim=1, keepdim=True))

    torch.manual_seed(0)
    module, batch = Normalised(), (torch.randn(7, 4), torch.randint(3, (7,)))
    result = by_sums(module, batch, 0.5, size=size)
    assert torch.allclose(result.flat, clipped(one_by_one(module, batch), 0.5), rtol=0, atol=1e-5)


@settings(max_examples=120)
@given(
    kind=st.sampled_from(sorted(BOUNDED)),
    rows=st.lists(st.tuples(*[st.sampled_from(NASTY) | st.floats(-10, 10, width=32)] * 4), min_size=1, max_size=5),
    left_out=st.integers(0, 4),
    bound=st.sampled_from([1e-2, 0.3, 1.0, 1e4]),
    hooks=st.booleans(),
)
@example(kind="no bias", rows=[(1e-45, 1e-45, 0.0, 1e19)], left_out=0, bound=1e-2, hooks=True)
@example(kind="mlp", rows=[(math.nan, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, math.inf)], left_out=1, bound=1.0, hooks=False)
def test_no_record_adds_more_than_the_clip_norm(kind, rows, left_out, bound, hooks):
    torch.manual_seed(0)
    module = BOUNDED[kind]()
    data = torch.tensor(rows, dtype=torch.float32)
    batch = data[:, :3], data[:, 3:]
    left_out = left_out % len(rows)
    fewer = [torch.cat([part[:left_out], part[left_out + 1 :]]) for part in batch]
    sums = by_hooks if hooks else by_sums
    whole = sums(module, batch, bound, nn.MSELoss()).flat.double()
    rest = sums(module, fewer, bound, nn.MSELoss()).flat.double() if len(rows) > 1 else torch.zeros_like(whole)
    assert torch.isfinite(whole).all()
    assert float((whole - rest).norm()) <= bound
    assert float(whole.norm()) <= bound * len(rows)


@pytest.mark.parametrize("kind", BOUNDED)
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("where", [0, 3])
def test_records_that_are_not_finite_add_exactly_nothing(kind, bad, where):
    torch.manual_seed(0)
    module = BOUNDED[kind]()
    data = torch.randn(6, 4)
    data[2, where] = bad
    weights = torch.ones(6)
    weights[2] = 0
    batch = data[:, :3], data[:, 3:]
    result = by_hooks(module, batch, 0.1, nn.MSELoss()).flat
    assert torch.equal(result, by_hooks(module, batch, 0.1, nn.MSELoss(), weights).flat)
    others = torch.arange(6) != 2
    alone = by_hooks(module, (batch[0][others], batch[1][others]), 0.1, nn.MSELoss()).flat
    assert torch.allclose(result, alone, rtol=0, atol=1e-6)


def test_places_that_cancel_are_not_measured_too_short():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv1d(1, 64, 64, bias=False), nn.Flatten(1))

    def loss(out, target):
        return (out.reshape(-1, 64, 2) * target[:, None, :]).sum() / len(out)

    seen = torch.randn(5, 1, 65) * 1e4
    seen[1:] = 1e4 + torch.randn(4, 1, 65) * torch.tensor([1e-1, 1e-2, 1e-3, 0.0])[:, None, None]
    batch = seen, torch.tensor([[1.0, -1.0]]).expand(5, 2)
    for k in range(5):
        one = [part[k : k + 1] for part in batch]
        assert float(by_hooks(module, one, 1.0, loss).flat.double().norm()) <= 1.0


@pytest.mark.parametrize("hooks", [True, False])
def test_small_inputs_with_large_errors_are_clipped_too(hooks):
    module = nn.Linear(2_000, 1, bias=False)
    nn.init.zeros_(module.weight)
    batch = torch.full((1, 2_000), 1e-23), torch.full((1, 1), 8e18)
    sums = by_hooks if hooks else by_sums
    assert float(sums(module, batch, 1e-4, nn.MSELoss()).flat.double().norm()) <= 1e-4


def test_gradients_far_below_one_are_clipped_to_a_clip_norm_far_below_one():
    module = nn.Sequential(nn.Flatten(1), nn.Linear(4, 1))
    for value in module.parameters():
        nn.init.zeros_(value)
    batch = torch.randn(3, 4), torch.full((3, 1), 1e-24)
    assert float(by_hooks(module, batch, 1e-28, nn.MSELoss()).flat.double().norm()) <= 3e-28


@pytest.mark.parametrize("count", [1_000, 60_000, 2**17 + 5, 2**19 + 7])
def test_the_bound_holds_in_large_batches(count):
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    for seed in range(3):
        torch.manual_seed(seed)
        one = torch.randn(1, 1)
        with_it, without = (
            by_hooks(module, (one.expand(k, 1), torch.full((k, 1), 10.0)), 1.0, nn.MSELoss()).flat.double()
            for k in (count + 1, count)
        )
        assert float((with_it - without).norm()) <= 1.0
